use std::{future::Future, net::SocketAddr, sync::Arc};

use anyhow::Context;
use client::{Client, Options};
use tokio::net::TcpListener;
use wire::Cluster;

use crate::{
    BackendAddress, Limits,
    counters::Counters,
    direct::Direct,
    memory::Memory,
    network::Network,
    server::{self, Shared},
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
    /// What clients may make grow.
    pub limits: Limits,
}

/// Serves until `stop` is done. `ready` is told the address once connections are taken.
///
/// # Errors
/// The address cannot be listened on, the tenant is unknown, or the backends do not cover the partitions.
pub async fn run(
    config: Config,
    ready: impl FnOnce(SocketAddr),
    stop: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    let Config {
        listen,
        cluster,
        tenant,
        backends,
        limits,
    } = config;
    let memory = Memory::new(limits.memory_bytes);
    let counters = Arc::new(Counters::default());
    let client = Client::connect(&cluster, tenant, Options::default()).await?;
    let direct = (!backends.is_empty())
        .then(|| Direct::new(&backends, &cluster, tenant, memory.clone()))
        .transpose()?;
    let listener = TcpListener::bind(listen)
        .await
        .with_context(|| format!("--listen {listen}: cannot listen"))?;
    let listen = listener.local_addr()?;
    let network = Arc::new(Network {
        client,
        direct,
        counters: counters.clone(),
    });
    let shared = Arc::new(Shared::new(limits, memory, counters, listen));
    tracing::info!(%listen, "Redis clients are welcome");
    ready(listen);
    server::serve(listener, network, shared, stop).await;
    Ok(())
}
