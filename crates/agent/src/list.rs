//! The list of what a switch holds, as the controller is told it: in parts, the last of which says
//! so. With that the controller takes the list for all there is.
//!
//! A list that the queue to the session has room for goes out at once or waits, so that nothing
//! comes between its parts. A longer one goes on where it is as there is room: what comes meanwhile
//! is added, and what goes after it was told is noticed by the controller, which compares sums.

use api::proto::{FromSwitch, Held, from_switch::Body};
use decide::ItemKey;
use tokio::sync::mpsc::Sender;

use super::tell::{KEYS_PER_MESSAGE, beginning, send, tenant_keys};

/// How far the list is.
#[derive(Default)]
enum Progress {
    #[default]
    Told,
    /// There was no room to begin.
    Owed,
    /// These are left.
    Begun(Vec<ItemKey>),
}

#[derive(Default)]
pub(super) struct HeldList {
    progress: Progress,
    /// Nothing has been said yet on the stream that began last.
    owes_beginning: bool,
}

impl HeldList {
    /// A stream to the controller begins, and with it a list.
    pub fn begin_stream(&mut self) {
        self.owes_beginning = true;
        self.owe();
    }

    /// A list is wanted from its beginning.
    pub fn owe(&mut self) {
        self.progress = Progress::Owed;
    }

    pub fn is_told(&self) -> bool {
        matches!(self.progress, Progress::Told)
    }

    /// This is held now.
    pub fn add(&mut self, key: &ItemKey) {
        if let Progress::Begun(left) = &mut self.progress {
            left.push(key.clone());
        }
    }

    /// Tells what there is room for. `keys` are all that are held.
    pub fn tell(
        &mut self,
        keys: impl FnOnce() -> Vec<ItemKey>,
        holds: impl Fn(&ItemKey) -> bool,
        out: &Sender<FromSwitch>,
    ) {
        if let Progress::Owed = self.progress {
            let keys = keys();
            let parts = keys.len().div_ceil(KEYS_PER_MESSAGE).max(1);
            let messages = parts + usize::from(self.owes_beginning);
            if out.capacity() < messages.min(out.max_capacity()) {
                return;
            }
            if std::mem::take(&mut self.owes_beginning) {
                // There is room; a session that has ended wants neither.
                let _ = out.try_send(beginning());
            }
            self.progress = Progress::Begun(keys);
        }
        while let Progress::Begun(left) = &mut self.progress
            && out.capacity() > 0
        {
            let mut part = left.split_off(left.len().saturating_sub(KEYS_PER_MESSAGE));
            part.retain(&holds);
            let last = left.is_empty();
            send(out, Body::Held(Held { keys: tenant_keys(&part), last }));
            if last {
                self.progress = Progress::Told;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn key(number: usize) -> ItemKey {
        ItemKey { tenant: 1, key: number.to_string().into() }
    }

    /// In a queue of four messages, of which the session takes one a round.
    #[test]
    fn a_list_that_is_longer_than_the_queue_gets_through() {
        let (out, mut session) = tokio::sync::mpsc::channel(4);
        let mut held: BTreeSet<ItemKey> = (0..10 * KEYS_PER_MESSAGE).map(key).collect();
        let mut list = HeldList::default();
        list.begin_stream();
        let (mut told, mut rounds) = (BTreeSet::new(), 0);
        let mut is_over = false;
        while !is_over {
            rounds += 1;
            assert!(rounds < 20, "it does not end");
            list.tell(|| held.iter().cloned().collect(), |key| held.contains(key), &out);
            match session.try_recv().unwrap().body {
                Some(Body::Held(part)) => {
                    is_over = part.last;
                    let keys = part.keys.into_iter().flat_map(|of| of.keys);
                    told.extend(keys.map(|key| ItemKey { tenant: 1, key }));
                }
                body => assert!(body.is_none() && rounds == 1, "the beginning"),
            }
            if rounds == 2 {
                // It comes in the midst of the list, and another goes that was not told yet.
                held.insert(key(1_000_000));
                list.add(&key(1_000_000));
                held.pop_first();
            }
        }
        assert!(told == held && list.is_told());
    }
}
