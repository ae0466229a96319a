//! One or two of each: switches in a line, stores beside a Redis each, controllers, client hosts.

use std::path::Path;

use plan::{
    Line, Plan, SeatedRole, client, control,
    roles::{Redis, Role, Store, control_url},
    server, switch,
};

/// Pages of each switch.
const PAGES: u32 = 96;

/// The rack, with so many of each role. Switches and controllers are started by whoever builds it.
pub(super) fn plan(discipline: &str, each: usize) -> Plan {
    let line = Line {
        clients: each,
        servers: each,
        controllers: each,
        is_open: true,
        says_addresses: true,
        window_ms: 200,
        ..Line::of(each, PAGES, discipline)
    };
    let mut plan = line.plan();
    let urls: Vec<String> = (1..=each).map(|n| control_url(&control(n))).collect();
    let servers: Vec<String> = (1..=each).map(server).collect();
    for site in &mut plan.sites {
        if servers.contains(&site.name) {
            site.roles = beside_redis(&site.name, &urls.join(","));
        }
        for seated in &mut site.roles {
            seated.autostart &= !matches!(seated.role, Role::Switch(_) | Role::Control(_));
        }
    }
    plan
}

/// A store whose data outlives it.
fn beside_redis(host: &str, control: &str) -> Vec<SeatedRole> {
    let socket = format!("{{dir}}/{host}-data");
    let store = Store {
        control: Some(control.into()),
        backend: Some(format!("redis+unix://{socket}")),
        state: Some(format!("{{dir}}/{host}-state")),
        ..Store::of(host)
    };
    vec![Role::Redis(Redis { socket, ..Redis::default() }).into(), Role::Store(store).into()]
}

/// Machine and role of everything that is stopped and started again, in this order.
pub(super) fn seats(each: usize) -> Vec<(String, &'static str)> {
    let numbers = 1..=each;
    let switches = numbers.clone().map(|n| (switch(n), "agent"));
    let stores = numbers.clone().map(|n| (server(n), "store"));
    let controllers = numbers.clone().map(|n| (control(n), "control"));
    let gateways = numbers.map(|n| (client(n), "gateway"));
    switches.chain(stores).chain(gateways).chain(controllers).collect()
}

/// What starts a gateway.
pub(super) fn gateway(listen: std::net::SocketAddr, cluster: &Path) -> Vec<String> {
    let cluster = cluster.display().to_string();
    let listen = listen.to_string();
    ["shortstop", "gateway", "--listen", &listen, "--cluster", &cluster].map(String::from).into()
}

#[cfg(test)]
mod tests {
    use plan::topology::Topology;

    use super::*;

    #[test]
    fn one_or_two_of_each_make_a_rack() {
        for each in [1, 2] {
            let topology = plan("some", each).topology().unwrap();
            Topology::parse(&toml::to_string(&topology).unwrap()).unwrap();
            assert_eq!(topology.switches.len(), each);
            assert_eq!(seats(each).len(), 4 * each);
        }
    }
}
