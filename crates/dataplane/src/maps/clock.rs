//! What shows the time to programs and agent. Leases and lives of items end by it.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

/// What shows the time to programs and agent, in nanoseconds.
#[derive(Clone, Debug)]
pub enum Clock {
    /// CLOCK_BOOTTIME: leases and lives end on time also where the machine was suspended meanwhile.
    Boot,
    /// What somebody sets.
    Set(Arc<AtomicU64>),
}

impl Clock {
    /// Now.
    pub fn now_ns(&self) -> u64 {
        match self {
            Clock::Boot => {
                let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_BOOTTIME)
                    .expect("CLOCK_BOOTTIME always exists");
                now.tv_sec() as u64 * 1_000_000_000 + now.tv_nsec() as u64
            }
            Clock::Set(ns) => ns.load(Relaxed),
        }
    }
}
