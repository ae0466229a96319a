//! A gateway from its configuration to its end: joins the client library, the backends and the
//! server of connections. `shortstop gateway` calls it, and so do experiments.

use std::{future::Future, net::SocketAddr, pin::Pin, sync::Arc};

use anyhow::Context;
use client::{Client, Memory, Options, Seal};
use tokio::net::TcpListener;
use wire::Cluster;

use crate::{
    BackendAddress, Limits, counters::Counters, direct::Direct, network::Network, server,
    shared::GatewayState,
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
    /// The password of these servers, where it does not stand in their address.
    pub backend_password: Option<String>,
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
    let Config { listen, cluster, tenant, backends, backend_password, seal, limits } = config;
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
