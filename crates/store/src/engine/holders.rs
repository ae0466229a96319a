//! Holders at the clients' side: who has which number, and what each may be granted.
//!
//! In: requests for leases, fetches and acknowledgements, each signed by the holder's tenant. Out:
//! leases, and to the parts that grant and call back whether a holder is who it says. To the rules
//! a holder is an X like any switch; this file only sees to it that its number means one holder
//! for as long as anything that was granted under it may be served.
//!
//! A number is given to a holder that has shown that it hears what is sent to its address, by
//! repeating a token that was made for that address. From then on it proves itself by another
//! token, which it alone was sent: without a tenant's secret nobody else could acknowledge in its
//! name. Once its lease has lapsed here the number is nobody's, and after one lease more another's.

mod worth;

use std::{collections::BTreeMap, net::IpAddr};

use hashbrown::HashMap;
use wire::{
    Epoch, HOLDERS_MOST, Header, HolderProof, NODE_HOLDER, NodeId, Op, Packet, Secret, Status,
    TENANT_SYSTEM, is_holder,
};

use super::{
    context::Context,
    lease_holder::LeaseHolder,
    replies::{Answer, Origin},
};
use crate::{
    clients::ClientId,
    coherence::{LeaseAnswer, Leases, Nanos},
    counters::HolderCounters,
    directory::KeyId,
    mutants::{Mutant, mutant},
    net::Peer,
    shares::Shares,
};
use worth::Worth;

/// Holders that may have a copy of one key: a write sends each an invalidation.
const HOLDERS_OF_A_KEY: usize = 1024;
/// For how long a key is not to be asked for which a write waits for.
const WRITE_PENDING_MS: u32 = 5;
/// Likewise one that cannot be granted, for a reason that stays for a while.
const NOT_NOW_MS: u32 = 1000;
/// A token for an address is good for so many lengths of a lease at least.
const TOKEN_LEASES: u64 = 2;

/// A holder.
struct HolderRecord {
    id: ClientId,
    /// By which it proves itself.
    token: u64,
    /// What it signs with.
    secret: Secret,
}

/// All of them.
pub(super) struct Holders {
    by_number: BTreeMap<NodeId, HolderRecord>,
    by_client: HashMap<ClientId, NodeId>,
    shares: Shares,
    /// The number that is tried next.
    next: NodeId,
    /// How many were given a number.
    given: u64,
    seed: Secret,
    worth: Worth,
    pub counters: HolderCounters,
}

impl Holders {
    /// None, of so many tenants. `seed` is known to nobody else.
    pub fn new(tenants: usize, seed: Secret) -> Holders {
        Holders {
            by_number: BTreeMap::new(),
            by_client: HashMap::new(),
            shares: Shares::new(HOLDERS_MOST, tenants),
            next: NODE_HOLDER,
            given: 0,
            seed,
            worth: Worth::new(),
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

    /// Forgets those of tenants that are gone.
    pub fn forget_tenants(&mut self, is_gone: impl Fn(u32) -> bool) {
        let gone = self.by_number.iter().filter(|(_, record)| is_gone(record.id.0));
        let gone: Vec<NodeId> = gone.map(|(number, _)| *number).collect();
        gone.into_iter().for_each(|number| self.forget(number));
    }

    /// Forgets those whose leases have lapsed.
    pub fn sweep<A>(&mut self, leases: &Leases<A>, now_ns: Nanos) {
        let is_over = |number: &NodeId| leases.term(*number, now_ns).is_none();
        let gone: Vec<NodeId> = self.by_number.keys().copied().filter(is_over).collect();
        gone.into_iter().for_each(|number| self.forget(number));
    }

    fn forget(&mut self, number: NodeId) {
        if let Some(record) = self.by_number.remove(&number) {
            self.by_client.remove(&record.id);
            self.shares.give_back(record.id.0, 1);
        }
    }

    /// Whether a packet about a key comes from the holder that its epoch names.
    pub fn is_from_holder(&self, header: &Header) -> bool {
        self.proves(header, header.request)
    }

    fn proves(&self, header: &Header, token: u64) -> bool {
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

    /// Whether a key of which these hold copies may be granted to a holder, besides what the rules
    /// say.
    pub fn may_be_granted(
        &mut self,
        id: &KeyId,
        number: NodeId,
        holding: impl Iterator<Item = NodeId>,
        now_ns: Nanos,
    ) -> bool {
        let others = holding.filter(|other| is_holder(*other) && *other != number).count();
        if others >= HOLDERS_OF_A_KEY {
            self.counters.holder_grants_crowded += 1;
            return false;
        }
        let is_paused = self.worth.pause_ms(id, now_ns) > 0;
        self.counters.holder_grants_paused += u64::from(is_paused);
        !is_paused
    }

    /// A copy of a key was called back, which had answered so many reads.
    pub fn called_back(&mut self, id: &KeyId, reads: u32, now_ns: Nanos) {
        self.worth.called_back(id, reads, now_ns);
    }

    /// The number of a holder that begins, and its token.
    fn enter<A>(
        &mut self,
        id: ClientId,
        secret: Secret,
        leases: &Leases<A>,
        now_ns: Nanos,
    ) -> Option<(NodeId, u64)> {
        if let Some(number) = self.by_client.get(&id) {
            return self.by_number.get(number).map(|record| (*number, record.token));
        }
        if !self.shares.has_room(id.0) {
            self.sweep(leases, now_ns);
            if !self.shares.has_room(id.0) {
                return None;
            }
        }
        // What was said in the name of its last holder has come by then.
        let is_free = |number: NodeId| {
            let until_ns = leases.until_ns(number).map(|at_ns| at_ns + leases.length_ns());
            !self.by_number.contains_key(&number) && until_ns.is_none_or(|at_ns| at_ns <= now_ns)
        };
        let count = HOLDERS_MOST as u16;
        let from = self.next - NODE_HOLDER;
        let numbers = (0..count).map(|at| NODE_HOLDER + (from + at) % count);
        let number = { numbers }.find(|number| is_free(*number))?;
        self.next = NODE_HOLDER + (number - NODE_HOLDER + 1) % count;
        self.given += 1;
        let mut salt = [0; 18];
        salt[..8].copy_from_slice(&self.given.to_be_bytes());
        salt[8..16].copy_from_slice(&id.1.to_be_bytes());
        salt[16..].copy_from_slice(&number.to_be_bytes());
        let token = self.seed.key_hash(id.0, &salt).high().max(1);
        self.by_number.insert(number, HolderRecord { id, token, secret });
        self.by_client.insert(id, number);
        self.shares.take(id.0, 1);
        self.counters.holders_begun += 1;
        Some((number, token))
    }

    /// What a holder is to repeat that begins from this address, in a period of time.
    fn address_token(&self, id: ClientId, peer: Peer, period: u64) -> u64 {
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

/// What a tenant's packet was signed with, if it may ask anything.
fn signed(cx: &mut Context, packet: &Packet<'_>) -> Option<Secret> {
    let tenant = packet.header.tenant;
    let known = cx.tenants.get(tenant).filter(|_| tenant != TENANT_SYSTEM);
    let signed = known.and_then(|known| known.secrets.that_signed(packet));
    cx.holders.counters.dropped_holder += u64::from(signed.is_none());
    signed
}

/// A holder asks for a lease, or one that would be a holder.
pub(super) fn asked(cx: &mut Context, packet: &Packet<'_>, peer: Peer) {
    let Some(secret) = signed(cx, packet) else { return };
    if cx.leaves {
        return;
    }
    if !cx.takes_writes(cx.now_ns) {
        cx.holders.counters.holders_refused_starting += 1;
        return;
    }
    let header = &packet.header;
    let id = (header.tenant, header.client);
    let proof = HolderProof::from_hash(header.key_hash);
    let reply = Header {
        tenant: header.tenant,
        client: header.client,
        request: header.request,
        version: header.version,
        ..Header::new(Op::HolderLeaseReply)
    };
    let number = header.epoch.switch();
    let holds = cx.leases.term(number, cx.now_ns).is_some();
    let known = (holds && cx.holders.proves(header, proof.token)).then_some((number, proof.token));
    let entered = match known {
        Some(known) => Some(known),
        None => {
            let period = cx.now_ns / (TOKEN_LEASES * cx.leases.length_ns()).max(1);
            let good = [period, period.wrapping_sub(1)]
                .map(|period| cx.holders.address_token(id, peer, period));
            if !good.contains(&proof.token) {
                let key_hash = HolderProof { token: good[0], term: 0 }.to_hash();
                let reply = Header { status: Status::TryAgain, key_hash, ..reply };
                return answer(cx, reply, secret, peer);
            }
            cx.holders.enter(id, secret, &cx.leases, cx.now_ns)
        }
    };
    let Some((number, token)) = entered else {
        cx.holders.counters.holders_refused_full += 1;
        return answer(cx, Header { status: Status::NoRoom, ..reply }, secret, peer);
    };
    let directory = &cx.directory;
    let holds = |id: &KeyId| directory.holds(id, number);
    let lendable = cx.outside.lendable_ns(cx.config.lease_ns(), cx.now_ns, holds);
    let Some(lent_ns) = lendable else {
        cx.holders.counters.holders_refused_unwatched += 1;
        return;
    };
    let at = LeaseHolder { peer, slot: 0 };
    let LeaseAnswer::Lent { term, .. } = cx.leases.request(number, at, header.version, cx.now_ns)
    else {
        cx.holders.counters.holders_refused_lease += 1;
        return;
    };
    cx.holders.counters.holder_leases += 1;
    if let Some(record) = cx.holders.by_number.get_mut(&number) {
        record.secret = secret;
    }
    let reply = Header {
        epoch: Epoch::new(number, 0),
        key_hash: HolderProof { token, term }.to_hash(),
        expiry_ms: (lent_ns / 1_000_000) as u32,
        ..reply
    };
    answer(cx, reply, secret, peer);
}

fn answer(cx: &mut Context, header: Header, secret: Secret, peer: Peer) {
    // What is no packet nobody could use.
    let _ = cx.out.push(&Packet::new(header, &[], &[]), &secret, peer);
}

/// A holder gives its lease back. Whether writes need not wait for it any more.
pub(super) fn returned(cx: &mut Context, packet: &Packet<'_>) -> bool {
    if signed(cx, packet).is_none() {
        return false;
    }
    let header = &packet.header;
    let proof = HolderProof::from_hash(header.key_hash);
    let number = header.epoch.switch();
    let is_over = cx.holders.proves(header, proof.token)
        && cx.leases.give_back(number, proof.term, header.version, cx.now_ns);
    if is_over {
        cx.holders.forget(number);
    }
    is_over
}

/// A holder says that it has no copy of a key. Whether it is who it says.
pub(super) fn acknowledged(cx: &mut Context, packet: &Packet<'_>) -> bool {
    let is_signed = signed(cx, packet).is_some();
    let header = &packet.header;
    let is_its = is_signed && cx.holders.is_from_holder(header);
    if is_its {
        let id = (header.tenant, header.key_hash);
        cx.holders.called_back(&id, header.expiry_ms, cx.now_ns);
    } else if is_signed {
        cx.holders.counters.dropped_holder += 1;
    }
    is_its
}

/// Answers a fetch that comes to no grant: for how long not to ask again.
pub(super) fn refuse_grant(cx: &mut Context, origin: &Origin, key: &[u8]) {
    let id = (origin.tenant, origin.key_hash);
    let entry = cx.directory.find(&id).and_then(|at| cx.directory.get(at));
    let is_settled = entry.is_none_or(|entry| entry.state.is_settled());
    let expiry_ms = match (cx.holders.worth.pause_ms(&id, cx.now_ns), is_settled) {
        (0, true) => NOT_NOW_MS,
        (0, false) => WRITE_PENDING_MS,
        (pause_ms, _) => pause_ms,
    };
    cx.reply(origin, key, &Answer { expiry_ms, ..Answer::status(Status::TryAgain) });
}
