//! Several racks under a spine, in the simulator: a hot key's reads are sent on twice, by the spine
//! and by the switch at the top of the rack that it chose, and its writes reach all who have
//! the key.

use load::{LoadConfig, Phase, PhaseResult, workload::Popularity};
use plan::{
    Plan,
    roles::{Control, Role, Store, Switch, control_url},
    shapes,
};
use sim::{Generator, ProcessId, StoreHost, World, generator};

const MS: u64 = 1_000_000;
const S: u64 = 1000 * MS;
const KEYS: usize = 1000;
const RACKS: usize = 2;
/// In each of them.
const SERVERS: usize = 2;
const RATE: f64 = 20_000.0;

/// Racks of stores under a spine, at which the client is.
fn plan(tenants: &[u32]) -> Plan {
    let mut plan = shapes::racks(RACKS, 0, SERVERS);
    let url = || control_url("control");
    let mut switches = 1..;
    plan.seat(|name| {
        Some(match name {
            "control" => Role::Control(Control {
                discipline: Some("kvswitch".into()),
                window_ms: Some(200),
                max_items: Some(100),
                ..Control::of(name)
            }),
            name if name.starts_with("server") => Role::Store(Store {
                control: Some(url()),
                populate: Some((KEYS as u64, 128.into())),
                ..Store::of(name)
            }),
            _ => {
                let (id, pages) = (switches.next()?, Some(64));
                Role::Switch(Switch { pages, ..Switch::of(id, name, url()) })
            }
        })
    });
    let tenant = |id: &u32| wire::Tenant::new(*id, format!("{id:032x}"));
    Plan {
        partitions: 8,
        is_open: true,
        is_signed: false,
        tells_racks: true,
        tenants: tenants.iter().map(tenant).collect(),
        ..plan
    }
}

struct Racks {
    world: World,
    load: ProcessId,
}

impl Racks {
    /// Asked by these tenants, or by anybody.
    fn new(tenants: &[u32]) -> Racks {
        let mut world = World::new(&plan(tenants), disciplines::all(), 1).unwrap();
        let cluster = world.cluster().clone();
        let racks: Vec<u16> = cluster.stores.iter().map(|store| store.rack).collect();
        assert_eq!(racks, [2, 2, 3, 3], "the spine is switch 1");
        let config = LoadConfig {
            cluster,
            tenants: tenants.to_vec(),
            keys: KEYS,
            value_len: 128.into(),
            seed: 1,
            timeout_ms: 200,
            again_ms: None,
            interval_ms: 100,
            names_lives: false,
            number: 0,
            trace: None,
            phases: vec![],
        };
        let at = world.machine("control").unwrap();
        let load = world.place(at, "load".into(), generator(config));
        world.start(load).unwrap();
        world.run_until(2 * S);
        Racks { world, load }
    }

    /// Asks for the hottest key of each tenant alone, so that its servers have all there is to do.
    fn ask(&mut self, write_ratio: f64, warmup_s: f64, seconds: f64) -> PhaseResult {
        self.run(&Phase {
            write_ratio,
            keys: 1,
            ..Phase::reads(Popularity::Uniform, RATE, warmup_s, seconds)
        })
    }

    fn run(&mut self, phase: &Phase) -> PhaseResult {
        let (world, load) = (&mut self.world, self.load);
        let begun = world.with(load, |load: &mut Generator, io| load.begin(phase, io));
        begun.unwrap().unwrap();
        let mut result = None;
        world.run_while(10 * MS, |world| {
            let taken = world.with(load, |load: &mut Generator, _| load.take_result());
            result = taken.unwrap();
            result.is_none()
        });
        result.unwrap().unwrap()
    }

    fn switch(&self, name: &str, counter: &str) -> u64 {
        let machine = self.world.machine(name).unwrap();
        let counters = self.world.counters(machine).unwrap();
        let found = counters.iter().find(|(name, _)| *name == counter);
        found.unwrap().1
    }

    /// What each store has counted.
    fn stores(&self, of: impl Fn(&store::Counters) -> u64) -> Vec<u64> {
        let names = (1..=RACKS).flat_map(|rack| (1..=SERVERS).map(move |n| (rack, n)));
        let store = |(rack, n)| {
            let process = self.world.process(&format!("server{rack}-{n}/store"));
            let store: &StoreHost = self.world.get(process.unwrap()).unwrap();
            of(&store.counters())
        };
        names.map(store).collect()
    }
}

#[test]
fn a_hot_key_is_read_and_written_in_every_rack() {
    let mut racks = Racks::new(&[]);
    let learned = racks.ask(0.0, 3.0, 0.5);
    assert_eq!((learned.lost, learned.wrong()), (0, 0));
    let reads =
        |racks: &Racks| racks.stores(|store| store.read.reads + store.replicas.replica_reads);
    let before = reads(&racks);
    let seen = racks.ask(0.0, 0.0, 1.0);
    assert_eq!((seen.lost, seen.wrong()), (0, 0));
    let each: Vec<u64> =
        reads(&racks).iter().zip(before).map(|(now, before)| now - before).collect();
    println!("reads: {each:?}");
    // Who is neither the home nor an entry has only what was sent on twice.
    let fair = seen.sent / (RACKS * SERVERS) as u64;
    assert!(each.iter().all(|reads| reads * 10 > fair * 9), "{each:?}");
    for switch in ["spine", "leaf1", "leaf2"] {
        let sent_on = racks.switch(switch, "redirect");
        println!("{switch}: {sent_on} redirected");
        assert!(sent_on > 0, "{switch}");
    }

    let seen = racks.ask(0.05, 0.0, 1.0);
    assert_eq!((seen.lost, seen.wrong()), (0, 0));
    let updates = racks.stores(|store| store.replicas.replica_updates);
    let confirms = racks.stores(|store| store.replicas.replica_confirms);
    println!("updates: {updates:?}, confirmations: {confirms:?}");
    let is_home = |updates: &&u64| **updates == 0;
    assert_eq!(updates.iter().filter(is_home).count(), 1, "{updates:?}");
    assert!(updates.iter().filter(|n| **n > 0).all(|n| *n > RATE as u64 / 40), "{updates:?}");
    for leaf in ["leaf1", "leaf2"] {
        assert!(racks.switch(leaf, "replica_update") > 0, "{leaf}");
    }
}

/// Of another rack's stores one is the entry, and which does not matter: a read is lost only until
/// its own switch notices.
#[test]
fn a_store_that_stands_still_is_left_by_its_own_switch_and_by_the_spine() {
    let mut racks = Racks::new(&[]);
    racks.ask(0.0, 3.0, 0.5);
    let homes = racks.stores(|store| store.read.reads);
    let home = homes.iter().zip(0..).max().unwrap().1;
    let elsewhere = RACKS - home / SERVERS; // of two racks the other one
    for n in 1..=SERVERS {
        let store = format!("server{elsewhere}-{n}/store");
        let store = racks.world.process(&store).unwrap();
        racks.world.stop(store);
        let seen = racks.ask(0.0, 1.5, 1.0);
        println!("without server{elsewhere}-{n}: {} of {} lost", seen.lost, seen.sent);
        assert_eq!((seen.lost, seen.wrong()), (0, 0), "server{elsewhere}-{n}");
        racks.world.cont(store);
        racks.ask(0.0, 3.0, 0.5);
    }
    let before = racks.stores(|store| store.read.reads + store.replicas.replica_reads);
    racks.ask(0.0, 1.5, 1.0);
    let now = racks.stores(|store| store.read.reads + store.replicas.replica_reads);
    assert!(now.iter().zip(before).all(|(now, before)| *now > before + 1000));
}

/// Each has its own hot key with its own home and entries, and all have the same racks.
#[test]
fn two_tenants_share_the_racks() {
    let mut racks = Racks::new(&[7, 8]);
    let filled = racks.run(&Phase::fill(64, 30.0));
    assert_eq!((filled.lost, filled.wrong()), (0, 0));
    racks.ask(0.0, 4.0, 0.5);
    let before = racks.stores(|store| store.read.reads + store.replicas.replica_reads);
    let seen = racks.ask(0.02, 0.0, 1.0);
    let now = racks.stores(|store| store.read.reads + store.replicas.replica_reads);
    let each: Vec<u64> = now.iter().zip(before).map(|(now, before)| now - before).collect();
    println!("reads: {each:?}");
    assert_eq!((seen.lost, seen.wrong()), (0, 0));
    let fair = seen.sent / (RACKS * SERVERS) as u64;
    assert!(each.iter().all(|reads| reads * 10 > fair * 7), "{each:?}");
}
