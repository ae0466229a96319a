//! What a frame takes from port to port: from the moment when it is sent into one link of a switch
//! until it comes out of the far end of another (`bpf/ports.bpf.c`).
//!
//! Three pairs of virtual links in a namespace of the thread's own: one to the switch that is
//! measured, one to a program that only forwards, and one that both send to. Frames are made in the
//! kernel, by the driver that the other rows have; one is under way at a time, so what is measured
//! is a way and not a queue.

use anyhow::{Context, ensure};
use lab::namespace::ip;
use libbpf_rs::{Link, MapCore, MapFlags, Object};
use nix::sched::{CloneFlags, unshare};

use crate::{
    drive::AimedDrive,
    kernel,
    runs::{self, Program},
};

const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/ports.bpf.o"));
/// Frames of one batch; the C has room for so many.
const FRAMES: u32 = 20_000;
/// Frames of a batch that may be lost without its figure being in doubt: none were overtaken, but
/// the machine has other work.
const LOST_MOST: u32 = FRAMES / 100;
/// Last parts of the addresses that are behind the second port.
const HOSTS: std::ops::RangeInclusive<u8> = 2..=5;

/// The interface that the switch is to be attached to for what comes in.
pub const IN: &str = "in0";
/// The one for what leaves.
pub const OUT: &str = "out0";

/// Which program a frame passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passage {
    /// The switch at [`IN`].
    Switch,
    /// One that asks the kernel's routes, writes the Ethernet addresses and redirects, and
    /// nothing else.
    Bare,
}

/// The links, with their programs.
pub struct Ports {
    object: Object,
    floors: Object,
    links: Vec<Link>,
    /// By [`Passage`]: where frames are sent in.
    ways_in: [u32; 2],
    /// Where they are measured without links: the interface that frames seem to come in by.
    pub ingress: u32,
}

fn index(name: &str) -> anyhow::Result<u32> {
    nix::net::if_::if_nametoindex(name).with_context(|| format!("no interface {name}"))
}

fn links() -> anyhow::Result<()> {
    unshare(CloneFlags::CLONE_NEWNET).context("a network namespace: is this root?")?;
    std::fs::write("/proc/sys/net/ipv4/ip_forward", "1")?;
    // Nobody speaks here but the generator.
    let _ = std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
    for name in ["in", "bare", "out"] {
        ip(&words(&format!("link add {name}0 type veth peer name {name}1")))?;
        ip(&words(&format!("link set {name}0 up")))?;
        ip(&words(&format!("link set {name}1 up")))?;
    }
    ip(&words("route add 10.0.0.1/32 dev in0"))?;
    for host in HOSTS {
        ip(&words(&format!("route add 10.0.0.{host}/32 dev out0")))?;
        ip(&words(&format!(
            "neigh add 10.0.0.{host} lladdr 02:00:00:00:00:{host:02x} dev out0 nud permanent"
        )))?;
    }
    Ok(())
}

fn words(text: &str) -> Vec<&str> {
    text.split(' ').collect()
}

impl Ports {
    /// Makes the links in a namespace of this thread's own. The switch is attached by the caller,
    /// to [`IN`] and [`OUT`], in the driver.
    ///
    /// # Errors
    /// No privilege, or the kernel refuses.
    pub fn make() -> anyhow::Result<Ports> {
        links()?;
        let (object, floors) = (runs::load(OBJECT, "ports.bpf.c")?, kernel::bare()?);
        let out = index(OUT)?;
        // struct bpf_devmap_val: target, and no program behind it.
        let port = u64::from(out).to_ne_bytes();
        runs::map(&floors, "floor_ports")?.update(&out.to_ne_bytes(), &port, MapFlags::ANY)?;
        let mut ports = Ports {
            ways_in: [index("in1")?, index("bare1")?],
            ingress: index(IN)?,
            links: vec![],
            object,
            floors,
        };
        for (program, interface) in [("pass", "in1"), ("pass", "bare1"), ("arrive", "out1")] {
            ports.links.push(attach(&ports.object, program, interface)?);
        }
        ports.links.push(attach(&ports.floors, "fib_forward", "bare0")?);
        Ok(ports)
    }

    /// What the driver is to go on to, instead of a program under test.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn departs(&self) -> anyhow::Result<Program> {
        Program::of(&self.object, "depart")
    }

    /// The program that only forwards.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn bare(&self) -> anyhow::Result<Program> {
        Program::of(&self.floors, "fib_forward")
    }

    /// One that does nothing.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn nothing(&self) -> anyhow::Result<Program> {
        Program::of(&self.floors, "nothing")
    }

    /// What frames took from port to port, in nanoseconds, reading the clock taken off: the mean of
    /// those between the lowest and the highest quarter, for the clock may have coarse ticks.
    /// `aimed` leads the driver to [`Ports::departs`].
    ///
    /// # Errors
    /// The kernel refuses, or frames were lost.
    pub fn measure(&self, aimed: &mut AimedDrive<'_>, through: Passage) -> anyhow::Result<f64> {
        let moments = runs::map(&self.object, "moments")?;
        moments.update(&0u32.to_ne_bytes(), &[0; 16], MapFlags::ANY)?;
        aimed.send(self.ways_in[through as usize], FRAMES)?;
        let moment = moments.lookup(&0u32.to_ne_bytes(), MapFlags::ANY)?;
        let moment = moment.context("the map's only element")?;
        let arrived = u32::from_ne_bytes(moment[8..12].try_into()?);
        ensure!(
            arrived + LOST_MOST >= FRAMES,
            "of {FRAMES} frames only {arrived} came out of the switch"
        );
        let (mut ns, mut clock) = (vec![], vec![]);
        let ways = runs::map(&self.object, "ways")?;
        for frame in 0..arrived.min(FRAMES) {
            let way = ways.lookup(&frame.to_ne_bytes(), MapFlags::ANY)?;
            let way = way.context("an element of an array")?;
            let word = |at: usize| -> anyhow::Result<f64> {
                Ok(u32::from_ne_bytes(way[at..at + 4].try_into()?).into())
            };
            ns.push(word(0)?);
            clock.push(word(4)?);
        }
        Ok(middle(ns) - middle(clock))
    }
}

/// The mean of the middle half.
fn middle(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    let quarter = all.len() / 4;
    let half = &all[quarter..all.len() - quarter];
    half.iter().sum::<f64>() / half.len().max(1) as f64
}

fn attach(object: &Object, program: &str, interface: &str) -> anyhow::Result<Link> {
    let found = object.progs_mut().find(|found| found.name() == program);
    let found = found.with_context(|| format!("no program {program}"))?;
    let link = found.attach_xdp(index(interface)? as i32);
    link.with_context(|| format!("attaching {program} to {interface}"))
}
