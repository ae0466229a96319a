//! A real store in a thread of the test.

use std::{net::SocketAddr, time::Duration};

use store::Server;
use wire::Cluster;

use crate::support::PATIENCE;

/// A store in a thread of its own, until it is dropped: as one that is killed, for one that ends in
/// order waits for those who have copies of its keys.
pub struct StoreThread {
    pub address: SocketAddr,
    /// Its RESP port, which only a store before a Redis has.
    pub resp: Option<SocketAddr>,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl StoreThread {
    pub fn start(cluster: Cluster, identity: Option<SocketAddr>, backend: &str) -> StoreThread {
        let is_redis = backend != "embedded";
        let usual = store::Config::new(([127, 0, 0, 1], 0).into());
        let config = store::Config {
            cluster: cluster.with_lease_ms(60_000),
            identity,
            backend: backend.parse().unwrap(),
            backend_within: PATIENCE,
            resp: is_redis.then(|| "127.0.0.1:0".parse().unwrap()).into_iter().collect(),
            born_ago: Duration::from_secs(62),
            ..usual
        };
        let (tell, told) = std::sync::mpsc::channel();
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(async {
                let server = Server::start(config).await.unwrap();
                let resp = server.port_addresses().first().copied();
                tell.send((server.local_address().unwrap(), resp)).unwrap();
                tokio::select! {
                    ended = server.run(std::future::pending()) => ended.unwrap(),
                    _ = stopped => {}
                }
            });
        });
        let (address, resp) = told.recv().expect("the store does not start");
        StoreThread { address, resp, stop: Some(stop), thread: Some(thread) }
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
