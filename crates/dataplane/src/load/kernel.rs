//! Whether this kernel, and this process in it, may run the programs at all.
//!
//! Packets of one CPU must come one after the other: what a packet's way remembers lies in memory
//! of its CPU. Without PREEMPT_RT a softirq runs to its end. With it softirqs are threads, which a
//! lock for each CPU keeps apart; from 6.18 on a kernel can be built without that lock, and
//! Debian's 7.x are: then one packet may interrupt another half way.

use std::{fs, sync::OnceLock};

use crate::Error;

/// The oldest release whose verifier takes the programs.
const OLDEST: (u32, u32) = (6, 1);
/// The release from which on a real-time kernel may be without the lock.
const LOCK_IS_OPTIONAL: (u32, u32) = (6, 18);
const LOCK: &str = "CONFIG_PREEMPT_RT_NEEDS_BH_LOCK=y";

/// CPUs that may run the programs.
pub fn cpus() -> u32 {
    libbpf_rs::num_possible_cpus().unwrap_or(1) as u32
}

/// The release that runs.
pub(crate) fn release() -> &'static str {
    static RELEASE: OnceLock<String> = OnceLock::new();
    RELEASE.get_or_init(|| {
        let uname = nix::sys::utsname::uname();
        uname.map_or_else(
            |_| "of unknown release".into(),
            |uname| uname.release().to_string_lossy().into_owned(),
        )
    })
}

/// Whether this process may load programs into this kernel.
pub(crate) fn may_load() -> Result<(), Error> {
    let version = version(release());
    if version < OLDEST {
        return Err(Error::OldKernel { found: release().into() });
    }
    keeps_packets_apart(version)?;
    if !nix::unistd::geteuid().is_root() {
        return Err(Error::NotPermitted("loading BPF programs"));
    }
    Ok(())
}

fn version(release: &str) -> (u32, u32) {
    let mut numbers = release.split(['.', '-']).map(|part| part.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

/// Refuses a kernel on which packets of one CPU may interrupt each other, as far as it says so.
fn keeps_packets_apart(version: (u32, u32)) -> Result<(), Error> {
    let realtime = fs::read_to_string("/sys/kernel/realtime").unwrap_or_default();
    let release = release();
    let places = [format!("/lib/modules/{release}/config"), format!("/boot/config-{release}")];
    let config = places.iter().find_map(|place| fs::read_to_string(place).ok());
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
    fn a_release_has_two_numbers() {
        assert_eq!(version("6.1.0-56-amd64"), (6, 1));
        assert_eq!(version("6.18-rc3"), (6, 18));
        assert_eq!(version("of unknown release"), (0, 0));
    }

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
