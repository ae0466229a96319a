//! What a store is told at its start: where it listens, whose data it has, what holds that, how
//! much of everything it remembers. The command line and tests make it.

use std::{net::SocketAddr, path::PathBuf, str::FromStr, time::Duration};

use decide::StoreMaker;
use holder::mutants::{Mutant, mutant};
use tls::{ClientFiles, ServerFiles};

use crate::{MemcachedAddress, RespAddress, resolver::Resolver};

/// Where the data is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BackendConfig {
    /// In this process.
    Embedded,
    /// A Redis or Valkey server: `redis://...`, by TLS `rediss://...`, or `redis+unix:///...`, as
    /// the `redis` crate reads it; several, separated by commas, of which one is the master.
    Redis(String),
    /// A memcached server, HOST:PORT.
    Memcached(String),
}

impl std::fmt::Display for BackendConfig {
    /// The kind only: an address may hold a password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            BackendConfig::Embedded => "embedded",
            BackendConfig::Redis(_) => "redis",
            BackendConfig::Memcached(_) => "memcached",
        })
    }
}

impl FromStr for BackendConfig {
    type Err = String;

    fn from_str(text: &str) -> Result<BackendConfig, String> {
        match text.split_once("://") {
            None if text == "embedded" => Ok(BackendConfig::Embedded),
            Some(("redis" | "rediss" | "redis+unix" | "redis+sentinel" | "rediss+sentinel", _)) => {
                Ok(BackendConfig::Redis(text.into()))
            }
            Some(("memcached", server)) if server.contains(':') => {
                Ok(BackendConfig::Memcached(server.trim_end_matches('/').into()))
            }
            _ => Err(format!(
                "backend {text:?}: expected embedded, redis[s]://HOST:PORT[/DB], redis+unix:///PATH, \
                 redis[s]+sentinel://HOST:PORT,HOST:PORT/NAME or memcached://HOST:PORT"
            )),
        }
    }
}

/// What to do about writes that other clients make directly in Redis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OutsideWrites {
    /// Have Redis tell of them, and call the copies back; grant none where it cannot.
    #[default]
    Track,
    /// Nobody makes any, or old copies do not matter.
    Ignore,
}

impl FromStr for OutsideWrites {
    type Err = String;

    fn from_str(text: &str) -> Result<OutsideWrites, String> {
        match text {
            "track" => Ok(OutsideWrites::Track),
            "ignore" => Ok(OutsideWrites::Ignore),
            _ => Err(format!("outside writes {text:?}: expected track or ignore")),
        }
    }
}

/// A discipline's half that runs in the store.
#[derive(Clone, Copy, Debug)]
pub struct Half {
    /// The discipline's name, by which messages and reports tell halves apart.
    pub name: &'static str,
    /// Makes it, and says which operations it takes.
    pub maker: StoreMaker,
}

/// Everything a store is told when it starts.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where it listens; port 0 lets the system choose.
    pub listen: SocketAddr,
    /// The cluster; the store owns the partitions of the entries in it that name `identity`.
    pub cluster: wire::Cluster,
    /// The store's address in the cluster; `None`: it owns every partition.
    pub identity: Option<SocketAddr>,
    /// Where the data is.
    pub backend: BackendConfig,
    /// The password of a Redis, if it does not stand in its address.
    pub backend_password: Option<String>,
    /// Whom to believe where the backend's address is `rediss://`, and what is shown there.
    pub backend_tls: ClientFiles,
    /// How long a backend in another process may take for an answer; what takes longer has failed.
    pub backend_within: Duration,
    /// What names of a Redis mean.
    pub resolver: Resolver,
    /// What to do about writes that others make in the backend; Redis only.
    pub outside_writes: OutsideWrites,
    /// Bytes that the embedded backend may take.
    pub memory_limit: u64,
    /// Unix socket that tells the store's status.
    pub status_socket: Option<PathBuf>,
    /// Where it speaks Redis's own protocol to clients, every command; with a Redis only.
    pub resp: Vec<RespAddress>,
    /// Where it speaks memcached's own protocol to clients; with a memcached only.
    pub memcached: Vec<MemcachedAddress>,
    /// The certificate that clients of the RESP port see, where they come by TLS.
    pub tls: Option<ServerFiles>,
    /// Directory of the journal of loans, and of what the store leaves to the next one; without it
    /// a backend in another process has no write-back, and the next store waits.
    pub state: Option<PathBuf>,
    /// Writes of a key within a second from which on it is lent, and below half of which it is
    /// called back; `None`: as many as make it worth it under its tenant's bound.
    pub lend_from: Option<u32>,
    /// Copies, over all keys, that the directory remembers at most.
    pub directory_limit: usize,
    /// Writes that may wait behind one another for one key.
    pub key_queue_limit: usize,
    /// Clients whose last writes are remembered at most.
    pub client_limit: usize,
    /// Bytes of values that are written in parts, until their writes are over; and as many of
    /// values that are read in parts from a backend of another process.
    pub parts_limit: usize,
    /// Bytes of copies of other stores' keys that disciplines want held here.
    pub replica_memory: usize,
    /// The halves of disciplines that run in it.
    pub halves: Vec<Half>,
    /// How long ago its life began when it starts. For tests, whose stores had no life before this
    /// one: with as much as the longest lease, and a 64th more, such a store does not wait for what
    /// a former one lent.
    pub born_ago: Duration,
}

impl Config {
    /// Defaults for a store on `listen` that owns every partition of a cluster of its own.
    pub fn new(listen: SocketAddr) -> Config {
        Config {
            listen,
            cluster: wire::Cluster::single(listen, 1),
            identity: None,
            backend: BackendConfig::Embedded,
            backend_password: None,
            backend_tls: ClientFiles::default(),
            backend_within: Duration::from_secs(1),
            resolver: Resolver::default(),
            outside_writes: OutsideWrites::Track,
            memory_limit: 1 << 30,
            status_socket: None,
            resp: vec![],
            memcached: vec![],
            tls: None,
            state: None,
            lend_from: None,
            directory_limit: 1_000_000,
            key_queue_limit: 64,
            client_limit: 32_768,
            parts_limit: 256 << 20,
            replica_memory: 64 << 20,
            halves: vec![],
            born_ago: Duration::ZERO,
        }
    }

    /// What it serves, for the log's first line.
    pub(crate) fn serves(&self) -> String {
        let wire::Cluster { partitions, stores, tenants, open_tenant, .. } = &self.cluster;
        let own = stores.iter().filter(|s| self.identity.is_none_or(|own| s.address == own));
        let own: u32 = own.map(|s| s.last.saturating_sub(s.first) + 1).sum();
        let open = if *open_tenant { "tenant 0" } else { "no tenant 0" };
        let (tenants, backend) = (tenants.len(), &self.backend);
        format!(
            "{own} of {partitions} partitions, {open} and {tenants} more of the cluster file, data in {backend}; takes writes in {} ms",
            self.cluster.lease_max_ms
        )
    }

    /// The slots that the store has of a Redis Cluster: the first and the last of each run. None:
    /// its cluster goes by another scheme.
    pub(crate) fn cluster_slots(&self) -> Option<Vec<(u32, u32)>> {
        let own = |store: &&wire::Store| self.identity.is_none_or(|own| store.address == own);
        let own = self.cluster.stores.iter().filter(own);
        let is_cluster = self.cluster.scheme == wire::Scheme::RedisCluster;
        is_cluster.then(|| own.map(|store| (store.first, store.last)).collect())
    }

    /// Length of the leases that it lends, in nanoseconds.
    pub(crate) fn lease_ns(&self) -> u64 {
        u64::from(self.cluster.lease_ms) * 1_000_000
    }

    /// The longest that anybody may still go by, in nanoseconds.
    pub(crate) fn longest_lease_ns(&self) -> u64 {
        let longest_ms = match mutant(Mutant::LongerLeaseForgotten) {
            true => self.cluster.lease_ms,
            false => self.cluster.lease_max_ms,
        };
        u64::from(longest_ms) * 1_000_000
    }

    /// Checks what the types cannot.
    ///
    /// # Errors
    /// The option that is wrong and what was expected.
    pub fn check(&self) -> anyhow::Result<()> {
        if self.cluster.partitions == 0 || self.cluster.partitions > 65_536 {
            anyhow::bail!("{} partitions: expected 1 to 65536", self.cluster.partitions);
        }
        if let Some(identity) = self.identity
            && !self.cluster.stores.iter().any(|s| s.address == identity)
        {
            anyhow::bail!(
                "{identity} is no store of the cluster file: listen on one of its addresses, or name one with --as"
            );
        }
        if !self.resp.is_empty() && !matches!(self.backend, BackendConfig::Redis(_)) {
            anyhow::bail!(
                "a RESP port needs a Redis behind the store, to carry commands out: --backend redis://..."
            );
        }
        if !self.memcached.is_empty() && !matches!(self.backend, BackendConfig::Memcached(_)) {
            anyhow::bail!(
                "a memcached port needs a memcached behind the store, to carry commands out: --backend memcached://HOST:PORT"
            );
        }
        self.check_certificate()?;
        self.check_halves()
    }

    /// Ports by TLS have a certificate, and a certificate has a port.
    fn check_certificate(&self) -> anyhow::Result<()> {
        let resp = self.resp.iter().find_map(|at| at.0.secure());
        let resp = resp.map(|at| format!("--resp rediss://{at}"));
        let memcached = self.memcached.iter().find_map(|at| at.0.secure());
        let memcached = memcached.map(|at| format!("--memcached memcacheds://{at}"));
        let has_client_ca = self.tls.as_ref().is_some_and(|files| files.client_ca.is_some());
        if let Some(port) = memcached.as_ref().filter(|_| self.tls.is_some() && !has_client_ca) {
            anyhow::bail!(
                "{port}: memcached asks for no password, so whoever reaches the port would be let in: expected the \
                 authority of its clients' certificates: --tls-client-ca FILE"
            );
        }
        match (resp.or(memcached), &self.tls) {
            (Some(port), None) => anyhow::bail!(
                "{port}: expected the certificate that clients see: --tls-cert FILE --tls-key FILE"
            ),
            (None, Some(_)) => anyhow::bail!(
                "--tls-cert: no port is for it: expected --resp rediss://ADDR:PORT or --memcached memcacheds://ADDR:PORT"
            ),
            _ => Ok(()),
        }
    }

    /// Each operation has one taker; those of the store itself are not for others.
    fn check_halves(&self) -> anyhow::Result<()> {
        let mut taken: Vec<(wire::Op, &str)> = vec![];
        for Half { name, maker } in &self.halves {
            for &op in maker.operations {
                if !op.has_key() || crate::engine::is_own(op) {
                    anyhow::bail!("{name} cannot take {op:?} in a store");
                }
                if let Some((_, other)) = taken.iter().find(|(at, _)| *at == op) {
                    anyhow::bail!("{name} and {other} both take {op:?}");
                }
                taken.push((op, name));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_about_sizing_has_a_stores_limits() {
        let page = include_str!("../../../docs/operations/sizing.md");
        let usual = Config::new("127.0.0.1:0".parse().expect("an address"));
        assert_eq!((usual.directory_limit, usual.client_limit), (1_000_000, 32_768));
        assert_eq!((usual.parts_limit, usual.replica_memory), (256 << 20, 64 << 20));
        for said in [
            "remembers 1,000,000 copies",
            "remembers 32,768 clients",
            "16,384 / T writing",
            "`--parts-limit` (256 MiB)",
            "`--replica-memory` (64 MiB)",
        ] {
            assert!(page.contains(said), "docs/operations/sizing.md does not say: {said}");
        }
    }
}
