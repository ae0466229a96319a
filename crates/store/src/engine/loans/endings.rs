//! What becomes of a loan at its two switches once it is over here: a store that finds an old
//! journal must find no value of it there, and its room is others'.
//!
//! Each switch is told two things, each until it answers: at once that the store has all there was,
//! and, when nobody asks any more which writes were kept, that it may forget the loan. No rule
//! rests on that: one that does not hear it keeps its record for a day.

use std::{cmp::Reverse, collections::BinaryHeap};

use wire::{Epoch, Flags, Header, Op, Status, maps::HashMap};

use super::{LentKey, Loans, packets::push_padded};
use crate::{
    coherence::{Nanos, RETAIN_NS, Role},
    directory::KeyId,
    engine::{context::Context, lease_holder::LeaseHolder},
};

/// Nobody asks a keeper so long after a loan.
const FORGET_NS: Nanos = RETAIN_NS + 1_000_000_000;
/// A switch is told again after this at first, then after twice the time.
const AGAIN_NS: Nanos = 100_000_000;
/// And so often at most, each of the two times.
const TRIES: u32 = 6;
/// Loans at switches that are remembered at once; of what comes on top switches hear nothing.
const MOST: usize = 32_768;

/// A loan, and one of its switches.
type EndingId = (KeyId, u16, u16);

/// What that switch is being told.
struct Ending {
    key: Box<[u8]>,
    home: LeaseHolder,
    since_ns: Nanos,
    /// It is to forget the loan, not only its value.
    forgets: bool,
    tries: u32,
    next_ns: Nanos,
}

impl Ending {
    /// It may forget the loan when its time has come.
    fn forget(&mut self) {
        self.forgets = true;
        self.tries = 0;
        self.next_ns = self.since_ns + FORGET_NS;
    }
}

/// All that are being told.
#[derive(Default)]
pub(super) struct Endings {
    open: HashMap<EndingId, Ending>,
    timers: BinaryHeap<Reverse<(Nanos, EndingId)>>,
}

impl Endings {
    /// When somebody is to be told next.
    pub fn next_ns(&self) -> Option<Nanos> {
        self.timers.peek().map(|Reverse((at_ns, _))| *at_ns)
    }

    /// A loan of this key is over.
    pub fn begin(&mut self, id: KeyId, lent: &LentKey, now_ns: Nanos) {
        for role in [Role::Owner, Role::Keeper] {
            self.begin_at(id, lent, role, lent.loan.terms().life, now_ns);
        }
    }

    /// A loan of this key under that life is over, at the switch that has this part in the one that
    /// is under way. If the switch answers under the life, it is first told to answer no more.
    pub fn begin_at(&mut self, id: KeyId, lent: &LentKey, role: Role, life: u16, now_ns: Nanos) {
        let (switch, home) = lent.party(role);
        if self.open.len() >= MOST {
            return;
        }
        let ending = Ending {
            key: lent.key.clone(),
            home,
            since_ns: now_ns,
            forgets: false,
            tries: 0,
            next_ns: now_ns,
        };
        self.open.insert((id, life, switch), ending);
        self.timers.push(Reverse((now_ns, (id, life, switch))));
    }

    /// Takes what is to be said to a switch now, if there is something.
    fn take_due(&mut self, now_ns: Nanos) -> Option<(Header, Box<[u8]>, LeaseHolder)> {
        while let Some(&Reverse((at_ns, ending_id))) = self.timers.peek()
            && at_ns <= now_ns
        {
            self.timers.pop();
            let Some(ending) = self.open.get_mut(&ending_id).filter(|e| e.next_ns == at_ns) else {
                continue;
            };
            if ending.tries == TRIES {
                if ending.forgets {
                    self.open.remove(&ending_id);
                    continue;
                }
                ending.forget();
                self.timers.push(Reverse((ending.next_ns, ending_id)));
                continue;
            }
            ending.next_ns = now_ns + (AGAIN_NS << ending.tries);
            ending.tries += 1;
            self.timers.push(Reverse((ending.next_ns, ending_id)));
            return Some((word(ending_id, ending.forgets), ending.key.clone(), ending.home));
        }
        None
    }

    /// A switch says what it has of a loan. Whether that is one of these.
    pub fn answered(&mut self, header: &Header) -> bool {
        let id = (header.tenant, header.key_hash);
        let ending_id = (id, header.life, header.epoch.switch());
        let Some(ending) = self.open.get_mut(&ending_id) else { return false };
        let is_done = header.status == Status::Ok && header.version == 0;
        match (is_done, ending.forgets) {
            (true, false) => {
                ending.forget();
                self.timers.push(Reverse((ending.next_ns, ending_id)));
            }
            // One that answers twice has not heard the second thing yet.
            (true, true) if ending.tries == 0 => {}
            (true, true) => _ = self.open.remove(&ending_id),
            (false, _) if header.status != Status::Ok => _ = self.open.remove(&ending_id),
            (false, _) => {}
        }
        true
    }
}

/// What a switch is told of a loan that is over.
fn word((id, life, switch): EndingId, forgets: bool) -> Header {
    let mut header = Header::new(Op::TakeRequest);
    (header.tenant, header.key_hash) = id;
    header.life = life;
    header.epoch = Epoch::new(switch, 0);
    header.flags = Flags::GRANT.with(Flags::ALL);
    if forgets {
        header.flags = header.flags.with(Flags::COMPARE);
    }
    header
}

impl Loans {
    /// Tells switches of loans that are over.
    pub(super) fn tick_endings(&mut self, cx: &mut Context) {
        while let Some((header, key, home)) = self.endings.take_due(cx.now_ns) {
            push_padded(cx, header, &key, home);
        }
    }
}
