//! The clock of leases and lives: CLOCK_BOOTTIME, so that a machine that was suspended finds its
//! leases over, and what it had heard from its backend old.

/// Now, in nanoseconds.
pub(crate) fn boot_ns() -> u64 {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_BOOTTIME)
        .expect("CLOCK_BOOTTIME always exists");
    now.tv_sec() as u64 * 1_000_000_000 + now.tv_nsec() as u64
}
