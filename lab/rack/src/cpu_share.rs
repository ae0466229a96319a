//! A part of a processor for some processes together, however idle the machine is: a control group
//! with a quota. A server that has so little of a processor is the first to be short of something,
//! on any machine.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, ensure};

use crate::process::ProcessId;

/// Time in which a group may use its part, in microseconds: as short as the kernel takes a part
/// for, so that processes stand still for short times.
const LEAST_QUOTA_US: f64 = 1_000.0;
const PERIOD_US: f64 = 10_000.0;
/// Where control groups are: the first kind has a folder for each controller.
const FIRST_KIND: [&str; 2] = ["/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct"];
const SECOND_KIND: &str = "/sys/fs/cgroup";

/// A group of processes with a part of a processor. Dropping it takes the bound away.
pub struct CpuShare {
    dir: PathBuf,
}

/// How often the processes of a share had none left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Throttling {
    /// Periods in which they ran.
    pub periods: u64,
    /// Those in which they were held up.
    pub throttled: u64,
}

impl CpuShare {
    /// How long a period is of a share of this part: who has used it up stands still for the rest.
    pub fn period_ms(part: f64) -> f64 {
        LEAST_QUOTA_US.max(part * PERIOD_US) / part / 1e3
    }

    /// A share of this part of one processor, under a name that no other has on this machine.
    ///
    /// # Errors
    /// The machine bounds no processes, or not for this process.
    pub fn new(name: &str, part: f64) -> anyhow::Result<CpuShare> {
        ensure!(part > 0.0, "a share of {part} of a processor: above 0 is expected");
        let period_us = CpuShare::period_ms(part) * 1e3;
        let quota_us = period_us * part;
        let first = FIRST_KIND.iter().map(Path::new);
        let first = first.into_iter().find(|dir| dir.join("cpu.cfs_quota_us").exists());
        if let Some(root) = first {
            let share = CpuShare { dir: root.join(name) };
            share.make()?;
            share.set("cpu.cfs_period_us", &format!("{period_us:.0}"))?;
            share.set("cpu.cfs_quota_us", &format!("{quota_us:.0}"))?;
            return Ok(share);
        }
        let root = Path::new(SECOND_KIND);
        let kinds = fs::read_to_string(root.join("cgroup.controllers")).unwrap_or_default();
        ensure!(
            kinds.split_whitespace().any(|kind| kind == "cpu"),
            "{SECOND_KIND}: there is no controller `cpu` here, which bounds what servers use"
        );
        fs::write(root.join("cgroup.subtree_control"), "+cpu")
            .with_context(|| format!("{SECOND_KIND}/cgroup.subtree_control: +cpu"))?;
        let share = CpuShare { dir: root.join(name) };
        share.make()?;
        share.set("cpu.max", &format!("{quota_us:.0} {period_us:.0}"))?;
        Ok(share)
    }

    fn make(&self) -> anyhow::Result<()> {
        fs::create_dir(&self.dir).with_context(|| self.dir.display().to_string())
    }

    fn set(&self, file: &str, value: &str) -> anyhow::Result<()> {
        let file = self.dir.join(file);
        fs::write(&file, value).with_context(|| format!("{}: {value}", file.display()))
    }

    /// Puts a process in it, with all of its threads.
    ///
    /// # Errors
    /// It has ended.
    pub fn add(&self, process: ProcessId) -> anyhow::Result<()> {
        self.set("cgroup.procs", &process.pid.to_string())
    }

    /// How often its processes had none left so far.
    ///
    /// # Errors
    /// The kernel does not say.
    pub fn throttling(&self) -> anyhow::Result<Throttling> {
        let file = self.dir.join("cpu.stat");
        let said = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        let of = |name: &str| {
            let mut lines = said.lines().filter_map(|line| line.split_once(' '));
            lines.find(|(key, _)| *key == name).and_then(|(_, count)| count.parse().ok())
        };
        let counts = of("nr_periods").zip(of("nr_throttled"));
        let (periods, throttled) = counts.with_context(|| file.display().to_string())?;
        Ok(Throttling { periods, throttled })
    }
}

impl Drop for CpuShare {
    fn drop(&mut self) {
        // Those that run on do so without a bound.
        let inside = fs::read_to_string(self.dir.join("cgroup.procs")).unwrap_or_default();
        if let Some(outside) = self.dir.parent() {
            for process in inside.lines() {
                let _ = fs::write(outside.join("cgroup.procs"), process);
            }
        }
        let _ = fs::remove_dir(&self.dir);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_less_there_is_of_a_processor_the_longer_is_a_period() {
        for (part, ms) in [(0.02, 50.0), (0.04, 25.0), (0.1, 10.0), (0.5, 10.0)] {
            assert!((CpuShare::period_ms(part) - ms).abs() < 1e-9, "{part}");
        }
    }
}
