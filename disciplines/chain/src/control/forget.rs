//! Sessions of clients that have gone are forgotten (rule 12): by numbers of the view. A view that
//! nothing else ends gets another number when clients came. Sessions that were last used before all
//! had a number may go under the number after that, if it was made a minute later: a write that is
//! sent again says the number that its client has by then, but not one that was made after the
//! client gave up.

use std::{collections::BTreeSet, time::Duration};

use bytes::Bytes;
use decide::{Answer, Change, Key, Outcome, SwitchId};

use super::{
    context::{Context, Facts},
    item,
    items::Items,
};
use crate::{report::IdleSessions, view::View};

/// A client sends nothing that it began to send under a number that was left this long ago, and
/// clocks may differ by as much again.
const AFTER: Duration = Duration::from_secs(60);
/// Another number is made after this time, if there are sessions at all, and the next one after
/// [`AFTER`], under which those go that were not used under the first ...
const RENEW_AFTER: Duration = Duration::from_secs(600);
/// ... or each after [`AFTER`], if so many were made.
const RENEW_SESSIONS: usize = 32;
/// Removals that are on their way at a time.
const MOST: usize = 1024;

/// What is known of sessions.
#[derive(Debug, Default)]
pub(super) struct SessionExpiry {
    /// The number that all members go by, and since when that is known.
    since: Option<(u64, Duration)>,
    /// The newest number that all have gone by for [`AFTER`].
    settled: u64,
    /// The number was made for sessions to be used under, or not; under the next one they go.
    is_followed: bool,
    /// Sessions that were made since another number.
    made: usize,
    asked: BTreeSet<(SwitchId, Key)>,
}

impl SessionExpiry {
    /// So many sessions were made.
    pub fn made(&mut self, sessions: usize) {
        self.made += sessions;
    }

    /// Whether it is a session that is about to go somewhere.
    pub fn has(&self, key: &Key) -> bool {
        item::is_session(key) && self.asked.iter().any(|(_, other)| other == key)
    }

    /// Takes note of time: what may be forgotten by now, and whether there is to be another number;
    /// then returns the view that gets it. That may be while nobody joins and no key is being
    /// removed (`is_quiet`).
    pub fn go_on(&mut self, cx: &mut Context<'_>, is_quiet: bool) -> Option<View> {
        let number = cx.facts.memory.number;
        if !cx.facts.is_confirmed() {
            return None;
        }
        let since = match self.since {
            Some((of, since)) if of == number => since,
            _ => {
                self.since = Some((number, cx.now));
                self.made = 0;
                cx.now
            }
        };
        let view = cx.facts.memory.view.as_mut()?;
        if view.purge_below < self.settled && self.settled < number {
            // Told, not numbered: nobody does anything else for it.
            view.purge_below = self.settled;
            cx.facts.is_due = true;
        }
        if cx.now < since + AFTER {
            return None;
        }
        self.settled = number;
        let many = self.made >= RENEW_SESSIONS || cx.facts.full;
        let is_time = many || self.is_followed || cx.now >= since + RENEW_AFTER;
        if !is_time || !is_quiet || !cx.facts.knows_all() || !has_sessions(cx.facts) {
            return None;
        }
        self.is_followed = many || !self.is_followed;
        cx.facts.view().cloned()
    }

    /// A member has sessions that nobody used for long, and nobody joins. Each is its own affair:
    /// what they say is of writes that passed it.
    pub fn begin(&mut self, cx: &mut Context<'_>, by: SwitchId, idle: IdleSessions, items: &Items) {
        if idle.number != cx.facts.memory.number {
            return;
        }
        for (key, seen) in idle.sessions {
            let place = (by, key.clone());
            let is_busy = items.is_making(&key) || self.asked.contains(&place);
            let is_full = self.asked.len() >= MOST;
            if is_busy || is_full || !item::is_session(&key) {
                continue;
            }
            self.asked.insert(place);
            // Not if it is used after all.
            let change = Change::RemoveIf(Bytes::copy_from_slice(&seen.to_ne_bytes()));
            cx.ask(by, key, change);
        }
    }

    /// A change of an item was answered; whether it was a session that was to go.
    pub fn answered(&mut self, cx: &mut Context<'_>, answer: Answer<'_>) -> bool {
        let is_removal = matches!(answer.change, Change::RemoveIf(_));
        let is_it = is_removal && self.asked.remove(&(answer.switch, answer.key.clone()));
        // There is room again.
        cx.facts.full &= !(is_it && answer.outcome == Outcome::Done);
        is_it
    }
}

fn has_sessions(facts: &Facts) -> bool {
    let mut members = facts.members().into_iter();
    members.any(|member| {
        let mut held = facts.held.get(&member).into_iter().flatten();
        held.any(|key| item::is_session(key))
    })
}
