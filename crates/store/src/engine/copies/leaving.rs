//! A store that ends gives its leases of other stores back, as a switch that leaves does: no write
//! of theirs waits for the copies that were here.

use std::collections::BTreeMap;

use wire::{Epoch, Header, NodeId, Op, TENANT_SYSTEM};

use super::{ForeignCopies, peer_of};
use crate::{coherence::Nanos, engine::context::Context, net::Peer};

/// What is not answered is said again after this time, so often at most.
const AGAIN_NS: Nanos = 20_000_000;
const TRIES: u32 = 25;

/// Homes that have not heard yet, with the terms of their leases.
pub(super) struct LeaseReturns {
    terms: BTreeMap<NodeId, u64>,
    next_ns: Nanos,
    tries: u32,
}

impl LeaseReturns {
    /// When they are told again.
    pub fn next_ns(&self) -> Option<Nanos> {
        (!self.terms.is_empty() && self.tries < TRIES).then_some(self.next_ns)
    }
}

impl ForeignCopies {
    /// Serves no copy any more, and says so.
    pub fn leave(&mut self, cx: &mut Context) {
        let lenders = self.lenders.iter_mut();
        let held = lenders.filter_map(|(node, l)| Some((*node, l.lease.give_up(cx.now_ns)?)));
        let terms = held.collect();
        self.lease_due_ns = Nanos::MAX;
        self.leaving = Some(LeaseReturns { terms, next_ns: cx.now_ns, tries: 0 });
        self.tell_homes(cx);
    }

    /// Whether it was told to leave: it asks for no lease any more.
    pub(super) fn is_leaving(&self) -> bool {
        self.leaving.is_some()
    }

    /// Homes that have not heard, and are still told.
    pub fn owed(&self) -> usize {
        let told = self.leaving.as_ref().filter(|leaving| leaving.next_ns().is_some());
        told.map_or(0, |leaving| leaving.terms.len())
    }

    /// Tells homes that have not heard, if that is due.
    pub(super) fn tell_homes(&mut self, cx: &mut Context) {
        let dated = self.dated(cx.now_ns);
        let (Some(me), Some(leaving)) = (self.me, &mut self.leaving) else { return };
        if leaving.next_ns().is_none_or(|due_ns| cx.now_ns < due_ns) {
            return;
        }
        leaving.tries += 1;
        leaving.next_ns = cx.now_ns + AGAIN_NS;
        for (home, term) in &leaving.terms {
            let Some(peer) = peer_of(cx, *home) else { continue };
            let header = Header {
                tenant: TENANT_SYSTEM,
                epoch: Epoch::new(me, 0),
                request: (*home).into(),
                client: *term,
                version: dated,
                ..Header::new(Op::LeaseReturn)
            };
            cx.send(header, &[], &[], peer);
        }
    }

    /// A home has its lease back.
    pub(super) fn taken_back(&mut self, header: &Header, peer: Peer) {
        let home = u16::try_from(header.request).unwrap_or(0);
        let is_it = self.lenders.get(&home).is_some_and(|lender| peer.is_at(lender.address));
        if let Some(leaving) = self.leaving.as_mut().filter(|_| is_it)
            && leaving.terms.get(&home) == Some(&header.client)
        {
            leaving.terms.remove(&home);
        }
    }
}
