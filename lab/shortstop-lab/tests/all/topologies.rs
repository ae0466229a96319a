//! Topologies that come with the program.

use plan::{
    roles::{Control, Role, Store, Switch},
    topology::Topology,
};

#[test]
fn the_rack_starts_roles_as_experiments_do() {
    let rack = Topology::parse(include_str!("../../src/rack.toml")).unwrap();
    let store = Role::Store(Store {
        listen: "{address:server}:7117".into(),
        control: Some("http://{address:switch}:7118".into()),
        populate: Some((100_000, 128.into())),
        socket: "{dir}/store.sock".into(),
        ..Store::default()
    });
    let switch = Role::Switch(Switch {
        id: 1,
        control: "http://127.0.0.1:7118".into(),
        state: "{dir}/agent".into(),
        ..Switch::default()
    });
    let control = Role::Control(Control {
        state: "{dir}/control".into(),
        listen: Some("0.0.0.0:7118".into()),
        ..Control::default()
    });
    let started = rack.nodes().flat_map(|node| &node.processes).cloned();
    let roles = [("server", store), ("switch", switch), ("switch", control)];
    let roles = roles.map(|(node, role)| role.process(node));
    assert_eq!(started.collect::<Vec<_>>(), roles);
}
