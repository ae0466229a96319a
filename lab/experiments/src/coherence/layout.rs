//! The plan of the hunt for stale copies: three switches of which two make a line and one a detour,
//! two client hosts and three stores, with a fault on every link. `hunt` builds its rig from it, in
//! namespaces; the simulated hunt draws plans of its own.

use plan::{
    Plan, SeatedRole, Site,
    roles::{Control, Redis, Role, Store, Switch, control_url_from},
    topology::{Fault, Interface, Link},
};
use wire::PORT;

/// The switch that one client host goes around, and the one on every path.
pub(super) const FIRST: &str = "switch1";
pub(super) const SECOND: &str = "switch2";
/// The detour between the two.
const THIRD: &str = "switch3";
/// The ids and names of all of them.
pub(super) const SWITCHES: [(u16, &str); 3] = [(1, FIRST), (2, SECOND), (3, THIRD)];
/// The stores: two reached by IPv4 and one by IPv6, which is behind another switch.
pub(super) const SERVERS: [&str; 3] = ["server", "server6", "server2"];
pub(super) const CONTROL: &str = "control";
pub(super) const CLIENT_HOSTS: [&str; 2] = ["client1", "client2"];
/// Index of the link that is cut: between the two switches of the line.
pub(super) const CUT: usize = 0;

/// Index of the link that flips bits: between the second switch and its server. One only: two flips
/// in one packet may leave its checksum as it is.
const FLIPS: u64 = 1;

/// client1 - switch1 - switch2 - server; client2 - switch2, around the first switch; switch1 -
/// switch3 - switch2, a detour; server6 - switch1; server2 - switch2. The controller has a link of
/// its own to each switch. Every link is faulty.
const LINKS: [(&str, &str); 11] = [
    (FIRST, SECOND),
    (SECOND, SERVERS[0]),
    ("client1", FIRST),
    ("client2", SECOND),
    (FIRST, THIRD),
    (THIRD, SECOND),
    (CONTROL, FIRST),
    (CONTROL, SECOND),
    (CONTROL, THIRD),
    (FIRST, SERVERS[1]),
    (SECOND, SERVERS[2]),
];

/// The plan, with all of its roles.
pub(super) fn plan(discipline: &str, items: usize, flip: f64, seed: u64) -> Plan {
    let hosts = [CONTROL, SERVERS[0], SERVERS[1], SERVERS[2], "client1", "client2"];
    let hosts = hosts.map(|name| Site::host(name, vec![]));
    let switches = [SECOND, FIRST, THIRD].map(|name| Site::switch(name, vec![]));
    let mut plan = Plan {
        sites: hosts.into_iter().chain(switches).collect(),
        links: (0..)
            .zip(LINKS)
            .map(|(i, ends)| link(i, ends, if i == FLIPS { flip } else { 0.0 }, seed))
            .collect(),
        partitions: 6,
        is_open: true,
        is_signed: false,
        ..Plan::default()
    };
    let ends = plan.interfaces();
    for site in &mut plan.sites {
        site.roles = roles(&site.name, &ends, discipline, items);
    }
    plan
}

fn link(number: u64, (a, b): (&str, &str), flip: f64, seed: u64) -> Link {
    Link {
        fault: Some(Fault {
            loss: 0.05,
            duplicate: 0.02,
            reorder: 0.05,
            reorder_ms: 3.0,
            delay_ms: 0.0,
            flip,
            seed: seed.wrapping_mul(31).wrapping_add(number),
        }),
        ..Link::between([a.into(), b.into()])
    }
}

fn roles(node: &str, ends: &[[Interface; 2]], discipline: &str, items: usize) -> Vec<SeatedRole> {
    match node {
        // Data must outlive the store: a real server behind it, which loses nothing that it
        // answered either.
        host if SERVERS.contains(&host) => {
            let journal = Some(format!("{host}.aof"));
            let redis = Redis { socket: data_of(host), journal, ..Redis::default() };
            vec![Role::Redis(redis).into(), store(host, ends)]
        }
        CONTROL => vec![controller(discipline, items)],
        _ => {
            let id = SWITCHES.iter().find(|(_, name)| *name == node);
            id.map(|(id, _)| agent(*id, node, ends)).into_iter().collect()
        }
    }
}

fn agent(id: u16, node: &str, ends: &[[Interface; 2]]) -> SeatedRole {
    Role::Switch(Switch::of(id, node, control_url_from(node, CONTROL, ends))).into()
}

/// Where the Redis of a server listens.
fn data_of(host: &str) -> String {
    format!("{{dir}}/{host}-data")
}

/// Where the store of a server listens for commands of Redis.
pub(super) fn resp_of(host: &str) -> String {
    format!("{{dir}}/{host}-resp")
}

/// The store on a server.
fn store(host: &str, ends: &[[Interface; 2]]) -> SeatedRole {
    let mut role = Store::of(host);
    let mut beside = SECOND;
    if host == SERVERS[1] {
        role.listen = format!("[{{address6:{host}}}]:{PORT}");
        beside = FIRST;
    }
    SeatedRole::from(Role::Store(Store {
        // The switch beside the store leads to the controller.
        control: Some(control_url_from(beside, CONTROL, ends)),
        backend: Some(format!("redis+unix://{}", data_of(host))),
        state: Some(format!("{{dir}}/{host}-state")),
        resp: Some(format!("unix:{}", resp_of(host))),
        // One asks its Redis what others write; the others lend keys.
        outside_writes: (host != SERVERS[1]).then(|| "ignore".into()),
        // Clients are few and slow here.
        lend_from: Some(8),
        ..role
    }))
}

/// The controller with this limit of items, which changes when it is killed.
pub(super) fn controller(discipline: &str, items: usize) -> SeatedRole {
    SeatedRole::from(Role::Control(Control {
        window_ms: Some(200),
        discipline: Some(discipline.into()),
        max_items: Some(items),
        ..Control::of(CONTROL)
    }))
}

#[cfg(test)]
mod tests {
    use plan::topology::Topology;

    use super::*;

    #[test]
    fn each_switch_has_its_own_way_to_the_controller() {
        let topology = plan("some", 4, 0.0, 1).topology().unwrap();
        let parsed = Topology::parse(&toml::to_string(&topology).unwrap()).unwrap();
        let urls: Vec<&String> = parsed
            .switches
            .iter()
            .flat_map(|switch| &switch.processes[0].command)
            .filter(|word| word.starts_with("http://"))
            .collect();
        assert_eq!(urls, ["http://10.0.8.1:7118", "http://10.0.7.1:7118", "http://10.0.9.1:7118"]);
        assert_eq!(parsed.links[CUT].ends, [FIRST.to_string(), SECOND.to_string()]);
    }
}
