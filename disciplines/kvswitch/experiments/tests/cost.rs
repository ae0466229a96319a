//! What a redirected read costs beside one that is only forwarded: `cargo test -p kvswitch-experiments --test cost -- --ignored --nocapture`.

use std::os::fd::AsFd;

use bench::{
    drive::{self, Aim, Drive},
    kernel::{floors, timed},
    runs::{PASS, Program, REDIRECT, map},
};
use dataplane::{Object, Rows, Sizes, TenantEntry};
use harness::{
    World,
    message::address,
    namespace::ifindex,
    switch::{ROAD, on_roads, tenant},
};
use kvswitch::{parameters, record::Replicas, servers::Server};
use libbpf_rs::{MapCore, MapFlags};
use wire::Secret;

const OPEN: u32 = 0;
const SIGNED: u32 = 7;
/// Forwarded only: no discipline has it.
const PLAIN: u32 = 5;
const KVSWITCH: u32 = 3;
/// The home, and its replicas.
const STORES: [u16; 4] = [0x8000, 0x8001, 0x8002, 0x8003];
const REPEAT: u32 = 40_000;
const BATCHES: usize = 15;
/// Hot keys, few enough for the buckets of the harness' four pages.
const HOT: u32 = 128;

fn server(holder: u16) -> Server {
    Server {
        holder,
        address: address(false, (holder & 0xff) as u8 + 2),
        place: holder & 0xff,
    }
}

fn with_hot_keys() -> World {
    let object = Object {
        number: KVSWITCH,
        ..Object::of(&kvswitch::REGISTRATION, Sizes { pages: 4 })
    };
    let hot = |id| TenantEntry {
        parameters: parameters::words(u32::MAX, true),
        ..tenant(id, KVSWITCH)
    };
    let all = [
        hot(OPEN),
        hot(SIGNED),
        tenant(PLAIN, dataplane::NO_DISCIPLINE),
    ];
    let mut w = World::new(&[object], &all);
    w.switch.send_round_on_roads();
    for (tenant, holder) in [OPEN, SIGNED]
        .into_iter()
        .flat_map(|t| STORES.map(|s| (t, s)))
    {
        let row = server(holder).row(tenant);
        let rows = Rows::open(w.switch.backing(), "kvswitch", &row.map).expect("a map");
        rows.write(&row.key, &row.value).expect("a row");
    }
    for (tenant, numbers) in [(OPEN, 0..HOT), (SIGNED, 0..HOT / 2)] {
        for number in numbers {
            let record = Replicas {
                home: server(STORES[0]),
                replicas: STORES[1..].iter().copied().map(server).collect(),
                again: vec![],
                valid: STORES[1..].into(),
            };
            let record = record.encode().expect("a record");
            let hash = drive::hash(number, 0);
            w.given_hashed(tenant, hash, &drive::key(number), &record, record.len());
        }
    }
    w
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

#[test]
#[ignore = "measures"]
fn cost() {
    on_roads(|| {
        let w = with_hot_keys();
        let port = ifindex(ROAD);
        let floors = floors().expect("floors");
        let value = u64::from(port).to_ne_bytes();
        let ports = map(&floors, "floor_ports").expect("a map");
        let written = ports.update(&port.to_ne_bytes(), &value, MapFlags::ANY);
        written.expect("a port");
        let drive = Drive::load().expect("the driver");
        let named = |name| Program::of(&floors, name).expect("a program");
        let entry = w.switch.dataplane().program();
        let entry = entry.as_fd().try_clone_to_owned().expect("a descriptor");
        let targets = [named("nothing"), named("fib_forward"), Program(entry)];
        for (number, program) in targets.iter().enumerate() {
            drive.target(number as u32, program).expect("a target");
        }
        let aim = |target, verdict, tenant, first, keys, secret| Aim {
            target,
            first,
            keys,
            salt: 0,
            tenant,
            secret,
            value_len: 128,
            verdict,
        };
        let secret = harness::message::secret_of(SIGNED);
        let plain_secret = harness::message::secret_of(PLAIN);
        let none = Secret::NONE;
        let rows = [
            ("making the request", aim(0, PASS, OPEN, 0, HOT, none)),
            (
                "FIB and redirect alone",
                aim(1, REDIRECT, OPEN, 0, HOT, none),
            ),
            ("redirected", aim(2, REDIRECT, OPEN, 0, HOT, none)),
            ("redirected, one key", aim(2, REDIRECT, OPEN, 0, 1, none)),
            ("cold", aim(2, REDIRECT, OPEN, HOT, 20_000, none)),
            (
                "making it, signed",
                aim(0, PASS, SIGNED, 0, HOT / 2, secret),
            ),
            (
                "redirected, signed",
                aim(2, REDIRECT, SIGNED, 0, HOT / 2, secret),
            ),
            (
                "cold, signed",
                aim(2, REDIRECT, SIGNED, HOT, 20_000, secret),
            ),
            (
                "forwarded only, signed",
                aim(2, REDIRECT, PLAIN, 0, HOT / 2, plain_secret),
            ),
        ];
        let mut ns: Vec<Vec<f64>> = vec![vec![]; rows.len()];
        for _ in 0..BATCHES {
            for ((name, aim), ns) in rows.iter().zip(&mut ns) {
                let mut aimed = drive.aim(aim).expect("aimed");
                let run = || aimed.run(port, REPEAT).map(drop);
                let one = timed(REPEAT, run).unwrap_or_else(|e| panic!("{name}: {e}"));
                ns.push(one);
            }
        }
        let ns: Vec<f64> = ns.into_iter().map(median).collect();
        for (at, (name, _)) in rows.iter().enumerate() {
            let driver = if at < 5 { ns[0] } else { ns[5] };
            println!(
                "{name:>26}: {:6.1} ns",
                ns[at] - if at == 0 || at == 5 { 0.0 } else { driver }
            );
        }
        println!(
            "{:?}",
            w.switch
                .counts()
                .iter()
                .filter(|(_, n)| *n > 0)
                .collect::<Vec<_>>()
        );
    });
}
