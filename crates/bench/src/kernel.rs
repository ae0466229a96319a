//! Rows that need no interface: programs run on packets in the kernel, each run with another random key. The
//! cost of making that packet is measured beside them and taken off both sides of a ratio.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use anyhow::{Context, ensure};
use dataplane::{Mode, TenantEntry};
use lab::namespace::ip;
use libbpf_rs::{MapCore, MapFlags, Object};
use nix::sched::{CloneFlags, unshare};
use wire::Secret;

use crate::{
    Options,
    cache::{self, Cache, pages_for},
    drive::{self, Aim, Aimed, Drive},
    packet,
    report::{Report, Side, Target::AtMost},
    runs::{self, PASS, Program, REDIRECT, TX},
    steps,
};

const FLOORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/floors.bpf.o"));
/// Items in each cache.
pub const ITEMS: u32 = 10_000;
const FLOOR_ENTRIES: u32 = 65_536;
/// Keys that are not cached: as many as the sketch's columns sixteen times over.
const UNCACHED: u32 = 1 << 20;
const KEY_LEN: usize = 16;
/// Runs in one batch.
const REPEAT: u32 = 40_000;
/// For programs of a few nanoseconds.
const REPEAT_SHORT: u32 = 400_000;
const SIGNED: u32 = 7;

// Numbers of the driver's targets.
const NOTHING: u32 = 0;
const FLOOR: u32 = 1;
const FIB: u32 = 2;
const SMALL: u32 = 3;
const LARGE: u32 = 4;
const TAGGED: u32 = 5;
pub(crate) const PARSED: u32 = 6;

/// Loads the bare programs, with the floor's table filled.
///
/// # Errors
/// The kernel refuses.
pub fn floors() -> anyhow::Result<Object> {
    runs::load(FLOORS, "floors.bpf.c")
}

fn fill_floor(floors: &Object) -> anyhow::Result<()> {
    let table = runs::map(floors, "floor_table")?;
    for number in 0..FLOOR_ENTRIES {
        let mut key = 20_001u64.to_be_bytes().to_vec();
        key.extend(drive::hash(number, 0).0);
        table.update(&key, &[number as u8; 128], MapFlags::ANY)?;
    }
    Ok(())
}

/// A salt under which every item's key finds room in its bucket: about one key in two thousand does not, and
/// a hit that is a miss now and then would be a little too cheap or too dear.
fn salt_that_fits(buckets: u32) -> anyhow::Result<u64> {
    let fits = |salt: &u64| {
        let mut used: HashMap<u32, HashSet<u32>> = HashMap::new();
        (0..ITEMS).all(|number| {
            let low = drive::hash(number, *salt).low();
            let slots = used.entry(low as u32 & (buckets - 1)).or_default();
            slots.insert((low >> 32) as u32) && slots.len() <= 8
        })
    };
    (0..10_000)
        .find(fits)
        .context("no salt under which all keys find room")
}

/// A switch with [`ITEMS`] items.
fn full(
    options: &Options,
    name: &str,
    tenant: TenantEntry,
    value_len: usize,
) -> anyhow::Result<(Cache, u64)> {
    let pages = pages_for(ITEMS as usize, KEY_LEN, value_len)?;
    let mut disciplines = vec![cache::discipline(options.discipline, pages)];
    disciplines.extend(steps::disciplines());
    let salt = salt_that_fits(dataplane::Sizes { pages }.buckets())?;
    let mut cache = Cache::load(name, &disciplines, tenant, pages, packet::STORE.into())?;
    let value = vec![b'v'; value_len];
    for number in 0..ITEMS {
        let hash = drive::hash(number, salt);
        let filled = cache.fill(&tenant, hash, &drive::key(number), &value)?;
        ensure!(filled, "item {number} finds no room in its bucket");
    }
    Ok((cache, salt))
}

/// Processor time of this thread.
fn cpu_time() -> Duration {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_THREAD_CPUTIME_ID);
    now.map_or(Duration::ZERO, Duration::from)
}

/// Nanoseconds of one of `repeat` runs: the kernel's own figure is whole nanoseconds only.
pub fn timed(repeat: u32, run: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<f64> {
    let start = cpu_time();
    run()?;
    Ok((cpu_time() - start).as_nanos() as f64 / f64::from(repeat))
}

/// Milliseconds of nothing but reads from memory, each dependent on the last: what a cache miss costs.
fn memory_latency() -> f64 {
    const WORDS: usize = 16 << 20;
    const READS: u32 = 200_000;
    let mut next: Vec<u32> = (0..WORDS as u32).collect();
    let mut random = 1u64;
    for i in (1..WORDS).rev() {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        next.swap(i, ((random >> 33) as usize) % i);
    }
    let mut at = 0u32;
    timed(READS, || {
        for _ in 0..READS {
            at = next[at as usize];
        }
        std::hint::black_box(at);
        Ok(())
    })
    .unwrap_or(0.0)
}

/// Two links in a namespace of this thread's own; packets come in by one and leave by the other.
fn router() -> anyhow::Result<[u32; 2]> {
    unshare(CloneFlags::CLONE_NEWNET).context("a network namespace: is this root?")?;
    std::fs::write("/proc/sys/net/ipv4/ip_forward", "1")?;
    let commands = [
        "link add in0 type veth peer name in1",
        "link add out0 type veth peer name out1",
        "link set in0 up",
        "link set in1 up",
        "link set out0 up",
        "link set out1 up",
        "route add 10.0.0.1/32 dev in0",
        "route add 10.0.0.2/32 dev out0",
        "neigh add 10.0.0.2 lladdr 02:00:00:00:00:22 dev out0 nud permanent",
    ];
    for command in commands {
        ip(&command.split(' ').collect::<Vec<_>>())?;
    }
    let index = |name| nix::net::if_::if_nametoindex(name).map_err(anyhow::Error::from);
    Ok([index("in0")?, index("out0")?])
}

/// One program behind the driver, with what its runs took.
struct Contender<'a> {
    aimed: Aimed<'a>,
    ns: Vec<f64>,
}

impl Contender<'_> {
    fn batch(&mut self, ingress: u32) -> anyhow::Result<()> {
        let aimed = &mut self.aimed;
        self.ns
            .push(timed(REPEAT, || aimed.run(ingress, REPEAT).map(drop))?);
        Ok(())
    }

    /// Without the driver's share, measured in the same batch.
    fn net(&self, driver: &Contender) -> Vec<f64> {
        self.ns
            .iter()
            .zip(&driver.ns)
            .map(|(ns, driver)| ns - driver)
            .collect()
    }
}

/// Measures the rows and adds them to the report.
///
/// # Errors
/// No privilege, or the kernel refuses.
pub fn measure(options: &Options, report: &mut Report, say: &impl Fn(&str)) -> anyhow::Result<()> {
    let keys = [
        "hit128_random_over_floor",
        "hit1024_random_over_hit128_random",
        "tag_over_hit128_random",
        "miss_over_fib_forward",
        "pass_over_empty",
        "bytes_per_item_over_payload",
        "profile",
    ];
    if !options.wants(&keys) {
        return Ok(());
    }
    // A thread of its own: it moves into a namespace and onto one CPU, and stays there.
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            // Libbpf's objects are not to be sent: everything is made here.
            let mut part = Report::new();
            in_namespace(options, &mut part, &|_: &str| {}).map(|()| part)
        });
        say("running programs on packets");
        let part = thread
            .join()
            .map_err(|_| anyhow::anyhow!("the measuring thread panicked"))??;
        report.machine.extend(part.machine);
        report.rows.extend(part.rows);
        report.profile.extend(part.profile);
        Ok(())
    })
}

fn in_namespace(options: &Options, report: &mut Report, say: &impl Fn(&str)) -> anyhow::Result<()> {
    lab::process::pin_self(0);
    let [ingress, egress] = router()?;
    say("filling tables");
    let floors = floors()?;
    fill_floor(&floors)?;
    // struct bpf_devmap_val: target, and no program behind it.
    let port = u64::from(egress).to_ne_bytes();
    runs::map(&floors, "floor_ports")?.update(&egress.to_ne_bytes(), &port, MapFlags::ANY)?;
    let open = cache::tenant(wire::TENANT_OPEN, Secret::NONE);
    let signed = cache::tenant(SIGNED, Secret([0x5a; 16]));
    let (small, small_salt) = full(options, "small", open, 128)?;
    let (large, large_salt) = full(options, "large", open, 1024)?;
    let (tagged, tagged_salt) = full(options, "tagged", signed, 128)?;
    small.attach("out0", Mode::Generic)?;

    let payload = f64::from(ITEMS) * (KEY_LEN + 128) as f64;
    let memory = small.items.table.memory() as f64 / f64::from(ITEMS);
    report.ratio(
        "bytes_per_item_over_payload",
        AtMost(2.0),
        "bytes",
        [
            Side::new("pages, buckets, hit counts per item", &[memory]),
            Side::new("key and value", &[payload / f64::from(ITEMS)]),
        ],
    );

    let drive = Drive::load()?;
    let nothing = Program::of(&floors, "nothing")?;
    drive.target(NOTHING, &nothing)?;
    drive.target(FLOOR, &Program::of(&floors, "lookup_and_copy")?)?;
    drive.target(FIB, &Program::of(&floors, "fib_forward")?)?;
    drive.target(SMALL, &small.entry)?;
    drive.target(LARGE, &large.entry)?;
    drive.target(TAGGED, &tagged.entry)?;
    drive.target(PARSED, &small.discipline(steps::PARSED)?)?;

    let hit = Aim {
        target: SMALL,
        first: 0,
        keys: ITEMS,
        salt: small_salt,
        tenant: wire::TENANT_OPEN,
        secret: Secret::NONE,
        value_len: 128,
        verdict: TX,
        checksum: false,
        skew: 0.0,
    };
    let to = |target, verdict| Aim {
        target,
        verdict,
        ..hit.clone()
    };
    let tag = Aim {
        tenant: SIGNED,
        secret: signed.secret,
        salt: tagged_salt,
        ..hit.clone()
    };
    let miss = Aim {
        first: FLOOR_ENTRIES,
        keys: UNCACHED,
        verdict: REDIRECT,
        ..hit.clone()
    };
    let contender = |aim: Aim| -> anyhow::Result<Contender> {
        Ok(Contender {
            aimed: drive.aim(&aim)?,
            ns: vec![],
        })
    };
    let mut driver = contender(to(NOTHING, PASS))?;
    let mut driver_tagged = contender(Aim {
        target: NOTHING,
        verdict: PASS,
        ..tag.clone()
    })?;
    let mut floor = contender(Aim {
        keys: FLOOR_ENTRIES,
        salt: 0,
        ..to(FLOOR, TX)
    })?;
    let mut hit128 = contender(to(SMALL, TX))?;
    let mut hit1024 = contender(Aim {
        salt: large_salt,
        value_len: 1024,
        ..to(LARGE, TX)
    })?;
    let mut hit_tagged = contender(Aim {
        target: TAGGED,
        ..tag
    })?;
    let mut fib = contender(Aim {
        target: FIB,
        ..miss.clone()
    })?;
    let mut missed = contender(miss)?;

    let other = other_packet();
    let (mut empty, mut passed) = (vec![], vec![]);
    let mut latency = vec![];
    let before = (small.count("hit")?, small.count("miss")?);
    for _ in 0..options.batches {
        small.items.table.next_window();
        let all = [
            &mut driver,
            &mut floor,
            &mut hit128,
            &mut hit1024,
            &mut driver_tagged,
            &mut hit_tagged,
            &mut fib,
            &mut missed,
        ];
        for contender in all {
            contender.batch(ingress)?;
        }
        for (program, ns) in [(&nothing, &mut empty), (&small.entry, &mut passed)] {
            ns.push(timed(REPEAT_SHORT, || {
                let (_, verdict) = program.run(&other, ingress, REPEAT_SHORT, &mut vec![])?;
                ensure!(
                    verdict == PASS,
                    "a packet that is not ours: verdict {verdict}"
                );
                Ok(())
            })?);
        }
        latency.push(memory_latency_once(&latency));
    }
    let runs = options.batches as u64 * u64::from(REPEAT);
    let counted = (
        small.count("hit")? - before.0,
        small.count("miss")? - before.1,
    );
    ensure!(
        counted == (runs, runs),
        "of {runs} hits and misses each, the switch counted {} hits and {} misses",
        counted.0,
        counted.1
    );

    report.machine("a read from memory that depends on the last", latency, "ns");
    report.machine(
        "an empty program, with the test run around it",
        empty.clone(),
        "ns",
    );
    report.machine(
        "making the random request (taken off)",
        driver.ns.clone(),
        "ns",
    );
    let hit_ns = hit128.net(&driver);
    report.ratio(
        "hit128_random_over_floor",
        AtMost(1.25),
        "ns",
        [
            Side::new("hit", &hit_ns),
            Side::new("look up and copy", &floor.net(&driver)),
        ],
    );
    report.ratio(
        "hit1024_random_over_hit128_random",
        AtMost(1.3),
        "ns",
        [
            Side::new("hit of 1024 bytes", &hit1024.net(&driver)),
            Side::new("of 128", &hit_ns),
        ],
    );
    report.ratio(
        "tag_over_hit128_random",
        AtMost(1.5),
        "ns",
        [
            Side::new(
                "hit, request checked and reply signed",
                &hit_tagged.net(&driver_tagged),
            ),
            Side::new("without", &hit_ns),
        ],
    );
    report.ratio(
        "miss_over_fib_forward",
        AtMost(2.5),
        "ns",
        [
            Side::new("miss", &missed.net(&driver)),
            Side::new("FIB and redirect", &fib.net(&driver)),
        ],
    );
    report.ratio(
        "pass_over_empty",
        AtMost(3.0),
        "ns",
        [
            Side::new("UDP to another port", &passed),
            Side::new("empty program", &empty),
        ],
    );
    if options.wants(&["profile"]) {
        steps::profile(options, report, &small, &drive, &hit, open)?;
    }
    Ok(())
}

/// Once is enough: the pointer chase takes a while to set up.
fn memory_latency_once(so_far: &[f64]) -> f64 {
    so_far.first().copied().unwrap_or_else(memory_latency)
}

/// What the longest way through the parser that is not ours looks like: UDP, another port.
fn other_packet() -> Vec<u8> {
    let mut frame = packet::request(&[0; 64]);
    frame[36..38].copy_from_slice(&53u16.to_be_bytes());
    frame
}
