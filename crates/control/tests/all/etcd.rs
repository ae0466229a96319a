//! An etcd server of a test's own, and a wire to it that can be cut.

use std::{
    net::SocketAddr,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use etcd_client::Client;
use lab::port::{self, HeldPort};
use tokio::{net::TcpStream, sync::watch, task::JoinHandle};

use authority::Authority;

/// A member of a cluster; its process ends and its directory is removed when it is dropped.
pub struct Server {
    name: String,
    /// `NAME=URL` of all members.
    cluster: String,
    data: tempfile::TempDir,
    client: HeldPort,
    peer: HeldPort,
    /// It speaks TLS, with those alone who have one of these certificates.
    pub authority: Option<Authority>,
    process: Option<Child>,
}

/// Ends a test that hangs; nothing takes that long, also on a machine that is busy with
/// something else.
pub const PATIENCE: Duration = Duration::from_secs(90);
/// A file system in memory: etcd waits for its disk with each write, and a disk that others use can
/// take seconds.
const MEMORY: &str = "/dev/shm";

impl Server {
    /// Starts a cluster of one, on free ports of 127.0.0.1.
    pub async fn start() -> Server {
        Server::cluster(1).await.remove(0)
    }

    /// Starts one that speaks TLS with those alone who have a certificate of its authority.
    pub async fn with_tls() -> Server {
        let mut server = Server::prepare(0);
        server.authority = Some(Authority::generate());
        server.cluster = server.own_entry();
        server.spawn();
        let up = port::listens(server.client.number, PATIENCE, || server.runs());
        assert!(up, "etcd with TLS does not start on port {}", server.client.number);
        server
    }

    fn own_entry(&self) -> String {
        format!("{}=http://127.0.0.1:{}", self.name, self.peer.number)
    }

    /// Starts a cluster of so many.
    pub async fn cluster(members: usize) -> Vec<Server> {
        let mut servers: Vec<Server> = (0..members).map(Server::prepare).collect();
        let cluster: Vec<String> = servers.iter().map(Server::own_entry).collect();
        for server in &mut servers {
            server.cluster = cluster.join(",");
            server.spawn();
        }
        for server in &mut servers {
            let up = server.is_up().await;
            assert!(up, "etcd does not start, of {}", server.cluster);
        }
        servers
    }

    fn prepare(number: usize) -> Server {
        Server {
            name: format!("member{number}"),
            cluster: String::new(),
            data: tempfile::tempdir_in(MEMORY).unwrap(),
            client: port::held(),
            peer: port::held(),
            authority: None,
            process: None,
        }
    }

    /// Starts the process on the data that is there.
    pub fn spawn(&mut self) {
        let scheme = if self.authority.is_some() { "https" } else { "http" };
        let client = format!("{scheme}://127.0.0.1:{}", self.client.number);
        let peer = format!("http://127.0.0.1:{}", self.peer.number);
        let mut command = Command::new("etcd");
        if let Some(authority) = &self.authority {
            let file = |option, name| format!("--{option}={}", authority.path(name).display());
            command
                .arg("--client-cert-auth")
                .arg(file("trusted-ca-file", "ca.pem"))
                .arg(file("cert-file", "server.pem"))
                .arg(file("key-file", "server.key"));
        }
        // Processes are killed here, and not machines: what etcd wrote stays without a sync.
        let process = command
            .args(["--name", &self.name, "--unsafe-no-fsync"])
            .args(["--heartbeat-interval", "20", "--election-timeout", "200"])
            .arg("--data-dir")
            .arg(self.data.path())
            .args(["--listen-client-urls", &client])
            .args(["--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer])
            .args(["--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &self.cluster])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        match process {
            Ok(process) => self.process = Some(process),
            Err(e) => panic!("cannot run etcd: {e}; install it: apt-get install etcd-server"),
        }
    }

    /// Waits until it answers; false if it ended or does not.
    pub async fn is_up(&mut self) -> bool {
        let began = Instant::now();
        while began.elapsed() < PATIENCE && self.runs() {
            if self.client().await.get("ready", None).await.is_ok() {
                return true;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        false
    }

    /// A number that it counts, of all its kinds that have this in their names.
    fn counts(&self, name: &str, kind: &str) -> u64 {
        let url = format!("http://{}/metrics", self.address());
        let text = ureq::get(&url).call().unwrap().into_body();
        let text = text.into_with_config().limit(16 << 20).read_to_string();
        let lines = text.unwrap();
        let lines = lines.lines().filter(|line| line.starts_with(name) && line.contains(kind));
        let numbers = lines.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>());
        numbers.map(|number| number.unwrap() as u64).sum()
    }

    /// How often somebody has asked for a range of its keys; transactions are no such requests.
    pub fn reads(&self) -> u64 {
        self.counts("grpc_server_started_total", "grpc_method=\"Range\"")
    }

    /// Waits until somebody watches its keys.
    pub async fn is_watched(&self) {
        let began = Instant::now();
        while self.counts("etcd_debugging_mvcc_watcher_total", "") == 0 {
            assert!(began.elapsed() < PATIENCE, "nobody watches");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    fn runs(&mut self) -> bool {
        let process = self.process.as_mut();
        process.is_some_and(|process| process.try_wait().unwrap().is_none())
    }

    /// As after a power failure.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }

    pub fn address(&self) -> SocketAddr {
        ([127, 0, 0, 1], self.client.number).into()
    }

    pub async fn client(&self) -> Client {
        Client::connect([self.address().to_string()], None).await.unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Passes connections on to a server. While it is cut nothing passes, and nobody is told.
pub struct Wire {
    pub address: SocketAddr,
    /// Towards the server, and back.
    connected: watch::Sender<[bool; 2]>,
    passed: watch::Sender<u64>,
    accepted: watch::Sender<u64>,
    accepting: JoinHandle<()>,
}

impl Wire {
    pub async fn to(server: SocketAddr) -> Wire {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let connected = watch::Sender::new([true; 2]);
        let (passed, accepted) = (watch::Sender::new(0), watch::Sender::new(0));
        let (state, count, came) = (connected.clone(), passed.clone(), accepted.clone());
        let accepting = tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                came.send_modify(|came| *came += 1);
                let (state, count) = (state.clone(), count.clone());
                tokio::spawn(async move {
                    let Ok(far) = TcpStream::connect(server).await else { return };
                    let (near_in, near_out) = near.into_split();
                    let (far_in, far_out) = far.into_split();
                    tokio::select! {
                        () = pass(near_in, far_out, (state.subscribe(), 0), &count) => {}
                        () = pass(far_in, near_out, (state.subscribe(), 1), &count) => {}
                    }
                });
            }
        });
        Wire { address, connected, passed, accepted, accepting }
    }

    pub fn cut(&self) {
        self.connected.send_replace([false; 2]);
    }

    /// What is asked arrives, the answers do not.
    pub fn cut_answers(&self) {
        self.connected.send_replace([true, false]);
    }

    pub fn mend(&self) {
        self.connected.send_replace([true; 2]);
    }

    /// Bytes that passed.
    pub fn passed(&self) -> u64 {
        *self.passed.borrow()
    }

    /// Waits until more bytes have passed than these.
    pub async fn passes(&self, bytes: u64) {
        let mut passed = self.passed.subscribe();
        let more = passed.wait_for(|passed| *passed > bytes);
        let more = tokio::time::timeout(PATIENCE, more).await;
        more.expect("something passes").expect("it is ours");
    }

    /// Waits until somebody begins one more connection: who has waited in vain for an answer does.
    pub async fn is_tried_again(&self) {
        let mut accepted = self.accepted.subscribe();
        let before = *accepted.borrow();
        let more = accepted.wait_for(|accepted| *accepted > before);
        let more = tokio::time::timeout(PATIENCE, more).await;
        more.expect("a connection").expect("it is ours");
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn pass(
    mut from: tokio::net::tcp::OwnedReadHalf,
    mut to: tokio::net::tcp::OwnedWriteHalf,
    (mut connected, way): (watch::Receiver<[bool; 2]>, usize),
    count: &watch::Sender<u64>,
) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut buffer = vec![0; 64 << 10];
    while let Ok(n @ 1..) = from.read(&mut buffer).await {
        if connected.wait_for(|open| open[way]).await.is_err()
            || to.write_all(&buffer[..n]).await.is_err()
        {
            return;
        }
        count.send_modify(|passed| *passed += n as u64);
    }
}
