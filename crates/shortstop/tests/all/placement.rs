//! Keys are where servers and proxies that run today put them, by their own answers.
//!
//! All on loopback. redis-server, memcached and nutcracker (twemproxy) are needed.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use lab::port;
use wire::{Cluster, cluster_slot, partition_of};

const PATIENCE: Duration = Duration::from_secs(90);

struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(program: &str, words: &[&str], port: u16) -> Process {
    let child = Command::new(program)
        .args(words)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let mut process = Process(child.unwrap_or_else(|_| panic!("{program} is needed")));
    let child = &mut process.0;
    assert!(port::listens(port, PATIENCE, || child.try_wait().unwrap().is_none()), "{program}");
    process
}

fn connect(port: u16) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

#[test]
fn a_hundred_thousand_keys_have_the_slots_that_redis_says() {
    let (port, bus) = (port::free(), port::free());
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("placement-slots");
    let _ = std::fs::remove_dir_all(&directory);
    std::fs::create_dir_all(&directory).unwrap();
    let (port_text, bus) = (port.to_string(), bus.to_string());
    let words = ["--port", &port_text, "--cluster-port", &bus, "--bind", "127.0.0.1", "--save", ""];
    let words = [&words[..], &["--cluster-enabled", "yes", "--dir"]].concat();
    let words = [&words[..], &[directory.to_str().unwrap()]].concat();
    let _redis = start("redis-server", &words, port);
    let key = |at: u32| -> Vec<u8> {
        match at % 5 {
            0 => format!("user:{{{at}}}:name").into_bytes(),
            1 => format!("{{{{{at}}}x{{}}").into_bytes(),
            2 => [&at.to_le_bytes()[..], b"\r\n\0{}"].concat(),
            3 => format!("a{{}}b{{{at}}}").into_bytes(),
            _ => format!("key:{at:012}").into_bytes(),
        }
    };
    let stream = connect(port);
    let mut writes = stream.try_clone().unwrap();
    let asks = std::thread::spawn(move || {
        for at in 0..100_000 {
            let key = key(at);
            let head = format!("*3\r\n$7\r\nCLUSTER\r\n$7\r\nKEYSLOT\r\n${}\r\n", key.len());
            writes.write_all(&[head.as_bytes(), &key, b"\r\n"].concat()).unwrap();
        }
    });
    let mut lines = BufReader::new(stream).lines();
    let mut misplaced = 0;
    for at in 0..100_000 {
        let line = lines.next().unwrap().unwrap();
        let slot: u32 = line.strip_prefix(':').unwrap().parse().unwrap();
        misplaced += u32::from(cluster_slot(&key(at)) != slot);
    }
    asks.join().unwrap();
    assert_eq!(misplaced, 0);
}

/// How many of the keys that twemproxy is told are not where a cluster file of its pool says.
fn misplaced(distribution: &str, hash: &str, hash_tag: &str) -> u32 {
    const KEYS: u32 = 1000;
    let weights = [1, 2, 1, 5];
    let ports: Vec<u16> = weights.iter().map(|_| port::free()).collect();
    let _servers: Vec<Process> = ports
        .iter()
        .map(|port| {
            let words = ["-l", "127.0.0.1", "-p", &port.to_string(), "-u", "root"];
            start("memcached", &words, *port)
        })
        .collect();
    let proxy = port::free();
    let named = ports.iter().zip(weights);
    let listed: String =
        named.clone().map(|(port, weight)| format!("   - 127.0.0.1:{port}:{weight}\n")).collect();
    let name = format!("twemproxy-{distribution}-{hash}-{}.yml", hash_tag.len());
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let tag =
        if hash_tag.is_empty() { String::new() } else { format!("  hash_tag: \"{hash_tag}\"\n") };
    let text = format!(
        "pool:\n  listen: 127.0.0.1:{proxy}\n  hash: {hash}\n{tag}  distribution: {distribution}\n  auto_eject_hosts: false\n  servers:\n{listed}"
    );
    std::fs::write(&file, text).unwrap();
    let stats = port::free().to_string();
    let words = ["-c", file.to_str().unwrap(), "-a", "127.0.0.1", "-s", &stats];
    let _proxy = start("nutcracker", &words, proxy);

    let members: Vec<String> =
        named.map(|(port, weight)| format!("127.0.0.1:{port}:{weight}")).collect();
    let scheme = format!("twemproxy-{distribution}");
    let mut command = Command::new(env!("CARGO_BIN_EXE_shortstop"));
    command.args(["cluster", "pool", "--scheme", &scheme, "--digest", hash]).args(members);
    if !hash_tag.is_empty() {
        command.args(["--hash-tag", hash_tag]);
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let cluster = Cluster::parse(&String::from_utf8(output.stdout).unwrap()).unwrap();
    let hasher = cluster.secrets_of(0).unwrap().hash;

    let key = |at: u32| format!("k\u{e9}y:{{{}}}:{at}", at % 700);
    let mut stream = connect(proxy);
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
    for at in 0..KEYS {
        stream.write_all(format!("set {} 0 0 1\r\nx\r\n", key(at)).as_bytes()).unwrap();
        assert_eq!(lines.next().unwrap().unwrap(), "STORED");
    }
    let mut servers: Vec<TcpStream> = ports.iter().map(|port| connect(*port)).collect();
    let mut misplaced = 0;
    for at in 0..KEYS {
        let partition = partition_of(hasher.key_hash(0, key(at).as_bytes()), cluster.partitions);
        let server = &mut servers[partition as usize];
        server.write_all(format!("get {}\r\n", key(at)).as_bytes()).unwrap();
        let mut answer = vec![];
        while !answer.ends_with(b"END\r\n") {
            let mut piece = [0; 512];
            let len = server.read(&mut piece).unwrap();
            assert!(len > 0, "memcached has gone");
            answer.extend_from_slice(&piece[..len]);
        }
        misplaced += u32::from(!answer.starts_with(b"VALUE"));
    }
    misplaced
}

#[test]
fn keys_are_at_the_memcached_servers_where_twemproxy_has_put_them() {
    for (distribution, hash, hash_tag) in [
        ("ketama", "fnv1a_64", ""),
        ("ketama", "md5", "{}"),
        ("ketama", "one_at_a_time", ""),
        ("modula", "fnv1_64", ""),
        ("modula", "crc32a", "{}"),
        ("modula", "crc32", ""),
        ("ketama", "fnv1_32", ""),
        ("ketama", "fnv1a_32", ""),
    ] {
        let misplaced = misplaced(distribution, hash, hash_tag);
        assert_eq!(misplaced, 0, "{distribution} {hash} {hash_tag:?}");
    }
}
