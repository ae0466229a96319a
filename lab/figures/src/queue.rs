//! What is measured next, in the time that there is.

use std::{fmt, time::Duration};

use crate::{command::Command, result::RunResult};

/// What a run takes that was never made: about what such runs took on two cores.
const QUICK: Duration = Duration::from_secs(45);
const BENCH: Duration = Duration::from_secs(240);
const WHOLE: Duration = Duration::from_secs(1200);

/// How long a run will take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Estimate {
    /// So long.
    pub time: Duration,
    /// Whether it took that long the last time; otherwise it is a guess.
    pub is_known: bool,
}

impl Estimate {
    /// Of a command, by what is kept of its last run.
    pub fn of(command: &Command, kept: Option<&RunResult>) -> Estimate {
        let guess = match command.experiment() {
            None => BENCH,
            Some(_) if command.is_quick() => QUICK,
            Some(_) => WHOLE,
        };
        let known = kept.map(|kept| kept.seconds);
        Estimate { time: known.map_or(guess, Duration::from_secs), is_known: known.is_some() }
    }
}

impl fmt::Display for Estimate {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let about = if self.is_known { "" } else { "about " };
        write!(to, "{about}{} minutes", minutes(self.time))
    }
}

/// Several runs together.
#[derive(Default)]
pub struct Sum {
    count: usize,
    time: Duration,
    guessed: Duration,
}

impl Sum {
    /// Of these.
    pub fn of(all: impl Iterator<Item = Estimate>) -> Sum {
        let mut sum = Sum::default();
        for one in all {
            sum.count += 1;
            sum.time += one.time;
            if !one.is_known {
                sum.guessed += one.time;
            }
        }
        sum
    }
}

impl fmt::Display for Sum {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{} stale, {} minutes", self.count, minutes(self.time))?;
        if self.guessed > Duration::ZERO {
            let guessed = minutes(self.guessed);
            write!(to, " ({guessed} of them a guess: they were never run)")?;
        }
        Ok(())
    }
}

fn minutes(time: Duration) -> String {
    format!("{:.1}", time.as_secs_f64() / 60.0)
}

/// Commands that wait, the longest first: so those that run side by side end at about the
/// same time.
pub struct Queue {
    waiting: Vec<(Command, Estimate)>,
    limit: Option<Duration>,
}

impl Queue {
    /// Of these; with a limit nothing is begun that would not be done within it.
    pub fn new(mut waiting: Vec<(Command, Estimate)>, limit: Option<Duration>) -> Queue {
        waiting.sort_by(|a, b| b.1.time.cmp(&a.1.time).then(a.0.cmp(&b.0)));
        Queue { waiting, limit }
    }

    /// The next, when so much time is gone.
    pub fn next(&mut self, gone: Duration) -> Option<Command> {
        let fits = |expected: &Estimate| {
            let end = gone + expected.time;
            self.limit.is_none_or(|limit| end <= limit)
        };
        let at = self.waiting.iter().position(|(_, expected)| fits(expected))?;
        Some(self.waiting.remove(at).0)
    }

    /// What was not begun.
    pub fn left(&self) -> &[(Command, Estimate)] {
        &self.waiting
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(seconds: &[u64]) -> Vec<(Command, Estimate)> {
        let one = |seconds: &u64| {
            let command = Command::parse(&format!("shortstop-lab run x{seconds}")).unwrap();
            let time = Duration::from_secs(*seconds);
            (command, Estimate { time, is_known: true })
        };
        seconds.iter().map(one).collect()
    }

    fn taken(queue: &mut Queue, gone_s: u64) -> Option<String> {
        let next = queue.next(Duration::from_secs(gone_s));
        next.map(|command| command.name())
    }

    #[test]
    fn nothing_is_begun_that_would_not_be_done() {
        let mut queue = Queue::new(waiting(&[10, 700, 40]), Some(Duration::from_secs(60)));
        assert_eq!(taken(&mut queue, 0).unwrap(), "x40");
        assert_eq!(taken(&mut queue, 51), None);
        assert_eq!(taken(&mut queue, 50).unwrap(), "x10");
        assert_eq!(taken(&mut queue, 50), None);
        let left: Vec<String> = queue.left().iter().map(|(c, _)| c.name()).collect();
        assert_eq!(left, ["x700"]);
    }

    #[test]
    fn without_a_limit_everything_is_begun() {
        let mut queue = Queue::new(waiting(&[10, 700]), None);
        assert_eq!(taken(&mut queue, 100_000).unwrap(), "x700");
        assert_eq!(taken(&mut queue, 200_000).unwrap(), "x10");
        assert_eq!(taken(&mut queue, 0), None);
    }

    #[test]
    fn what_runs_take_is_said_in_minutes_and_what_is_a_guess_too() {
        let of = |seconds, is_known| Estimate { time: Duration::from_secs(seconds), is_known };
        assert_eq!(of(90, true).to_string(), "1.5 minutes");
        assert_eq!(of(90, false).to_string(), "about 1.5 minutes");
        let known = Sum::of([of(90, true), of(30, true)].into_iter());
        assert_eq!(known.to_string(), "2 stale, 2.0 minutes");
        let some = Sum::of([of(90, true), of(30, false)].into_iter()).to_string();
        assert!(some.starts_with("2 stale, 2.0 minutes (0.5 of them"), "{some}");
    }

    #[test]
    fn what_was_never_timed_is_guessed() {
        let of = |text: &str| Estimate::of(&Command::parse(text).unwrap(), None);
        let all = ["run x --quick", "bench", "run x"];
        let all = all.map(|words| of(&format!("shortstop-lab {words}")));
        assert!(all.is_sorted() && all.iter().all(|e| !e.is_known), "{all:?}");
    }
}
