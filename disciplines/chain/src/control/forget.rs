//! Sessions of clients that have gone are forgotten (rule 12): by numbers of the view. A view that
//! nothing else ends gets another number when clients came; once all members have left a number for
//! a minute, sessions that were last used under it may go.

use std::{collections::BTreeSet, time::Duration};

use bytes::Bytes;
use decide::{Action, Change, Key, Outcome, SwitchId};

use super::{items, tenant::Tenant};
use crate::report::IdleSessions;

/// A client sends nothing that it began to send under a number that was left this long ago, and
/// clocks may differ by as much again.
const AFTER: Duration = Duration::from_secs(60);
/// Another number is made after this time, if there are sessions at all ...
const RENEW_AFTER: Duration = Duration::from_secs(600);
/// ... or after [`AFTER`], if so many were made.
const RENEW_SESSIONS: usize = 32;
/// Removals that are on their way at a time.
const MOST: usize = 1024;

/// What is known of sessions.
#[derive(Debug, Default)]
pub(crate) struct SessionExpiry {
    /// The number that all members go by, and since when that is known.
    since: Option<(u64, Duration)>,
    /// Sessions that were made since another number.
    made: usize,
    asked: BTreeSet<(SwitchId, Key)>,
}

impl SessionExpiry {
    /// A session was made.
    pub fn made(&mut self) {
        self.made += 1;
    }

    /// Whether a session is about to go somewhere.
    pub fn has(&self, key: &Key) -> bool {
        self.asked.iter().any(|(_, other)| other == key)
    }
}

impl Tenant {
    /// Takes note of time: what may be forgotten by now, and whether there is to be another number.
    pub(super) fn go_on_forgetting(&mut self, now: Duration, out: &mut Vec<Action>) {
        let number = self.memory.number;
        if !self.is_confirmed() {
            return;
        }
        let since = match self.forgetting.since {
            Some((of, since)) if of == number => since,
            _ => {
                self.forgetting.since = Some((number, now));
                self.forgetting.made = 0;
                now
            }
        };
        let Some(view) = &mut self.memory.view else {
            return;
        };
        if view.purge_below < number && now >= since + AFTER {
            // Told, not numbered: nobody does anything else for it.
            view.purge_below = number;
            self.is_due = true;
        }
        let many = self.forgetting.made >= RENEW_SESSIONS || self.full;
        let is_time = many && now >= since + AFTER || now >= since + RENEW_AFTER;
        let is_quiet = self.join.is_none() && self.removals.is_empty() && self.knows_all();
        if is_time && is_quiet && self.has_sessions() {
            let view = self.memory.view.clone();
            if let Some(view) = view {
                self.replace(now, view, out);
            }
        }
    }

    fn has_sessions(&self) -> bool {
        let mut members = self.members().into_iter();
        members.any(|member| {
            let held = self.held.get(&member).into_iter().flatten();
            held.into_iter().any(|key| items::is_session(key))
        })
    }

    /// A member has sessions that nobody used for long. Each is its own affair: what they say is of
    /// writes that passed it.
    pub(super) fn may_forget(&mut self, by: SwitchId, idle: IdleSessions, out: &mut Vec<Action>) {
        let is_quiet = self.is_confirmed() && self.join.is_none();
        if idle.number != self.memory.number || !is_quiet {
            return;
        }
        for (key, seen) in idle.sessions {
            let place = (by, key.clone());
            let is_busy = self.items.is_making(&key) || self.forgetting.asked.contains(&place);
            let is_full = self.forgetting.asked.len() >= MOST;
            if is_busy || is_full || !items::is_session(&key) {
                continue;
            }
            self.forgetting.asked.insert(place);
            // Not if it is used after all.
            let change = Change::RemoveIf(Bytes::copy_from_slice(&seen.to_ne_bytes()));
            out.push(Action::Change { switch: by, tenant: self.id, key, change });
        }
    }

    /// An answer to a change of an item; whether it was a session that was to go.
    pub(super) fn forget_answered(
        &mut self,
        switch: SwitchId,
        key: &Key,
        (change, outcome): (&Change, Outcome),
    ) -> bool {
        let is_removal = matches!(change, Change::RemoveIf(_));
        let is_it = is_removal && self.forgetting.asked.remove(&(switch, key.clone()));
        // There is room again.
        self.full &= !(is_it && outcome == Outcome::Done);
        is_it
    }
}
