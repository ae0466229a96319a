//! A Redis, a gateway, and clients that say what they are told to.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    os::unix::net::UnixStream,
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering::Relaxed},
    time::{Duration, Instant},
};

pub use gateway::Config;
use gateway::{Limits, NetworkUse};
use resp::{Limits as RequestLimits, ReplyScanner, RequestParser};
use wire::Cluster;

/// How long anything may take on a machine that is busy with something else.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until this is so.
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "{what}");
    }
}

/// A server in a process of its own, which ends with the test.
pub struct ServerProcess(pub Child);

impl ServerProcess {
    /// It is not carried on with, until it goes on.
    pub fn stands_still(&self) {
        self.signal("STOP");
    }

    pub fn goes_on(&self) {
        self.signal("CONT");
    }

    fn signal(&self, name: &str) {
        let arguments = [format!("-{name}"), self.0.id().to_string()];
        assert!(Command::new("kill").args(arguments).status().unwrap().success());
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A Redis on a socket of its own.
pub struct Redis {
    pub process: ServerProcess,
    socket: PathBuf,
}

impl Redis {
    pub fn start(options: &[&str]) -> Redis {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Relaxed);
        // Paths of sockets are short.
        let socket = std::env::temp_dir().join(format!("gw-{}-{number}", std::process::id()));
        let mut command = Command::new("redis-server");
        command.args(["--port", "0", "--save", "", "--unixsocket"]).arg(&socket).args(options);
        command.current_dir(env!("CARGO_TARGET_TMPDIR"));
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn();
        let child = child.expect("redis-server is needed (Debian: redis-server)");
        let redis = Redis { process: ServerProcess(child), socket };
        let began = Instant::now();
        while UnixStream::connect(&redis.socket).is_err() {
            assert!(began.elapsed() < PATIENCE, "redis-server does not start");
            std::thread::yield_now();
        }
        redis
    }

    pub fn url(&self) -> String {
        format!("redis+unix://{}", self.socket.display())
    }

    pub fn speak(&self) -> Speaker<UnixStream> {
        let stream = UnixStream::connect(&self.socket).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Speaker::new(stream)
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.socket);
    }
}

/// A gateway in this process, which ends with the test.
pub struct Gateway {
    pub address: SocketAddr,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

/// A gateway to this Redis, and to no network.
pub fn config(url: &str) -> Config {
    Config {
        listen: ([127, 0, 0, 1], 0).into(),
        cluster: Cluster::single(([127, 0, 0, 1], 1).into(), 1),
        tenant: wire::TENANT_OPEN,
        backends: vec![],
        backend_password: None,
        backend_tls: Default::default(),
        resolver: gateway::system_resolver,
        tls: None,
        resp: vec![url.parse().unwrap()],
        cache_bytes: 0,
        nodes: vec![],
        memcached_listen: None,
        memcached: vec![],
        network: NetworkUse::Never,
        threads: 1,
        metrics: None,
        seal: None,
        limits: Limits::default(),
    }
}

impl Gateway {
    pub fn start(config: Config) -> Gateway {
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let (ready, when_ready) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let stopped = async { drop(stopped.await) };
            let tell = move |address| ready.send(address).unwrap();
            runtime.unwrap().block_on(gateway::run(config, tell, stopped)).unwrap();
        });
        let address = when_ready.recv().unwrap();
        Gateway { address, stop: Some(stop), thread: Some(thread) }
    }

    pub fn speak(&self) -> Speaker<TcpStream> {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        Speaker::new(stream)
    }

    /// Ends it without waiting for that: it has to give up first what is never answered.
    pub fn give_up(mut self) {
        drop(self.thread.take());
    }

    /// What `INFO gateway` says of this.
    pub fn counter(&self, name: &str) -> u64 {
        counter(&mut self.speak(), name)
    }
}

/// What `INFO gateway` says of this to a client.
pub fn counter(client: &mut Speaker<TcpStream>, name: &str) -> u64 {
    let text = client.ask("INFO gateway");
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("{name}:")));
    line.and_then(|count| count.trim().parse().ok()).unwrap_or_else(|| panic!("{name}: {text}"))
}

impl Drop for Gateway {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(ended.is_ok() || std::thread::panicking(), "the gateway panicked");
        }
    }
}

/// A server's end of a connection, which answers what every server is asked about itself, and
/// everything else as it is told.
pub struct MadeUpServer {
    stream: TcpStream,
    buffer: Vec<u8>,
    parser: RequestParser,
    /// The one command that it has.
    command: &'static str,
    /// What it calls its run.
    run: Box<dyn Fn() -> &'static str + Send>,
}

impl MadeUpServer {
    pub fn new(stream: TcpStream) -> MadeUpServer {
        MadeUpServer::with_command(stream, "get")
    }

    /// One that has this command, a read, and calls its run the same.
    pub fn with_command(stream: TcpStream, command: &'static str) -> MadeUpServer {
        let (parser, run) = (RequestParser::default(), Box::new(move || command));
        MadeUpServer { stream, buffer: vec![], parser, command, run }
    }

    /// It calls its run so, whenever it is asked.
    pub fn of_run(self, run: impl Fn() -> &'static str + Send + 'static) -> MadeUpServer {
        MadeUpServer { run: Box::new(run), ..self }
    }

    /// The next command of a client, as its words; `None`: the connection has ended.
    pub fn next(&mut self) -> Option<String> {
        loop {
            let mut skipped = 0;
            let limits = RequestLimits::default();
            let request = self.parser.next(&self.buffer, &limits, &mut skipped).unwrap();
            let Some(request) = request else {
                let mut piece = [0; 4096];
                let len = self.stream.read(&mut piece).ok().filter(|len| *len > 0)?;
                self.buffer.extend_from_slice(&piece[..len]);
                continue;
            };
            let words = request.words.iter().map(String::from_utf8_lossy);
            let words = words.collect::<Vec<_>>().join(" ");
            let len = skipped + request.bytes.len();
            self.buffer.drain(..len);
            match &words[..] {
                "COMMAND" => {
                    let row =
                        format!("*1\r\n*6\r\n+{}\r\n:2\r\n*0\r\n:1\r\n:1\r\n:1\r\n", self.command);
                    self.answer(row.as_bytes());
                }
                "INFO server" | "INFO replication" => {
                    let text = format!("run_id:{}\r\nrole:master", (self.run)());
                    self.answer(format!("${}\r\n{text}\r\n", text.len()).as_bytes());
                }
                _ => return Some(words),
            }
        }
    }

    pub fn answer(&mut self, bytes: &[u8]) {
        // Whoever asked may be gone.
        let _ = self.stream.write_all(bytes);
    }
}

/// One end of a connection.
pub struct Speaker<S> {
    pub stream: S,
    buffer: Vec<u8>,
}

/// A command of the words of a line.
pub fn command(line: &str) -> Vec<u8> {
    let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
    of_words(&words)
}

pub fn of_words(words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend(format!("${}\r\n", word.len()).bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

impl<S: Read + Write> Speaker<S> {
    pub fn new(stream: S) -> Speaker<S> {
        Speaker { stream, buffer: vec![] }
    }

    pub fn say(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// The next answer, byte for byte; nothing if the connection has ended.
    pub fn answer(&mut self) -> String {
        let (mut scanner, mut seen) = (ReplyScanner::default(), 0);
        loop {
            if let Some(reply) = scanner.scan(&self.buffer[seen..]).unwrap() {
                let answer: Vec<u8> = self.buffer.drain(..seen + reply.len).collect();
                return String::from_utf8_lossy(&answer).into_owned();
            }
            seen = self.buffer.len();
            let mut piece = vec![0; 256 << 10];
            match self.stream.read(&mut piece) {
                Ok(0) => return String::new(),
                Ok(len) => self.buffer.extend_from_slice(&piece[..len]),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {
                    return String::new();
                }
                // So it is for a process that was stopped, and goes on.
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => panic!("no answer: {error}"),
            }
        }
    }

    pub fn ask(&mut self, line: &str) -> String {
        self.say(&command(line));
        self.answer()
    }
}
