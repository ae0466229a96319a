//! The usual roles of machines, by their names.

use plan::{
    Plan,
    roles::{Control, Data, Role, Store, Switch, control_url},
};

/// Gives the machines of a plan their usual roles, each as `change` leaves it: `control` is a
/// controller, `switch1` and on are switches of these numbers, `server1` and on stores whose data
/// outlives them, and all follow the controller. Other machines have none.
pub fn seat(plan: &mut Plan, change: impl Fn(&mut Role)) {
    let url = || control_url("control");
    plan.seat(|name| {
        let mut role = match name {
            "control" => Role::Control(Control::of(name)),
            name if name.starts_with("server") => {
                Role::Store(Store { control: Some(url()), data: Data::Kept, ..Store::of(name) })
            }
            name => {
                let id = name.strip_prefix("switch")?.parse().ok()?;
                let (pages, no_probes) = (Some(64), true);
                Role::Switch(Switch { pages, no_probes, ..Switch::of(id, name, url()) })
            }
        };
        change(&mut role);
        Some(role)
    });
}
