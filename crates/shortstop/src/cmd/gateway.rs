//! `shortstop gateway`: Redis clients on one side, a cluster on the other.
//!
//! Here options become what the crate `gateway` is started with, and what can be said of them
//! before a socket is opened is said.

use std::{net::SocketAddr, path::PathBuf, process::ExitCode};

use anyhow::bail;
use commands::{
    common::{self, size, socket_address, stopped},
    secrets,
    target::{read_seal, resolve},
};
use gateway::{BackendAddress, Config, Limits, NetworkUse};
use wire::{Cluster, TENANT_OPEN};

use super::{
    certificates::{BackendTrust, ServerCertificate},
    open_files,
};

/// Let unmodified Redis and memcached clients use a cluster: RESP2, RESP3 and memcached's protocol
/// in, shortstop's protocol and the servers' own out.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    shortstop gateway --server 10.0.2.1 --listen 127.0.0.1:6380\n  \
    shortstop gateway --cluster rack.toml --backend 0-63=redis://10.0.2.1:6379 \\\n      \
    --backend 64-127=redis://10.0.2.2:6379\n  \
    shortstop gateway --server 10.0.2.1 --resp rediss://10.0.2.1:6390 \\\n      --backend-ca ca.pem\n  \
    shortstop gateway --server 10.0.2.1 --memcached-listen 127.0.0.1:11211 \\\n      \
    --memcached memcached://127.0.0.1:11311\n  \
    shortstop gateway --cluster rack.toml --tenant 7 --seal-key seal.key\n  \
    redis-cli -p 6380 set user:42 Ada")]
pub struct Args {
    /// The cluster file (TOML): partitions, stores, tenants.
    #[arg(long, value_name = "FILE", required_unless_present = "server")]
    cluster: Option<PathBuf>,
    /// The one store to ask, in place of a cluster file.
    #[arg(long, value_name = "ADDR[:PORT]", conflicts_with = "cluster")]
    server: Option<String>,
    /// Address and port for Redis clients. They need no password: let only those reach it who may.
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:6380", value_parser = socket_address)]
    listen: SocketAddr,
    /// The tenant whose keys these are; its secret is read from the cluster file. 0 needs none.
    #[arg(long, value_name = "ID", default_value_t = TENANT_OPEN)]
    tenant: u32,
    /// The stores' Redis, for keys and values that no packet carries:
    /// [FIRST-LAST=]redis://HOST:PORT[/DB], by TLS rediss://HOST:PORT, or redis+unix:///PATH.
    /// Repeat it where partitions have different ones.
    #[arg(long = "backend", value_name = "[PARTITIONS=]URL")]
    backends: Vec<BackendAddress>,
    /// The store's RESP port, by which every command of Redis works: redis://HOST:PORT, by TLS
    /// rediss://HOST:PORT, or redis+unix:///PATH. Of several stores each has one: repeat it with
    /// their partitions, FIRST-LAST=URL, or let the cluster file say it (`resp`). Without it only
    /// commands on strings do, by packets.
    #[arg(long, value_name = "[PARTITIONS=]URL")]
    resp: Vec<BackendAddress>,
    /// Before a Redis Cluster: the gateways that clients in cluster mode take for its nodes, each
    /// by the address at which clients reach it, this one among them. Repeat it, in the same order
    /// for each gateway. Without it this one looks like the whole cluster.
    #[arg(long = "node", value_name = "ADDR:PORT", value_parser = socket_address)]
    nodes: Vec<SocketAddr>,
    /// Address and port for memcached clients, too (text and meta commands). They need no password.
    #[arg(long, value_name = "ADDR:PORT", value_parser = socket_address)]
    memcached_listen: Option<SocketAddr>,
    /// The store's memcached port, which carries their commands out: memcached://HOST:PORT, by TLS
    /// memcacheds://HOST:PORT, or memcached+unix:///PATH. Of several stores each has one: repeat it
    /// with their partitions, FIRST-LAST=URL.
    #[arg(long, value_name = "[PARTITIONS=]URL", value_parser = BackendAddress::of_memcached)]
    memcached: Vec<BackendAddress>,
    /// Which reads go by the network, with --resp: of all keys (always), of hot ones, or never.
    #[arg(long, value_name = "WHICH", default_value = "hot")]
    network: NetworkUse,
    /// Memory for copies of hot keys, with --resp or --memcached; 0 keeps none.
    #[arg(long, value_name = "SIZE", default_value = "64MiB", value_parser = cache)]
    cache: usize,
    /// Event loops: one core each.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: u16,
    /// File with the password of these Redis servers; or else the variable
    /// SHORTSTOP_BACKEND_PASSWORD has it. A user's name may stand in the URL:
    /// redis://USER@HOST:PORT.
    #[arg(long, value_name = "FILE")]
    backend_password_file: Option<PathBuf>,
    #[command(flatten)]
    believed: BackendTrust,
    #[command(flatten)]
    shown: ServerCertificate,
    /// Where Prometheus finds what the gateway counts, by HTTP: /metrics. Nobody is asked for a
    /// password.
    #[arg(long, value_name = "ADDR:PORT", value_parser = socket_address)]
    metrics: Option<SocketAddr>,
    /// Seal values and hide keys with the key in this file, in the network and in the backends: 64
    /// hex digits, readable by its owner only (`openssl rand -hex 32`).
    #[arg(long, value_name = "FILE")]
    seal_key: Option<PathBuf>,
    /// Connections at the same time.
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..))]
    max_connections: u32,
    /// Memory of all connections together, for commands and answers that are not done with; without
    /// --resp half of it is for large commands and values.
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = memory)]
    max_memory: usize,
}

/// Serves until it is told to stop.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    commands::command_line::give_memory_back();
    let cluster = match (&args.cluster, &args.server) {
        (Some(file), _) => secrets::cluster(file)?.1,
        (None, Some(server)) if args.tenant == TENANT_OPEN => {
            Cluster::single(resolve("--server", server)?, 1)
        }
        (None, _) => {
            bail!("--tenant {}: its secret is needed: use --cluster FILE", args.tenant)
        }
    };
    let to_memcached = match args.memcached_listen {
        Some(_) => gateway::MEMCACHED_LINKS * cluster.stores.len(),
        None => 0,
    };
    let config = Config {
        listen: args.listen,
        cluster,
        tenant: args.tenant,
        backends: args.backends,
        resp: args.resp,
        nodes: args.nodes,
        memcached_listen: args.memcached_listen,
        memcached: args.memcached,
        network: args.network,
        cache_bytes: args.cache,
        threads: args.threads.into(),
        backend_password: secrets::backend_password(args.backend_password_file.as_deref())?,
        backend_tls: args.believed.files(),
        resolver: gateway::system_resolver,
        tls: args.shown.files(),
        metrics: args.metrics,
        seal: args.seal_key.as_deref().map(read_seal).transpose()?,
        limits: Limits {
            connections: open_files::connections(
                "--max-connections",
                args.max_connections as usize,
                to_memcached,
            ),
            memory_bytes: args.max_memory,
            ..Limits::default()
        },
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(gateway::run(config, |_| {}, stopped()))?;
    Ok(ExitCode::SUCCESS)
}

/// 0, or at least 1 MiB.
fn cache(text: &str) -> Result<usize, String> {
    match size(text) {
        Ok(0) => Ok(0),
        _ => memory(text),
    }
}

/// At least 1 MiB.
fn memory(text: &str) -> Result<usize, String> {
    usize::try_from(common::memory(text)?).map_err(|_| format!("{text:?} is too much"))
}
