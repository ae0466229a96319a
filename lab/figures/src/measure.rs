//! Runs what is to be measured, and writes what comes of each at once.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

use crate::{
    code::Versions,
    command::{self, Command, Printed, World},
    commit,
    queue::{Estimate, Queue},
    result::{Results, RunResult, machine},
};

/// Simulated runs that go side by side: what else runs changes nothing of what they say.
const SIDE_BY_SIDE: usize = 2;

/// What is to be measured.
pub struct Task {
    /// What each command runs, as it was before the first began: what was built.
    pub versions: BTreeMap<Command, Versions>,
    /// With how many seeds each that takes several is to be run.
    pub seeds: BTreeMap<Command, u64>,
    /// How long each will take.
    pub waiting: Vec<(Command, Estimate)>,
    /// When the last has to be done.
    pub limit: Option<Duration>,
}

/// What became of a task.
pub struct Outcome {
    /// So many runs failed.
    pub failed: usize,
    /// What was not begun.
    pub left: Vec<(Command, Estimate)>,
}

/// Simulated runs first, then those in the kernel, each alone.
///
/// # Errors
/// What was measured cannot be written.
pub fn run(project: &Path, task: Task, results: &Mutex<Results>) -> anyhow::Result<Outcome> {
    let begun = Instant::now();
    let commit = commit::of(project);
    let failed = AtomicUsize::new(0);
    let (simulated, alone): (Vec<_>, Vec<_>) =
        task.waiting.into_iter().partition(|(command, _)| command.world() == World::Sim);
    let mut left = vec![];
    for (waiting, workers) in [(simulated, SIDE_BY_SIDE), (alone, 1)] {
        let queue = Mutex::new(Queue::new(waiting, task.limit));
        let next = || locked(&queue).next(begun.elapsed());
        let work = || -> anyhow::Result<()> {
            while let Some(command) = next() {
                eprintln!("{}", command.text());
                let started = Instant::now();
                let text = command.text();
                let printed = command::run(project, &command);
                let has_failed = !printed.as_ref().is_ok_and(|printed| !printed.has_failed);
                failed.fetch_add(usize::from(has_failed), SeqCst);
                let figures = match printed {
                    Ok(Printed { figures, has_failed: false }) => figures,
                    // A median of those seeds alone that came out as claimed would be one of a
                    // choice. Other runs are not told apart from one that was held up.
                    Ok(Printed { figures, .. }) if command.split_seed().0.takes_seeds() => {
                        eprintln!("{text}: missed what is claimed; its figures count");
                        figures
                    }
                    Ok(_) => {
                        eprintln!("{text}: missed what is claimed; the figures of before stay");
                        continue;
                    }
                    Err(error) => {
                        eprintln!("{text}: {error:#}; the figures of before stay");
                        continue;
                    }
                };
                let (command, seed) = command.split_seed();
                let new = RunResult {
                    command: command.text(),
                    commit: commit.clone(),
                    machine: machine(),
                    seconds: started.elapsed().as_secs_f64().ceil() as u64,
                    code: task.versions[&command].clone(),
                    figures,
                    failed: has_failed.then_some(seed).into_iter().collect(),
                    seeds: None,
                };
                let mut results = locked(results);
                let wanted = task.seeds.get(&command).copied().unwrap_or(1);
                let kept = new.with_seed(seed, wanted, results.get(&command)?);
                results.keep(&command, kept)?;
                crate::write(project, &mut results)?;
            }
            Ok(())
        };
        thread::scope(|scope| {
            let working: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
            working.into_iter().try_for_each(|one| match one.join() {
                Ok(done) => done,
                Err(panic) => std::panic::resume_unwind(panic),
            })
        })?;
        left.extend_from_slice(locked(&queue).left());
    }
    Ok(Outcome { failed: failed.into_inner(), left })
}

/// A panic of another worker ends the run by itself.
fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::*;

    /// In the place of the program: gives one figure, 7 or the seed, and fails if it is told to,
    /// before it says anything or with the second seed after that.
    const PROGRAM: &str = "#!/bin/sh\n\
        case \"$*\" in *bad*) exit 1;; esac\n\
        name=$2\n\
        while [ \"$1\" != --json ]; do shift; done\n\
        figure=7; [ \"$3\" = --seed ] && figure=$4\n\
        echo '{\"summary\": {\"figure\": '$figure'}}' >\"$2\"\n\
        [ \"$name $figure\" != 'missed 2' ]\n";

    fn project() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("target/release");
        fs::create_dir_all(&folder).unwrap();
        let program = folder.join("shortstop-lab");
        fs::write(&program, PROGRAM).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        for folder in ["docs", "disciplines"] {
            fs::create_dir_all(dir.path().join(folder)).unwrap();
        }
        let page =
            "<!-- figures\n`shortstop-lab run good` {figure}\n-->\n<!-- end of figures -->\n";
        fs::write(dir.path().join("README.md"), page).unwrap();
        dir
    }

    #[test]
    fn each_seed_is_kept_as_it_comes_and_what_is_missing_goes_on() {
        let dir = project();
        let command = Command::parse("shortstop-lab run good").unwrap();
        let versions = Versions::from([("wire".into(), "0123456789ab".into())]);
        let results = || Results::at(dir.path().join("docs/figures"));
        let expected = Estimate { time: Duration::from_secs(1), is_known: true };
        for (seeds, count, shown) in [(1..=2, 2, "4.5 (2 to 7)"), (3..=3, 3, "3 (2 to 7)")] {
            let waiting = seeds.map(|seed| (command.with_seed(seed), expected));
            let task = Task {
                versions: [(command.clone(), versions.clone())].into(),
                seeds: [(command.clone(), 3)].into(),
                waiting: waiting.collect(),
                limit: None,
            };
            assert_eq!(run(dir.path(), task, &Mutex::new(results())).unwrap().failed, 0);
            let mut results = results();
            let kept = results.get(&command).unwrap().unwrap();
            assert_eq!((kept.seed_count(), kept.wanted_seeds()), (count, 3));
            let page = fs::read_to_string(dir.path().join("README.md")).unwrap();
            assert!(page.contains(&format!("`shortstop-lab run good` {shown}\n")), "{page}");
        }
    }

    #[test]
    fn a_seed_that_misses_what_is_claimed_is_in_the_range_and_fails_the_run() {
        let dir = project();
        let command = Command::parse("shortstop-lab run missed --quick --world sim").unwrap();
        let expected = Estimate { time: Duration::from_secs(1), is_known: true };
        let task = Task {
            versions: [(command.clone(), Versions::new())].into(),
            seeds: [(command.clone(), 3)].into(),
            waiting: (1..=3).map(|seed| (command.with_seed(seed), expected)).collect(),
            limit: None,
        };
        let mut results = Mutex::new(Results::at(dir.path().join("docs/figures")));
        assert_eq!(run(dir.path(), task, &results).unwrap().failed, 1);
        let kept = results.get_mut().unwrap().get(&command).unwrap().unwrap();
        assert_eq!((kept.range("figure"), kept.seed_count()), (Some([2.0, 7.0]), 3));
        assert_eq!(kept.failed, [2].into());
    }

    #[test]
    fn what_came_out_is_kept_and_shown_and_what_failed_is_counted() {
        let dir = project();
        let commands = ["good", "bad --world sim", "long --world sim"];
        let commands = commands.map(|c| Command::parse(&format!("shortstop-lab run {c}")).unwrap());
        let versions = Versions::from([("wire".into(), "0123456789ab".into())]);
        let expected = |command: &Command| Estimate {
            time: Duration::from_secs(if command.name().starts_with("long") { 3601 } else { 1 }),
            is_known: true,
        };
        let task = Task {
            versions: commands.clone().map(|c| (c, versions.clone())).into(),
            seeds: BTreeMap::new(),
            waiting: commands.clone().map(|c| (c.clone(), expected(&c))).into(),
            limit: Some(Duration::from_secs(3600)),
        };
        let results = || Results::at(dir.path().join("docs/figures"));
        let outcome = run(dir.path(), task, &Mutex::new(results())).unwrap();
        assert_eq!(outcome.failed, 1);
        let left: Vec<String> = outcome.left.iter().map(|(c, _)| c.name()).collect();
        assert_eq!(left, ["long --world sim"]);
        let mut results = results();
        let kept = results.get(&commands[0]).unwrap().unwrap();
        assert_eq!(kept.code, versions);
        assert!(kept.seconds > 0);
        assert!(results.get(&commands[1]).unwrap().is_none());
        let page = fs::read_to_string(dir.path().join("README.md")).unwrap();
        assert!(page.contains("`shortstop-lab run good` 7\n"), "{page}");
    }
}
