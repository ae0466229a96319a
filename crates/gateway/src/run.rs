//! A gateway from its configuration to its end: joins the client library, the backends and the
//! server of connections. `shortstop gateway` calls it, and so do experiments.

use std::{future::Future, net::SocketAddr, sync::Arc, time::Duration};

use anyhow::Context;
use client::{Machine, Memory, Options, Seal, kit::CopiesThread};
use tls::{Acceptor, ClientFiles, Connector, ServerFiles};
use wire::{Cluster, Scheme, Store};

use crate::{
    BackendAddress, Limits,
    cluster_nodes::{ClusterNodes, StoreSlots},
    counters::Counters,
    loops::{
        EventLoop, Parts, Stopper, StorePort, Target, jobs::JobParts, owners::Owners,
        tenant::TenantNames,
    },
    memcached::{MemcachedParts, MemcachedSide},
    metrics,
    names::{Names, Resolver},
    network_use::NetworkUse,
    shared::GatewayState,
    strings::{direct::Direct, errands::Errands, network::Network},
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
    /// Before a Redis Cluster, the gateways that look like its nodes, this one among them, in the
    /// same order at each; none: this one looks like all of it.
    pub nodes: Vec<SocketAddr>,
    /// Where memcached clients come in, if they do.
    pub memcached_listen: Option<SocketAddr>,
    /// The stores' memcached ports.
    pub memcached: Vec<BackendAddress>,
    /// Which reads go by the network where there is a RESP port.
    pub network: NetworkUse,
    /// Memory for copies of hot keys, in bytes, where stores have ports for clients; 0: none are
    /// kept.
    pub cache_bytes: usize,
    /// Event loops, each with a core of its own at best.
    pub threads: usize,
    /// The password of these servers, where it does not stand in their address.
    pub backend_password: Option<String>,
    /// Whom to believe where an address is `rediss://`, and what is shown there.
    pub backend_tls: ClientFiles,
    /// What names of these servers mean: [`system_resolver`](crate::system_resolver).
    pub resolver: Resolver,
    /// The certificate that clients see, who come by TLS then; only with RESP ports.
    pub tls: Option<ServerFiles>,
    /// Where Prometheus finds what the gateway counts, if anywhere.
    pub metrics: Option<SocketAddr>,
    /// Seals what goes to the network and to the backends; `None`: both see keys and values as
    /// they are.
    pub seal: Option<Seal>,
    /// What clients may make grow.
    pub limits: Limits,
}

/// Serves until `stop` is done. `ready` is told the address once connections are taken.
///
/// # Errors
/// The address cannot be listened on, the tenant is unknown, a server's address cannot be read, or
/// the servers do not cover the partitions.
pub async fn run(
    config: Config,
    ready: impl FnOnce(SocketAddr),
    stop: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    if config.cluster.scheme == Scheme::RedisCluster && !config.backends.is_empty() {
        anyhow::bail!(
            "--backend: expected none before a Redis Cluster, whose masters change: the stores follow them, and their RESP \
             ports have every command (resp = \"...\" in the cluster file)"
        );
    }
    check_nodes(&config)?;
    let by_packets = by_packets(&config);
    if let Some(why) = by_packets.as_ref().filter(|_| !config.resp.is_empty()) {
        anyhow::bail!("{why}: leave --resp out");
    }
    let names = Arc::new(Names::new(config.resolver));
    let tenant = TenantNames::new(config.tenant).filter(|_| by_packets.is_none());
    let (ports, of_stores) = match by_packets {
        Some(_) => (vec![], vec![]),
        None => ports(&config, &names)?,
    };
    let owners = Owners::new(&config.cluster, config.tenant, &of_stores);
    let memcached = memcached_ports(&config, &names)?;
    let acceptor = config.tls.clone().map(Acceptor::new).transpose()?;
    // Elsewhere nothing takes of it.
    let by_packets_bytes = if by_packets.is_some() { config.limits.memory_bytes / 2 } else { 0 };
    let memory = Memory::new(by_packets_bytes);
    // Of values that are read beside RESP ports, of all loops together.
    let read_memory = Memory::new(config.limits.memory_bytes / READ_SHARE);
    let counters = Arc::new(Counters::default());
    let (listen, all) = listeners("--listen", config.listen, config.threads)?;
    // Commands on strings that are carried out here ask for no copies.
    let loops_keep_copies = by_packets.is_none();
    let keeps_copies = config.cache_bytes > 0 && (loops_keep_copies || memcached.is_some());
    let start = || {
        let Config { cluster, tenant, cache_bytes, .. } = &config;
        let counters = counters.clone();
        CopiesThread::start(cluster, *tenant, *cache_bytes, move |counts| {
            counters.local_grants.add(counts.grants);
            counters.local_refusals.add(counts.refused);
            counters.local_invalidations.add(counts.invalidations);
        })
    };
    let keeper = keeps_copies.then(start).transpose()?;
    let local = keeper.as_ref().map(|keeper| keeper.copies.clone());
    let mut state = GatewayState::new(config.limits, memory, counters, listen, names.clone());
    state.copies = local.clone();
    state.sharers = config.threads.max(1) + usize::from(memcached.is_some());
    let ranges = config.cluster.stores.iter().zip(&of_stores);
    let slots =
        ranges.map(|(store, port)| StoreSlots { range: (store.first, store.last), port: *port });
    state.nodes = Arc::new(ClusterNodes::new(config.nodes.clone(), slots.collect()));
    let shared = Arc::new(state);
    let (mut event_loops, mut stoppers) = (vec![], vec![]);
    for listener in all {
        let usual = Options { seal: config.seal.clone(), ..Options::default() };
        let options = match by_packets {
            Some(_) => Options { memory: Some(shared.memory.clone()), ..usual },
            None => {
                let memory = Some(read_memory.clone());
                Options { memory, deadline: READS_WITHIN, ..usual }
            }
        };
        let machine = || Machine::new(&config.cluster, config.tenant, options, rand::random());
        let network = match (&by_packets, config.network) {
            (Some(_), _) => Some((machine()?, NetworkUse::Always)),
            (None, NetworkUse::Never) => None,
            (None, how) => Some((machine()?, how)),
        };
        let strings = by_packets.as_ref().map(|others| strings(&config, others, &shared));
        let parts = Parts {
            network,
            local: local.clone().filter(|_| loops_keep_copies),
            stores: config.cluster.stores.iter().map(|store| store.address).collect(),
            listener,
            acceptor: acceptor.clone(),
            ports: ports.clone(),
            owners: owners.clone(),
            tenant: tenant.clone(),
            strings: strings.transpose()?,
            shared: shared.clone(),
        };
        let (event_loop, stopper) = EventLoop::new(parts).context("an event loop")?;
        event_loops.push(event_loop);
        stoppers.push(stopper);
    }
    let served: Vec<&str> = ports.iter().map(|port| &port.store.name[..]).collect();
    let served = match (&by_packets, config.cluster.stores.as_slice()) {
        (None, _) => served.join(", "),
        (Some(_), [one]) => format!("tenant {} at store {}", config.tenant, one.address),
        (Some(_), several) => format!("tenant {} at {} stores", config.tenant, several.len()),
    };
    tracing::info!("gateway listens on {listen}: {served}");
    if !listen.ip().is_loopback() {
        let logs_in = ports.iter().any(|port| port.store.login.is_some());
        let strangers = match (&by_packets, logs_in) {
            (Some(_), _) => Stranger::Tenant(config.tenant),
            (None, true) => Stranger::GatewayUser,
            (None, false) => Stranger::Nobody,
        };
        warn_of_reach(listen, config.tls.as_ref(), strangers);
    }
    let memcached = memcached.map(|(listen, targets, owners)| {
        let (listen, listeners) = listeners("--memcached-listen", listen, config.threads)?;
        let served: Vec<&str> = targets.iter().map(|target| &target.name[..]).collect();
        tracing::info!("memcached clients: {listen}: {}", served.join(", "));
        if !listen.ip().is_loopback() {
            tracing::warn!(
                "--memcached-listen {listen} can be reached from other machines: memcached's clients show no password, and \
                 all that they say is in the clear; listen on 127.0.0.1 beside the application"
            );
        }
        let lease = Duration::from_millis(config.cluster.lease_max_ms.into());
        let shared = shared.clone();
        MemcachedSide::start(MemcachedParts { listeners, targets, owners, local, lease, shared })
    });
    let memcached = memcached.transpose()?;
    let metrics = match config.metrics {
        None => None,
        Some(at) => {
            let listener = tokio::net::TcpListener::bind(at).await;
            let listener = listener.with_context(|| format!("--metrics {at}: cannot listen"))?;
            tracing::info!("metrics: http://{}/metrics", listener.local_addr()?);
            Some(tokio::spawn(metrics::serve(listener, shared.clone())))
        }
    };
    let (ended, mut ends) = tokio::sync::mpsc::unbounded_channel();
    let mut threads = vec![];
    for (number, event_loop) in event_loops.into_iter().enumerate() {
        let ended = ended.clone();
        let name = format!("gateway-{number}");
        threads.push(std::thread::Builder::new().name(name).spawn(move || {
            let result = event_loop.run();
            let _ = ended.send(());
            result
        })?);
    }
    names.follow().context("the thread that looks names up")?;
    ready(listen);
    let watch = async {
        match shared.nodes.has_others() {
            true => shared.nodes.clone().watch(config.tls.is_none()).await,
            false => std::future::pending().await,
        }
    };
    tokio::select! {
        () = stop => {}
        () = watch => {}
        _ = ends.recv() => {}
    }
    if let Some(metrics) = metrics {
        metrics.abort();
    }
    stoppers.iter().for_each(Stopper::stop);
    if let Some(memcached) = memcached {
        memcached.stop(STOPS_WITHIN).await;
    }
    let all = async {
        for _ in 0..threads.len() {
            ends.recv().await;
        }
    };
    if tokio::time::timeout(STOPS_WITHIN, all).await.is_err() {
        tracing::warn!("connections did not end in time");
    }
    drop(keeper);
    for thread in threads.into_iter().filter(|thread| thread.is_finished()) {
        thread.join().map_err(|_| anyhow::anyhow!("an event loop panicked"))??;
    }
    Ok(())
}

/// Gateways look like nodes of a cluster, and this is one of them.
fn check_nodes(config: &Config) -> anyhow::Result<()> {
    let Config { nodes, listen, cluster, .. } = config;
    if nodes.is_empty() {
        return Ok(());
    }
    anyhow::ensure!(
        cluster.scheme == Scheme::RedisCluster,
        "--node: expected a cluster file with scheme = \"redis-cluster\": clients in cluster mode have no others"
    );
    let is_own = |node: &&SocketAddr| {
        **node == *listen || listen.ip().is_unspecified() && node.port() == listen.port()
    };
    anyhow::ensure!(
        nodes.iter().any(|node| is_own(&node)),
        "--node: expected this gateway's own address among them, {listen}"
    );
    let twice = nodes.iter().enumerate().find(|(at, node)| nodes[..*at].contains(node));
    anyhow::ensure!(
        twice.is_none(),
        "--node {}: it is given twice",
        twice.map_or(*listen, |(_, node)| *node)
    );
    Ok(())
}

/// Why there are commands on strings only, by packets, where that is so.
fn by_packets(config: &Config) -> Option<String> {
    let Config { cluster, tenant, seal, resp, .. } = config;
    let why = if seal.is_some() {
        "--seal-key: values are sealed in packets alone, which have the commands on strings".into()
    } else if cluster.lends_keys(*tenant) {
        format!(
            "tenant {tenant}: its keys are written back, by packets alone, which have the commands on strings"
        )
    } else if resp.is_empty() && cluster.stores.iter().all(|store| store.resp.is_none()) {
        "it needs the store's RESP port: start the store with --resp, and the gateway with --resp"
            .into()
    } else {
        return None;
    };
    Some(why)
}

/// By what commands on strings are carried out.
fn strings(config: &Config, others: &str, shared: &GatewayState) -> anyhow::Result<JobParts> {
    let Config { cluster, tenant, backends, seal, backend_password, backend_tls, .. } = config;
    let (errands, taken) = Errands::new();
    let seals = seal.is_some();
    let seal = seal.as_ref().map(|seal| seal.of_tenant(*tenant));
    let memory = shared.memory.clone();
    let direct = match backends.is_empty() {
        true => None,
        false => Some(Direct::new(backends, &errands, cluster, *tenant, seal, memory)?),
    };
    let connector = Connector::new(backend_tls.clone())?;
    let password = backend_password.as_deref();
    let backends =
        backends.iter().map(|at| target("--backend", &at.url, password, &connector, &shared.names));
    let keeps_names = *tenant == wire::TENANT_OPEN && !seals;
    let counters = shared.counters.clone();
    let network = Network { keeps_names, errands, direct, counters };
    let backends = backends.collect::<anyhow::Result<_>>()?;
    Ok(JobParts { network, errands: taken, backends, others: others.into() })
}

/// Where memcached clients come in, to which ports of the stores that leads, and which of these has
/// a key; none: they do not come in.
fn memcached_ports(
    config: &Config,
    names: &Names,
) -> anyhow::Result<Option<(SocketAddr, Vec<Target>, Owners)>> {
    let Config { cluster, tenant, memcached, .. } = config;
    let Some(listen) = config.memcached_listen else {
        anyhow::ensure!(
            memcached.is_empty(),
            "--memcached: expected where memcached clients come in, too: --memcached-listen ADDR:PORT"
        );
        return Ok(None);
    };
    anyhow::ensure!(
        config.seal.is_none() && *tenant == wire::TENANT_OPEN && !cluster.lends_keys(*tenant),
        "--memcached-listen: memcached clients see keys and values as they are, those of no tenant: leave --tenant and \
         --seal-key out, or serve them with a gateway of their own"
    );
    anyhow::ensure!(
        config.tls.is_none() || listen.ip().is_loopback(),
        "--memcached-listen {listen}: memcached clients come in the clear, and --tls-cert is for those of Redis: expected \
         an address of the loopback"
    );
    let connector = Connector::new(config.backend_tls.clone())?;
    let expected = "its memcached port, by one --memcached or by memcached = \"...\" in the cluster file (start the store \
                    with --memcached)";
    let all = cluster
        .stores
        .iter()
        .map(|store| port_url(store, store.memcached.as_deref(), memcached, expected));
    let (urls, of_stores) = each_once(all.collect::<Result<_, _>>()?);
    let mut targets = vec![];
    for (number, url) in urls.into_iter().enumerate() {
        let its = cluster.stores.iter().zip(&of_stores).filter(|(_, of)| **of == number);
        let mut addresses = its.map(|(store, _)| store.address);
        // A store may have several ranges of partitions, and each store has a port.
        if let Some(first) = addresses.next()
            && let Some(other) = addresses.find(|address| *address != first)
        {
            anyhow::bail!(
                "--memcached {url}: stores {other} and {first} have a memcached port each: expected FIRST-LAST= before it"
            );
        }
        anyhow::ensure!(
            url.starts_with("memcached+unix:") || has_port(url),
            "--memcached {url}: expected a port, {url}:11311"
        );
        let target = target("--memcached", url, None, &connector, names)?;
        anyhow::ensure!(
            target.login.is_none() && target.database == 0,
            "--memcached: expected memcached[s]://HOST:PORT alone: memcached has no passwords, and one database"
        );
        targets.push(target);
    }
    Ok(Some((listen, targets, Owners::new(cluster, *tenant, &of_stores))))
}

/// Whether a URL without a user says a port.
fn has_port(url: &str) -> bool {
    let behind = url.rsplit_once(':').map_or("", |(_, behind)| behind);
    let port = behind.split('/').next().unwrap_or_default();
    !port.is_empty() && port.bytes().all(|digit| digit.is_ascii_digit())
}

/// The RESP ports of the stores, each once; and of each store of the cluster which one is its own.
fn ports(config: &Config, names: &Names) -> anyhow::Result<(Vec<StorePort>, Vec<usize>)> {
    let password = config.backend_password.as_deref();
    let Config { cluster, resp, backends, .. } = config;
    let connector = Connector::new(config.backend_tls.clone())?;
    let expected = "a RESP port, by one --resp or by resp = \"...\" in the cluster file";
    let all =
        cluster.stores.iter().map(|store| port_url(store, store.resp.as_deref(), resp, expected));
    let (urls, of_stores) = each_once(all.collect::<Result<_, _>>()?);
    let mut directs = vec![None; urls.len()];
    for (store, port) in cluster.stores.iter().zip(&of_stores).filter(|_| !backends.is_empty()) {
        let Store { address, first, last, .. } = store;
        let url = url_of(store, backends).with_context(|| {
            format!("--backend: expected one for partitions {first} to {last}, of store {address}")
        })?;
        directs[*port].get_or_insert(url);
    }
    let mut ports = vec![];
    for (url, direct) in urls.into_iter().zip(directs) {
        let direct = direct.map(|url| target("--backend", url, password, &connector, names));
        let direct = direct.transpose()?;
        if let Some(Target { name, .. }) = direct.as_ref().filter(|to| to.database != 0) {
            anyhow::bail!("{name}: with --resp the database must be 0");
        }
        let store = target("--resp", url, password, &connector, names)?;
        ports.push(StorePort { store, direct });
    }
    Ok((ports, of_stores))
}

/// The URL of a store's port: the one in the cluster file, which counts where none is `given`, or
/// the one that is given for all of its partitions.
fn port_url<'a>(
    store: &'a Store,
    in_file: Option<&'a str>,
    given: &'a [BackendAddress],
    expected: &str,
) -> anyhow::Result<&'a str> {
    let url = in_file.filter(|_| given.is_empty()).or_else(|| url_of(store, given));
    let Store { address, first, last, .. } = store;
    url.with_context(|| {
        format!("partitions {first} to {last}, of store {address}: expected {expected}")
    })
}

/// These URLs, each once, and which of them each was.
fn each_once(all: Vec<&str>) -> (Vec<&str>, Vec<usize>) {
    let mut urls: Vec<&str> = vec![];
    let number = |url| {
        urls.iter().position(|known| *known == url).unwrap_or_else(|| {
            urls.push(url);
            urls.len() - 1
        })
    };
    let numbers = all.into_iter().map(number).collect();
    (urls, numbers)
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

/// As whom a client acts who does not log in.
enum Stranger {
    Nobody,
    /// As the user whose password the gateway has.
    GatewayUser,
    /// As a tenant, for whom there is no password.
    Tenant(u32),
}

/// Says what others may do who reach the gateway from other machines.
fn warn_of_reach(listen: SocketAddr, tls: Option<&ServerFiles>, stranger: Stranger) {
    if tls.is_none() {
        tracing::warn!(
            "--listen {listen} can be reached from other machines, in the clear: everybody on the way reads keys, values \
             and passwords; use --tls-cert and --tls-key, or listen on 127.0.0.1 beside the application"
        );
    }
    if tls.is_some_and(|files| files.client_ca.is_some()) {
        return;
    }
    match stranger {
        Stranger::Nobody => {}
        Stranger::GatewayUser => tracing::warn!(
            "--listen {listen}: whoever reaches it from other machines, and does not log in, acts as the user whose \
             password the gateway has; ask for certificates (--tls-client-ca), or let clients log in for themselves \
             (no --backend-password-file)"
        ),
        Stranger::Tenant(tenant) => tracing::warn!(
            "--listen {listen}: the gateway asks for no password, so whoever reaches it from other machines acts as tenant \
             {tenant}; ask for certificates (--tls-client-ca), or let a firewall say who may"
        ),
    }
}

/// So many sockets that share an address, and the address.
fn listeners(
    option: &str,
    listen: SocketAddr,
    count: usize,
) -> anyhow::Result<(SocketAddr, Vec<std::net::TcpListener>)> {
    let first = listener(option, listen, count > 1)?;
    let listen = first.local_addr()?;
    let mut all = vec![first];
    while all.len() < count {
        all.push(listener(option, listen, true)?);
    }
    Ok((listen, all))
}

/// A socket that has the address for itself, or shares it with others.
fn listener(
    option: &str,
    listen: SocketAddr,
    shares: bool,
) -> anyhow::Result<std::net::TcpListener> {
    let domain = socket2::Domain::for_address(listen);
    let bind = || {
        let socket = socket2::Socket::new(domain, socket2::Type::STREAM, None)?;
        socket.set_reuse_address(true)?;
        socket.set_reuse_port(shares)?;
        socket.bind(&listen.into())?;
        socket.listen(1024)?;
        std::io::Result::Ok(socket.into())
    };
    bind().with_context(|| format!("{option} {listen}: cannot listen"))
}

/// How long a read waits for the network before it goes to the store or its Redis.
const READS_WITHIN: Duration = Duration::from_millis(500);

/// Which part of `--max-memory` values have, beside it, that no packet holds and that are read by
/// the network before they go to clients.
const READ_SHARE: usize = 4;

/// When it stops, connections may take so long to end.
const STOPS_WITHIN: Duration = Duration::from_secs(5);
