//! Clients that keep copies of what they read, as a gateway does: a [`Holder`] beside a client of
//! the stores.

use std::{collections::VecDeque, net::SocketAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use client::{Answer, Error, Operation, kit::Request};
use holder::{Cache, Holder, HolderOptions, Miss};
use sim::Birth;
use wire::{Cluster, Header, Op, Packet};

use crate::connection::Connection;

/// Reads that copies at the clients' side have answered, as summaries name it.
pub const READS_FROM_HOLDERS: &str = "reads_from_holders";
/// What else is counted of holders, by the stores.
pub const HOLDERS: [&str; 7] = [
    "holders_begun",
    "holder_leases",
    "holders_refused_starting",
    "holders_refused_lease",
    "holder_grants_paused",
    "dropped_holder",
    READS_FROM_HOLDERS,
];
/// Room for copies in bytes: less than all keys take where values are long.
const CACHE_BYTES: usize = 64 << 10;
/// Numbers of operations that copies have answered have this bit.
const LOCAL: u64 = 1 << 63;

/// A client of one tenant with copies of its own.
pub struct CachingConnection {
    inner: Box<dyn Connection>,
    holder: Holder,
    cache: Arc<Cache>,
    tenant: u32,
    done: VecDeque<(u64, Result<Answer, Error>)>,
    /// Reads that copies have answered.
    hits: u64,
}

impl CachingConnection {
    /// Puts copies before a client of this cluster; it stays as it is if its tenant is unknown.
    pub fn around(
        inner: Box<dyn Connection>,
        cluster: &Cluster,
        tenant: u32,
        (birth, seed): (&Birth, u64),
    ) -> Box<dyn Connection> {
        let since_1970 = Duration::from_nanos(birth.clock.wall_ns);
        let options = HolderOptions::starting(tenant, seed | 1, since_1970);
        let cache = Arc::new(Cache::new(CACHE_BYTES, Holder::stores(cluster)));
        let now_ns = birth.clock.boottime_ns;
        match Holder::new(cluster, options, cache.clone(), now_ns) {
            Some(holder) => Box::new(CachingConnection {
                inner,
                holder,
                cache,
                tenant,
                done: VecDeque::new(),
                hits: 0,
            }),
            None => inner,
        }
    }

    /// The answer of a copy, if there is one that may be served.
    fn read(&mut self, key: &[u8], now_ns: u64) -> Option<Answer> {
        let hash = self.cache.hash(key);
        let copied = self.cache.read_copy(hash, key, now_ns, |copy| {
            (copy.version, Bytes::copy_from_slice(&copy.value))
        });
        match copied {
            Ok((version, value)) => {
                let request = Request { tenant: self.tenant, value_len: 0, is_write: false };
                let header = Header { version, ..Header::new(Op::ReadReply) };
                let nobody = ([0, 0, 0, 0], 0).into();
                Some(Answer::new(nobody, request, header, value))
            }
            Err(Miss::Wanted) => {
                self.holder.want(hash, key, now_ns);
                None
            }
            Err(Miss::Elsewhere | Miss::AtStore) => None,
        }
    }
}

impl Connection for CachingConnection {
    fn begin(&mut self, operation: &Operation<'_>, now_ns: u64) -> u64 {
        if let Operation::Get { key } = operation
            && let Some(answer) = self.read(key, now_ns)
        {
            self.hits += 1;
            self.done.push_back((LOCAL | self.hits, Ok(answer)));
            return LOCAL | self.hits;
        }
        self.inner.begin(operation, now_ns)
    }

    fn take(&mut self, datagram: &[u8], from: SocketAddr, now_ns: u64) {
        let op = Packet::decode(datagram).map(|packet| packet.header.op);
        match op {
            Ok(Op::HolderLeaseReply | Op::HolderGrant | Op::HolderInvalidate) => {
                self.holder.take(datagram, from, now_ns);
            }
            _ => self.inner.take(datagram, from, now_ns),
        }
    }

    fn timer(&mut self, now_ns: u64) {
        if self.holder.next_ns().is_some_and(|at| at <= now_ns) {
            self.holder.timer(now_ns);
        }
        if self.inner.next_ns().is_some_and(|at| at <= now_ns) {
            self.inner.timer(now_ns);
        }
    }

    fn next_ns(&self) -> Option<u64> {
        self.holder.next_ns().into_iter().chain(self.inner.next_ns()).min()
    }

    fn next_datagram(&mut self) -> Option<(SocketAddr, Bytes)> {
        let own = self.holder.next_datagram().map(|(to, bytes)| (to, bytes.into()));
        own.or_else(|| self.inner.next_datagram())
    }

    fn next_finished(&mut self) -> Option<(u64, Result<Answer, Error>)> {
        self.done.pop_front().or_else(|| self.inner.next_finished())
    }

    fn hits(&self) -> u64 {
        self.hits
    }
}
