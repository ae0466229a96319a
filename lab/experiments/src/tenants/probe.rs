//! Makes one fresh key after the other hot, and notes when a switch answers it first: how long
//! cache decisions take, and when none are made.

use std::{
    net::{SocketAddr, UdpSocket},
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use anyhow::Context;
use lab::namespace;
use load::workload::KeySpace;
use wire::{Cluster, Flags, Header, Op, Packet, Secrets, Status};

/// A fresh key begins to be asked for so often.
const FRESH_EVERY: Duration = Duration::from_millis(100);
/// Each key that is not cached yet is asked for so often.
const ASK_EVERY: Duration = Duration::from_millis(5);
/// Keys that are asked for at the same time; further fresh ones wait.
const OPEN: usize = 60;

/// What the probe asks for.
pub(super) struct Probe {
    /// The namespace it asks from.
    pub namespace: String,
    /// The store, and the tenant's secrets.
    pub cluster: Cluster,
    /// In whose name.
    pub tenant: u32,
    /// How many keys there are, all of them written; the probe ends early when none is fresh
    /// any more.
    pub keys: usize,
    /// Length of their values in bytes.
    pub value_len: usize,
}

/// One key: when it was first asked for, and when a switch first answered.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Decision {
    pub asked: Instant,
    pub cached: Option<Instant>,
}

impl Decision {
    /// How long it took, in milliseconds.
    pub fn ms(&self) -> Option<f64> {
        let took = self.cached?.duration_since(self.asked);
        Some(took.as_secs_f64() * 1000.0)
    }
}

impl Probe {
    /// Asks until `stop`; returns what became of each key, in order.
    ///
    /// # Errors
    /// The tenant is not in the cluster's list, or there is no socket.
    pub fn run(&self, stop: &AtomicBool) -> anyhow::Result<Vec<Decision>> {
        namespace::within(&self.namespace, || {
            let secrets = self
                .cluster
                .secrets_of(self.tenant)
                .context("the probe's tenant is not in the cluster's list")?;
            let store = self.cluster.stores[0].address;
            let mut asking = Asker::new(self, secrets, store)?;
            while !stop.load(Ordering::Relaxed) {
                asking.ask()?;
                asking.listen()?;
            }
            Ok(asking.decisions)
        })
    }
}

struct Asker<'a> {
    probe: &'a Probe,
    secrets: Secrets,
    socket: UdpSocket,
    keys: KeySpace,
    client: u64,
    decisions: Vec<Decision>,
    /// Indices of keys that are not cached yet.
    open: Vec<u64>,
    next_fresh: Instant,
    next_ask: Instant,
}

impl<'a> Asker<'a> {
    fn new(probe: &'a Probe, secrets: Secrets, store: SocketAddr) -> anyhow::Result<Asker<'a>> {
        let socket = UdpSocket::bind(("0.0.0.0", 0))?;
        socket.connect(store)?;
        Ok(Asker {
            keys: KeySpace::new(probe.keys, probe.tenant, &secrets.hash),
            probe,
            secrets,
            socket,
            client: rand::random(),
            decisions: vec![],
            open: vec![],
            next_fresh: Instant::now(),
            next_ask: Instant::now(),
        })
    }

    fn ask(&mut self) -> anyhow::Result<()> {
        let now = Instant::now();
        let fresh = self.decisions.len();
        if now >= self.next_fresh && self.open.len() < OPEN && fresh < self.keys.len() {
            self.decisions.push(Decision { asked: now, cached: None });
            self.open.push(fresh as u64);
            self.next_fresh = now + FRESH_EVERY;
        }
        for index in &self.open {
            let key = self.keys.get(*index as u32);
            let header = Header {
                tenant: self.probe.tenant,
                client: self.client,
                // The answer says which key it is about.
                request: *index,
                key_hash: key.hash,
                ..Header::new(Op::ReadRequest)
            };
            let mut bytes = vec![];
            Packet::new(header, &key.bytes, &[]).encode(&self.secrets.tag, &mut bytes)?;
            bytes.resize(bytes.len() + self.probe.value_len, 0);
            // A full queue: the next one is not far.
            let _ = self.socket.send(&bytes);
        }
        self.next_ask = now + ASK_EVERY;
        Ok(())
    }

    /// Takes answers until it is time to ask again.
    fn listen(&mut self) -> anyhow::Result<()> {
        let mut buffer = [0; 2048];
        loop {
            let left = self.next_ask.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            self.socket.set_read_timeout(Some(left))?;
            let Ok(len) = self.socket.recv(&mut buffer) else { continue };
            let now = Instant::now();
            let Ok(packet) = Packet::decode(&buffer[..len]) else { continue };
            let header = packet.header;
            let is_hit = header.status == Status::Ok && header.flags.has(Flags::CACHED);
            if header.client != self.client || !is_hit {
                continue;
            }
            self.open.retain(|index| *index != header.request);
            if let Some(decision) = self.decisions.get_mut(header.request as usize) {
                decision.cached.get_or_insert(now);
            }
        }
    }
}

/// For how long after `from` no key that was first asked for after it was cached, in milliseconds;
/// none: as long as was looked.
pub(super) fn unavailable_ms(from: Instant, decisions: &[Decision]) -> Option<f64> {
    let first = decisions
        .iter()
        .filter(|decision| decision.asked >= from)
        .filter_map(|decision| decision.cached)
        .min()?;
    Some(first.duration_since(from).as_secs_f64() * 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_decision_on_a_later_key_ends_an_outage() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let decision =
            |asked, cached: Option<u64>| Decision { asked: at(asked), cached: cached.map(at) };
        let all = [
            // Asked for before: says nothing, the command may have been on its way.
            decision(90, Some(130)),
            decision(110, None),
            decision(200, Some(950)),
            decision(300, Some(940)),
        ];
        assert_eq!(unavailable_ms(at(100), &all), Some(840.0));
        assert_eq!(unavailable_ms(at(400), &all), None);
        assert_eq!((all[0].ms(), all[1].ms()), (Some(40.0), None));
    }
}
