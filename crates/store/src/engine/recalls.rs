//! What others did in the backend: the copies of what they changed are called back.

use std::collections::VecDeque;

use super::Engine;
use crate::{
    backend::OutsideEvent, clock::boot_ns, coherence::Nanos, directory::KeyId, net::Outbox,
};

/// Keys called back at once when everything has changed, and the time between.
const RECALLS_AT_ONCE: usize = 1024;
const RECALLS_EVERY_NS: Nanos = 1_000_000;

/// Keys that are still to be called back.
#[derive(Default)]
pub(super) struct Recalls {
    keys: VecDeque<KeyId>,
    next_ns: Nanos,
}

impl Recalls {
    /// Calls these back as well.
    pub(super) fn also(&mut self, keys: impl IntoIterator<Item = KeyId>, now_ns: Nanos) {
        self.keys.extend(keys);
        self.next_ns = self.next_ns.max(now_ns);
    }

    pub(super) fn next_ns(&self) -> Option<Nanos> {
        (!self.keys.is_empty()).then_some(self.next_ns)
    }
}

impl Engine {
    /// The backend tells what others did, or that it would have.
    pub(super) fn happened_outside(&mut self, event: OutsideEvent, now_ns: u64, out: &mut Outbox) {
        match event {
            OutsideEvent::Seen(asked) => {
                let ago_ns = boot_ns().saturating_sub(asked);
                self.outside.seen(now_ns.saturating_sub(ago_ns));
            }
            OutsideEvent::Changed { tenant, key } => {
                self.counters.outside_changes += 1;
                if let Some(known) = self.tenants.get(tenant) {
                    let id = (tenant, known.secrets.hash.key_hash(tenant, &key));
                    self.held.end(id);
                    self.recall_changed(id, now_ns, out);
                }
            }
            OutsideEvent::Everything => {
                self.counters.outside_losses += 1;
                self.outside.all_changed();
                self.held.end_all();
                self.recalls.keys = self.directory.with_copies().collect();
                self.recalls.next_ns = now_ns;
                self.recall_more(now_ns, out);
            }
        }
    }

    /// Calls back what is still to be called back, as much as may be at once.
    pub(super) fn recall_more(&mut self, now_ns: u64, out: &mut Outbox) {
        let nothing = self.recalls.keys.is_empty() && self.outside.may_grant_reads();
        if nothing || self.recalls.next_ns > now_ns {
            return;
        }
        for _ in 0..RECALLS_AT_ONCE {
            match self.recalls.keys.pop_front() {
                Some(id) => self.recall_changed(id, now_ns, out),
                None => return self.outside.all_opened(),
            }
        }
        self.recalls.next_ns = now_ns + RECALLS_EVERY_NS;
    }

    /// Calls the copies of a key back that another has changed. A reply with a grant that is on its way, or that waits for
    /// the backend, counts as a copy: granted(X) was raised before the backend was asked, so X's acknowledgement
    /// proves that it will not install it. If a write of ours or a recall goes on, the copies are going already.
    fn recall_changed(&mut self, id: KeyId, now_ns: u64, out: &mut Outbox) {
        let Some(at) = self.directory.find(&id) else {
            return;
        };
        let had_copies = self.directory.update(at, |entry| {
            let had = !entry.state.copies().is_empty();
            if had {
                entry.state.recall(now_ns);
            }
            had
        });
        if had_copies == Some(true) {
            self.counters.outside_recalls += 1;
            self.outside.opened(id);
            self.drive(at, now_ns, out);
        }
    }
}
