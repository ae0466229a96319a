//! Rows that need no interface: programs run on packets in the kernel, each run with another random
//! key. The cost of making that packet is measured beside them and taken off both sides of a ratio.
//!
//! Each row is measured for itself, with switches of its own: two programs in turn ([`pair`]), or
//! two processors ([`cores`]).

mod cores;
mod floor;
mod hits;
mod memory;
mod misses;
mod pair;
mod salt;
mod steps;
mod tenants;

use std::{cell::RefCell, sync::mpsc};

use anyhow::{Context, ensure};
use lab::namespace::ip;
use libbpf_rs::{MapCore, MapFlags, Object};
use nix::sched::{CloneFlags, unshare};

pub use floor::bare;
pub use pair::timed;

use crate::{
    Options,
    cpu::Machine,
    drive::Drive,
    report::{
        Report,
        Target::{AtMost, Report as Told},
    },
    runs::{self, Program},
};
use hits::{ITEMS, Stock};
use pair::{BatchCosts, REPEAT, Side};

type Measure = fn(&Rig, &mut Report, &str) -> anyhow::Result<()>;

/// All rows, and how each is measured.
const ROWS: [(&str, Measure); 10] = [
    ("hit128_over_floor_10k", |rig, report, key| {
        let stock = Stock::open(ITEMS, 128);
        hits::over_floor(rig, report, (key, AtMost(0.7)), &stock, MANY)
    }),
    ("hit128_over_tight_floor_10k", |rig, report, key| {
        let stock = Stock::open(ITEMS, 128);
        hits::over_floor(rig, report, (key, Told), &stock, ITEMS)
    }),
    ("hit128_over_floor_64k", |rig, report, key| {
        let stock = Stock::open(MANY, 128);
        hits::over_floor(rig, report, (key, AtMost(0.9)), &stock, MANY)
    }),
    ("hit1024_over_floor1024_10k", |rig, report, key| {
        let stock = Stock::open(ITEMS, 1024);
        hits::over_floor(rig, report, (key, AtMost(1.15)), &stock, ITEMS)
    }),
    ("tag_over_hit128", hits::tag),
    ("miss_over_fib_forward", misses::forwarded),
    ("pass_over_empty", misses::passed),
    ("tenants_1024_over_1", tenants::many),
    ("hit_two_cores_over_one", cores::two),
    ("bytes_per_item_over_payload", memory::per_item),
];
const PROFILE: &str = "profile";
/// Items of a large switch.
const MANY: u32 = 65_536;

/// What all rows are measured with.
pub struct Rig<'a> {
    /// What was asked for.
    pub options: &'a Options,
    /// Where packets seem to come in.
    pub ingress: u32,
    /// The bare programs.
    pub floors: Object,
    /// The driver, whose targets each row sets.
    pub drive: Drive,
    /// What the driver took in each batch of all rows.
    driver: RefCell<Vec<f64>>,
}

impl<'a> Rig<'a> {
    fn new(options: &'a Options) -> anyhow::Result<Rig<'a>> {
        let [ingress, egress] = router()?;
        let floors = bare()?;
        // struct bpf_devmap_val: target, and no program behind it.
        let port = u64::from(egress).to_ne_bytes();
        runs::map(&floors, "floor_ports")?.update(&egress.to_ne_bytes(), &port, MapFlags::ANY)?;
        let (drive, nothing) = (Drive::load()?, Program::of(&floors, "nothing")?);
        drive.target(pair::NOTHING, &nothing)?;
        Ok(Rig { options, ingress, floors, drive, driver: RefCell::default() })
    }

    /// Ours and theirs in turn; see [`pair::measure`].
    ///
    /// # Errors
    /// As there.
    fn measure(
        &self,
        sides: [Side<'_>; 2],
        each: impl FnMut() -> anyhow::Result<()>,
    ) -> anyhow::Result<[BatchCosts; 2]> {
        let batches = self.options.batches;
        let taken = pair::measure(&self.drive, self.ingress, batches, sides, each)?;
        let mut driver = self.driver.borrow_mut();
        driver.extend(taken.iter().flat_map(|taken| &taken.driver));
        Ok(taken)
    }

    /// Runs that a program has had, one batch each.
    fn runs(&self) -> u64 {
        self.options.batches as u64 * u64::from(REPEAT)
    }

    /// Nothing else than what the row says may have become of a run.
    fn counted(&self, counter: &str, count: u64, runs: u64) -> anyhow::Result<()> {
        ensure!(
            count == runs,
            "of {runs} runs the switch counted {count} as `{counter}`: expected all"
        );
        Ok(())
    }
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

/// Measures the rows and adds them to the report.
///
/// # Errors
/// No privilege, or the kernel refuses.
pub fn measure(options: &Options, report: &mut Report, say: &impl Fn(&str)) -> anyhow::Result<()> {
    if !ROWS.iter().any(|(key, _)| options.wants(&[key])) && !options.wants(&[PROFILE]) {
        return Ok(());
    }
    // A thread of its own: it moves into a namespace and onto one CPU, and stays there.
    std::thread::scope(|scope| {
        let (told, said) = mpsc::channel();
        let thread = scope.spawn(move || {
            // Libbpf's objects are not to be sent: everything is made here.
            let mut part = Report::default();
            // Without a reader nobody wants to know.
            let tell = |row: &str| drop(told.send(row.to_string()));
            in_namespace(options, &mut part, &tell).map(|()| part)
        });
        said.iter().for_each(|row| say(&row));
        let part =
            thread.join().map_err(|_| anyhow::anyhow!("the measuring thread panicked"))??;
        report.add(part);
        Ok(())
    })
}

fn in_namespace(
    options: &Options,
    report: &mut Report,
    tell: &impl Fn(&str),
) -> anyhow::Result<()> {
    lab::process::pin_self(0);
    let rig = Rig::new(options)?;
    let machine = Machine::now();
    for (key, measure) in ROWS {
        if options.wants(&[key]) {
            tell(key);
            measure(&rig, report, key).with_context(|| format!("measuring {key}"))?;
        }
    }
    if options.wants(&[PROFILE]) {
        tell(PROFILE);
        steps::profile(&rig, report)?;
    }
    let driver = rig.driver.take();
    if !driver.is_empty() {
        report.machine("making the random request (taken off)", driver, "ns");
    }
    let latency = vec![pair::memory_latency()];
    report.machine("a read from memory that depends on the last", latency, "ns");
    if let Some(machine) = machine {
        let elsewhere = machine.since();
        let percent = |part| vec![part * 100.0];
        let what = "processors taken by other processes, in the kernel's rows";
        report.machine(what, percent(elsewhere.other), "%");
        let what = "likewise by other guests of the host";
        report.machine(what, percent(elsewhere.stolen), "%");
    }
    Ok(())
}
