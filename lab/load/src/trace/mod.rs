//! Requests in an order of their own: recorded by others in a file ([`file`]), or made like those
//! of a published workload ([`published`]). A source plays them one after the other, each at a time
//! of the load's own, and begins again after the last.
//!
//! Keys become the lab's own, in the order in which they come first, and of its length. What is no
//! read is played as a write, since every key of a load is always there: a delete, an increment. So
//! cached and uncached, reads and writes stay what they were; times to live and misses do not.

mod file;
mod player;
mod published;
#[cfg(test)]
mod tests;

use std::{
    fs::File,
    path::{Path, PathBuf},
};

use anyhow::{Context, ensure};
use serde::{Deserialize, Serialize};

pub(crate) use player::Player;

use crate::workload::KEY_LEN;

/// Where the requests come from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub enum TraceSpec {
    /// A file in Twitter's or Meta's format, which its first line tells apart.
    File {
        /// The file.
        path: PathBuf,
        /// At most so many of its requests are played, from its first on.
        most: usize,
    },
    /// Requests made like those of a published workload: `ycsb-a` to `ycsb-f`, or `twitter-N` for a
    /// cluster of the table that was published with Twitter's traces.
    Like {
        /// Its name.
        workload: String,
        /// How many keys there are.
        keys: usize,
        /// How many requests are made, before they begin again.
        requests: usize,
    },
}

impl TraceSpec {
    /// Checks what can be checked without reading all of it.
    ///
    /// # Errors
    /// A file that is not there, a workload that nobody knows, or no keys or requests.
    pub fn check(&self) -> anyhow::Result<()> {
        match self {
            TraceSpec::File { path, most } => {
                ensure!(*most > 0, "trace: most = 0: at least one request is needed");
                open(path).map(drop)
            }
            TraceSpec::Like { workload, keys, requests } => {
                published::find(workload, [*keys, *requests]).map(drop)
            }
        }
    }

    /// Reads or makes all of it; the seed decides what is made.
    ///
    /// # Errors
    /// A file that cannot be read, or whose line is none of its format: which line, and what was
    /// expected. A workload that nobody knows, or no keys or requests.
    pub fn trace(&self, seed: u64) -> anyhow::Result<Trace> {
        self.check()?;
        match self {
            TraceSpec::File { path, most } => {
                let from = std::io::BufReader::new(open(path)?);
                file::read(from, *most).with_context(|| format!("trace {}", path.display()))
            }
            TraceSpec::Like { workload, keys, requests } => {
                published::made_like(workload, [*keys, *requests], seed)
            }
        }
    }
}

fn open(path: &Path) -> anyhow::Result<File> {
    let file = File::open(path).with_context(|| format!("trace {}", path.display()))?;
    ensure!(file.metadata()?.is_file(), "trace {}: a file is expected", path.display());
    Ok(file)
}

/// Shortest and longest value that is played, in bytes: one that tells who wrote it, and one that a
/// packet carries.
const VALUE_LEN: [usize; 2] = [KEY_LEN + 16, wire::max_value(KEY_LEN)];

/// One request, as it is played.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceRequest {
    /// Number of the key.
    pub key: u32,
    /// What a write writes, or the longest value that a read may find, in bytes.
    pub value_len: u16,
    /// Whether it writes.
    pub is_write: bool,
}

/// Requests in their order, and the keys that they ask for.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// All of them.
    pub requests: Vec<TraceRequest>,
    /// The longest value of each key, in bytes: keys have values of this length before any of
    /// these requests.
    pub lengths: Vec<u16>,
    /// What there is in it.
    pub tally: TraceTally,
}

/// What a trace consists of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceTally {
    /// Reads.
    pub reads: u64,
    /// Writes that write a value.
    pub writes: u64,
    /// Deletes, increments and what appends: they are played as writes.
    pub played_as_writes: u64,
    /// Requests whose value was longer than what a packet carries: it is played as long as that.
    pub shortened: u64,
    /// Requests whose value was too short to tell who wrote it: it is played as long as needed.
    pub lengthened: u64,
}

/// What a request does to its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Read,
    Write,
    /// Something else that a cache may not answer.
    Change,
}

impl Trace {
    /// How many keys it asks for.
    pub fn keys(&self) -> usize {
        self.lengths.len()
    }

    /// Adds a request for a key, which is the next new one or an older one; a value of no length is
    /// one that nobody knows.
    fn add(&mut self, key: u32, action: Action, value_len: usize) {
        let [shortest, longest] = VALUE_LEN;
        let len = value_len.clamp(shortest, longest) as u16;
        if key as usize == self.lengths.len() {
            self.lengths.push(0);
        }
        if value_len > 0 {
            let longest_of_key = &mut self.lengths[key as usize];
            *longest_of_key = len.max(*longest_of_key);
            self.tally.shortened += u64::from(value_len > longest);
            self.tally.lengthened += u64::from(value_len < shortest);
        }
        let of_action = match action {
            Action::Read => &mut self.tally.reads,
            Action::Write => &mut self.tally.writes,
            Action::Change => &mut self.tally.played_as_writes,
        };
        *of_action += 1;
        let is_write = action != Action::Read;
        let value_len = if value_len > 0 { len } else { 0 };
        self.requests.push(TraceRequest { key, value_len, is_write });
    }

    /// Gives lengths to what has none: keys of which nobody knows any have the others' mean, and
    /// reads and writes that of their key.
    ///
    /// # Errors
    /// There is no request.
    fn finished(mut self) -> anyhow::Result<Trace> {
        ensure!(!self.requests.is_empty(), "there is no request in it");
        let known = self.lengths.iter().filter(|len| **len > 0);
        let (sum, count) = known.fold((0, 0), |(sum, n), len| (sum + u64::from(*len), n + 1));
        let mean = sum.checked_div(count).map_or(VALUE_LEN[0] as u16, |mean| mean as u16);
        for len in self.lengths.iter_mut().filter(|len| **len == 0) {
            *len = mean;
        }
        for request in &mut self.requests {
            let of_key = self.lengths[request.key as usize];
            if !request.is_write || request.value_len == 0 {
                request.value_len = of_key;
            }
        }
        Ok(self)
    }
}
