//! Two leaves below two spines: clients at the first leaf, the server and other clients at
//! the second.

use plan::{
    Plan, Site,
    roles::{Control, Role, Store, Switch, control_url_from},
    shapes,
    topology::{Fault, Interface, Link},
};

pub(super) const SERVER: &str = "server";
const CONTROL: &str = "control";
/// Beside the first leaf, and beside the store.
pub(super) const CLIENT_HOSTS: [&str; 2] = ["client1", "client2"];
/// By their ids, from 1. Of two ways of the same length packets take the lower one: the
/// first spine's.
const SWITCHES: [&str; 4] = ["leaf1", "leaf2", "spine1", "spine2"];
/// The link that falls silent, by its place and by the ids of its ends: on the usual way from the
/// first leaf.
pub(super) const SILENT: usize = 0;
pub(super) const SILENT_ENDS: [u16; 2] = [1, 3];

/// Nobody's way to the controller leads through a spine: an agent whose only one is silent cannot
/// be told of another.
fn links() -> impl Iterator<Item = Link> {
    let [leaf1, leaf2, spine1, spine2] = SWITCHES;
    let links = [
        shapes::star(spine1, [leaf1, leaf2]),
        shapes::star(spine2, [leaf1, leaf2]),
        shapes::star(leaf2, [SERVER]),
        shapes::star(leaf1, [CLIENT_HOSTS[0]]),
        shapes::star(leaf2, [CLIENT_HOSTS[1]]),
    ];
    let control = SWITCHES.into_iter().flat_map(|switch| shapes::star(switch, [CONTROL]));
    links.into_iter().flatten().chain(control)
}

/// The plan, with all of its roles; switches probe their neighbours or do not.
pub(super) fn plan(discipline: &str, probes: bool, seed: u64) -> Plan {
    let hosts = [CONTROL, SERVER, CLIENT_HOSTS[0], CLIENT_HOSTS[1]];
    let hosts = hosts.map(|name| Site::host(name, vec![]));
    let switches = SWITCHES.map(|name| Site::switch(name, vec![]));
    let fault = Some(Fault { seed, ..Fault::default() });
    let link = |(i, link)| Link { fault: fault.filter(|_| i == SILENT), ..link };
    let mut plan = Plan {
        sites: hosts.into_iter().chain(switches).collect(),
        links: links().enumerate().map(link).collect(),
        partitions: 4,
        ..Plan::default()
    };
    let ends = plan.interfaces();
    plan.seat(|name| {
        let id = (1..).zip(SWITCHES).find(|(_, switch)| *switch == name);
        match (name, id) {
            (_, Some((id, name))) => Some(agent(id, name, &ends, probes)),
            (SERVER, _) => Some(store(&ends)),
            (CONTROL, _) => Some(controller(discipline)),
            _ => None,
        }
    });
    plan
}

fn agent(id: u16, node: &str, ends: &[[Interface; 2]], probes: bool) -> Role {
    let control = control_url_from(node, CONTROL, ends);
    Role::Switch(Switch { no_probes: !probes, ..Switch::of(id, node, control) })
}

fn store(ends: &[[Interface; 2]]) -> Role {
    // The leaf beside the store leads to the controller.
    let control = Some(control_url_from("leaf2", CONTROL, ends));
    Role::Store(Store { control, ..Store::of(SERVER) })
}

fn controller(discipline: &str) -> Role {
    Role::Control(Control {
        window_ms: Some(200),
        discipline: Some(discipline.into()),
        ..Control::of(CONTROL)
    })
}

#[cfg(test)]
mod tests {
    use plan::topology::Topology;

    use super::*;

    #[test]
    fn the_link_that_falls_silent_is_the_one_that_is_named() {
        let plan = plan("some", true, 1);
        let topology = plan.topology().unwrap();
        Topology::parse(&toml::to_string(&topology).unwrap()).unwrap();
        let ends = SILENT_ENDS.map(|id| SWITCHES[usize::from(id) - 1].to_owned());
        assert_eq!(plan.links[SILENT].ends, ends);
        let faulty = plan.links.iter().filter(|link| link.fault.is_some());
        assert_eq!(faulty.count(), 1);
    }
}
