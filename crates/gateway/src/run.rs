//! A gateway from its configuration to its end: joins the client library, the backends and the
//! server of connections. `shortstop gateway` calls it, and so do experiments.

use std::{future::Future, net::SocketAddr, pin::Pin, sync::Arc};

use anyhow::Context;
use client::{Client, Machine, Memory, Options, Seal};
use tls::{Acceptor, ClientFiles, Connector, ServerFiles};
use tokio::net::TcpListener;
use wire::{Cluster, Store};

use crate::{
    BackendAddress, Limits,
    counters::Counters,
    loops::{EventLoop, Parts, Stopper, StorePort, owners::Owners, tenant::TenantNames},
    network_use::NetworkUse,
    server,
    shared::GatewayState,
    strings::{direct::Direct, network::Network},
    targets::target,
};

/// Everything a gateway is told when it starts.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where Redis clients come in; port 0 lets the system choose.
    pub listen: SocketAddr,
    /// Where the keys are.
    pub cluster: Cluster,
    /// Whose keys they are.
    pub tenant: u32,
    /// The stores' Redis servers, for what no packet carries; none: such requests are refused.
    pub backends: Vec<BackendAddress>,
    /// The stores' RESP ports, where every command is carried out; none: the commands on strings
    /// alone, by packets.
    pub resp: Vec<BackendAddress>,
    /// Which reads go by the network where there is a RESP port.
    pub network: NetworkUse,
    /// Event loops, each with a core of its own at best.
    pub threads: usize,
    /// The password of these servers, where it does not stand in their address.
    pub backend_password: Option<String>,
    /// Whom to believe where an address is `rediss://`, and what is shown there.
    pub backend_tls: ClientFiles,
    /// The certificate that clients see, who come by TLS then; only with RESP ports.
    pub tls: Option<ServerFiles>,
    /// Seals what goes to the network and to the backends; `None`: both see keys and values as
    /// they are.
    pub seal: Option<Seal>,
    /// What clients may make grow.
    pub limits: Limits,
}

/// Not generic, so that connections are compiled here, with this crate's optimisation, and not by
/// each caller.
async fn serve(
    listener: TcpListener,
    network: Arc<Network>,
    shared: Arc<GatewayState>,
    stop: Pin<&mut dyn Future<Output = ()>>,
) {
    server::serve(listener, network, shared, stop).await;
}

/// Says in the log which backends cannot be used.
async fn check(network: Arc<Network>) {
    if let Some(direct) = &network.direct {
        direct.check().await;
    }
}

/// Serves by event loops, each in a thread of its own.
async fn serve_by_loops(
    config: Config,
    ready: impl FnOnce(SocketAddr),
    stop: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    if config.seal.is_some() {
        anyhow::bail!(
            "--seal-key: values are sealed in packets only: not with a store's RESP port"
        );
    }
    let tenant = TenantNames::new(&config.cluster, config.tenant)?;
    let (ports, of_stores) = ports(&config)?;
    let owners = Owners::new(&config.cluster, config.tenant, &of_stores);
    let acceptor = config.tls.clone().map(Acceptor::new).transpose()?;
    let memory = Memory::new(config.limits.memory_bytes);
    let counters = Arc::new(Counters::default());
    let first = listener(config.listen)?;
    let listen = first.local_addr()?;
    let shared = Arc::new(GatewayState::new(config.limits, memory, counters, listen));
    let mut first = Some(first);
    let (mut threads, mut stoppers) = (vec![], vec![]);
    let (ended, mut ends) = tokio::sync::mpsc::unbounded_channel();
    for number in 0..config.threads.max(1) {
        let listener = match first.take() {
            Some(first) => first,
            None => listener(listen)?,
        };
        let options = Options {
            memory: Some(shared.memory.clone()),
            deadline: READS_WITHIN,
            ..Options::default()
        };
        let machine = || Machine::new(&config.cluster, config.tenant, options, rand::random());
        let network = match config.network {
            NetworkUse::Never => None,
            how => Some((machine()?, how)),
        };
        let parts = Parts {
            network,
            stores: config.cluster.stores.iter().map(|store| store.address).collect(),
            listener,
            acceptor: acceptor.clone(),
            ports: ports.clone(),
            owners: owners.clone(),
            tenant: tenant.clone(),
            shared: shared.clone(),
        };
        let (event_loop, stopper) = EventLoop::new(parts).context("an event loop")?;
        let ended = ended.clone();
        let name = format!("gateway-{number}");
        threads.push(std::thread::Builder::new().name(name).spawn(move || {
            let result = event_loop.run();
            let _ = ended.send(());
            result
        })?);
        stoppers.push(stopper);
    }
    let names: Vec<&str> = ports.iter().map(|port| &port.store.name[..]).collect();
    tracing::info!("gateway listens on {listen}: {}", names.join(", "));
    if !listen.ip().is_loopback() {
        let logs_in = ports.iter().any(|port| port.store.login.is_some());
        warn_of_reach(listen, config.tls.as_ref(), logs_in);
    }
    ready(listen);
    tokio::select! {
        () = stop => {}
        _ = ends.recv() => {}
    }
    stoppers.iter().for_each(Stopper::stop);
    let all = async {
        for _ in 0..threads.len() {
            ends.recv().await;
        }
    };
    if tokio::time::timeout(STOPS_WITHIN, all).await.is_err() {
        tracing::warn!("connections did not end in time");
    }
    for thread in threads.into_iter().filter(|thread| thread.is_finished()) {
        thread.join().map_err(|_| anyhow::anyhow!("an event loop panicked"))??;
    }
    Ok(())
}

/// The RESP ports of the stores, each once; and of each store of the cluster which one is its own.
fn ports(config: &Config) -> anyhow::Result<(Vec<StorePort>, Vec<usize>)> {
    let password = config.backend_password.as_deref();
    let Config { cluster, resp, backends, .. } = config;
    let connector = Connector::new(config.backend_tls.clone())?;
    let (mut ports, mut urls, mut of_stores) = (vec![], vec![], vec![]);
    for store in &cluster.stores {
        let in_file = store.resp.as_deref().filter(|_| resp.is_empty());
        let url = in_file.or_else(|| url_of(store, resp)).with_context(|| {
            let Store { address, first, last, .. } = store;
            format!(
                "partitions {first} to {last}, of store {address}: expected a RESP port, by one --resp or by resp = \"...\" \
                 in the cluster file"
            )
        })?;
        let direct = match backends.is_empty() {
            true => None,
            false => Some(url_of(store, backends).with_context(|| {
                let Store { address, first, last, .. } = store;
                format!(
                    "--backend: expected one for partitions {first} to {last}, of store {address}"
                )
            })?),
        };
        let found = urls.iter().position(|known| *known == url);
        of_stores.push(found.unwrap_or(ports.len()));
        if found.is_none() {
            let direct =
                direct.map(|url| target("--backend", url, password, &connector)).transpose()?;
            ports.push(StorePort { store: target("--resp", url, password, &connector)?, direct });
            urls.push(url);
        }
    }
    Ok((ports, of_stores))
}

/// The one address that is given for all partitions of a store.
fn url_of<'a>(store: &Store, addresses: &'a [BackendAddress]) -> Option<&'a str> {
    let is_store_s = |address: &&BackendAddress| {
        let (first, last) = address.partitions.unwrap_or((0, u32::MAX));
        first <= store.first && store.last <= last
    };
    let mut found = addresses.iter().filter(is_store_s);
    found.next().filter(|_| found.next().is_none()).map(|address| &address.url[..])
}

/// Says what others may do who reach the gateway from other machines.
fn warn_of_reach(listen: SocketAddr, tls: Option<&ServerFiles>, logs_in: bool) {
    if tls.is_none() {
        tracing::warn!(
            "--listen {listen} can be reached from other machines, in the clear: everybody on the way reads keys, values \
             and passwords; use --tls-cert and --tls-key, or listen on 127.0.0.1 beside the application"
        );
    }
    let is_open = tls.is_none_or(|files| files.client_ca.is_none());
    if logs_in && is_open {
        tracing::warn!(
            "--listen {listen}: whoever reaches it from other machines, and does not log in, acts as the user whose \
             password the gateway has; ask for certificates (--tls-client-ca), or let clients log in for themselves \
             (no --backend-password-file)"
        );
    }
}

/// A socket of several that share the address.
fn listener(listen: SocketAddr) -> anyhow::Result<std::net::TcpListener> {
    let domain = socket2::Domain::for_address(listen);
    let bind = || {
        let socket = socket2::Socket::new(domain, socket2::Type::STREAM, None)?;
        socket.set_reuse_address(true)?;
        socket.set_reuse_port(true)?;
        socket.bind(&listen.into())?;
        socket.listen(1024)?;
        std::io::Result::Ok(socket.into())
    };
    bind().with_context(|| format!("--listen {listen}: cannot listen"))
}

/// How long a read waits for the network before it goes to the store or its Redis.
const READS_WITHIN: std::time::Duration = std::time::Duration::from_millis(500);

/// When it stops, connections may take so long to end.
const STOPS_WITHIN: std::time::Duration = std::time::Duration::from_secs(5);

/// Serves until `stop` is done. `ready` is told the address once connections are taken.
///
/// # Errors
/// The address cannot be listened on, the tenant is unknown, or the backends do not cover the
/// partitions.
pub async fn run(
    config: Config,
    ready: impl FnOnce(SocketAddr),
    stop: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    let Config { cluster, tenant, .. } = &config;
    let has_port = cluster.stores.iter().any(|store| store.resp.is_some());
    // What is sealed, or lent to switches, goes in packets only, whatever ports there are.
    let in_packets = config.seal.is_some() || cluster.lends_keys(*tenant);
    if !config.resp.is_empty() || has_port && !in_packets {
        return serve_by_loops(config, ready, stop).await;
    }
    if config.tls.is_some() || config.backends.iter().any(|one| one.url.starts_with("rediss")) {
        anyhow::bail!("--tls-cert and --backend rediss://...: only with --resp");
    }
    let Config { listen, cluster, tenant, backends, backend_password, seal, limits, .. } = config;
    let memory = Memory::new(limits.memory_bytes);
    let counters = Arc::new(Counters::default());
    let tenant_seal = seal.as_ref().map(|seal| seal.of_tenant(tenant));
    let seals = seal.is_some();
    let options = Options { seal, memory: Some(memory.clone()), ..Options::default() };
    let client = Client::connect(&cluster, tenant, options).await?;
    let serves = match cluster.stores.as_slice() {
        [one] => format!("tenant {tenant} at store {}", one.address),
        several => format!("tenant {tenant} at {} stores", several.len()),
    };
    let direct = (!backends.is_empty())
        .then(|| {
            let password = backend_password.as_deref();
            let memory = memory.clone();
            Direct::new(&backends, password, &cluster, tenant, tenant_seal, memory)
        })
        .transpose()?;
    let listener = TcpListener::bind(listen)
        .await
        .with_context(|| format!("--listen {listen}: cannot listen"))?;
    let listen = listener.local_addr()?;
    let keeps_names = tenant == wire::TENANT_OPEN && !seals;
    let network = Arc::new(Network { keeps_names, client, direct, counters: counters.clone() });
    let shared = Arc::new(GatewayState::new(limits, memory, counters, listen));
    tracing::info!("gateway listens on {listen}: {serves}");
    if !listen.ip().is_loopback() {
        tracing::warn!(
            "--listen {listen} can be reached from other machines, and the gateway asks for no password: whoever reaches it \
             acts as tenant {tenant}; listen on 127.0.0.1 beside the application, or let a firewall say who may"
        );
    }
    tokio::spawn(check(network.clone()));
    ready(listen);
    serve(listener, network, shared, std::pin::pin!(stop)).await;
    Ok(())
}
