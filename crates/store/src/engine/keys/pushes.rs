//! A key's home and the stores that hold copies of it: what they are pushed after a write
//! (docs/coherence.md, "Replicas").

use wire::{Flags, Header, KeyHash, Op, Secret};

use super::{Keys, settle};
use crate::{
    coherence::Ask,
    directory::Place,
    engine::{
        context::{Context, Effect},
        replies::{NamedPart, Origin},
    },
};
use holder::mutants::{Mutant, mutant};

/// What two stores compare instead of a value that both have: 64 bits, under a secret that no
/// client has.
pub(in crate::engine) fn digest_of(system: &Secret, tenant: u32, value: &[u8]) -> [u8; 8] {
    let KeyHash(hash) = system.key_hash(tenant, value);
    *hash.first_chunk().expect("16 bytes")
}

/// What an acknowledgement asks for, if it does.
pub(super) fn ask_in(cx: &Context, header: &Header) -> Option<Ask> {
    let node = header.epoch.switch();
    let asks = wire::is_store(node) && header.flags.has(Flags::GRANT);
    cx.leases.term(node, cx.now_ns).filter(|_| asks)?;
    let write = (header.client, header.request);
    Some(Ask {
        epoch: header.epoch,
        write: (write != (0, 0)).then_some(write),
        since_ns: cx.now_ns,
    })
}

impl Keys {
    /// No write waits: stores that have asked are granted the newest value, by a read in the name
    /// of each. Then the key may be at rest.
    pub(super) fn push_asked(&mut self, cx: &mut Context, at: Place) {
        let taken = cx.directory.update(at, |e| {
            if e.asks.is_empty() {
                return None;
            }
            let (due, next_ns) = e.asks.take_due(cx.now_ns);
            Some((e.id, e.key.clone(), due, next_ns, e.asks.last()))
        });
        let Some(Some((id, key, due, next_ns, last))) = taken else {
            // What was left before may be a push of this very key.
            return match cx.effects.is_empty() {
                true => settle(cx, at),
                false => cx.leave(Effect::Pushed(at)),
            };
        };
        if let Some(next_ns) = next_ns {
            self.set_timer(cx, at, next_ns);
        }
        for ask in due {
            let is_other = ask.write.is_some() && mutant(Mutant::CandidateOfAnyWrite);
            let Some(home) = cx.leases.address(ask.epoch.switch()) else { continue };
            let (client, request) = last.unwrap_or_default();
            let origin = Origin {
                op: Op::ReplicaPush,
                peer: home.peer,
                tenant: id.0,
                secret: cx.system_secret(),
                client,
                request,
                key_hash: id.1,
                wanted: NamedPart { part: 0, total: 0, version: 0 },
                epoch: ask.epoch,
                wants_grant: true,
                room: wire::MAX_PAYLOAD,
                not_before_ns: 0,
                key_life: 0,
                node: 0,
                has_value: last.is_some() && (ask.write == last || is_other),
            };
            self.counters.pushes += 1;
            cx.leave(Effect::Push(Box::new((origin, key.clone()))));
        }
        cx.leave(Effect::Pushed(at));
    }
}
