//! Holders at the clients' side: who has which number, and what each may be granted.
//!
//! In: who would be a holder, and what copies that were called back have answered. Out: numbers and
//! tokens, and for the parts that grant and call back whether a holder is who it says. To the rules
//! a holder is an X like any switch; this file only sees to it that its number means one holder
//! for as long as anything that was granted under it may be served.
//!
//! A number is given to a holder that has shown that it hears what is sent to its address, by
//! repeating a token that was made for that address. From then on it proves itself by another
//! token, which it alone was sent: without a tenant's secret nobody else could acknowledge in its
//! name. Once its lease has lapsed here the number is nobody's, and after one lease more another's;
//! until then it counts as its tenant's, for nobody else can have it.

mod worth;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque, btree_map::Entry},
    net::IpAddr,
    ops::Range,
};

use hashbrown::HashMap;
use holder::mutants::{Mutant, mutant};
use wire::{HOLDERS_MOST, Header, NODE_ALL, NODE_HOLDER, NodeId, Op, Secret, TENANT_SYSTEM};

use super::lease_holder::LeaseHolder;
use crate::{
    clients::ClientId,
    coherence::{Leases, Nanos},
    counters::HolderCounters,
    directory::KeyId,
    net::Peer,
    shares::Shares,
};
use worth::Worth;

/// Holders that may have a copy of one key: a write sends each an invalidation.
const HOLDERS_OF_A_KEY: usize = 1024;
/// For how many leases the address of a holder that was mute counts as mute, and how many such
/// addresses are remembered.
const MUTE_LEASES: u64 = 10;
const MUTE_MOST: usize = 4096;
/// A holder asks for its lease again after 20 ms at the earliest. Less than that, by what a packet
/// may be late: what comes sooner after the request before is of no use to it.
const ASKS_EACH_NS: Nanos = 10_000_000;

/// A holder.
struct HolderRecord {
    id: ClientId,
    /// By which it proves itself.
    token: u64,
    /// What it signs with.
    secret: Secret,
    /// When its last request for a lease was looked at.
    asked_ns: Option<Nanos>,
    /// The term of its lease when its tenant left.
    left_in: Option<u64>,
}

/// An address at which a holder of a tenant has left invalidations unanswered.
struct MuteAddress {
    until_ns: Nanos,
    /// Which holder that was.
    number: NodeId,
    /// Another one there was mute, too.
    several: bool,
}

/// All of them.
pub(super) struct Holders {
    by_number: BTreeMap<NodeId, HolderRecord>,
    by_client: HashMap<ClientId, NodeId>,
    /// Numbers that are a holder's, or nobody's still.
    shares: Shares,
    /// Numbers that nobody had so far.
    unused: Range<NodeId>,
    /// Numbers that are nobody's still: until when, and whose they were.
    resting: BTreeSet<(Nanos, NodeId, u32)>,
    /// Numbers that were somebody's and may be another's.
    free: VecDeque<NodeId>,
    /// How many were given a number.
    given: u64,
    seed: Secret,
    worth: Worth,
    /// By tenant: what a holder says, or does not, holds up its own tenant's writes alone.
    mute: BTreeMap<(u32, IpAddr), MuteAddress>,
    pub counters: HolderCounters,
}

impl Holders {
    /// None, of so many tenants. `seed` is known to nobody else.
    pub fn new(tenants: usize, seed: Secret) -> Holders {
        Holders {
            by_number: BTreeMap::new(),
            by_client: HashMap::new(),
            shares: Shares::new(HOLDERS_MOST, tenants),
            unused: NODE_HOLDER..NODE_ALL,
            resting: BTreeSet::new(),
            free: VecDeque::new(),
            given: 0,
            seed,
            worth: Worth::new(),
            mute: BTreeMap::new(),
            counters: HolderCounters::default(),
        }
    }

    /// From now on so many tenants share the numbers.
    pub fn share_among(&mut self, tenants: usize) {
        self.shares.share_among(tenants);
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.by_number.len()
    }

    /// Forgets those whose leases have lapsed. One that was mute is remembered by its address: who
    /// can make a holder can make many, one after another, and each holds writes up for a lease.
    pub fn sweep(&mut self, leases: &Leases<LeaseHolder>, now_ns: Nanos) {
        self.mute.retain(|_, mute| now_ns < mute.until_ns);
        let until_ns = now_ns + MUTE_LEASES * leases.length_ns();
        let is_mute = |number: NodeId, record: &HolderRecord| {
            let is_its = |term: u64| !leases.has_another(number, term);
            leases.is_stopped(number) && !record.left_in.is_some_and(is_its)
        };
        for (&number, record) in self.by_number.iter().filter(|(at, record)| is_mute(**at, record))
        {
            let Some(at) = leases.address(number) else { continue };
            let has_room = self.mute.len() < MUTE_MOST;
            match self.mute.entry((record.id.0, at.peer.address.ip().to_canonical())) {
                Entry::Occupied(mut known) => {
                    let mute = known.get_mut();
                    mute.until_ns = until_ns;
                    mute.several |= mute.number != number;
                }
                Entry::Vacant(place) if has_room => {
                    place.insert(MuteAddress { until_ns, number, several: false });
                }
                Entry::Vacant(_) => {}
            }
        }
        let is_over = |number: &NodeId| leases.term(*number, now_ns).is_none();
        let gone: Vec<NodeId> = self.by_number.keys().copied().filter(is_over).collect();
        gone.into_iter().for_each(|number| self.forget(number, leases));
    }

    /// Whether nothing is lent now to a holder of a tenant at an address. One that is known, and
    /// so far acknowledges, does not pay for the first that was mute there: many may share the
    /// address. From the second one on it does: who has begun many could have each of them hold
    /// writes up in its turn.
    pub fn is_mute(&self, tenant: u32, peer: Peer, is_known: bool, now_ns: Nanos) -> bool {
        let mute = self.mute.get(&(tenant, peer.address.ip().to_canonical()));
        mute.is_some_and(|mute| now_ns < mute.until_ns && (mute.several || !is_known))
    }

    /// Whether a holder's request for a lease is looked at: it is not right behind another.
    pub fn may_ask(&mut self, number: NodeId, now_ns: Nanos) -> bool {
        let Some(record) = self.by_number.get_mut(&number) else { return false };
        let may = record.asked_ns.is_none_or(|at_ns| at_ns + ASKS_EACH_NS <= now_ns);
        if may {
            record.asked_ns = Some(now_ns);
        }
        may
    }

    /// A number is nobody's. What was said in the name of its last holder has come a lease later.
    pub fn forget(&mut self, number: NodeId, leases: &Leases<LeaseHolder>) {
        if let Some(record) = self.by_number.remove(&number) {
            self.by_client.remove(&record.id);
            let until_ns = leases.until_ns(number).map_or(0, |at_ns| at_ns + leases.length_ns());
            self.resting.insert((until_ns, number, record.id.0));
        }
    }

    /// These tenants have gone. What was written of their keys while they were unknown their
    /// holders were not told: they serve what they have for as long as their leases last, which are
    /// not renewed, and nothing of it in another term. That is no fault of theirs.
    pub fn tenants_left(
        &mut self,
        gone: &BTreeSet<u32>,
        leases: &mut Leases<LeaseHolder>,
        now_ns: Nanos,
    ) {
        let of_gone = |record: &&mut HolderRecord| gone.contains(&record.id.0);
        for (number, record) in &mut self.by_number {
            let Some(record) = Some(record).filter(of_gone) else { continue };
            record.left_in = leases.term(*number, now_ns);
            if let Some(term) = record.left_in {
                leases.stop_renewing(*number, term);
            }
        }
    }

    /// Numbers that have been nobody's for long enough may be another's.
    fn release(&mut self, now_ns: Nanos) {
        while let Some(&(until_ns, number, tenant)) = self.resting.first()
            && until_ns <= now_ns
        {
            self.resting.pop_first();
            self.shares.give_back(tenant, 1);
            self.free.push_back(number);
        }
    }

    /// Whether a packet about a key comes from the holder that its epoch names.
    pub fn is_from_holder(&self, header: &Header) -> bool {
        self.proves(header, header.request)
    }

    /// Whether who shows this token is the holder that a packet's epoch names.
    pub fn proves(&self, header: &Header, token: u64) -> bool {
        let record = self.by_number.get(&header.epoch.switch());
        record.is_some_and(|record| {
            let proves = record.token == token || mutant(Mutant::AnyHolderToken);
            record.id == (header.tenant, header.client) && proves
        })
    }

    /// What an invalidation for a holder begins with, and what it is signed with.
    pub fn invalidation(&self, number: NodeId) -> Option<(Header, Secret)> {
        let record = self.by_number.get(&number)?;
        let (tenant, client) = record.id;
        let header =
            Header { tenant, client, request: record.token, ..Header::new(Op::HolderInvalidate) };
        Some((header, record.secret))
    }

    /// Whether a key of which so many others hold copies may be granted to a holder, besides what
    /// the rules say.
    pub fn may_be_granted(&mut self, id: &KeyId, others: usize, now_ns: Nanos) -> bool {
        if others >= HOLDERS_OF_A_KEY {
            self.counters.holder_grants_crowded += 1;
            return false;
        }
        let is_paused = self.worth.pause_ms(id, now_ns) > 0;
        self.counters.holder_grants_paused += u64::from(is_paused);
        !is_paused
    }

    /// What a holder signs with from now on.
    pub fn signs_with(&mut self, number: NodeId, secret: Secret) {
        if let Some(record) = self.by_number.get_mut(&number) {
            record.secret = secret;
        }
    }

    /// For how many milliseconds more a key is granted to no holder.
    pub fn pause_ms(&self, id: &KeyId, now_ns: Nanos) -> u32 {
        self.worth.pause_ms(id, now_ns)
    }

    /// Whether holders had a key of late, and had to give it up, or are granted none of it now: who
    /// reads it at the store is not alone.
    pub fn want(&self, id: &KeyId, within_ns: Nanos, now_ns: Nanos) -> bool {
        self.worth.was_called_back(id, within_ns, now_ns) || self.worth.pause_ms(id, now_ns) > 0
    }

    /// A copy of a key was called back, which had answered so many reads.
    pub fn called_back(&mut self, id: &KeyId, reads: u32, now_ns: Nanos) {
        self.worth.called_back(id, reads, now_ns);
    }

    /// The number of a holder that begins, and its token.
    pub fn enter(&mut self, id: ClientId, secret: Secret, now_ns: Nanos) -> Option<(NodeId, u64)> {
        if let Some(number) = self.by_client.get(&id) {
            return self.by_number.get(number).map(|record| (*number, record.token));
        }
        self.release(now_ns);
        if !self.shares.has_room(id.0) {
            return None;
        }
        let number = self.unused.next().or_else(|| self.free.pop_front())?;
        self.given += 1;
        let mut salt = [0; 18];
        salt[..8].copy_from_slice(&self.given.to_be_bytes());
        salt[8..16].copy_from_slice(&id.1.to_be_bytes());
        salt[16..].copy_from_slice(&number.to_be_bytes());
        let token = self.seed.key_hash(id.0, &salt).high().max(1);
        self.by_number
            .insert(number, HolderRecord { id, token, secret, asked_ns: None, left_in: None });
        self.by_client.insert(id, number);
        self.shares.take(id.0, 1);
        self.counters.holders_begun += 1;
        Some((number, token))
    }

    /// What a holder is to repeat that begins from this address, in a period of time.
    pub fn address_token(&self, id: ClientId, peer: Peer, period: u64) -> u64 {
        let mut salt = vec![];
        salt.extend_from_slice(&id.1.to_be_bytes());
        salt.extend_from_slice(&period.to_be_bytes());
        salt.extend_from_slice(&peer.address.port().to_be_bytes());
        match peer.address.ip().to_canonical() {
            IpAddr::V4(ip) => salt.extend_from_slice(&ip.octets()),
            IpAddr::V6(ip) => salt.extend_from_slice(&ip.octets()),
        }
        self.seed.key_hash(TENANT_SYSTEM, &salt).low().max(1)
    }
}
