//! The clock of calls: CLOCK_BOOTTIME, so that a machine that was suspended finds its calls over.
//! No write is sent again hours later that a store may have forgotten meanwhile.

use std::time::Duration;

use tokio::time::Instant;

/// Now, in nanoseconds.
pub fn now_ns() -> u64 {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_BOOTTIME)
        .expect("CLOCK_BOOTTIME always exists");
    now.tv_sec() as u64 * 1_000_000_000 + now.tv_nsec() as u64
}

/// When a timer is to go off, if the machine is not suspended before.
pub fn timer(at_ns: u64) -> Instant {
    Instant::now() + Duration::from_nanos(at_ns.saturating_sub(now_ns()))
}
