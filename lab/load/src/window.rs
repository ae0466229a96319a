//! The requests that a generator waits for: the source puts each in when it is sent, and takes it
//! out when it is answered or has been waited for long enough.

use crate::lives::NamedLife;

/// What is remembered of a request until it is answered or lost.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SentRequest {
    /// When it was sent first: from here on it can be lost.
    pub at_ns: u64,
    /// When it was to be sent: from here on whoever wanted it waits.
    pub due_ns: u64,
    /// Version that the answer must not fall behind.
    pub floor: u64,
    /// Stamp of a write, 0 for reads.
    pub stamp: u64,
    pub key: u32,
    /// Index of the tenant.
    pub tenant: u16,
    /// Bytes of the value, or of room for one.
    pub value_len: u16,
    /// What a write names of rule 7.
    pub named: NamedLife,
    /// Interval of the measured part it was sent in; [`SentRequest::UNCOUNTED`] in a warm-up.
    pub interval: u32,
    /// Set by [`Window::push`].
    pub open: bool,
}

impl SentRequest {
    pub const UNCOUNTED: u32 = u32::MAX;

    pub fn is_write(&self) -> bool {
        self.stamp != 0
    }
}

/// Requests on their way, in a ring indexed by request id. Ids rise by one, so the oldest are
/// found without a search, and an answer without a hash.
pub(super) struct Window {
    slots: Vec<SentRequest>,
    oldest: u64,
    next: u64,
    open: usize,
}

impl Window {
    /// `capacity` requests at most; a power of two.
    pub fn new(capacity: usize) -> Window {
        assert!(capacity.is_power_of_two() && capacity < 1 << 31);
        Window { slots: vec![SentRequest::default(); capacity], oldest: 1, next: 1, open: 0 }
    }

    fn slot(&mut self, id: u64) -> &mut SentRequest {
        let mask = self.slots.len() - 1;
        &mut self.slots[id as usize & mask]
    }

    /// How many are neither answered nor lost.
    pub fn open(&self) -> usize {
        self.open
    }

    /// Whether no further request can be remembered.
    pub fn is_full(&self) -> bool {
        (self.next - self.oldest) as usize == self.slots.len()
    }

    /// Remembers a request and gives it its id. The window must not be full.
    pub fn push(&mut self, sent: SentRequest) -> u64 {
        let id = self.next;
        *self.slot(id) = SentRequest { open: true, ..sent };
        self.next = id + 1;
        self.open += 1;
        id
    }

    /// The request with this id, if it is neither answered nor lost.
    pub fn get(&mut self, id: u64) -> Option<&mut SentRequest> {
        if !(self.oldest..self.next).contains(&id) {
            return None;
        }
        Some(self.slot(id)).filter(|slot| slot.open)
    }

    /// Likewise; it is now answered.
    pub fn take(&mut self, id: u64) -> Option<SentRequest> {
        let slot = self.get(id)?;
        let sent = *slot;
        slot.open = false;
        self.open -= 1;
        self.skip();
        Some(sent)
    }

    /// Leaves behind what is answered or lost: the oldest is an open one again.
    fn skip(&mut self) {
        while self.oldest != self.next && !self.slot(self.oldest).open {
            self.oldest += 1;
        }
    }

    /// When the oldest open request was sent.
    pub fn oldest_ns(&self) -> Option<u64> {
        let mask = self.slots.len() - 1;
        (self.open > 0).then(|| self.slots[self.oldest as usize & mask].at_ns)
    }

    /// The first open request from `id` on.
    fn open_from(&self, id: u64) -> Option<(u64, u64)> {
        let mask = self.slots.len() - 1;
        let ids = id.max(self.oldest)..self.next;
        let mut all = ids.map(|id| (id, &self.slots[id as usize & mask]));
        all.find_map(|(id, slot)| slot.open.then_some((id, slot.at_ns)))
    }

    /// The first open request from `*from` on, if it was sent at `until_ns` or before; `*from` is
    /// then behind it.
    pub fn overdue(&self, from: &mut u64, until_ns: u64) -> Option<u64> {
        let (id, at_ns) = self.open_from(*from)?;
        *from = id + u64::from(at_ns <= until_ns);
        (at_ns <= until_ns).then_some(id)
    }

    /// When the first open request from `from` on was sent.
    pub fn sent_ns(&self, from: u64) -> Option<u64> {
        self.open_from(from).map(|(_, at_ns)| at_ns)
    }

    /// The oldest open request if it was sent before `deadline_ns` (or the window is full); it is
    /// now lost.
    pub fn pop_lost(&mut self, deadline_ns: u64) -> Option<SentRequest> {
        let full = self.is_full();
        let oldest = self.oldest_ns()?;
        if oldest >= deadline_ns && !full {
            return None;
        }
        self.take(self.oldest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ns: u64) -> SentRequest {
        SentRequest { at_ns: ns, ..SentRequest::default() }
    }

    #[test]
    fn each_open_request_is_overdue_once() {
        let mut window = Window::new(8);
        let ids = [10, 20, 30, 40].map(|ns| window.push(at(ns)));
        window.take(ids[1]);
        let mut from = 0;
        assert_eq!(window.overdue(&mut from, 9), None);
        assert_eq!(window.sent_ns(from), Some(10));
        assert_eq!(window.overdue(&mut from, 30), Some(ids[0]));
        assert_eq!(window.overdue(&mut from, 30), Some(ids[2]));
        assert_eq!(window.overdue(&mut from, 30), None);
        assert_eq!(window.sent_ns(from), Some(40));
        window.take(ids[3]);
        assert_eq!((window.overdue(&mut from, 99), window.sent_ns(from)), (None, None));
    }

    #[test]
    fn answers_are_taken_once() {
        let mut window = Window::new(4);
        let id = window.push(at(10));
        assert!(window.take(id + 1).is_none());
        assert!(window.take(id).is_some());
        assert!(window.take(id).is_none());
        assert_eq!(window.open(), 0);
        assert!(window.pop_lost(100).is_none());
        assert!(window.take(id).is_none(), "behind the oldest");
    }

    #[test]
    fn the_oldest_are_lost_first() {
        let mut window = Window::new(4);
        let ids: Vec<u64> = (1..=3).map(|ns| window.push(at(ns))).collect();
        window.take(ids[1]);
        assert_eq!(window.oldest_ns(), Some(1));
        assert_eq!(window.pop_lost(3).unwrap().at_ns, 1);
        assert_eq!(window.oldest_ns(), Some(3), "the one between was answered");
        assert!(window.pop_lost(3).is_none(), "sent at 3: not yet");
        assert_eq!(window.pop_lost(4).unwrap().at_ns, 3);
        assert_eq!(window.open(), 0);
    }

    #[test]
    fn a_full_window_gives_up_its_oldest() {
        let mut window = Window::new(2);
        window.push(at(1));
        window.push(at(2));
        assert!(window.is_full());
        assert_eq!(window.pop_lost(0).unwrap().at_ns, 1);
        assert!(!window.is_full());
    }
}
