//! A holder's lease of one store: asked for while copies are wanted or used, and let go when not.

use std::net::SocketAddr;

use wire::{Epoch, Header, HolderProof, NodeId, Op, Status};

use crate::{BorrowedLease, Nanos};

/// A request without an answer is sent again after this time, then after twice that and so on.
const AGAIN_NS: Nanos = 20_000_000;
/// The longest time between two requests.
const AGAIN_MOST_NS: Nanos = 2_000_000_000;
/// Requests without an answer after which a store is taken not to lend.
const TRIES: u32 = 5;
/// Renewals without a read of a copy in between after which a lease is let lapse.
const IDLE_RENEWALS: u32 = 45;
/// How often in a row it is asked again at once, with the token that it wants to see.
const AT_ONCE: u32 = 2;
/// A store that does not lend, or has no number for another holder, is not asked for so long.
const REFUSED_NS: Nanos = 1_000_000_000;
/// Keys that wait for a lease at most.
const WAITING_MOST: usize = 1024;

/// A key that waits for a lease, with its hash in the cache.
pub(crate) type WantedKey = (u64, Box<[u8]>);

/// A request that is not answered.
struct PendingRequest {
    nonce: u64,
    at_ns: Nanos,
}

/// What is to be done next about a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LinkTask {
    /// It is to be asked for.
    Ask,
    /// It has lapsed, and nobody wants another: its copies are forgotten.
    Lapsed,
    /// The store does not answer: nobody waits for it any longer.
    Mute,
}

/// What an answer of a store comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LinkAnswer {
    /// It is none to what was asked.
    Stray,
    /// It lends: all shelves are to know.
    Lent,
    /// It is to be asked again at once.
    AskAgain,
    /// It does not lend now.
    Refused,
}

/// One store, as a holder knows it.
pub(crate) struct Link {
    pub address: SocketAddr,
    /// The number that the store has given; 0: none.
    pub number: NodeId,
    pub proof: HolderProof,
    pub lease: BorrowedLease,
    asked: Option<PendingRequest>,
    tries: u32,
    /// What it is to show when it asks next, for the store does not know it at its address; 0:
    /// nothing. Until it has a lease there it is who it was, to those who call copies back.
    address_token: u64,
    /// How often in a row it was given such a token.
    shown: u32,
    /// When there is something to do about the lease.
    pub next_ns: Option<Nanos>,
    waiting: Vec<WantedKey>,
    idle: u32,
    not_before_ns: Nanos,
}

impl Link {
    /// To the store at this address, which has lent nothing.
    pub fn new(address: SocketAddr) -> Link {
        Link {
            address,
            number: 0,
            proof: HolderProof::default(),
            lease: BorrowedLease::default(),
            asked: None,
            tries: 0,
            address_token: 0,
            shown: 0,
            next_ns: None,
            waiting: vec![],
            idle: 0,
            not_before_ns: 0,
        }
    }

    /// A key waits for a lease. False: there is no use in that.
    pub fn wait(&mut self, key: WantedKey, now_ns: Nanos) -> bool {
        if now_ns < self.not_before_ns || self.waiting.len() == WAITING_MOST {
            return false;
        }
        self.waiting.push(key);
        if self.asked.is_none() {
            self.next_ns = Some(now_ns);
        }
        true
    }

    /// The keys that wait.
    pub fn take_waiting(&mut self) -> Vec<WantedKey> {
        std::mem::take(&mut self.waiting)
    }

    /// Something may be due. `used`: how many reads copies of this store have answered since the
    /// last time.
    pub fn due(&mut self, used: impl FnOnce() -> u32, now_ns: Nanos) -> Option<LinkTask> {
        self.next_ns.filter(|at_ns| *at_ns <= now_ns)?;
        let holds = self.lease.holds(now_ns);
        if !holds && self.waiting.is_empty() {
            self.rest();
            return Some(LinkTask::Lapsed);
        }
        if self.asked.is_some() && self.tries >= TRIES && !holds {
            self.rest();
            self.not_before_ns = now_ns + REFUSED_NS;
            return Some(LinkTask::Mute);
        }
        if holds && self.asked.is_none() && self.waiting.is_empty() {
            self.idle = if used() == 0 { self.idle + 1 } else { 0 };
            if self.idle > IDLE_RENEWALS {
                self.next_ns = Some(self.lease.until_ns());
                return None;
            }
        }
        Some(LinkTask::Ask)
    }

    fn rest(&mut self) {
        self.asked = None;
        self.tries = 0;
        self.next_ns = None;
        self.idle = 0;
    }

    /// The request to send now, under a number that no request had before.
    pub fn ask(&mut self, nonce: u64, now_ns: Nanos) -> Header {
        self.asked = Some(PendingRequest { nonce, at_ns: now_ns });
        let again_ns = (AGAIN_NS << self.tries.min(16)).min(AGAIN_MOST_NS);
        self.next_ns = Some(now_ns + again_ns);
        self.tries += 1;
        let (number, proof) = match self.address_token {
            0 => (self.number, self.proof),
            token => (0, HolderProof { token, term: 0 }),
        };
        Header {
            request: nonce,
            version: now_ns,
            epoch: Epoch::new(number, 0),
            key_hash: proof.to_hash(),
            ..Header::new(Op::HolderLeaseRequest)
        }
    }

    /// An answer to a request of this holder. `newest`: the highest epoch that it has taken.
    pub fn answered(&mut self, header: &Header, newest: u64, now_ns: Nanos) -> LinkAnswer {
        let Some(asked) = self.asked.take_if(|asked| asked.nonce == header.request) else {
            return LinkAnswer::Stray;
        };
        let proof = HolderProof::from_hash(header.key_hash);
        match header.status {
            Status::Ok => {
                let length_ns = u64::from(header.expiry_ms) * 1_000_000;
                let number = header.epoch.switch();
                // Another number, or another token, is another holder to the store: what this one
                // was granted before, the store does not know of any more. Terms of two numbers
                // may be alike.
                if number != self.number || proof.token != self.proof.token {
                    self.lease = BorrowedLease::default();
                }
                (self.number, self.proof) = (number, proof);
                if !self.lease.lent(proof.term, asked.at_ns, length_ns, now_ns, newest) {
                    self.next_ns = Some(now_ns);
                    return LinkAnswer::Refused;
                }
                (self.tries, self.shown, self.address_token) = (0, 0, 0);
                self.next_ns = Some(asked.at_ns + length_ns / 3);
                LinkAnswer::Lent
            }
            Status::TryAgain if proof.token != 0 => {
                self.address_token = proof.token;
                self.shown += 1;
                match self.shown <= AT_ONCE {
                    true => LinkAnswer::AskAgain,
                    false => self.refused(now_ns),
                }
            }
            _ => self.refused(now_ns),
        }
    }

    fn refused(&mut self, now_ns: Nanos) -> LinkAnswer {
        self.shown = 0;
        self.not_before_ns = now_ns + REFUSED_NS;
        self.next_ns = Some(self.lease.until_ns().max(now_ns + REFUSED_NS));
        LinkAnswer::Refused
    }

    /// Gives the lease up: nothing is served under it any more. What to tell the store.
    pub fn give_up(&mut self, now_ns: Nanos) -> Option<Header> {
        self.rest();
        self.lease.give_up(now_ns)?;
        Some(Header {
            epoch: Epoch::new(self.number, 0),
            key_hash: self.proof.to_hash(),
            version: now_ns,
            ..Header::new(Op::HolderReturn)
        })
    }
}
