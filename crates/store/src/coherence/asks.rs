//! What other stores that hold copies of a key have asked for: its newest value, as soon as no
//! write waits.

use wire::{Epoch, NodeId};

use super::{Nanos, WriteId, inquiry::BACKOFF_FIRST_NS};

/// One store would take a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ask {
    /// Who, and under which epoch.
    pub epoch: Epoch,
    /// The write that it invalidated its copy for, if it was told by a switch: it has its value.
    pub write: Option<WriteId>,
    /// When that was heard.
    pub since_ns: Nanos,
}

impl Ask {
    fn node(&self) -> NodeId {
        self.epoch.switch()
    }

    /// When it is due: an acknowledgement may be here before the write that it is for.
    fn due_ns(&self, last: Option<WriteId>) -> Nanos {
        match self.write {
            Some(write) if Some(write) != last => self.since_ns + BACKOFF_FIRST_NS,
            _ => self.since_ns,
        }
    }
}

/// Those of one key: one of each store at most, the newest. A key that no store holds copies of
/// takes a pointer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Asks(Option<Box<State>>);

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct State {
    asks: Vec<Ask>,
    /// The write that was applied last.
    last: Option<WriteId>,
    /// The copies are called back to make room: who asks now is pushed nothing.
    refuses: bool,
}

impl Asks {
    /// The copies are called back to make room for others: what their stores ask for meanwhile is
    /// dropped, and they have to come again.
    pub fn refuse(&mut self) {
        self.0.get_or_insert_default().refuses = true;
    }

    /// A store asks. What it asked under a lower epoch is over.
    pub fn put(&mut self, ask: Ask) {
        let asks = &mut self.0.get_or_insert_default().asks;
        match asks.iter_mut().find(|before| before.node() == ask.node()) {
            Some(before) if before.epoch < ask.epoch => *before = ask,
            Some(_) => {}
            None => asks.push(ask),
        }
    }

    /// The stores that a switch has told of this write.
    pub fn told(&self, write: WriteId) -> impl Iterator<Item = NodeId> {
        let asks = self.0.iter().flat_map(|state| &state.asks);
        let told = asks.filter(move |ask| ask.write == Some(write));
        told.map(Ask::node)
    }

    /// A write was applied.
    pub fn applied(&mut self, write: WriteId) {
        if let Some(state) = &mut self.0 {
            state.last = Some(write);
        }
    }

    /// The write that was applied last, if that is known.
    pub fn last(&self) -> Option<WriteId> {
        self.0.as_ref()?.last
    }

    /// Takes what is due, and says when the next is.
    pub fn take_due(&mut self, now_ns: Nanos) -> (Vec<Ask>, Option<Nanos>) {
        let Some(state) = &mut self.0 else { return (vec![], None) };
        if std::mem::take(&mut state.refuses) {
            state.asks.clear();
        }
        let last = state.last;
        let is_due = |ask: &mut Ask| ask.due_ns(last) <= now_ns;
        let due = state.asks.extract_if(.., is_due).collect();
        let next_ns = state.asks.iter().map(|ask| ask.due_ns(last)).min();
        (due, next_ns)
    }

    /// Whether nobody asks, and nobody is to be refused.
    pub fn is_empty(&self) -> bool {
        let none = |state: &State| state.asks.is_empty() && !state.refuses;
        self.0.as_deref().is_none_or(none)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(node: NodeId, number: u64, write: Option<WriteId>) -> Ask {
        Ask { epoch: Epoch::new(node, number), write, since_ns: 100 }
    }

    #[test]
    fn the_newest_of_each_store_is_kept_until_its_write_was_applied_or_does_not_come() {
        let mut asks = Asks::default();
        assert_eq!((asks.take_due(0), asks.is_empty()), ((vec![], None), true));
        asks.put(ask(1, 5, Some((7, 1))));
        asks.put(ask(1, 4, None));
        asks.put(ask(2, 9, None));
        assert_eq!(asks.told((7, 1)).collect::<Vec<_>>(), [1]);
        let late_ns = 100 + BACKOFF_FIRST_NS;
        assert_eq!(asks.take_due(100), (vec![ask(2, 9, None)], Some(late_ns)));
        asks.applied((7, 2));
        assert_eq!(asks.take_due(100), (vec![], Some(late_ns)), "another write");
        asks.applied((7, 1));
        assert_eq!(asks.take_due(100), (vec![ask(1, 5, Some((7, 1)))], None));
        asks.put(ask(1, 6, Some((7, 3))));
        assert_eq!(asks.take_due(late_ns).0.len(), 1, "it was lost");
        assert!(asks.is_empty());
        asks.refuse();
        asks.put(ask(1, 7, None));
        assert_eq!(asks.take_due(late_ns), (vec![], None));
        asks.put(ask(1, 8, None));
        assert_eq!(asks.take_due(late_ns).0.len(), 1, "once");
    }
}
