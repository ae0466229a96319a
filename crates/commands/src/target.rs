//! What `get`, `set` and `delete` share: which cluster, which tenant, how long, and how to print.

use std::{
    net::{SocketAddr, ToSocketAddrs},
    path::{Path, PathBuf},
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use client::{Client, Options, Seal};
use wire::{Cluster, PORT, TENANT_OPEN};

use crate::{command_line::end_when_unread, common::time, secrets};

/// Where the keys are, and in whose name to ask.
#[derive(clap::Args)]
pub struct Target {
    /// The one store to ask; or else give --cluster.
    #[arg(long, value_name = "ADDR[:PORT]", conflicts_with = "cluster")]
    server: Option<String>,
    /// Number of partitions of that store.
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with = "cluster")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    partitions: u32,
    /// The cluster file (TOML): partitions, stores, tenants.
    #[arg(long, value_name = "FILE")]
    cluster: Option<PathBuf>,
    /// The tenant whose keys these are; its secret is read from the cluster file. 0 needs none.
    #[arg(long, value_name = "ID", default_value_t = TENANT_OPEN)]
    tenant: u32,
    /// How long to try. A write is given up after 1.5 s at the latest.
    #[arg(long, value_name = "TIME", default_value = "1500ms", value_parser = time)]
    timeout: Duration,
    /// Seal values and hide keys with the key in this file: 64 hex digits, readable by its owner
    /// only (`openssl rand -hex 32`). What was written with a seal key is found with that key only.
    #[arg(long, value_name = "FILE")]
    seal_key: Option<PathBuf>,
    /// Print one line of JSON.
    #[arg(long)]
    pub json: bool,
}

impl Target {
    /// Connects and runs one call; returns what it gave and how long it took.
    ///
    /// # Errors
    /// One line: what is wrong with the options, or what became of the call.
    pub fn run<T>(
        &self,
        call: impl AsyncFnOnce(Client) -> Result<T, client::Error>,
    ) -> anyhow::Result<(T, Duration)> {
        self.run_caching(0, async |client| {
            let start = Instant::now();
            Ok((call(client).await?, start.elapsed()))
        })
    }

    /// Connects, with so many bytes for copies of what is read, and does this.
    ///
    /// # Errors
    /// One line: what is wrong with the options, or what became of it.
    pub fn run_caching<T>(
        &self,
        cache: usize,
        work: impl AsyncFnOnce(Client) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        end_when_unread();
        if self.timeout.is_zero() || self.timeout > Duration::from_secs(3600) {
            bail!("--timeout {:?}: expected more than 0 and at most 1h", self.timeout);
        }
        let cluster = self.load()?;
        let options = Options {
            deadline: self.timeout,
            cache,
            seal: self.seal_key.as_deref().map(read_seal).transpose()?,
            ..Options::default()
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime
            .block_on(async { work(Client::connect(&cluster, self.tenant, options).await?).await })
    }

    fn load(&self) -> anyhow::Result<Cluster> {
        match (&self.cluster, &self.server) {
            (Some(path), _) => Ok(secrets::cluster(path)?.1),
            (None, Some(server)) if self.tenant == TENANT_OPEN => {
                Ok(Cluster {
                    // Only the store knows its bound here, and refuses what is longer.
                    max_value: wire::MAX_VALUE_MOST,
                    ..Cluster::single(resolve("--server", server)?, self.partitions)
                })
            }
            (None, Some(_)) => {
                bail!("--tenant {}: its secret is needed: use --cluster FILE", self.tenant)
            }
            (None, None) => bail!("expected --server ADDR[:PORT] or --cluster FILE"),
        }
    }
}

/// The seal in a file that `--seal-key` names.
///
/// # Errors
/// One line that names the file, and what was expected of it.
pub fn read_seal(path: &Path) -> anyhow::Result<Seal> {
    Seal::read(path).with_context(|| format!("--seal-key {}", path.display()))
}

/// An address or host name, with a port or with ours, that `option` gives.
///
/// # Errors
/// It is neither, or the name has no address.
pub fn resolve(option: &str, server: &str) -> anyhow::Result<SocketAddr> {
    if let Ok(ip) = server.trim_matches(['[', ']']).parse::<std::net::IpAddr>() {
        return Ok((ip, PORT).into());
    }
    let found = if server.contains(':') {
        server.to_socket_addrs()
    } else {
        (server, PORT).to_socket_addrs()
    };
    found
        .with_context(|| format!("{option} {server:?}: expected ADDR[:PORT]"))?
        .next()
        .with_context(|| format!("{option} {server:?}: the name has no address"))
}

/// Says on standard error that there is no such key.
pub fn not_found() -> ExitCode {
    eprintln!("(not found)");
    ExitCode::FAILURE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_may_leave_out_the_port() {
        for (text, address) in [
            ("127.0.0.1", "127.0.0.1:7117"),
            ("127.0.0.1:99", "127.0.0.1:99"),
            ("::1", "[::1]:7117"),
            ("[::1]", "[::1]:7117"),
            ("[::1]:99", "[::1]:99"),
        ] {
            assert_eq!(resolve("--server", text).unwrap(), address.parse().unwrap(), "{text}");
        }
        assert!(resolve("--server", "127.0.0.1:x").is_err());
    }

    #[test]
    fn without_a_cluster_file_the_store_bounds_values() {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            target: Target,
        }
        let line: Line = clap::Parser::parse_from(["get", "--server", "127.0.0.1"]);
        let cluster = line.target.load().unwrap();
        assert_eq!(cluster.max_value, wire::MAX_VALUE_MOST);
    }
}
