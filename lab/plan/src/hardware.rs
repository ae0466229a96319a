//! What machines and links are made of where nothing real says so: in the simulator.

use serde::{Deserialize, Serialize};

/// Switches like chips, and their links, in the simulator; the kernel's world is as fast as the
/// machine is. Other times than these do not come from here: those of stores are their roles',
/// those of clients and controllers are none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hardware {
    /// Packets per second that a switch takes by each of its ports, or with each core.
    pub switch_rate: f64,
    /// What a core takes longer for each byte of a frame as it came, in nanoseconds.
    #[serde(default)]
    pub byte_ns: f64,
    /// What a core takes longer for a packet that programs looked at, by what becomes of it.
    #[serde(default)]
    pub program_ns: ProgramCosts,
    /// Cores of that speed that all of its ports share, as where Linux forwards; none: it is
    /// a chip.
    #[serde(default)]
    pub cores: Option<u32>,
    /// Whether all switches share those cores, as processes of one machine do.
    #[serde(default)]
    pub is_shared: bool,
    /// What a core waits for a cache line that another one wrote last, in nanoseconds.
    #[serde(default)]
    pub line_ns: f64,
    /// How long a packet is on its way through a switch, in microseconds, beside waiting.
    #[serde(default)]
    pub switch_us: f64,
    /// What a link carries in Gbit/s; none: whatever comes.
    #[serde(default)]
    pub link_gbit: Option<f64>,
    /// How long a packet is on its way between two machines, in microseconds, beside waiting.
    #[serde(default = "link_us")]
    pub link_us: f64,
    /// What the port carries in Gbit/s by which switches send packets round; none: as many packets
    /// as a core.
    #[serde(default)]
    pub round_gbit: Option<f64>,
}

/// What programs take a core for a packet, in nanoseconds, beside what the core takes for any
/// packet. A packet that they drop costs nothing more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProgramCosts {
    /// It leaves by the port that it came in by.
    pub answered: f64,
    /// It leaves by another port, is taken by the machine itself, or is sent round.
    pub forwarded: f64,
    /// It carries what is to be written ([`wire::Op::carries_write`]), and does not leave by the
    /// port that it came in by.
    pub written: f64,
}

impl ProgramCosts {
    /// The same `factor` times as slow.
    fn slowed(self, factor: f64) -> ProgramCosts {
        ProgramCosts {
            answered: self.answered * factor,
            forwarded: self.forwarded * factor,
            written: self.written * factor,
        }
    }

    /// What the dearest packet costs.
    pub fn most(self) -> f64 {
        self.answered.max(self.forwarded).max(self.written)
    }
}

fn link_us() -> f64 {
    10.0
}

impl Default for Hardware {
    /// Each switch has a core for itself, at what the programs take in the kernel.
    fn default() -> Hardware {
        Hardware {
            switch_rate: 2e6,
            byte_ns: 0.0,
            program_ns: ProgramCosts::default(),
            cores: Some(1),
            is_shared: false,
            line_ns: 0.0,
            switch_us: 0.0,
            link_gbit: None,
            link_us: link_us(),
            round_gbit: None,
        }
    }
}

impl Hardware {
    /// The same `factor` times as slow: nothing of it changes its place beside the others.
    pub fn slowed(&self, factor: f64) -> Hardware {
        Hardware {
            switch_rate: self.switch_rate / factor,
            byte_ns: self.byte_ns * factor,
            program_ns: self.program_ns.slowed(factor),
            cores: self.cores,
            is_shared: self.is_shared,
            line_ns: self.line_ns * factor,
            switch_us: self.switch_us * factor,
            link_gbit: self.link_gbit.map(|rate| rate / factor),
            link_us: self.link_us * factor,
            round_gbit: self.round_gbit.map(|rate| rate / factor),
        }
    }
}

/// How a machine's clocks differ from the world's time, in the simulator; machines of one kernel
/// have one clock.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Clocks {
    /// How long the machine has been up when the world begins, in nanoseconds.
    pub uptime_ns: u64,
    /// How far its wall clock is ahead, in nanoseconds.
    pub wall_ahead_ns: i64,
    /// How much faster its clocks run, in millionths.
    pub drift_ppm: f64,
}
