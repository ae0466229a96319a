//! Processor time of everything that a request needs: the client's thread, a server's process, and
//! the kernel's softirq threads. What softirqs do in a task's own context counts as the task's.

use std::{fmt, fs, time::Duration};

use serde::Serialize;

/// Whose time is counted, beside the calling thread's.
#[derive(Clone, Debug, Default)]
pub struct CountedTasks {
    tasks: Vec<String>,
}

impl CountedTasks {
    /// The threads of these processes, and every `ksoftirqd`. Threads that start later are
    /// not counted.
    pub fn of(pids: &[i32]) -> CountedTasks {
        let mut tasks = vec![];
        for pid in pids {
            let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
            tasks.extend(threads.map(|t| t.path().join("schedstat").display().to_string()));
        }
        for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let path = process.path();
            let name = fs::read_to_string(path.join("comm")).unwrap_or_default();
            if name.starts_with("ksoftirqd/") {
                tasks.push(path.join("schedstat").display().to_string());
            }
        }
        CountedTasks { tasks }
    }

    /// Time on a processor so far: theirs and this thread's.
    pub fn used(&self) -> Duration {
        let ns = |path: &String| {
            let text = fs::read_to_string(path).ok()?;
            text.split(' ').next()?.parse::<u64>().ok()
        };
        Duration::from_nanos(self.tasks.iter().filter_map(ns).sum()) + own()
    }
}

/// Time that this thread has been on a processor, in its own context or in a softirq that
/// interrupted it.
pub fn own() -> Duration {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_THREAD_CPUTIME_ID);
    now.map_or(Duration::ZERO, Duration::from)
}

/// What all processors have done so far, in ticks, and of it what this process has.
#[derive(Clone, Copy, Debug)]
pub struct Machine {
    all: f64,
    busy: f64,
    stolen: f64,
    own: f64,
}

/// What the processors did that was not this process's work, as parts of their time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct OtherWork {
    /// For other processes.
    pub other: f64,
    /// For other guests of the host: the time was stolen.
    pub stolen: f64,
}

impl Machine {
    /// As it is now; `None` where nobody says.
    pub fn now() -> Option<Machine> {
        let own = nix::time::clock_gettime(nix::time::ClockId::CLOCK_PROCESS_CPUTIME_ID).ok()?;
        // SAFETY: asks for a constant of the system.
        let ticks_per_s = unsafe { libc::sysconf(libc::_SC_CLK_TCK) } as f64;
        let stat = fs::read_to_string("/proc/stat").ok()?;
        Machine::parse(&stat, Duration::from(own).as_secs_f64() * ticks_per_s)
    }

    fn parse(stat: &str, own: f64) -> Option<Machine> {
        let words = stat.lines().next()?.strip_prefix("cpu ")?;
        let ticks: Vec<f64> = words.split_whitespace().flat_map(str::parse).collect();
        // user, nice, system, idle, iowait, irq, softirq, steal; what guests take is in
        // user already.
        let [user, nice, system, idle, iowait, irq, softirq, stolen] = *ticks.first_chunk()?;
        let busy = user + nice + system + irq + softirq;
        Some(Machine { all: busy + idle + iowait + stolen, busy, stolen, own })
    }

    /// What was done elsewhere since.
    pub fn since(&self) -> OtherWork {
        Machine::now().map_or(OtherWork::default(), |now| self.until(&now))
    }

    fn until(&self, now: &Machine) -> OtherWork {
        let all = (now.all - self.all).max(1.0);
        OtherWork {
            other: ((now.busy - self.busy) - (now.own - self.own)).max(0.0) / all,
            stolen: (now.stolen - self.stolen) / all,
        }
    }
}

impl Default for OtherWork {
    /// Nothing is known.
    fn default() -> OtherWork {
        OtherWork { other: f64::NAN, stolen: f64::NAN }
    }
}

impl fmt::Display for OtherWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |part: f64| part * 100.0;
        let (other, stolen) = (percent(self.other), percent(self.stolen));
        write!(
            f,
            "meanwhile other processes took {other:.0} % of the processors, and other guests of the host {stolen:.0} %"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_did_is_what_was_busy_and_not_our_own() {
        let stat =
            |user, idle, steal| format!("cpu  {user} 0 0 {idle} 0 0 0 {steal} 9 9\ncpu0 1 1\n");
        let before = Machine::parse(&stat(100, 100, 0), 10.0).unwrap();
        let after = Machine::parse(&stat(180, 110, 10), 40.0).unwrap();
        let elsewhere = before.until(&after);
        assert_eq!(elsewhere.other, 0.5); // 80 ticks of 100, of them 30 our own
        assert_eq!(elsewhere.stolen, 0.1);
        assert!(Machine::parse("intr 5", 0.0).is_none());
    }
}
