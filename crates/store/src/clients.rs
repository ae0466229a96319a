//! The windows of rule 7, one per client; a bounded number of clients.

use std::collections::VecDeque;

use hashbrown::HashMap;

use crate::coherence::{Nanos, Verdict, Window};

/// Writes remembered per client: four times the 64 that a client may rely on.
const WINDOW: usize = 256;

/// A client: its tenant, and the number that it drew. Not its address, which may move while it
/// retransmits. Without the tenant, somebody who knows another's number could have its writes taken
/// for repetitions of his own.
pub(crate) type ClientId = (u32, u64);

/// A write, by its client and the client's number for it.
pub(crate) type RequestId = (ClientId, u64);

struct Client<O> {
    window: Window<O>,
    used_ns: Nanos,
}

/// Every client that wrote of late. Each tenant has a share of its own, so that one which makes up
/// client after client fills its own share only.
pub(crate) struct Clients<O> {
    clients: HashMap<ClientId, Client<O>>,
    /// Per tenant, in the order in which they came, or were last spared.
    order: HashMap<u32, VecDeque<ClientId>>,
    limit: usize,
    /// Most clients of one tenant.
    share: usize,
    /// A client that has written within this time is not forgotten: it may still retransmit.
    keep_ns: Nanos,
}

impl<O: Clone> Clients<O> {
    /// Room for `limit` clients in all, shared evenly by `tenants` tenants.
    pub fn new(limit: usize, tenants: usize, keep_ns: Nanos) -> Clients<O> {
        Clients {
            clients: HashMap::new(),
            order: HashMap::new(),
            limit,
            share: (limit / tenants.max(1)).max(1),
            keep_ns,
        }
    }

    /// From now on so many tenants share the room. One that has more than its new share is given no
    /// more until it has less: what it has may still retransmit.
    pub fn share_among(&mut self, tenants: usize) {
        self.share = (self.limit / tenants.max(1)).max(1);
    }

    /// Forgets the clients of a tenant that is gone.
    pub fn forget_tenant(&mut self, tenant: u32) {
        for id in self.order.remove(&tenant).into_iter().flatten() {
            self.clients.remove(&id);
        }
    }

    /// Clients of a tenant.
    fn known(&self, tenant: u32) -> usize {
        self.order.get(&tenant).map_or(0, VecDeque::len)
    }

    /// A write has come from a client.
    pub fn begin(&mut self, id: ClientId, request: u64, now_ns: Nanos) -> Verdict<O> {
        if !self.clients.contains_key(&id) {
            while self.known(id.0) >= self.share {
                if !self.forget_one(id.0, now_ns) {
                    return Verdict::Full;
                }
            }
            self.clients.insert(id, Client { window: Window::default(), used_ns: now_ns });
            self.order.entry(id.0).or_default().push_back(id);
        }
        let client = self.clients.get_mut(&id).expect("inserted above");
        client.used_ns = now_ns;
        client.window.begin(request, WINDOW)
    }

    /// What is known of a write of which a part has come: nothing, if it is new. Nothing is
    /// remembered either.
    pub fn look(&self, id: ClientId, request: u64) -> Option<Verdict<O>> {
        self.clients.get(&id)?.window.known(request)
    }

    /// A write's outcome.
    pub fn finish(&mut self, id: ClientId, request: u64, outcome: O) {
        if let Some(client) = self.clients.get_mut(&id) {
            client.window.finish(request, outcome);
        }
    }

    /// A write that others were to decide is decided here after all.
    pub fn reopen(&mut self, id: ClientId, request: u64) {
        if let Some(client) = self.clients.get_mut(&id) {
            client.window.reopen(request);
        }
    }

    /// A write was refused and not carried out.
    pub fn forget(&mut self, id: ClientId, request: u64) {
        if let Some(client) = self.clients.get_mut(&id) {
            client.window.forget(request);
        }
    }

    /// Makes room for a client of a tenant: the first of its oldest few that has been silent long
    /// enough goes.
    fn forget_one(&mut self, tenant: u32, now_ns: Nanos) -> bool {
        let order = self.order.entry(tenant).or_default();
        for _ in 0..8 {
            let Some(id) = order.pop_front() else {
                return false;
            };
            let silent = self.clients.get(&id).is_none_or(|client| {
                now_ns.saturating_sub(client.used_ns) > self.keep_ns && !client.window.is_busy()
            });
            if silent {
                self.clients.remove(&id);
                return true;
            }
            order.push_back(id);
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_may_still_retransmit_is_not_forgotten() {
        let mut clients = Clients::new(2, 1, 100);
        let id = |n: u8| (0, n.into());
        for n in 1..=2 {
            assert_eq!(clients.begin(id(n), 7, 0), Verdict::New);
            clients.finish(id(n), 7, n);
        }
        assert_eq!(clients.begin(id(3), 7, 50), Verdict::Full, "both wrote within 100");
        assert_eq!(clients.begin(id(2), 7, 60), Verdict::Answered(2));
        assert_eq!(clients.begin(id(3), 7, 120), Verdict::New, "client 1 has been silent");
        assert_eq!(clients.begin(id(2), 7, 120), Verdict::Answered(2));
        assert_eq!(clients.begin(id(1), 7, 130), Verdict::Full);
    }

    #[test]
    fn a_tenant_fills_its_own_share_only() {
        let mut clients: Clients<()> = Clients::new(4, 2, 100);
        let id = |tenant, n: u8| (tenant, n.into());
        let verdicts: Vec<_> = (1..=9).map(|n| clients.begin(id(7, n), 1, 0)).collect();
        assert_eq!(verdicts.iter().filter(|v| **v == Verdict::New).count(), 2);
        assert_eq!(clients.begin(id(8, 1), 1, 0), Verdict::New);
    }

    #[test]
    fn shares_follow_the_number_of_tenants() {
        let mut clients: Clients<()> = Clients::new(4, 1, 100);
        let id = |tenant, n: u8| (tenant, n.into());
        for n in 1..=4 {
            assert_eq!(clients.begin(id(7, n), 1, 0), Verdict::New);
            clients.finish(id(7, n), 1, ());
        }
        clients.share_among(2);
        assert_eq!(clients.begin(id(7, 5), 1, 50), Verdict::Full);
        assert_eq!(clients.begin(id(8, 1), 1, 50), Verdict::New);
        assert_eq!(clients.begin(id(7, 5), 1, 101), Verdict::New);
        assert_eq!(clients.known(7), 2, "down to its share");
        clients.forget_tenant(7);
        assert_eq!((clients.known(7), clients.clients.len()), (0, 1));
    }
}
