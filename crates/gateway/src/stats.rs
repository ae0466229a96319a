//! What each command has cost: how often it came, how often it failed, how long it took.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

/// Bounds of the histogram in microseconds: each twice the one before, the first 1.
const BUCKETS: usize = 24;

/// Counts of one command.
#[derive(Default)]
struct Row {
    calls: AtomicU64,
    failed: AtomicU64,
    us: AtomicU64,
    /// Calls that took less than 2 to the power of the index in microseconds, and no less than half
    /// of that.
    took: [AtomicU64; BUCKETS],
}

/// What one command has cost so far.
pub(crate) struct CommandCost {
    /// In lower case.
    pub name: String,
    pub calls: u64,
    pub failed: u64,
    /// Of all calls together, in microseconds.
    pub us: u64,
    /// Calls that took less than 2 to the power of the index in microseconds, and no less than half
    /// of that; the last one also those that took longer.
    pub took: Vec<u64>,
}

/// Row of all commands that have none of their own.
pub(crate) const OTHERS: u16 = 0;

/// Counts of all commands, by rows that all event loops have in common.
pub(crate) struct Stats {
    rows: Vec<Row>,
    names: Mutex<Vec<String>>,
}

impl Stats {
    /// For so many commands; more are counted together.
    pub fn new(rows: usize) -> Stats {
        let names = Mutex::new(vec!["unknown".into()]);
        Stats { rows: (0..rows).map(|_| Row::default()).collect(), names }
    }

    /// The row of a command of this name.
    pub fn row(&self, name: &str) -> u16 {
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        let found = names.iter().position(|known| known == name);
        let row = found.unwrap_or_else(|| {
            let is_room = names.len() < self.rows.len();
            is_room.then(|| names.push(name.into()));
            if is_room { names.len() - 1 } else { OTHERS.into() }
        });
        row as u16
    }

    /// A command was answered so many times, at once.
    pub fn note_at_once(&self, row: u16, times: u64) {
        if let Some(row) = self.rows.get(usize::from(row)) {
            row.calls.fetch_add(times, Relaxed);
            row.took[0].fetch_add(times, Relaxed);
        }
    }

    /// A command was answered after this time.
    pub fn note(&self, row: u16, took: Duration, failed: bool) {
        let Some(row) = self.rows.get(usize::from(row)) else { return };
        let us = took.as_micros() as u64;
        row.calls.fetch_add(1, Relaxed);
        row.us.fetch_add(us, Relaxed);
        if failed {
            row.failed.fetch_add(1, Relaxed);
        }
        let bucket = (u64::BITS - us.leading_zeros()) as usize;
        row.took[bucket.min(BUCKETS - 1)].fetch_add(1, Relaxed);
    }

    /// What each command has cost that was called.
    pub fn read(&self) -> Vec<CommandCost> {
        let names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        let rows = self.rows.iter().zip(&*names);
        let all = rows.map(|(row, name)| CommandCost {
            name: name.clone(),
            calls: row.calls.load(Relaxed),
            failed: row.failed.load(Relaxed),
            us: row.us.load(Relaxed),
            took: row.took.iter().map(|count| count.load(Relaxed)).collect(),
        });
        all.filter(|cost| cost.calls > 0).collect()
    }

    /// One line for each command that was called, as Redis's `INFO commandstats` has them.
    pub fn lines(&self) -> Vec<String> {
        let line = |cost: CommandCost| {
            let CommandCost { name, calls, failed, us, .. } = &cost;
            let per_call = *us as f64 / *calls as f64;
            let (p50, p99) = (cost.quantile(0.5), cost.quantile(0.99));
            format!(
                "cmdstat_{name}:calls={calls},usec={us},usec_per_call={per_call:.2},\
                 failed_calls={failed},p50_us={p50},p99_us={p99}"
            )
        };
        self.read().into_iter().map(line).collect()
    }
}

impl CommandCost {
    /// A bound in microseconds below which this part of the calls was.
    fn quantile(&self, part: f64) -> u64 {
        let wanted = (self.took.iter().sum::<u64>() as f64 * part).ceil() as u64;
        let mut sum = 0;
        let bucket = self.took.iter().position(|count| {
            sum += count;
            sum >= wanted
        });
        1 << bucket.unwrap_or(BUCKETS - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_one_row_and_the_last_ones_share_one() {
        let stats = Stats::new(3);
        let rows = ["get", "set", "get", "del", "unknown"].map(|name| stats.row(name));
        assert_eq!(rows, [1, 2, 1, OTHERS, OTHERS]);
        stats.note(2, Duration::from_micros(5), true);
        let lines = stats.lines();
        assert_eq!(lines.len(), 1);
        assert!(lines[0].starts_with("cmdstat_set:calls=1,usec=5,"), "{lines:?}");
    }
}
