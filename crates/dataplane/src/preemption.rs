//! Whether packets of one CPU come one after the other, which programs count on: what a packet's way remembers lies in memory of its CPU.
//!
//! Without PREEMPT_RT a softirq runs to its end. With it softirqs are threads, which a lock for each CPU keeps apart; from 6.18 on a kernel
//! can be built without that lock, and Debian's 7.x are: then one packet may interrupt another half way.

use std::fs;

use crate::{Error, refusal};

/// The release from which on a real-time kernel may be without the lock.
const LOCK_IS_OPTIONAL: (u32, u32) = (6, 18);
const LOCK: &str = "CONFIG_PREEMPT_RT_NEEDS_BH_LOCK=y";

/// Refuses a kernel on which packets of one CPU may interrupt each other, as far as it says so.
pub(crate) fn check(version: (u32, u32)) -> Result<(), Error> {
    let realtime = fs::read_to_string("/sys/kernel/realtime").unwrap_or_default();
    let release = refusal::kernel();
    let places = [
        format!("/lib/modules/{release}/config"),
        format!("/boot/config-{release}"),
    ];
    let config = places
        .iter()
        .find_map(|place| fs::read_to_string(place).ok());
    match keeps_apart(version, realtime.trim() == "1", config.as_deref()) {
        true => Ok(()),
        false => Err(Error::Preempts(release.into())),
    }
}

/// One whose configuration is not to be found may be without.
fn keeps_apart(version: (u32, u32), is_realtime: bool, config: Option<&str>) -> bool {
    let has_lock = |config: &str| config.lines().any(|line| line.trim() == LOCK);
    !is_realtime || version < LOCK_IS_OPTIONAL || config.is_some_and(has_lock)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_realtime_kernel_needs_the_lock() {
        let with = "CONFIG_PREEMPT_RT=y\nCONFIG_PREEMPT_RT_NEEDS_BH_LOCK=y\n";
        let without = "CONFIG_PREEMPT_RT=y\n# CONFIG_PREEMPT_RT_NEEDS_BH_LOCK is not set\n";
        assert!(keeps_apart((7, 3), false, None));
        assert!(keeps_apart((6, 12), true, None), "it is always there");
        assert!(keeps_apart((7, 3), true, Some(with)));
        assert!(!keeps_apart((7, 3), true, Some(without)));
        assert!(!keeps_apart((6, 18), true, None), "nobody knows");
    }
}
