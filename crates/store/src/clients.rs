//! The windows of rule 7, one per client; a bounded number of clients.

use std::{collections::VecDeque, net::IpAddr};

use hashbrown::HashMap;

use crate::coherence::{Nanos, Verdict, Window};

/// Writes remembered per client: four times the 64 that a client may rely on.
const WINDOW: usize = 256;

/// A client: its tenant, where it is, and the number that it chose. Without the tenant, somebody who knows another's
/// address and number could have its writes taken for repetitions of his own.
pub(crate) type ClientId = (u32, IpAddr, u32);

struct Client<O> {
    window: Window<O>,
    used_ns: Nanos,
}

/// Every client that wrote of late.
pub(crate) struct Clients<O> {
    clients: HashMap<ClientId, Client<O>>,
    /// In the order in which they came, or were last spared.
    order: VecDeque<ClientId>,
    limit: usize,
    /// A client that has written within this time is not forgotten: it may still retransmit.
    keep_ns: Nanos,
}

impl<O: Clone> Clients<O> {
    pub fn new(limit: usize, keep_ns: Nanos) -> Clients<O> {
        Clients {
            clients: HashMap::new(),
            order: VecDeque::new(),
            limit: limit.max(1),
            keep_ns,
        }
    }

    /// A write has come from a client.
    pub fn begin(&mut self, id: ClientId, request: u32, now_ns: Nanos) -> Verdict<O> {
        if !self.clients.contains_key(&id) {
            if self.clients.len() >= self.limit && !self.forget_one(now_ns) {
                return Verdict::Full;
            }
            self.clients.insert(
                id,
                Client {
                    window: Window::default(),
                    used_ns: now_ns,
                },
            );
            self.order.push_back(id);
        }
        let client = self.clients.get_mut(&id).expect("inserted above");
        client.used_ns = now_ns;
        client.window.begin(request, WINDOW)
    }

    /// A write's outcome.
    pub fn finish(&mut self, id: ClientId, request: u32, outcome: O) {
        if let Some(client) = self.clients.get_mut(&id) {
            client.window.finish(request, outcome);
        }
    }

    /// A write was refused and not carried out.
    pub fn forget(&mut self, id: ClientId, request: u32) {
        if let Some(client) = self.clients.get_mut(&id) {
            client.window.forget(request);
        }
    }

    /// Makes room for a client: the first of the oldest few that has been silent long enough goes.
    fn forget_one(&mut self, now_ns: Nanos) -> bool {
        for _ in 0..8 {
            let Some(id) = self.order.pop_front() else {
                return false;
            };
            let silent = self.clients.get(&id).is_none_or(|client| {
                now_ns.saturating_sub(client.used_ns) > self.keep_ns && !client.window.is_busy()
            });
            if silent {
                self.clients.remove(&id);
                return true;
            }
            self.order.push_back(id);
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_may_still_retransmit_is_not_forgotten() {
        let mut clients = Clients::new(2, 100);
        let id = |n: u8| (0, IpAddr::from([10, 0, 0, n]), 1);
        for n in 1..=2 {
            assert_eq!(clients.begin(id(n), 7, 0), Verdict::New);
            clients.finish(id(n), 7, n);
        }
        assert_eq!(
            clients.begin(id(3), 7, 50),
            Verdict::Full,
            "both wrote within 100"
        );
        assert_eq!(clients.begin(id(2), 7, 60), Verdict::Answered(2));
        assert_eq!(
            clients.begin(id(3), 7, 120),
            Verdict::New,
            "client 1 has been silent"
        );
        assert_eq!(clients.begin(id(2), 7, 120), Verdict::Answered(2));
        assert_eq!(clients.begin(id(1), 7, 130), Verdict::Full);
    }
}
