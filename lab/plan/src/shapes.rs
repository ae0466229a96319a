//! Networks of usual shapes. [`line`], [`star`] and [`detour`] link machines that somebody names;
//! [`row`] and [`racks`] write a plan on whose machines nothing runs yet. The order of links says
//! their addresses.

use crate::{Plan, Site, topology::Link};

/// Each of these is linked to the next.
pub fn line<N: AsRef<str>>(names: &[N]) -> Vec<Link> {
    let between = |pair: &[N]| Link::between([&pair[0], &pair[1]].map(|name| name.as_ref().into()));
    names.windows(2).map(between).collect()
}

/// Each of these is linked to the one in the middle.
pub fn star<N: Into<String>>(middle: &str, names: impl IntoIterator<Item = N>) -> Vec<Link> {
    names.into_iter().map(|name| Link::between([name.into(), middle.into()])).collect()
}

/// The first is linked to the second, and the third is a way around that link.
pub fn detour([first, second, around]: [&str; 3]) -> Vec<Link> {
    [line(&[first, second]), line(&[first, around, second])].concat()
}

impl Plan {
    /// Adds hosts at a switch, each with a link to it.
    pub fn add_hosts(&mut self, switch: &str, names: impl IntoIterator<Item = String>) {
        let names: Vec<String> = names.into_iter().collect();
        self.sites.extend(names.iter().map(|name| Site::host(name, vec![])));
        self.links.extend(star(switch, names));
    }
}

/// Hosts `client1` and on, switches `switch1` and on in a line, hosts `server1` and on at the last
/// one; `control` at the first. With one switch it is a rack.
pub fn row(clients: usize, switches: usize, servers: usize) -> Plan {
    let numbered = |kind, count| (1..=count).map(move |n| format!("{kind}{n}"));
    let names: Vec<String> = numbered("switch", switches).collect();
    let mut plan = Plan {
        sites: names.iter().map(|name| Site::switch(name, vec![])).collect(),
        links: line(&names),
        ..Plan::default()
    };
    let [first, last] = [names.first(), names.last()].map(|name| name.map_or("", String::as_str));
    plan.add_hosts(first, ["control".to_owned()].into_iter().chain(numbered("client", clients)));
    plan.add_hosts(last, numbered("server", servers));
    plan
}

/// Racks under a spine: `spine`, `leaf1` and on, below each `clientL-1` and on and `serverL-1` and
/// on; `control` at the spine.
pub fn racks(racks: usize, clients: usize, servers: usize) -> Plan {
    let mut plan = Plan { sites: vec![Site::switch("spine", vec![])], ..Plan::default() };
    plan.add_hosts("spine", ["control".to_owned()]);
    for rack in 1..=racks {
        let leaf = format!("leaf{rack}");
        plan.sites.push(Site::switch(&leaf, vec![]));
        plan.links.extend(star("spine", [&leaf]));
        let numbered = |kind, count| (1..=count).map(move |n| format!("{kind}{rack}-{n}"));
        plan.add_hosts(&leaf, numbered("client", clients).chain(numbered("server", servers)));
    }
    plan
}
