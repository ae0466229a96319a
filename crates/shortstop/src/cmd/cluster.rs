//! `shortstop cluster`: cluster files for servers that run already, with nothing moved.

use std::{
    fmt::Write as _,
    net::{IpAddr, SocketAddr, ToSocketAddrs},
    path::PathBuf,
    process::ExitCode,
    str::FromStr,
    time::Duration,
};

use anyhow::{Context, bail};
use clap::Subcommand;
use commands::{command_line::end_when_unread, common::socket_address, output::print, secrets};
use serde_json::json;
use store::slot_map::{NodeAddress, SlotMap};
use tls::Connector;
use wire::{CLUSTER_SLOTS, Cluster, Digest, PoolServer, Scheme, Store};

use super::certificates::BackendTrust;

/// Where their RESP ports are.
const RESP_PORT: u16 = 6390;
/// The first memcached port of stores.
const MEMCACHED_PORT: u16 = 11311;
/// How long a node of a Redis Cluster has for an answer.
const WITHIN: Duration = Duration::from_secs(2);

/// Writes cluster files for servers that run already.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  shortstop cluster import redis://10.0.1.1:6379,redis://10.0.1.2:6379 \\\n      > cluster.toml"
)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Writes the cluster file of stores before a Redis Cluster, one for each shard.
    ///
    /// All nodes that the given one names are asked, too, and more than half of the masters must
    /// answer. Nothing is changed there. The file goes to standard output; its first lines say how
    /// each store is started.
    #[command(
        after_help = "Example:\n  shortstop cluster import redis://10.0.1.1:6379 > cluster.toml\n  \
                      shortstop cluster import redis://127.0.0.1:7001 \\\n      --store 127.0.0.1:7117,127.0.0.1:7118 --json"
    )]
    Import(Import),
    /// Writes the cluster file of stores before a pool of memcached servers.
    ///
    /// The servers are given as the pool's clients have them, letter by letter and in their order:
    /// clients compute places of keys from that. The file goes to standard output.
    #[command(
        after_help = "Example:\n  shortstop cluster pool --scheme ketama 10.0.1.1:11211 10.0.1.2:11211:2 \\\n      > cluster.toml"
    )]
    Pool(PoolArgs),
}

#[derive(clap::Args)]
struct Import {
    /// A node, redis://HOST:PORT, by TLS rediss://HOST:PORT; several, separated by commas.
    #[arg(value_name = "URL[,URL]")]
    nodes: String,
    #[command(flatten)]
    stores: StorePlaces,
    /// File with the password of the nodes; or else the variable SHORTSTOP_BACKEND_PASSWORD has it.
    #[arg(long, value_name = "FILE")]
    backend_password_file: Option<PathBuf>,
    #[command(flatten)]
    believed: BackendTrust,
}

#[derive(clap::Args)]
struct PoolArgs {
    /// The rule by which the pool's clients choose a server.
    #[arg(long, value_parser = ["ketama", "modula", "twemproxy-ketama", "twemproxy-modula"])]
    scheme: String,
    /// The digest of keys, where it is not the scheme's usual one, by twemproxy's names: md5,
    /// one_at_a_time, fnv1a_64 and others.
    #[arg(long, value_name = "NAME")]
    digest: Option<String>,
    /// Two bytes between which stands what counts of a key.
    #[arg(long, value_name = "{}")]
    hash_tag: Option<String>,
    /// The servers.
    #[arg(value_name = "HOST:PORT[:WEIGHT]", required = true)]
    servers: Vec<PoolMember>,
    #[command(flatten)]
    stores: StorePlaces,
}

#[derive(clap::Args)]
struct StorePlaces {
    /// Where the stores listen, in the order of shards or servers [default: port 7117 beside each
    /// master or server, and the next ports, of which switches cache nothing, where several are at
    /// one address].
    #[arg(long = "store", value_name = "ADDR:PORT", value_delimiter = ',', value_parser = socket_address)]
    stores: Vec<SocketAddr>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// A server as it is given.
#[derive(Clone, Debug)]
struct PoolMember {
    at: NodeAddress,
    weight: u32,
}

impl FromStr for PoolMember {
    type Err = String;

    fn from_str(text: &str) -> Result<PoolMember, String> {
        let wrong = || format!("server {text:?}: expected HOST:PORT or HOST:PORT:WEIGHT");
        // The colons of an address of version 6 stand within brackets.
        let behind = text.rfind(']').unwrap_or(0);
        let (at, weight) = match text[behind..].matches(':').count() {
            2 => {
                let (at, weight) = text.rsplit_once(':').ok_or_else(wrong)?;
                (at, weight.parse().map_err(|_| wrong())?)
            }
            _ => (text, 1),
        };
        let at = NodeAddress::parse(at, "").filter(|at| !at.host.is_empty()).ok_or_else(wrong)?;
        Ok(PoolMember { at, weight })
    }
}

/// A cluster file, and with what each of its stores is started.
struct Plan {
    cluster: Cluster,
    /// Where each store listens, where its data is, and where its RESP port is to be.
    starts: Vec<StoreStart>,
}

/// How a store is started.
struct StoreStart {
    address: SocketAddr,
    backend: String,
    /// Where gateways find its RESP port, if it has one.
    resp: Option<String>,
    /// Likewise, its memcached port.
    memcached: Option<String>,
}

impl StoreStart {
    /// What is to be said of one that switches pass by. There are none on the loopback.
    fn unseen(&self) -> Option<String> {
        let StoreStart { address, .. } = self;
        Store::unseen_by_switches(*address).filter(|_| !address.ip().is_loopback())
    }
}

/// Writes the file.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let (plan, json) = match args.command {
        Command::Import(import) => {
            let json = import.stores.json;
            (imported(import)?, json)
        }
        Command::Pool(pool) => {
            let json = pool.stores.json;
            (pooled(pool)?, json)
        }
    };
    plan.cluster.check()?;
    plan.starts.iter().filter_map(StoreStart::unseen).for_each(|why| eprintln!("{why}"));
    end_when_unread();
    print(if json { plan.to_json()? } else { plan.to_file() })?;
    Ok(ExitCode::SUCCESS)
}

fn imported(import: Import) -> anyhow::Result<Plan> {
    let password = secrets::backend_password(import.backend_password_file.as_deref())?;
    let connector = Connector::new(import.believed.files())?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let read = store::slot_map::read(&import.nodes, password.as_deref(), &connector, WITHIN);
    let map = runtime.block_on(read)?;
    let scheme = if import.nodes.starts_with("rediss://") { "rediss" } else { "redis" };
    of_map(&map, scheme, &import.stores.stores)
}

/// One store for each shard.
fn of_map(map: &SlotMap, scheme: &str, given: &[SocketAddr]) -> anyhow::Result<Plan> {
    if let Some(slot) = map.unowned() {
        bail!(
            "slot {slot} has no owner: expected a cluster that has all of its slots; see redis-cli --cluster check"
        );
    }
    if let Some(slot) = map.moving.first() {
        bail!(
            "slot {slot} is being moved: import the cluster when all slots are stable; see redis-cli --cluster check"
        );
    }
    let masters: Vec<&NodeAddress> = map.shards.iter().map(|shard| &shard.master).collect();
    let places = places(&masters, given)?;
    let (mut stores, mut starts) = (vec![], vec![]);
    for (at, (shard, address)) in map.shards.iter().zip(places).enumerate() {
        let port = RESP_PORT + at as u16;
        let resp = match address.ip().is_loopback() {
            true => format!("redis://{}", SocketAddr::new(address.ip(), port)),
            false => format!("rediss://{}", SocketAddr::new(address.ip(), port)),
        };
        for (first, last) in &shard.slots {
            let (first, last) = ((*first).into(), (*last).into());
            stores.push(Store {
                address,
                first,
                last,
                rack: 0,
                resp: Some(resp.clone()),
                memcached: None,
            });
        }
        // Its own shard first; the others' masters know the map when all of that shard are away.
        let others = map.shards.iter().map(|other| &other.master);
        let own = std::iter::once(&shard.master).chain(&shard.replicas);
        let mut nodes: Vec<String> = vec![];
        for node in own.chain(others).map(|node| format!("{scheme}://{node}")) {
            if !nodes.contains(&node) {
                nodes.push(node);
            }
        }
        let (backend, resp) = (nodes.join(","), Some(resp));
        starts.push(StoreStart { address, backend, resp, memcached: None });
    }
    stores.sort_by_key(|store| store.first);
    let scheme = Scheme::RedisCluster;
    let cluster = Cluster { scheme, stores, ..Cluster::single(starts[0].address, CLUSTER_SLOTS) };
    Ok(Plan { cluster, starts })
}

/// One store for each server.
fn pooled(pool: PoolArgs) -> anyhow::Result<Plan> {
    let members: Vec<&NodeAddress> = pool.servers.iter().map(|server| &server.at).collect();
    let places = places(&members, &pool.stores.stores)?;
    let (mut stores, mut starts) = (vec![], vec![]);
    for ((at, address), member) in (0..).zip(places).zip(&members) {
        let scheme = if address.ip().is_loopback() { "memcached" } else { "memcacheds" };
        let port = SocketAddr::new(address.ip(), MEMCACHED_PORT + at as u16);
        let memcached = Some(format!("{scheme}://{port}"));
        let backend = format!("memcached://{member}");
        starts.push(StoreStart { address, backend, resp: None, memcached: memcached.clone() });
        stores.push(Store { address, first: at, last: at, rack: 0, resp: None, memcached });
    }
    let server =
        |PoolMember { at, weight }: PoolMember| PoolServer { name: at.to_string(), weight };
    let digest = pool.digest.map(|name| named::<Digest>(&name)).transpose()?;
    let cluster = Cluster {
        scheme: named(&pool.scheme)?,
        digest,
        hash_tag: pool.hash_tag,
        servers: pool.servers.into_iter().map(server).collect(),
        partitions: stores.len() as u32,
        stores,
        ..Cluster::single(starts[0].address, 1)
    };
    Ok(Plan { cluster, starts })
}

/// What the cluster file calls so.
fn named<T: serde::de::DeserializeOwned>(name: &str) -> anyhow::Result<T> {
    serde_json::from_value(name.into()).with_context(|| format!("{name:?}"))
}

/// Where the stores of these servers listen.
fn places(servers: &[&NodeAddress], given: &[SocketAddr]) -> anyhow::Result<Vec<SocketAddr>> {
    if !given.is_empty() {
        if given.len() != servers.len() {
            let servers: Vec<String> = servers.iter().map(|at| at.to_string()).collect();
            bail!(
                "--store: {} addresses: expected {}, one for each of {}",
                given.len(),
                servers.len(),
                servers.join(", ")
            );
        }
        return Ok(given.to_vec());
    }
    let mut taken: Vec<SocketAddr> = vec![];
    for NodeAddress { host, port } in servers {
        let found = (host.as_str(), *port).to_socket_addrs();
        let mut found = found.with_context(|| format!("server {host}:{port}"))?;
        let ip: IpAddr = found.next().with_context(|| format!("server {host}: no address"))?.ip();
        let beside = taken.iter().filter(|place| place.ip() == ip).count();
        taken.push(SocketAddr::new(ip, wire::PORT + beside as u16));
    }
    Ok(taken)
}

impl Plan {
    fn to_file(&self) -> String {
        let mut text = String::from(
            "# Written by `shortstop cluster`. Everybody who takes part needs the same file. The stores:\n",
        );
        for StoreStart { address, backend, resp, memcached } in &self.starts {
            let _ = write!(
                text,
                "#   shortstop store --cluster cluster.toml --listen {address} --backend {backend}"
            );
            // In the clear an address is of the loopback, and stands without a scheme.
            if let Some(resp) = resp {
                let _ = write!(text, " --resp {}", resp.strip_prefix("redis://").unwrap_or(resp));
            }
            if let Some(port) = memcached {
                let at = port.strip_prefix("memcached://").unwrap_or(port);
                let _ = write!(text, " --memcached {at}");
            }
            let is_secure = |url: &Option<String>, scheme| {
                url.as_ref().is_some_and(|url| url.starts_with(scheme))
            };
            if is_secure(resp, "rediss://") {
                text.push_str(" --tls-cert store.pem --tls-key store.key");
            }
            if is_secure(memcached, "memcacheds://") {
                text.push_str(" --tls-cert store.pem --tls-key store.key --tls-client-ca ca.pem");
            }
            text.push('\n');
        }
        text + &self.cluster.to_toml()
    }

    fn to_json(&self) -> anyhow::Result<String> {
        let starts = self.starts.iter().map(|start| {
            let StoreStart { address, backend, resp, memcached } = start;
            json!({
                "address": address,
                "backend": backend,
                "resp": resp,
                "memcached": memcached,
                "warning": start.unseen(),
            })
        });
        let whole = json!({
            "cluster": serde_json::to_value(&self.cluster)?,
            "stores": starts.collect::<Vec<_>>(),
        });
        Ok(format!("{}\n", serde_json::to_string_pretty(&whole)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_has_a_place_and_perhaps_a_weight() {
        let parsed = |text: &str| text.parse::<PoolMember>().map(|m| (m.at.to_string(), m.weight));
        assert_eq!(parsed("cache1:11211"), Ok(("cache1:11211".into(), 1)));
        assert_eq!(parsed("10.0.0.1:11211:3"), Ok(("10.0.0.1:11211".into(), 3)));
        assert_eq!(parsed("[::1]:11211"), Ok(("[::1]:11211".into(), 1)));
        assert_eq!(parsed("[fd00::1]:11211:2"), Ok(("[fd00::1]:11211".into(), 2)));
        let wrong_brackets = ["[::1]:1:x", "[::1]:1:2:3", "[::1", "[::1]", "h]:1", "[:1]:2]:3"];
        for wrong in ["", ":11211", "host", "host:port", "host:1:x"].iter().chain(&wrong_brackets) {
            assert!(parsed(wrong).unwrap_err().contains("expected HOST:PORT"), "{wrong}");
        }
    }

    #[test]
    fn stores_of_one_address_have_ports_of_their_own() {
        let node = |host: &str, port| NodeAddress { host: host.into(), port };
        let nodes = [node("127.0.0.1", 1), node("10.0.0.1", 2), node("127.0.0.1", 3)];
        let nodes: Vec<&NodeAddress> = nodes.iter().collect();
        let found: Vec<String> =
            places(&nodes, &[]).unwrap().iter().map(|a| a.to_string()).collect();
        assert_eq!(found, ["127.0.0.1:7117", "10.0.0.1:7117", "127.0.0.1:7118"]);
        let given = ["127.0.0.1:9".parse().unwrap()];
        assert!(places(&nodes, &given).unwrap_err().to_string().contains("expected 3"));
    }
}
