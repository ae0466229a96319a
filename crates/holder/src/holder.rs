//! A holder at the clients' side, without sockets, clocks or threads: datagrams and times go in,
//! datagrams come out.
//!
//! Whoever serves reads finds copies in the [`Cache`], and says which key is
//! [wanted](Holder::want). The holder borrows a lease of that key's store, fetches a grant, and
//! puts the value into the cache; it answers invalidations.
//!
//! It asks for leases by itself, each third of a lease, while its copies are read, and is silent
//! otherwise. So whoever is behind a translator of addresses is found where he asked from last.

use std::{
    collections::{BTreeSet, VecDeque},
    net::SocketAddr,
    sync::Arc,
    time::Duration,
};

use hashbrown::HashMap;
use wire::{
    Cluster, Epoch, Flags, Header, Op, Packet, ReadCount, Secrets, Status, TENANT_OPEN, mixed,
};

use crate::{
    Cache, Epochs, Nanos,
    cache::ToldReads,
    fetch::{Fetch, Progress, WantedPart},
    link::{Link, LinkAnswer, LinkTask, WantedKey},
    mutants::{Mutant, mutant},
    shelf::{PutOff, Shelf},
};

/// Grants that are under way at a time.
const FETCHES_MOST: usize = 1024;
/// For how long a key is not asked for where there was no room, no lease or no answer.
const LATER_NS: Nanos = 500_000_000;
/// Likewise a key that is absent, or whose value is too long.
const NOTHING_NS: Nanos = 1_000_000_000;
const NS_PER_MS: Nanos = 1_000_000;
/// How often stores are told what copies have answered.
const TELL_NS: Nanos = 1_000_000_000;
/// Bytes of an IPv6 header that an IPv4 header has not.
const IPV6_MORE: usize = 20;

/// Who a holder is.
#[derive(Clone, Copy, Debug)]
pub struct HolderOptions {
    /// Whose keys it holds.
    pub tenant: u32,
    /// Drawn at random by each holder when it starts.
    pub client: u64,
    /// The time since 1970 when it starts, in 65,536ths of a second: its epochs are above.
    pub first_epoch: u64,
}

impl HolderOptions {
    /// Of a holder that starts at this time since 1970.
    pub fn starting(tenant: u32, client: u64, since_1970: Duration) -> HolderOptions {
        let first_epoch = (since_1970.as_nanos() << 16) / 1_000_000_000;
        HolderOptions { tenant, client, first_epoch: first_epoch as u64 }
    }
}

/// What a holder has done; each only rises.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HolderCounts {
    /// Grants asked for.
    pub fetches: u64,
    /// Copies that were granted and kept.
    pub grants: u64,
    /// Grants that were refused, did not come or came too late.
    pub refused: u64,
    /// Invalidations answered.
    pub invalidations: u64,
    /// Leases lent, and lent again.
    pub leases: u64,
    /// Datagrams that were not meant for it, or not from who they said.
    pub ignored: u64,
}

impl HolderCounts {
    /// What has been done since it had done this.
    pub fn since(&self, before: &HolderCounts) -> HolderCounts {
        HolderCounts {
            fetches: self.fetches - before.fetches,
            grants: self.grants - before.grants,
            refused: self.refused - before.refused,
            invalidations: self.invalidations - before.invalidations,
            leases: self.leases - before.leases,
            ignored: self.ignored - before.ignored,
        }
    }
}

/// One holder.
pub struct Holder {
    cache: Arc<Cache>,
    options: HolderOptions,
    secrets: Secrets,
    cluster: Cluster,
    links: Vec<Link>,
    epochs: Epochs,
    /// By their keys' hashes in the cache: there is one of a key at a time.
    fetches: HashMap<u64, Fetch>,
    /// When they are asked again.
    timers: BTreeSet<(Nanos, u64)>,
    requests: u64,
    /// Stores are not told before what copies have answered.
    next_tell_ns: Nanos,
    out: VecDeque<(SocketAddr, Vec<u8>)>,
    counts: HolderCounts,
}

impl Holder {
    /// A holder of copies of a tenant's keys, which it keeps in a cache of as many stores as
    /// [`Holder::stores`] says. None: the cluster has no such tenant.
    pub fn new(
        cluster: &Cluster,
        options: HolderOptions,
        cache: Arc<Cache>,
        now_ns: Nanos,
    ) -> Option<Holder> {
        let secrets = cluster.secrets_of(options.tenant)?;
        Some(Holder {
            cache,
            options,
            secrets,
            links: Holder::addresses(cluster).into_iter().map(Link::new).collect(),
            cluster: cluster.clone(),
            epochs: Epochs::new(options.first_epoch, now_ns),
            fetches: HashMap::new(),
            timers: BTreeSet::new(),
            requests: 0,
            next_tell_ns: now_ns + TELL_NS,
            out: VecDeque::new(),
            counts: HolderCounts::default(),
        })
    }

    /// How many stores a cluster has, each counted once.
    pub fn stores(cluster: &Cluster) -> usize {
        Holder::addresses(cluster).len()
    }

    fn addresses(cluster: &Cluster) -> Vec<SocketAddr> {
        let mut all: Vec<_> = cluster.stores.iter().map(|store| store.address).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// A read has missed, and was told to have the key fetched ([`crate::Miss::Wanted`]).
    pub fn want(&mut self, hash: u64, key: &[u8], now_ns: Nanos) {
        let key_hash = self.secrets.hash.key_hash(self.options.tenant, key);
        let address = self.cluster.store_of(self.options.tenant, key_hash).address;
        let Some(store) = self.links.iter().position(|link| link.address == address) else {
            return;
        };
        if self.links[store].lease.holds(now_ns) {
            return self.fetch(store, (hash, key.into()), now_ns);
        }
        if !self.links[store].wait((hash, key.into()), now_ns) {
            self.refuse(hash, key, now_ns + LATER_NS);
        }
        self.look_after(store, now_ns);
    }

    /// A datagram has arrived.
    pub fn take(&mut self, datagram: &[u8], from: SocketAddr, now_ns: Nanos) {
        if !self.taken(datagram, from, now_ns) {
            self.counts.ignored += 1;
        }
    }

    fn taken(&mut self, datagram: &[u8], from: SocketAddr, now_ns: Nanos) -> bool {
        let Ok(packet) = Packet::decode(datagram) else { return false };
        let header = &packet.header;
        let is_at = |link: &Link| {
            let address = |one: SocketAddr| (one.ip().to_canonical(), one.port());
            address(link.address) == address(from)
        };
        let Some(store) = self.links.iter().position(is_at) else { return false };
        let is_ours = header.tenant == self.options.tenant && header.client == self.options.client;
        if !is_ours || self.secrets.that_signed(&packet).is_none() {
            return false;
        }
        let link = &self.links[store];
        let proves = link.number != 0 && header.request == link.proof.token;
        match header.op {
            Op::HolderLeaseReply => self.lease_answered(store, header, now_ns),
            Op::HolderGrant if proves => self.granted(&packet, now_ns),
            Op::HolderInvalidate if proves && header.epoch.switch() == link.number => {
                self.invalidated(store, &packet, now_ns);
                true
            }
            _ => false,
        }
    }

    /// When [`Holder::timer`] is to be called next; none: it waits for nothing.
    pub fn next_ns(&self) -> Option<Nanos> {
        let leases = self.links.iter().filter_map(|link| link.next_ns);
        leases.chain(self.timers.first().map(|(at_ns, _)| *at_ns)).min()
    }

    /// The time has come, or gone by.
    pub fn timer(&mut self, now_ns: Nanos) {
        for store in 0..self.links.len() {
            self.look_after(store, now_ns);
        }
        while let Some((at_ns, hash)) = self.timers.first().copied()
            && at_ns <= now_ns
        {
            self.timers.pop_first();
            let Some(fetch) = self.fetches.get_mut(&hash) else { continue };
            match fetch.again(now_ns) {
                Some(parts) => {
                    self.timers.insert((fetch.next_ns, hash));
                    parts.into_iter().for_each(|part| self.send_fetch(hash, part));
                }
                None => self.give_up(hash, now_ns + LATER_NS, PutOff::Fruitless),
            }
        }
    }

    /// The next datagram to send, and where to.
    pub fn next_datagram(&mut self) -> Option<(SocketAddr, Vec<u8>)> {
        self.out.pop_front()
    }

    /// It ends: from here on nothing is served, and stores are told, so that no write waits for
    /// what is gone. What was kept is [cleared](Cache::clear) when they have been told.
    pub fn leave(&mut self, now_ns: Nanos) {
        for store in 0..self.links.len() {
            let returned = self.links[store].give_up(now_ns);
            self.cache.set_lease(store, &self.links[store].lease);
            if let Some(header) = returned {
                self.send(store, header, &[], 0);
            }
        }
        self.fetches.clear();
        self.timers.clear();
    }

    /// What it has done so far.
    pub fn counts(&self) -> HolderCounts {
        self.counts
    }

    /// Where copies are.
    pub fn cache(&self) -> &Arc<Cache> {
        &self.cache
    }

    // ---- leases

    fn look_after(&mut self, store: usize, now_ns: Nanos) {
        let cache = &self.cache;
        let used = || {
            let mut sum = 0u32;
            cache.each(|shelf| sum = sum.saturating_add(shelf.take_used(store)));
            sum
        };
        match self.links[store].due(used, now_ns) {
            None => {}
            Some(LinkTask::Ask) => {
                self.ask(store, now_ns);
                self.tell_reads(now_ns);
            }
            Some(LinkTask::Lapsed) => cache.each(|shelf| shelf.forget(store)),
            Some(LinkTask::Mute) => self.refuse_waiting(store, now_ns + LATER_NS),
        }
    }

    fn ask(&mut self, store: usize, now_ns: Nanos) {
        self.requests += 1;
        let nonce = mixed(self.options.client ^ mixed(self.requests));
        let header = self.links[store].ask(nonce, now_ns);
        self.send(store, header, &[], 0);
    }

    /// Tells stores how often their hottest keys were read here, now and then: a backend that sees
    /// nothing of these reads would take what is read most for idle.
    fn tell_reads(&mut self, now_ns: Nanos) {
        if now_ns < self.next_tell_ns {
            return;
        }
        self.next_tell_ns = now_ns + TELL_NS;
        let tenant = self.options.tenant;
        let untold = self.cache.take_untold(self.links.len(), ReadCount::MOST);
        for (store, told) in untold.into_iter().enumerate() {
            let link = &self.links[store];
            if told.is_empty() || !link.lease.holds(now_ns) {
                continue;
            }
            let header = Header {
                request: link.proof.token,
                epoch: Epoch::new(link.number, 0),
                ..Header::new(Op::ReadCounts)
            };
            let mut rows = vec![];
            for ToldReads { reads, key, .. } in told {
                let hash = self.secrets.hash.key_hash(tenant, &key);
                ReadCount { tenant, hash, reads }.encode(&mut rows);
            }
            self.say(store, header, &[], &rows, 0);
        }
    }

    fn lease_answered(&mut self, store: usize, header: &Header, now_ns: Nanos) -> bool {
        let answer = self.links[store].answered(header, self.epochs.newest(), now_ns);
        match answer {
            LinkAnswer::Stray => return false,
            LinkAnswer::Lent => {
                self.counts.leases += 1;
                self.cache.set_lease(store, &self.links[store].lease);
                for key in self.links[store].take_waiting() {
                    self.fetch(store, key, now_ns);
                }
            }
            LinkAnswer::AskAgain => self.ask(store, now_ns),
            LinkAnswer::Refused => self.refuse_waiting(store, now_ns + LATER_NS),
        }
        true
    }

    fn refuse_waiting(&mut self, store: usize, until_ns: Nanos) {
        for (hash, key) in self.links[store].take_waiting() {
            self.refuse(hash, &key, until_ns);
        }
    }

    // ---- grants

    fn fetch(&mut self, store: usize, (hash, key): WantedKey, now_ns: Nanos) {
        // The cache may have forgotten a key that was asked for, and want it anew.
        if self.fetches.get(&hash).is_some_and(|older| older.key == key) {
            self.end(hash);
        }
        if self.fetches.len() == FETCHES_MOST || self.fetches.contains_key(&hash) {
            return self.refuse(hash, &key, now_ns + LATER_NS);
        }
        let epoch = self.epochs.take();
        if !self.cache.with(hash, |shelf| shelf.begin(hash, &key, store, epoch, now_ns)) {
            return;
        }
        let key_hash = self.secrets.hash.key_hash(self.options.tenant, &key);
        let fetch = Fetch::new(store, key, key_hash, epoch, now_ns);
        self.timers.insert((fetch.next_ns, hash));
        self.fetches.insert(hash, fetch);
        self.counts.fetches += 1;
        self.send_fetch(hash, None);
    }

    fn send_fetch(&mut self, hash: u64, part: Option<WantedPart>) {
        let Some(fetch) = self.fetches.get(&hash) else { return };
        let (store, key) = (fetch.store, fetch.key.clone());
        let link = &self.links[store];
        let mut header = Header {
            request: link.proof.token,
            key_hash: fetch.key_hash,
            flags: Flags::GRANT,
            epoch: Epoch::new(link.number, fetch.epoch),
            ..Header::new(Op::HolderFetch)
        };
        if let Some(WantedPart { part, total, version }) = part {
            header = Header { part, total, version, ..header };
        }
        // Who needs no secret is answered with no more than was sent.
        let is_ipv4 = link.address.ip().to_canonical().is_ipv4();
        let most = wire::MAX_PAYLOAD - if is_ipv4 { 0 } else { IPV6_MORE };
        let padded_to = if self.options.tenant == TENANT_OPEN { most } else { 0 };
        self.send(store, header, &key, padded_to);
    }

    fn granted(&mut self, packet: &Packet<'_>, now_ns: Nanos) -> bool {
        let header = &packet.header;
        let hash = self.cache.hash(packet.key);
        let is_its = |fetch: &&mut Fetch| {
            let is_of_epoch = fetch.epoch == header.epoch.number();
            *fetch.key == *packet.key && (is_of_epoch || mutant(Mutant::ReplicaOfAnyEpoch))
        };
        let longest = self.longest_beside(hash, header);
        let Some(fetch) = self.fetches.get_mut(&hash).filter(is_its) else { return false };
        if header.epoch.switch() != self.links[fetch.store].number {
            return false;
        }
        if !header.flags.has(Flags::GRANT) {
            match header.status {
                Status::TryAgain => {
                    let pause_ns = u64::from(header.expiry_ms) * NS_PER_MS;
                    self.give_up(hash, now_ns + pause_ns, PutOff::ByStore);
                }
                _ => self.give_up(hash, now_ns + NOTHING_NS, PutOff::Fruitless),
            }
            return true;
        }
        let before_ns = fetch.next_ns;
        match fetch.take(header, packet.value, longest, now_ns) {
            Progress::Parts(parts) => {
                let bytes = header.total as usize;
                let makes_way = |shelf: &mut Shelf| shelf.makes_way(hash, packet.key, bytes);
                if !self.cache.with(hash, makes_way) {
                    self.give_up(hash, now_ns + LATER_NS, PutOff::Fruitless);
                    return true;
                }
                self.timers.remove(&(before_ns, hash));
                self.timers.insert((fetch.next_ns, hash));
                parts.into_iter().for_each(|part| self.send_fetch(hash, Some(part)));
            }
            Progress::Over => self.give_up(hash, now_ns + NOTHING_NS, PutOff::Fruitless),
            Progress::Whole(value, version, expiry_ms) => {
                let Some(Fetch { key, epoch, .. }) = self.end(hash) else { return false };
                let life = (version, expiry_ms);
                let is_kept = value.len() <= self.cache.longest()
                    && self
                        .cache
                        .with(hash, |shelf| shelf.install(hash, &key, epoch, value.into(), life));
                match is_kept {
                    true => self.counts.grants += 1,
                    false => self.refuse(hash, &key, now_ns + LATER_NS),
                }
            }
        }
        true
    }

    /// How long a value may be that this packet begins, beside those of other keys of which parts
    /// are here: each has room for its whole length.
    fn longest_beside(&self, hash: u64, header: &Header) -> usize {
        if header.total == 0 || header.part > 0 {
            return self.cache.longest();
        }
        let others = self.fetches.iter().filter(|(other, _)| **other != hash);
        let taken: usize = others.map(|(_, fetch)| fetch.bytes()).sum();
        self.cache.longest().min(self.cache.most_under_way().saturating_sub(taken))
    }

    fn give_up(&mut self, hash: u64, until_ns: Nanos, why: PutOff) {
        if let Some(fetch) = self.end(hash) {
            self.refuse_for(hash, &fetch.key, until_ns, why);
        }
    }

    fn end(&mut self, hash: u64) -> Option<Fetch> {
        let fetch = self.fetches.remove(&hash)?;
        self.timers.remove(&(fetch.next_ns, hash));
        Some(fetch)
    }

    fn refuse(&mut self, hash: u64, key: &[u8], until_ns: Nanos) {
        self.refuse_for(hash, key, until_ns, PutOff::Fruitless);
    }

    fn refuse_for(&mut self, hash: u64, key: &[u8], until_ns: Nanos, why: PutOff) {
        self.counts.refused += 1;
        self.cache.put_off_for(hash, key, until_ns, why);
    }

    /// Rule 4: a new epoch, under which nothing is served that was granted before, and then the
    /// answer.
    fn invalidated(&mut self, store: usize, packet: &Packet<'_>, now_ns: Nanos) {
        let (header, key) = (&packet.header, packet.key);
        let hash = self.cache.hash(key);
        let epoch = self.epochs.take();
        let hits = self.cache.with(hash, |shelf| shelf.invalidate(hash, key, epoch, now_ns));
        if self.fetches.get(&hash).is_some_and(|fetch| *fetch.key == *key) {
            self.end(hash);
        }
        self.counts.invalidations += 1;
        let ack = Header {
            request: header.request,
            key_hash: header.key_hash,
            epoch: Epoch::new(header.epoch.switch(), epoch),
            version: header.epoch.number(),
            expiry_ms: hits.unwrap_or(wire::HAD_NONE),
            ..Header::new(Op::HolderAck)
        };
        self.send(store, ack, key, 0);
    }

    fn send(&mut self, store: usize, header: Header, key: &[u8], padded_to: usize) {
        self.say(store, header, key, &[], padded_to);
    }

    fn say(&mut self, store: usize, header: Header, key: &[u8], value: &[u8], padded_to: usize) {
        let HolderOptions { tenant, client, .. } = self.options;
        let header = Header { tenant, client, ..header };
        let packet = Packet::new(header, key, value);
        // A key that no packet has room for is not wanted in the first place.
        if let Ok(mut bytes) = packet.to_bytes(&self.secrets.tag) {
            bytes.resize(bytes.len().max(padded_to), 0);
            self.out.push_back((self.links[store].address, bytes));
        }
    }
}
