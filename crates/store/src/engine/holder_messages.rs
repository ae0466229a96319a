//! What holders at the clients' side say: requests for leases, leases that are given back,
//! acknowledgements, and fetches that come to no grant.
//!
//! In: packets, each signed by the holder's tenant. Out: answers, and whether the packet is from
//! the holder that it names, so that others go on with it.

use wire::{Epoch, Header, HolderProof, Op, Packet, Secret, Status, TENANT_SYSTEM};

use super::{
    context::Context,
    lease_holder::LeaseHolder,
    replies::{Answer, Origin},
};
use crate::{coherence::LeaseAnswer, directory::KeyId, net::Peer};

/// For how long a key is not to be asked for which a write waits for.
const WRITE_PENDING_MS: u32 = 5;
/// Likewise one that cannot be granted, for a reason that stays for a while.
const NOT_NOW_MS: u32 = 1000;
/// A token for an address is good for so many lengths of a lease at least.
const TOKEN_LEASES: u64 = 2;

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
    let number = header.epoch.switch();
    let holds = cx.leases.term(number, cx.now_ns).is_some();
    // From another address it may be anybody's number that the sender lends his: whoever is there
    // would get what the store sends the holder, and be blamed for leaving it unanswered.
    let is_there = cx.leases.address(number).is_some_and(|at| at.peer.is_at(peer.address));
    let is_known = holds && is_there && cx.holders.proves(header, proof.token);
    if cx.holders.is_mute(header.tenant, peer, is_known, cx.now_ns) {
        cx.holders.counters.holders_refused_mute += 1;
        return;
    }
    let reply = Header {
        tenant: header.tenant,
        client: header.client,
        request: header.request,
        version: header.version,
        ..Header::new(Op::HolderLeaseReply)
    };
    let entered = match is_known {
        true => Some((number, proof.token)),
        false => {
            let period = cx.now_ns / (TOKEN_LEASES * cx.leases.length_ns()).max(1);
            let good = [period, period.wrapping_sub(1)]
                .map(|period| cx.holders.address_token(id, peer, period));
            if !good.contains(&proof.token) {
                let key_hash = HolderProof { token: good[0], term: 0 }.to_hash();
                let reply = Header { status: Status::TryAgain, key_hash, ..reply };
                return answer(cx, reply, secret, peer);
            }
            cx.holders.enter(id, secret, cx.now_ns)
        }
    };
    let Some((number, token)) = entered else {
        cx.holders.counters.holders_refused_full += 1;
        return answer(cx, Header { status: Status::NoRoom, ..reply }, secret, peer);
    };
    // What follows may look at many keys that are being called back.
    if !cx.holders.may_ask(number, cx.now_ns) {
        cx.holders.counters.holders_refused_pace += 1;
        return;
    }
    let directory = &cx.directory;
    let copies = |id: &KeyId| directory.copies_of(id);
    let lendable = cx.outside.lendable_ns(number, cx.config.lease_ns(), cx.now_ns, copies);
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
    cx.holders.signs_with(number, secret);
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
        cx.holders.forget(number, &cx.leases);
    }
    is_over
}

/// A holder says that it has no copy of a key. Whether it is who it says.
pub(super) fn acknowledged(cx: &mut Context, packet: &Packet<'_>) -> bool {
    let is_signed = signed(cx, packet).is_some();
    let header = &packet.header;
    let is_its = is_signed && cx.holders.is_from_holder(header);
    cx.holders.counters.dropped_holder += u64::from(is_signed && !is_its);
    is_its
}

/// A holder tells how often its copies were read. Whether it is who it says.
pub(super) fn tells_reads(cx: &mut Context, packet: &Packet<'_>) -> bool {
    let is_its = signed(cx, packet).is_some() && cx.holders.is_from_holder(&packet.header);
    is_its && cx.leases.term(packet.header.epoch.switch(), cx.now_ns).is_some()
}

/// Answers a fetch that comes to no grant: for how long not to ask again.
pub(super) fn refuse_grant(cx: &mut Context, origin: &Origin, key: &[u8]) {
    let id = (origin.tenant, origin.key_hash);
    let entry = cx.directory.find(&id).and_then(|at| cx.directory.get(at));
    let is_settled = entry.is_none_or(|entry| entry.state.is_settled());
    let expiry_ms = match (cx.holders.pause_ms(&id, cx.now_ns), is_settled) {
        (0, true) => NOT_NOW_MS,
        (0, false) => WRITE_PENDING_MS,
        (pause_ms, _) => pause_ms,
    };
    cx.reply(origin, key, &Answer { expiry_ms, ..Answer::status(Status::TryAgain) });
}
