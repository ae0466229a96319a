//! The packets of the model's world, reduced to what the rules look at.

use wire::Epoch;

use crate::{Call, Return, bounds::Path};

/// A value with its version, as it travels and as a copy holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Item {
    pub value: u8,
    /// The second part, in a world of parts.
    pub rest: u8,
    pub version: u64,
    /// In a grant: what remained of its life when the store answered, in milliseconds; 0: it does
    /// not end.
    pub life_ms: u32,
}

/// What the key begins with.
pub(crate) const FIRST: Item = Item { value: 0, rest: 0, version: 1, life_ms: 0 };

/// What is in flight. Whoever has it next is part of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Message {
    /// A client's request that has passed the first `passed` switches of its path.
    Request(Request),
    /// The store's answer, with `left` switches of the path still before it, the last of
    /// them first.
    Reply(Reply),
    /// A switch's agent asks for a grant.
    Fetch(Epoch),
    /// The grant that answers it.
    FetchReply(Epoch, Item),
    /// To a switch: (X, granted(X)).
    Invalidate(Epoch),
    /// To the store: X is invalid up to this epoch; and the number of the INVALIDATE that
    /// it answers.
    Ack(Epoch, u64),
    /// To the store; the time at which it was sent.
    LeaseRequest { switch: u16, sent_ns: u64 },
    /// To the store: of this term nothing is served any more, nor of what was asked for before.
    LeaseReturn { switch: u16, term: u64, before_ns: u64 },
    /// To the switch.
    LeaseReply { switch: u16, sent_ns: u64, term: u64 },
    /// A command on its way to the backend. On a connection that was lost: it takes place before
    /// this time, or never.
    Command(Request, Option<u64>),
    /// The backend's answer to a command.
    Answer(Request, OrderedReturn),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Request {
    pub client: usize,
    pub number: u64,
    /// Step of time at which the operation began.
    pub since: u8,
    pub call: OrderedCall,
    /// For a compare-and-set, or of the first part, if it is about the second.
    pub version: u64,
    /// Whether it is about the first and the second part of the value; in a world without
    /// parts, both.
    pub parts: [bool; 2],
    /// Which question of its operation it is: a reader of parts asks several.
    pub question: u8,
    pub path: Path,
    pub passed: usize,
    pub epoch: Epoch,
    pub grant: bool,
    /// It is a command by the RESP port: the key is held for it.
    pub holds: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Reply {
    pub client: usize,
    pub number: u64,
    pub said: OrderedReturn,
    pub version: u64,
    /// Whether it is about the second part of the value.
    pub second: bool,
    pub question: u8,
    pub path: Path,
    pub left: usize,
    pub epoch: Epoch,
    pub grant: Option<Item>,
}

/// A call with an order, so that what is in flight can be kept sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OrderedCall(pub Call);

/// A return with an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OrderedReturn(pub Return);

macro_rules! ordered {
    ($name:ident, $key:expr) => {
        impl PartialOrd for $name {
            fn partial_cmp(&self, other: &$name) -> Option<std::cmp::Ordering> {
                Some(self.cmp(other))
            }
        }
        impl Ord for $name {
            fn cmp(&self, other: &$name) -> std::cmp::Ordering {
                $key(&self.0).cmp(&$key(&other.0))
            }
        }
    };
}

ordered!(OrderedCall, |call: &Call| match *call {
    Call::Read => (0, 0, 0),
    Call::Write(value) => (1, value, 0),
    Call::Delete => (2, 0, 0),
    Call::CompareAndSet { from, to } => (3, from, to),
});
ordered!(OrderedReturn, |said: &Return| match *said {
    Return::Value(value) => (0, value),
    Return::Done => (1, None),
    Return::NotFound => (2, None),
    Return::Mismatch => (3, None),
});
