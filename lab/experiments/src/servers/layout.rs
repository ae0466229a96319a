//! The plan of a rack: who stands where, and what runs there.

use plan::{
    OTHER_CPU, Plan, SeatedRole, Site,
    roles::{CONTROL_PORT, Control, MEMCACHED_PORT, Redis, Role, Store, Switch, control_url},
    topology::Link,
};

use super::Rack;
use crate::Backend;

pub(super) const CLIENT: &str = "client";
pub(super) const SWITCH: &str = "switch";
pub(super) const CONTROL: &str = "control";

/// Where the controller keeps its state.
pub(super) const CONTROL_STATE: &str = "{dir}/control";

/// client - switch - servers, with the controller on the switch; or client and controller -
/// switch - switches - servers.
pub(super) fn plan(params: &Rack, backend: Backend, discipline: &str) -> Plan {
    let servers: Vec<String> = match (backend, params.servers) {
        (Backend::Embedded, _) if !params.apart => vec!["server".into()],
        (_, 1) => vec!["server".into()],
        (_, n) => (0..n as usize).map(server).collect(),
    };
    let mut sites = vec![Site::host(CLIENT, vec![])];
    let mut links = vec![Link::between([CLIENT.into(), SWITCH.into()])];
    for (number, server) in servers.iter().enumerate() {
        let above = match params.racks {
            1 => SWITCH.to_owned(),
            _ => top(number * params.racks as usize / servers.len()),
        };
        sites.push(Site::host(server, server_roles(server, params, backend)));
        links.push(Link::between([above, server.clone()]));
    }
    let control = controller(params, discipline);
    let mut switch = vec![];
    if params.racks == 1 || params.spine {
        switch.push(agent(params, 1, SWITCH));
    }
    let mut tops = vec![];
    for (name, id) in switches(params).iter().skip(1).zip(2..) {
        tops.push(Site::switch(name, vec![agent(params, id, name)]));
        links.push(Link::between([SWITCH.into(), name.clone()]));
    }
    if params.apart {
        sites.push(Site::host(CONTROL, vec![control]));
        links.push(Link::between([SWITCH.into(), CONTROL.into()]));
    } else {
        switch.push(control);
    }
    let hardware = params.hardware.as_ref().map(|h| h.slowed(params.factor));
    sites.push(Site::switch(SWITCH, switch));
    sites.extend(tops);
    Plan {
        sites,
        links,
        partitions: params.servers,
        is_open: true,
        is_signed: false,
        tells_racks: params.racks > 1,
        hardware: hardware.unwrap_or_default(),
        ..Plan::default()
    }
}

/// The host of a server, counted from 0, where each has its own.
pub(super) fn server(number: usize) -> String {
    format!("server{}", number + 1)
}

/// Where the controller is found.
fn url(params: &Rack) -> String {
    match params.apart {
        true => control_url(CONTROL),
        false => format!("http://127.0.0.1:{CONTROL_PORT}"),
    }
}

pub(super) fn server_roles(host: &str, params: &Rack, backend: Backend) -> Vec<SeatedRole> {
    let data = format!("{{dir}}/{host}-data");
    let backend_url = match backend {
        Backend::Embedded => None,
        Backend::Redis => Some(format!("redis+unix://{data}")),
        Backend::Memcached => Some(format!("memcached://127.0.0.1:{MEMCACHED_PORT}")),
    };
    let store = Role::Store(Store {
        populate: (backend == Backend::Embedded)
            .then(|| (params.keys as u64, params.value_len.clone())),
        backend: backend_url,
        rate_limit: Some(params.server_rate / params.factor),
        queue_limit: Some(params.queue_limit),
        control: params.apart.then(|| url(params)),
        ..Store::of(host)
    });
    let behind = match backend {
        Backend::Embedded => None,
        Backend::Redis => Some(Role::Redis(Redis { socket: data, ..Redis::default() })),
        Backend::Memcached => Some(Role::Memcached(data)),
    };
    let roles = behind.into_iter().chain([store]);
    roles.map(|role| SeatedRole::from(role).on(OTHER_CPU)).collect()
}

/// The switch at the top of a rack, counted from 0.
fn top(rack: usize) -> String {
    format!("top{}", rack + 1)
}

/// All switches that forward: the one at which everybody is, or that is above the racks'
/// own, first.
pub(super) fn switches(params: &Rack) -> Vec<String> {
    let tops = (0..params.racks as usize).filter(|_| params.racks > 1);
    [SWITCH.to_owned()].into_iter().chain(tops.map(top)).collect()
}

/// The node with the controller.
pub(super) fn control_node(params: &Rack) -> &'static str {
    if params.apart { CONTROL } else { SWITCH }
}

/// Where a switch's agent keeps its state.
pub(super) fn agent_state(switch: &str) -> String {
    format!("{{dir}}/{switch}-agent")
}

/// The agent forwards from the start; the cache learns once there is a controller.
fn agent(params: &Rack, id: u16, switch: &str) -> SeatedRole {
    let agent = Role::Switch(Switch {
        state: agent_state(switch),
        options: params.switch_args.clone(),
        ..Switch::of(id, switch, url(params))
    });
    SeatedRole::from(agent).nice(5)
}

fn controller(params: &Rack, discipline: &str) -> SeatedRole {
    let control = Role::Control(Control {
        state: CONTROL_STATE.into(),
        max_items: Some(params.items),
        window_ms: params.window_ms,
        discipline: Some(discipline.into()),
        settings: params.settings.clone(),
        options: params.control_args.clone(),
        listen: params.apart.then(|| format!("0.0.0.0:{CONTROL_PORT}")),
        ..Control::default()
    });
    SeatedRole::from(control).nice(5).later()
}

#[cfg(test)]
mod tests {
    use wire::Cluster;

    use super::*;
    use plan::Hardware;

    #[test]
    fn every_server_of_a_real_backend_has_its_share_of_the_partitions() {
        let params = Rack { servers: 3, ..Rack::default() };
        let plan = plan(&params, Backend::Redis, "some");
        let topology = plan.topology().unwrap();
        let cluster = Cluster::parse(&topology.files["cluster.toml"]).unwrap();
        let shares: Vec<(u32, u32)> = cluster.stores.iter().map(|s| (s.first, s.last)).collect();
        assert_eq!(shares, [(0, 0), (1, 1), (2, 2)]);
        let started: Vec<&str> =
            topology.hosts[1].processes.iter().map(|process| process.name.as_str()).collect();
        assert_eq!(started, ["redis", "store"]);
        assert!(!topology.switches[0].processes[1].autostart);
    }

    #[test]
    fn a_factor_divides_the_rates_of_servers_and_switch() {
        let hardware: Hardware = toml::from_str("switch_rate = 2e9\nround_gbit = 100").unwrap();
        let params = Rack {
            server_rate: 10e6,
            hardware: Some(hardware),
            factor: 40_000.0,
            ..Rack::default()
        };
        params.check().unwrap();
        let plan = plan(&params, Backend::Embedded, "some");
        let slowed = &plan.hardware;
        assert_eq!(slowed.switch_rate, 50_000.0);
        assert_eq!((slowed.round_gbit, slowed.link_gbit), (Some(0.0025), None));
        assert_eq!(slowed.link_us, 400_000.0);
        let Role::Store(store) = &plan.seated("server", "store").unwrap().role else {
            panic!("a store")
        };
        assert_eq!(store.rate_limit, Some(250.0));
    }
}
