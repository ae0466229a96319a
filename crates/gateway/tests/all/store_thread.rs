//! A real store in a thread of the test.

use std::{net::SocketAddr, time::Duration};

use store::Server;
use wire::Cluster;

use crate::support::PATIENCE;

/// A store in a thread of its own, until it is dropped: as one that is killed, for one that ends in
/// order waits for those who have copies of its keys.
pub struct StoreThread {
    pub address: SocketAddr,
    /// Its port for clients of the server behind it, which is none before no server.
    pub port: Option<SocketAddr>,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl StoreThread {
    /// With a port for clients of the server behind it, if there is one.
    pub fn start(cluster: Cluster, identity: Option<SocketAddr>, backend: &str) -> StoreThread {
        StoreThread::of(config(cluster, identity, backend))
    }

    pub fn of(config: store::Config) -> StoreThread {
        let (tell, told) = std::sync::mpsc::channel();
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(async {
                let server = Server::start(config).await.unwrap();
                let port = server.port_addresses().first().copied();
                tell.send((server.local_address().unwrap(), port)).unwrap();
                tokio::select! {
                    ended = server.run(std::future::pending()) => ended.unwrap(),
                    _ = stopped => {}
                }
            });
        });
        let (address, port) = told.recv().expect("the store does not start");
        StoreThread { address, port, stop: Some(stop), thread: Some(thread) }
    }
}

/// Of a store that gives nothing up because the machine stands still.
pub fn config(cluster: Cluster, identity: Option<SocketAddr>, backend: &str) -> store::Config {
    let port = |scheme: &str| backend.starts_with(scheme).then_some("127.0.0.1:0").into_iter();
    store::Config {
        cluster: cluster.with_lease_ms(60_000),
        identity,
        backend: backend.parse().unwrap(),
        backend_within: PATIENCE,
        resp: port("redis").map(|at| at.parse().unwrap()).collect(),
        memcached: port("memcached").map(|at| at.parse().unwrap()).collect(),
        born_ago: Duration::from_secs(62),
        ..store::Config::new(([127, 0, 0, 1], 0).into())
    }
}

impl Drop for StoreThread {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(ended.is_ok() || std::thread::panicking(), "the store panicked");
        }
    }
}
