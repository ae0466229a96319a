//! Who may ask this store for what: each request's secret, tenant, key hash and partition.

use wire::{Header, Op, Packet, Secret, Status, TENANT_SYSTEM};

use super::{context::Context, ops::takes_parts, replies::Origin};
use crate::net::Peer;

/// A request that was taken: where it came from, and whether its key is this store's.
pub(super) struct Admitted {
    pub origin: Origin,
    pub is_owned: bool,
}

impl Context {
    /// Checks who asks and whether the key is ours, and takes the request if there is time for it.
    /// A key that is another store's is refused, unless `foreign` ones are taken too. What is not
    /// taken is answered or dropped here. `room` is the length of the request's payload in bytes.
    pub fn admit(
        &mut self,
        packet: &Packet<'_>,
        room: usize,
        peer: Peer,
        foreign: bool,
    ) -> Option<Admitted> {
        let header = &packet.header;
        if header.is_part() && !takes_parts(header.op) {
            self.counters.dropped_part += 1;
            return None;
        }
        let mut origin = Origin::of(header, room, peer);
        if foreign {
            origin.node = header.node;
        }
        // A holder that is not known, or is not who it says, finds another proof by its lease.
        if header.op == Op::HolderFetch && !self.holders.is_from_holder(header) {
            self.holders.counters.dropped_holder += 1;
            return None;
        }
        let (secret, judged) = self.judge(packet, foreign);
        origin.secret = secret;
        let (partition, is_owned) = match judged {
            Ok(place) => place,
            Err(status) => {
                self.refuse(&origin, packet.key, status);
                return None;
            }
        };
        let payer = if is_owned { partition } else { self.partitions.in_place_of(partition) };
        origin.not_before_ns = self.take_time(payer)?;
        if is_owned {
            origin.node = 0;
        }
        self.check_claim(&mut origin, header, peer);
        Some(Admitted { origin, is_owned })
    }

    /// Stores and holders stamp no requests of clients; of what says so nobody would correct what
    /// is wrong.
    fn check_claim(&mut self, origin: &mut Origin, header: &Header, peer: Peer) {
        let of_itself = header.op == Op::FetchRequest && self.may_speak(header.epoch, peer)
            || header.op == Op::HolderFetch;
        if header.epoch.switch() & wire::NODE_STORE != 0 && !of_itself {
            self.counters.claims_ignored += 1;
            origin.epoch = wire::Epoch::NONE;
            origin.wants_grant = false;
        }
    }

    /// Who asks, and whether the key is ours: the secret that signs the answer, and the key's
    /// partition with whether we hold it, or why not.
    fn judge(
        &mut self,
        packet: &Packet<'_>,
        foreign: bool,
    ) -> (Secret, Result<(usize, bool), Status>) {
        let header = &packet.header;
        let known = self.tenants.get(header.tenant);
        let Some(known) = known.filter(|_| header.tenant != TENANT_SYSTEM) else {
            self.counters.denied_tenant += 1;
            let secret = known.map_or(Secret::NONE, |known| known.secrets.tag);
            return (secret, Err(Status::Denied));
        };
        let signed = match header.op.is_system() {
            true => Some(self.system_secret()).filter(|secret| packet.tag_is_valid(secret)),
            false => known.secrets.that_signed(packet),
        };
        let Some(secret) = signed else {
            self.counters.denied_tag += 1;
            return (known.secrets.tag, Err(Status::Denied));
        };
        if known.secrets.hash.key_hash(header.tenant, packet.key) != header.key_hash {
            self.counters.denied_key_hash += 1;
            return (secret, Err(Status::Denied));
        }
        let partition = self.partitions.at(header.key_hash);
        let is_owned = known.holds(partition, self.partitions.owns(partition));
        if !is_owned && !foreign {
            self.counters.wrong_partition += 1;
            return (secret, Err(Status::WrongPartition));
        }
        (secret, Ok((partition, is_owned)))
    }
}
