//! What a redirected read costs at the switch, beside one that is only forwarded: the program
//! alone, and the way from port to port.

use std::{net::IpAddr, os::fd::AsFd};

use anyhow::{Context, ensure};
use bench::{
    Spread,
    cache::{self, Cache},
    drive::{self, Aim, AimedDrive, Drive},
    kernel::timed,
    ports::{IN, OUT, Passage, Ports},
    runs::{PASS, Program, REDIRECT},
};
use dataplane::{Mode, NO_DISCIPLINE, Rows, TenantEntry};
use experiments::Report;
use kvswitch::{
    parameters,
    record::{HEADER, IPV4_TURN, Replicas},
    servers::{MAP, Server},
};
use wire::Secret;

const SIGNED: u32 = 7;
/// As that one, but no discipline has it.
const PLAIN: u32 = 5;
/// Neither has a secret.
const OPEN: u32 = 8;
const OPEN_PLAIN: u32 = 9;
const SECRET: Secret = Secret([0x5a; 16]);
/// The home, and three replicas.
const STORES: u16 = 4;
/// Hot keys of each tenant: the paper's table.
const HOT: u32 = 10_000;
// Whose hot keys have which numbers: from so many times [`HOT`] on.
const SIGNED_HOT: u32 = 4;
const OPEN_HOT: u32 = 5;
const REPEAT: u32 = 40_000;
/// How popular hot keys are among themselves, as Zipf has it.
const SKEW: f64 = 0.99;
const NAME: &str = "kvswitch";

// The driver's targets.
const NOTHING: u32 = 0;
const BARE: u32 = 1;
const SWITCH: u32 = 2;
const LINKS: u32 = 3;

/// What becomes of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// Routed by a program that does nothing else.
    Bare,
    /// Of a tenant without a discipline: parsed, tag and rate checked, routed.
    Plain,
    /// Of a key that is not hot: counted, routed.
    Cold,
    /// Of a key that has replicas: sent to another store.
    Redirected,
}

/// All of them.
pub const READS: [Read; 4] = [Read::Bare, Read::Plain, Read::Cold, Read::Redirected];

impl Read {
    /// Its name in tables and summaries.
    pub fn name(self) -> &'static str {
        match self {
            Read::Bare => "bare",
            Read::Plain => "plain",
            Read::Cold => "cold",
            Read::Redirected => "redirected",
        }
    }

    /// Each asks for keys of its own, which the driver prepares once.
    fn aim(self, is_signed: bool, skew: f64) -> Aim {
        let (tenant, range) = match (self, is_signed) {
            (Read::Bare | Read::Plain, true) => (PLAIN, 0),
            (Read::Bare | Read::Plain, false) => (OPEN_PLAIN, 1),
            (Read::Cold, true) => (SIGNED, 2),
            (Read::Cold, false) => (OPEN, 3),
            (Read::Redirected, true) => (SIGNED, SIGNED_HOT),
            (Read::Redirected, false) => (OPEN, OPEN_HOT),
        };
        Aim {
            target: self.target(),
            first: range * HOT,
            keys: HOT,
            tenant,
            secret: if is_signed { SECRET } else { Secret::NONE },
            value_len: 128,
            verdict: REDIRECT,
            checksum: true,
            skew,
            ..Aim::default()
        }
    }

    fn target(self) -> u32 {
        if self == Read::Bare { BARE } else { SWITCH }
    }
}

/// What one read costs, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    /// What becomes of it.
    pub read: Read,
    /// Whether its tag was checked, and made again where it was changed.
    pub is_signed: bool,
    /// The program without an interface, and without the making of the request.
    pub program_ns: Spread,
    /// From port to port, one frame at a time.
    pub way_ns: Spread,
}

/// What reads of that kind take longer than those that are only forwarded, as a part of these.
pub fn overhead(costs: &[Cost], is_signed: bool, ns: impl Fn(&Cost) -> f64) -> Option<f64> {
    let of = |read| {
        let mut all = costs.iter();
        all.find(|cost| cost.read == read && cost.is_signed == is_signed)
    };
    Some(ns(of(Read::Redirected)?) / ns(of(Read::Plain)?) - 1.0)
}

/// Adds the figures to a report. In the simulator a switch takes as long for any packet: there is
/// nothing to be said.
///
/// # Errors
/// As [`measure`].
pub fn summarize(report: &mut Report, is_quick: bool) -> anyhow::Result<()> {
    let costs = measure(if is_quick { 5 } else { 25 }, SKEW)?;
    let mut tell = |name: &str, is_signed, ns: fn(&Cost) -> f64| {
        if let Some(overhead) = overhead(&costs, is_signed, ns) {
            report.summarize(name, overhead);
        }
    };
    tell("redirect_latency_overhead", true, |cost| cost.way_ns.median);
    tell("redirect_latency_overhead_unsigned", false, |cost| cost.way_ns.median);
    tell("redirect_program_overhead", true, |cost| cost.program_ns.median);
    for cost in costs.iter().filter(|cost| cost.is_signed) {
        let name = format!("{}_port_to_port_ns", cost.read.name());
        report.summarize(name, cost.way_ns.median);
    }
    Ok(())
}

/// Measures all reads in turn, `batches` times each. `skew` is Zipf's exponent of the keys that are
/// asked for.
///
/// # Errors
/// No privilege, or the kernel refuses.
pub fn measure(batches: usize, skew: f64) -> anyhow::Result<Vec<Cost>> {
    // A thread of its own: it moves into a namespace, and stays there.
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| in_namespace(batches, skew));
        let done = thread.join();
        done.map_err(|_| anyhow::anyhow!("the measuring thread panicked"))?
    })
}

fn server(place: u16) -> Server {
    Server { holder: 0x8000 | place, address: IpAddr::from([10, 0, 0, 2 + place as u8]), place }
}

fn tenant(id: u32) -> TenantEntry {
    let is_plain = id == PLAIN || id == OPEN_PLAIN;
    let is_signed = id == PLAIN || id == SIGNED;
    let secret = if is_signed { SECRET } else { Secret::NONE };
    TenantEntry {
        parameters: parameters::words(u32::MAX, true),
        discipline: if is_plain { NO_DISCIPLINE } else { cache::DISCIPLINE },
        ..cache::tenant(id, secret)
    }
}

/// A switch with hot keys, between the two ports.
fn switch() -> anyhow::Result<Cache> {
    let turns = usize::from(STORES) - 1;
    let pages = cache::pages_for(2 * HOT as usize, 16, HEADER + IPV4_TURN * turns)? + 2;
    let object = cache::discipline(&kvswitch::REGISTRATION, pages);
    let mut cache = Cache::load(NAME, &[object], tenant(OPEN), pages, server(0).address)?;
    let replicas: Vec<Server> = (1..STORES).map(server).collect();
    let record = Replicas {
        home: server(0),
        is_entry: false,
        valid: replicas.iter().map(|store| store.holder).collect(),
        replicas,
        again: vec![],
    };
    let record = record.encode().context("a record")?;
    let tenants = [OPEN, OPEN_PLAIN, SIGNED, PLAIN].map(tenant);
    TenantEntry::install(cache.home(), &tenants)?;
    let rows = Rows::open(cache.home(), kvswitch::REGISTRATION.name, MAP)?;
    for (id, range) in [(SIGNED, SIGNED_HOT), (OPEN, OPEN_HOT)] {
        for row in (0..STORES).map(|place| server(place).row(id)) {
            rows.write(&row.key, &row.value)?;
        }
        let mut lacking = 0;
        for number in range * HOT..(range + 1) * HOT {
            let (hash, key) = (drive::hash(number, 0), drive::key(number));
            lacking += u32::from(!cache.items.give(id, hash, &key, &record)?);
        }
        ensure!(lacking < HOT / 100, "{lacking} hot keys find no room");
    }
    cache.attach(IN, Mode::Native)?;
    cache.attach(OUT, Mode::Native)?;
    Ok(cache)
}

/// A read with what its batches took.
struct Row<'a> {
    read: Read,
    is_signed: bool,
    aimed: AimedDrive<'a>,
    program: Vec<f64>,
    way: Vec<f64>,
}

fn in_namespace(batches: usize, skew: f64) -> anyhow::Result<Vec<Cost>> {
    let ports = Ports::make()?;
    let cache = switch()?;
    let drive = Drive::load()?;
    let entry = Program(cache.entry.0.as_fd().try_clone_to_owned()?);
    let targets = [ports.nothing()?, ports.bare()?, entry, ports.departs()?];
    for (number, program) in targets.iter().enumerate() {
        drive.target(number as u32, program)?;
    }
    let row = |(read, is_signed): (Read, bool)| -> anyhow::Result<Row<'_>> {
        Ok(Row {
            aimed: drive.aim(&read.aim(is_signed, skew))?,
            read,
            is_signed,
            program: vec![],
            way: vec![],
        })
    };
    let both = READS.into_iter().flat_map(|read| [(read, true), (read, false)]);
    let mut rows: Vec<Row<'_>> = both.map(row).collect::<Result<_, _>>()?;
    let before = cache.count("redirect")?;
    for _ in 0..batches {
        for row in &mut rows {
            row.batch(&ports)?;
        }
    }
    let redirected = cache.count("redirect")? - before;
    let runs = 2 * batches as u64 * u64::from(REPEAT);
    ensure!(redirected > runs, "only {redirected} reads were redirected");
    Ok(rows.into_iter().map(Row::cost).collect())
}

impl Row<'_> {
    fn batch(&mut self, ports: &Ports) -> anyhow::Result<()> {
        let mut ns = |target, verdict| {
            self.aimed.turn(target, verdict);
            timed(REPEAT, || self.aimed.run(ports.ingress, REPEAT).map(drop))
        };
        let nothing = ns(NOTHING, PASS)?;
        self.program.push(ns(self.read.target(), REDIRECT)? - nothing);
        let through = match self.read {
            Read::Bare => Passage::Bare,
            _ => Passage::Switch,
        };
        self.aimed.turn(LINKS, REDIRECT);
        self.way.push(ports.measure(&mut self.aimed, through)?);
        Ok(())
    }

    fn cost(self) -> Cost {
        Cost {
            read: self.read,
            is_signed: self.is_signed,
            program_ns: Spread::of(self.program),
            way_ns: Spread::of(self.way),
        }
    }
}

/// For people to read: `cargo test -p kvswitch-experiments cost -- --ignored --nocapture`.
#[cfg(test)]
mod tests {
    use super::*;

    const BATCHES: usize = 15;

    #[test]
    #[ignore = "measures"]
    fn cost() {
        for skew in [0.99, 0.0] {
            println!("Zipf {skew}: the low tenth of the batches, and their median, in ns");
            tell(&measure(BATCHES, skew).expect("measured"));
        }
    }

    fn tell(costs: &[Cost]) {
        println!("{:>12} {:>8} {:>15} {:>15}", "read", "", "program", "port to port");
        for cost in costs {
            let signed = if cost.is_signed { "signed" } else { "" };
            let [program, way] = [cost.program_ns, cost.way_ns]
                .map(|ns: Spread| format!("{:7.1} {:7.1}", ns.low, ns.median));
            println!("{:>12} {signed:>8} {program} {way}", cost.read.name());
        }
        for is_signed in [true, false] {
            let of = |ns: fn(&Cost) -> f64| overhead(costs, is_signed, ns).expect("both");
            println!(
                "overhead, signed {is_signed}: program {:.3} {:.3}, port to port {:.3} {:.3}",
                of(|cost| cost.program_ns.low),
                of(|cost| cost.program_ns.median),
                of(|cost| cost.way_ns.low),
                of(|cost| cost.way_ns.median),
            );
        }
    }
}
