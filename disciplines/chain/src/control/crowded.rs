//! Keys and sessions that there is no room for although their tenant has some: a member's table has
//! as many of the kind in their bucket as it takes. The heads are told, and say so to whoever asks.

use std::{collections::BTreeMap, time::Duration};

use decide::Key;

use crate::view::FULL_ROWS;

/// Whether there is room by now is found out after this time, if somebody still asks.
const PAUSE: Duration = Duration::from_secs(10);
/// So many are known at a time; others are as if they were being made.
const MOST: usize = FULL_ROWS as usize - 1;

/// All of them, each until when it is taken for one.
#[derive(Debug, Default)]
pub(super) struct Crowded(BTreeMap<Key, Duration>);

impl Crowded {
    /// A member had no room for this one.
    pub fn add(&mut self, now: Duration, key: &Key) {
        if self.0.len() < MOST || self.0.contains_key(key) {
            self.0.insert(key.clone(), now + PAUSE);
        }
    }

    /// Time passed.
    pub fn go_on(&mut self, now: Duration) {
        self.0.retain(|_, until| *until > now);
    }

    /// Whether there is no room for it.
    pub fn has(&self, key: &Key) -> bool {
        self.0.contains_key(key)
    }

    /// Those that there is no room for.
    pub fn keys(&self) -> impl Iterator<Item = &Key> {
        self.0.keys()
    }
}
