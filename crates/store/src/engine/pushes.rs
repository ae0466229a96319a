//! A key's home and the stores that hold copies of it: what they are pushed after a write (docs/coherence.md, "Replicas").

use wire::{Epoch, Flags, Header, KeyHash, NODE_STORE, Op, Secret};

use super::{
    Engine,
    reply::{Origin, Wanted},
};
use crate::{
    asks::Ask,
    backend::Key,
    coherence::Nanos,
    directory::Place,
    mutants::{Mutant, mutant},
    net::{Outbox, Peer},
};

/// What two stores compare instead of a value that both have: 64 bits, under a secret that no client has.
pub(super) fn digest_of(system: &Secret, tenant: u32, value: &[u8]) -> [u8; 8] {
    let KeyHash(hash) = system.key_hash(tenant, value);
    *hash.first_chunk().expect("16 bytes")
}

impl Engine {
    /// Whether a packet that speaks for a store comes from there: two stores whose cluster files list them in another order would both
    /// speak for one. What speaks for a switch may come from anywhere.
    pub(super) fn may_speak(&self, epoch: Epoch, peer: Peer) -> bool {
        if epoch.switch() & NODE_STORE == 0 {
            return true;
        }
        let store = self.config.cluster.store_numbered(epoch.switch());
        store.is_some_and(|store| is_at(store.address, peer))
    }

    /// What an acknowledgement asks for, if it does.
    pub(super) fn ask_in(&self, header: &Header, now_ns: Nanos) -> Option<Ask> {
        let node = header.epoch.switch();
        let asks = node & NODE_STORE != 0 && header.flags.has(Flags::GRANT);
        self.leases.term(node, now_ns).filter(|_| asks)?;
        let write = (header.client, header.request);
        Some(Ask {
            epoch: header.epoch,
            write: (write != (0, 0)).then_some(write),
            since_ns: now_ns,
        })
    }

    /// A store has asked for a grant while a write waits: it is pushed one when none does.
    pub(super) fn grant_later(&mut self, at: Place, epoch: Epoch, now_ns: Nanos) {
        let ask = Ask {
            epoch,
            write: None,
            since_ns: now_ns,
        };
        self.directory.update(at, |e| e.asks.put(ask));
    }

    /// No write waits: stores that have asked are granted the newest value.
    pub(super) fn push_asked(&mut self, at: Place, now_ns: u64, out: &mut Outbox) {
        let taken = self.directory.update(at, |e| {
            if e.asks.is_empty() {
                return None;
            }
            let (due, next_ns) = e.asks.take_due(now_ns);
            Some((e.id, e.key.clone(), due, next_ns, e.asks.last()))
        });
        let Some(Some((id, key, due, next_ns, last))) = taken else {
            return;
        };
        if let Some(next_ns) = next_ns {
            self.set_timer(at, next_ns);
        }
        for ask in due {
            let is_other = ask.write.is_some() && mutant(Mutant::CandidateOfAnyWrite);
            let Some(home) = self.leases.address(ask.epoch.switch()) else {
                continue;
            };
            let (client, request) = last.unwrap_or_default();
            let origin = Origin {
                op: Op::ReplicaPush,
                peer: home.peer,
                tenant: id.0,
                secret: self.system_secret(),
                client,
                request,
                key_hash: id.1,
                wanted: Wanted {
                    part: 0,
                    total: 0,
                    version: 0,
                },
                epoch: ask.epoch,
                wants_grant: true,
                room: wire::MAX_PAYLOAD,
                not_before_ns: 0,
                key_life: 0,
                node: 0,
                has_value: last.is_some() && (ask.write == last || is_other),
            };
            let key = Key {
                tenant: id.0,
                hash: id.1,
                bytes: &key,
            };
            self.counters.pushes += 1;
            self.read(origin, key, now_ns, out);
        }
    }
}

/// Whether a packet comes from this address.
pub(super) fn is_at(address: std::net::SocketAddr, peer: Peer) -> bool {
    let from = peer.address;
    (from.ip().to_canonical(), from.port()) == (address.ip().to_canonical(), address.port())
}
