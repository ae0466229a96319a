//! Processor time of everything that a request needs: the client's thread, a server's process, and the
//! kernel's softirq threads. What softirqs do in a task's own context counts as the task's.

use std::{fs, time::Duration};

/// Whose time is counted, beside the calling thread's.
#[derive(Clone, Debug, Default)]
pub struct Others {
    tasks: Vec<String>,
}

impl Others {
    /// The threads of these processes, and every `ksoftirqd`. Threads that start later are not counted.
    pub fn of(pids: &[i32]) -> Others {
        let mut tasks = vec![];
        for pid in pids {
            let threads = fs::read_dir(format!("/proc/{pid}/task"))
                .into_iter()
                .flatten()
                .flatten();
            tasks.extend(threads.map(|t| t.path().join("schedstat").display().to_string()));
        }
        for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let path = process.path();
            let name = fs::read_to_string(path.join("comm")).unwrap_or_default();
            if name.starts_with("ksoftirqd/") {
                tasks.push(path.join("schedstat").display().to_string());
            }
        }
        Others { tasks }
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

/// Time that this thread has been on a processor, in its own context or in a softirq that interrupted it.
pub fn own() -> Duration {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_THREAD_CPUTIME_ID);
    now.map_or(Duration::ZERO, Duration::from)
}
