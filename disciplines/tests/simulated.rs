//! Whole systems of registered disciplines in the simulator: what is cached is served, nothing that clients see is wrong, and the same
//! seed gives the same world.

use std::collections::BTreeMap;

use history::{ClientsConfig, Operation, Verdict};
use lab::topology::Fault;
use load::{Arrivals, LoadConfig, Phase, workload::Popularity};
use sim::{
    AgentHost, AgentSpec, Clients, ControlSpec, Data, Generator, ProcessId, Role, Seat,
    ServiceSpec, Shape, Spec, StoreSpec, World, clients, generator,
};

const MS: u64 = 1_000_000;
const S: u64 = 1000 * MS;

/// Puts agents, a controller and stores on the machines of a shape that are called so.
fn system(mut shape: Shape, discipline: &str, control: ControlSpec, store: StoreSpec) -> Spec {
    let at = shape.machine("control").unwrap();
    let mut id = 0;
    for machine in &mut shape.machines {
        let role = match &machine.name {
            name if name == "control" => Role::Control(ControlSpec {
                discipline: Some(discipline.into()),
                ..control.clone()
            }),
            name if name.starts_with("server") => Role::Store(StoreSpec {
                control: vec![at],
                ..store.clone()
            }),
            _ if machine.forwards.is_some() => {
                id += 1;
                Role::Agent(AgentSpec {
                    id,
                    pages: 64,
                    control: vec![at],
                })
            }
            _ => continue,
        };
        machine.seats.push(Seat::new(role));
    }
    Spec::new(shape.machines, shape.links, 8, true, disciplines::all()).unwrap()
}

fn start(world: &mut World, machine: &str, name: &str, make: sim::Maker) -> ProcessId {
    let at = world.machine(machine).unwrap();
    let process = world.place(
        at,
        format!("{machine}/{name}"),
        ServiceSpec::default(),
        make,
    );
    world.start(process).unwrap();
    process
}

#[test]
fn a_rack_serves_hot_keys_from_its_switch() {
    let control = ControlSpec {
        window_ms: 200,
        max_items: 100,
        ..ControlSpec::default()
    };
    let store = StoreSpec {
        populate: Some((100_000, 128)),
        lease_ms: Some(1000),
        ..StoreSpec::default()
    };
    let spec = system(
        Shape::rack(1, 4),
        disciplines::default().name,
        control,
        store,
    );
    let mut world = World::new(&spec, 1).unwrap();
    let config = LoadConfig {
        cluster: spec.cluster.clone(),
        tenants: vec![],
        keys: 100_000,
        value_len: 128,
        seed: 3,
        timeout_ms: 200,
        interval_ms: 100,
        cpu: None,
        phases: vec![],
    };
    let load = start(&mut world, "client1", "load", generator(config));
    world.run_until(2 * S);
    let phase = Phase {
        arrivals: Arrivals::Open(20_000.0),
        ..Phase::reads(Popularity::Zipf(0.99), 20_000.0, 3.0, 2.0)
    };
    let begun = world.with(load, |load: &mut Generator, io| load.begin(&phase, io));
    begun.unwrap().unwrap();
    let mut result = None;
    world.run_while(10 * MS, |world| {
        result = world
            .with(load, |load: &mut Generator, _| load.take_result())
            .unwrap();
        result.is_none()
    });
    let result = result.unwrap().unwrap();
    let agent = world.process("switch1/agent").unwrap();
    let agent: &AgentHost = world.get(agent).unwrap();
    assert_eq!(agent.failed(), None);
    println!(
        "sent {}, answered {}, cached {}, lost {}; {:?}",
        result.sent,
        result.answered,
        result.cached,
        result.lost,
        world.progress()
    );
    assert_eq!(result.lost + result.wrong_values + result.wrong_keys, 0);
    assert!(
        result.cached * 10 > result.answered * 3,
        "{}",
        result.cached
    );
}

/// Everything goes wrong, and nobody may notice.
fn hunt(seed: u64, discipline: &str) -> (u64, u64, u64) {
    let control = ControlSpec {
        window_ms: 200,
        max_items: 8,
        ..ControlSpec::default()
    };
    let store = StoreSpec {
        data: Data::Kept,
        lease_ms: Some(1000),
        ..StoreSpec::default()
    };
    let mut shape = Shape::two_paths();
    for (link, seed) in shape.links.iter_mut().zip(0..) {
        link.flip = 0.0;
        link.fault = Fault {
            loss: 0.02,
            duplicate: 0.02,
            reorder: 0.05,
            reorder_ms: 3.0,
            delay_ms: 0.0,
            seed,
        };
    }
    let spec = system(shape, discipline, control, store);
    let mut world = World::new(&spec, seed).unwrap();
    let mut processes = vec![];
    for (host, first) in [("client1", 0), ("client2", 4)] {
        let config = ClientsConfig {
            cluster: spec.cluster.clone(),
            seed,
            first,
            clients: 4,
            keys: 24,
            tenants: vec![],
            lease_ms: 1000,
            longest_value: 200,
            lives: None,
        };
        processes.push(start(&mut world, host, "clients", clients(config)));
    }
    for round in 1..=6 {
        world.run_until(round * 1500 * MS);
        let name = match round % 3 {
            0 => "server1/store",
            1 => "switch2/agent",
            _ => "control/control",
        };
        let process = world.process(name).unwrap();
        world.kill(process);
        world.run_until(round * 1500 * MS + 300 * MS);
        world.start(process).unwrap();
        if round == 4 {
            let machine = world.machine("switch2").unwrap();
            world.reboot(machine).unwrap();
        }
        world.set_link(0, round % 2 == 0);
    }
    let mut all = history::Recorded::default();
    for process in processes {
        world
            .with(process, |clients: &mut Clients, _| clients.stop())
            .unwrap();
        world.run_while(100 * MS, |world| {
            !world.get::<Clients>(process).unwrap().is_over()
        });
        let recorded = world.with(process, |clients: &mut Clients, _| clients.take_recorded());
        all.add(recorded.unwrap());
    }
    assert_eq!(all.torn, 0);
    println!(
        "seed {seed}: {} operations, {} from switches, {:?}",
        all.operations.len(),
        all.cached,
        world.progress()
    );
    let mut keys: BTreeMap<u32, Vec<Operation>> = BTreeMap::new();
    for operation in &all.operations {
        keys.entry(operation.key).or_default().push(*operation);
    }
    for (key, operations) in keys {
        let verdict = history::check(&operations).unwrap();
        assert_eq!(verdict, Verdict::Linearizable, "seed {seed}, key {key}");
    }
    (world.trace_hash(), all.operations.len() as u64, all.cached)
}

#[test]
fn clients_see_one_copy_of_each_key_whatever_goes_wrong() {
    for discipline in disciplines::all() {
        for seed in 1..=3 {
            let (_, operations, cached) = hunt(seed, discipline.name);
            assert!(operations > 1000 && cached > 0, "{}", discipline.name);
        }
    }
}

#[test]
fn the_same_seed_is_the_same_world() {
    let name = disciplines::default().name;
    let first = hunt(7, name);
    assert_eq!(first, hunt(7, name));
    let elsewhere = std::thread::spawn(move || hunt(7, name));
    assert_eq!(first, elsewhere.join().unwrap());
    assert_ne!(first.0, hunt(8, name).0);
}
