//! Whole connections over a pipe in memory: commands in, bytes out.

use std::time::Duration;

use proptest::prelude::*;
use tokio::{
    io::{DuplexStream, duplex},
    task::JoinHandle,
};

use super::*;
use crate::{
    Limits,
    counters::Counters,
    strings::{data::Put, fake::Fake},
};
use client::Memory;

fn shared(limits: Limits) -> Arc<GatewayState> {
    let memory = Memory::new(limits.memory_bytes);
    let listen = ([127, 0, 0, 1], 6380).into();
    Arc::new(GatewayState::new(limits, memory, Arc::new(Counters::default()), listen))
}

/// A connection whose pipe holds `pipe` bytes in each direction.
fn connect(pipe: usize, shared: &Arc<GatewayState>) -> (DuplexStream, JoinHandle<io::Result<()>>) {
    connect_to(Arc::default(), pipe, shared)
}

fn connect_to(
    data: Arc<Fake>,
    pipe: usize,
    shared: &Arc<GatewayState>,
) -> (DuplexStream, JoinHandle<io::Result<()>>) {
    let (stays, leaves) = watch::channel(false);
    let (ours, serves) = serve(data, pipe, shared, leaves);
    let serves = async move {
        let _stays = stays;
        serves.await
    };
    (ours, tokio::spawn(serves))
}

/// Likewise, in a gateway that may stop.
fn serve(
    data: Arc<Fake>,
    pipe: usize,
    shared: &Arc<GatewayState>,
    leaves: watch::Receiver<bool>,
) -> (DuplexStream, impl Future<Output = io::Result<()>> + use<>) {
    let (ours, theirs) = duplex(pipe);
    let session = Session::new(7, ([127, 0, 0, 1], 9).into());
    let connection = Connection::new(session, data, shared.clone());
    let (read, write) = tokio::io::split(theirs);
    (ours, connection.serve(read, write, leaves))
}

/// Everything that is answered to these bytes, until the connection ends.
fn talk(bytes: &[u8], pipe: usize, limits: Limits) -> Vec<u8> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let shared = shared(limits);
        let (stream, connection) = connect(pipe, &shared);
        let (mut read, mut write) = tokio::io::split(stream);
        let mut out = Vec::new();
        let send = async {
            // It may hang up before all is sent.
            let _ = write.write_all(bytes).await;
            let _ = write.shutdown().await;
        };
        let ((), received) = tokio::join!(send, read.read_to_end(&mut out));
        received.unwrap();
        let _ = connection.await.unwrap();
        assert_eq!(shared.memory.used_and_total().0, 0, "memory that is not given back");
        out
    })
}

/// Commands, one per line; what is answered, `~` for the end of each line in it.
#[rustfmt::skip]
const ROWS: &[(&str, &str)] = &[
    // connection
    ("PING", "+PONG~"),
    ("ping hi", "$2~hi~"),
    ("ping a b", "-ERR wrong number of arguments for 'ping' command~"),
    ("echo 'a b'", "$3~a b~"),
    ("echo", "-ERR wrong number of arguments for 'echo' command~"),
    ("select 0\nselect 1\nselect x", "+OK~-ERR DB index is out of range~-ERR value is not an integer or out of range~"),
    ("quit\nping", "+OK~"),
    ("reset", "+RESET~"),
    ("hello 3\nget a\nreset\nget a", "%7~$6~server~$5~redis~$7~version~$5~7.0.0~$5~proto~:3~$2~id~:7~$4~mode~$10~standalone~$4~role~$6~master~$7~modules~*0~_~+RESET~$-1~"),
    ("hello 4", "-NOPROTO unsupported protocol version~"),
    ("hello x", "-ERR Protocol version is not an integer or out of range~"),
    ("hello 3 auth a b", "-WRONGPASS invalid username-password pair or user is disabled: this gateway has no users.~"),
    ("hello 2 setname", "-ERR Syntax error in HELLO option 'setname'~"),
    ("hello 2 setname x\nclient getname", "*14~$6~server~$5~redis~$7~version~$5~7.0.0~$5~proto~:2~$2~id~:7~$4~mode~$10~standalone~$4~role~$6~master~$7~modules~*0~$1~x~"),
    ("auth secret", "-ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?~"),
    ("client id", ":7~"),
    ("client getname\nclient setname a\nclient getname", "$-1~+OK~$1~a~"),
    ("client setname 'a b'", "-ERR Client names cannot contain spaces, newlines or special characters.~"),
    ("client setname", "-ERR wrong number of arguments for 'client|setname' command~"),
    ("client setinfo lib-name x\nclient setinfo foo x", "+OK~-ERR Unrecognized option 'foo'~"),
    ("client no-evict on\nclient no-evict x", "+OK~-ERR syntax error~"),
    ("client kill x", "-ERR unknown subcommand 'kill'. Try CLIENT HELP.~"),
    ("client", "-ERR wrong number of arguments for 'client' command~"),
    // server
    ("config get save", "*2~$4~save~$0~~"),
    ("config get appendonly MAX*ORY", "*4~$10~appendonly~$2~no~$9~maxmemory~$9~268435456~"),
    ("config get", "-ERR wrong number of arguments for 'config|get' command~"),
    ("config rewrite", "-ERR unknown subcommand 'rewrite'. Try CONFIG HELP.~"),
    ("command count", ":27~"),
    ("command info get nosuch", "*2~*10~$3~get~:2~*2~+readonly~+fast~:1~:1~:1~*0~*0~*0~*0~$-1~"),
    ("command docs nosuch", "*0~"),
    ("foo a b", "-ERR unknown command 'foo', with args beginning with: 'a' 'b' ~"),
    ("\"a\\r\\nb\"", "-ERR unknown command 'a  b', with args beginning with: ~"),
    // keys
    ("get a\nset a 1\nget a", "$-1~+OK~$1~1~"),
    ("get\nget a b", "-ERR wrong number of arguments for 'get' command~-ERR wrong number of arguments for 'get' command~"),
    ("set a 1 zz\nset a 1 nx xx\nset a 1 ex\nset a 1 ex 1 px 1\nset a 1 keepttl ex 1", "-ERR syntax error~-ERR syntax error~-ERR syntax error~-ERR syntax error~-ERR syntax error~"),
    ("set a 1 ex x\nset a 1 ex 0\nset a 1 px -5", "-ERR value is not an integer or out of range~-ERR invalid expire time in 'set' command~-ERR invalid expire time in 'set' command~"),
    ("set a 1 ex 9223372036854775807", "-ERR invalid expire time in 'set' command~"),
    ("set a 1 exat 0\nset a 1 exat 1\npttl a", "-ERR invalid expire time in 'set' command~+OK~:-2~"),
    ("set a 1 xx pxat 1\nset a 1\nset a 2 nx pxat 1\nset a 2 xx get pxat 1\nget a", "$-1~+OK~$-1~$1~1~$-1~"),
    ("set a 1 ex 05\nset a 1 ex +5\nset a 1 ex ' 5'\nset a 1 px -0\nselect 00", "-ERR value is not an integer or out of range~-ERR value is not an integer or out of range~-ERR value is not an integer or out of range~-ERR value is not an integer or out of range~-ERR value is not an integer or out of range~"),
    ("set a 1 ex 5 ex 60\nttl a\nset a 2 keepttl keepttl\nttl a\nset a 1 ex 5 px 5\nset a 1 ex 5 keepttl", "+OK~:60~+OK~:60~-ERR syntax error~-ERR syntax error~"),
    ("set a 1 ex 10\nttl a\npttl a\nset a 2 keepttl\nttl a\nset a 3\nttl a\nttl b", "+OK~:10~:10000~+OK~:10~+OK~:-1~:-2~"),
    ("set a 1 xx\nset a 1 nx\nset a 2 nx\nget a", "$-1~+OK~$-1~$1~1~"),
    ("set a 1 get\nset a 2 get\nset a 3 nx get\nget a", "$-1~$1~1~$1~2~$1~2~"),
    ("setex a 10 v\nttl a\nsetex a 0 v\npsetex a 1500 v\npttl a", "+OK~:10~-ERR invalid expire time in 'setex' command~+OK~:1500~"),
    ("setnx a 1\nsetnx a 2\ngetset a 3\nget a", ":1~:0~$1~1~$1~3~"),
    ("mset a 1 b 2 a 3\nmget a b c", "+OK~*3~$1~3~$1~2~$-1~"),
    ("mset a 1 b", "-ERR wrong number of arguments for 'mset' command~"),
    ("mset a 1\nexists a a b\ndel a b\nunlink a", "+OK~:2~:1~:0~"),
    ("set a abc\nstrlen a\nstrlen b\ntype a\ntype b", "+OK~:3~:0~+string~+none~"),
    ("set a 1\ngetdel a\ngetdel a", "+OK~$1~1~$-1~"),
    ("get broken\nset broken 1\nmget a broken", "-ERR outcome unknown:  broken~-ERR outcome unknown:  broken~-ERR outcome unknown:  broken~"),
    // protocol
    ("set a 1\n*1\n", "+OK~-ERR Protocol error: invalid multibulk length~"),
    ("set a 1\nping \"a", "+OK~-ERR Protocol error: unbalanced quotes in request~"),
];

#[test]
fn commands_are_answered_as_redis_does_it() {
    for (commands, expected) in ROWS {
        let bytes = format!("{commands}\n").replace("*1\n", "*x\r\n");
        let expected = expected.replace('~', "\r\n");
        for pipe in [7, 4096] {
            let out = talk(bytes.as_bytes(), pipe, Limits::default());
            assert_eq!(String::from_utf8_lossy(&out), expected, "{commands}");
        }
    }
}

/// What browsers send for a page that knows the port: by a form, by a script, after its name was
/// made to mean this machine, and over TLS with a line of the page's own in the greeting.
#[test]
fn a_web_page_cannot_write() {
    let rows: [&[u8]; 4] = [
        b"POST / HTTP/1.1\r\nHost: 127.0.0.1:6380\r\nContent-Type: text/plain\r\n\r\nSET pwn 1\r\n",
        b"GET /?pwn HTTP/1.1\r\nHost: 127.0.0.1:6380\r\n\r\nSET pwn 1\r\n",
        b"DEL pwn HTTP/1.1\r\nHost: evil.example:6380\r\n\r\nSET pwn 1\r\n",
        b"\x16\x03\x01\x02\x00\x01\r\nSET pwn 1\r\n",
    ];
    for bytes in rows {
        let shared = shared(Limits::default());
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let out = runtime.block_on(async {
            let (mut stream, connection) = connect(4096, &shared);
            stream.write_all(b"PING\n").await.unwrap();
            stream.write_all(bytes).await.unwrap();
            let mut out = Vec::new();
            stream.read_to_end(&mut out).await.unwrap();
            let _ = connection.await.unwrap();
            out
        });
        assert_eq!(out, b"+PONG\r\n", "{}", bytes.escape_ascii());
        let count = |name| shared.counters.read().find(|(known, _)| *known == name);
        assert_eq!(count("foreign_protocols"), Some(("foreign_protocols", 1)));
        assert_eq!(count("total_commands_processed").unwrap().1, 1);
    }
}

#[test]
fn info_and_docs_name_what_there_is() {
    let text = |line: &str| {
        let bytes = talk(line.as_bytes(), 1 << 16, Limits::default());
        String::from_utf8(bytes).unwrap()
    };
    let stats = text("info stats\n");
    assert!(stats.contains("# Stats\r\ntotal_connections_received:"), "{stats}");
    assert!(!stats.contains("# Server"), "{stats}");
    let all = text("info\n");
    for section in [
        "# Server",
        "# Clients",
        "# Memory",
        "# Persistence",
        "# Replication",
        "# Cluster",
        "# Stats",
    ] {
        assert!(all.contains(section), "{all}");
    }
    // What test suites and libraries read before they begin.
    for field in [
        "redis_version:7.0.0",
        "redis_mode:standalone",
        "arch_bits:64",
        "tcp_port:6380",
        "process_id:",
        "uptime_in_seconds:",
        "maxmemory_policy:noeviction",
        "loading:0",
        "role:master",
        "cluster_enabled:0",
    ] {
        assert!(all.contains(&format!("\r\n{field}")), "{field}: {all}");
    }
    assert!(text("hello 3\nclient info\n").contains("txt:id=7 addr=127.0.0.1:9 "));
    assert!(text("command docs\n").contains("The value of a key"));
}

#[test]
fn a_pipeline_is_answered_in_order_and_sees_its_own_writes() {
    let mut commands = String::new();
    let mut expected = String::new();
    for round in 0..500 {
        let (key, other) = (round % 3, round % 7);
        commands +=
            &format!("set k{key} v{round}\nget k{key}\nping {round}\nset o{other} x{round} get\n");
        expected += &format!("+OK\r\n{}{}", bulk(&format!("v{round}")), bulk(&round.to_string()));
        expected += &if round < 7 { "$-1\r\n".into() } else { bulk(&format!("x{}", round - 7)) };
    }
    for pipe in [64, 1 << 16] {
        let out = talk(commands.as_bytes(), pipe, Limits::default());
        assert!(out == expected.as_bytes(), "an answer is out of order");
    }
}

fn bulk(text: &str) -> String {
    format!("${}\r\n{text}\r\n", text.len())
}

fn set(key: &str, len: usize) -> String {
    format!("*3\r\n$3\r\nset\r\n{}{}", bulk(key), bulk(&"x".repeat(len)))
}

#[test]
fn large_values_use_the_memory_that_there_is() {
    let limits = Limits { memory_bytes: 1 << 20, ..Limits::default() };
    let fits = talk(format!("{}strlen a\n", set("a", 400_000)).as_bytes(), 4096, limits);
    assert_eq!(fits, b"+OK\r\n:400000\r\n");
    let does_not = talk(format!("ping\n{}", set("a", 2_000_000)).as_bytes(), 4096, limits);
    assert!(does_not.starts_with(b"+PONG\r\n-OOM "), "{}", does_not.escape_ascii());
    let many = format!("mget{}\n", " k".repeat(1000));
    assert!(talk(many.as_bytes(), 4096, limits).starts_with(b"-OOM "));
}

/// A client that sends and never reads is not read from any more, and what it sent does not
/// pile up.
#[tokio::test]
async fn slow_readers_are_held_back() {
    let shared = shared(Limits::default());
    let (mut stream, connection) = connect(4096, &shared);
    let mut sent = 0;
    let mut bytes = set("a", 1000).into_bytes();
    bytes.extend("get a\n".repeat(100_000).bytes());
    let mut idle = 0;
    while idle < 1000 && sent < bytes.len() {
        match stream.write(&bytes[sent..]).now_or_never() {
            Some(len) => {
                sent += len.unwrap();
                idle = 0;
            }
            None => idle += 1,
        }
        tokio::task::yield_now().await;
    }
    assert!(sent < 100_000, "{sent} bytes were taken from a client that does not read");
    // Once it reads, everything comes.
    let (mut read, mut write) = tokio::io::split(stream);
    let rest = async {
        write.write_all(&bytes[sent..]).await.unwrap();
        write.shutdown().await.unwrap();
    };
    let mut out = Vec::new();
    let ((), len) = tokio::join!(rest, read.read_to_end(&mut out));
    assert_eq!(len.unwrap(), 5 + 100_000 * (bulk("").len() + 3 + 1000));
    connection.await.unwrap().unwrap();
}

/// What waits for a client that does not read counts, whatever command it answers.
#[tokio::test]
async fn answers_that_nobody_reads_count() {
    let limits = Limits { memory_bytes: 4 << 20, ..Limits::default() };
    let large = bulk(&"x".repeat(1_000_000));
    let names = "$3\r\nget\r\n".repeat(60_000);
    // (command, bytes that count at least, refusals)
    let rows = [
        (format!("*2\r\n$4\r\necho\r\n{large}"), 1_000_000, 0),
        (format!("*2\r\n$4\r\nping\r\n{large}"), 1_000_000, 0),
        // One row for each name: many times what was asked.
        (format!("*60002\r\n$7\r\ncommand\r\n$4\r\ninfo\r\n{names}"), 0, 1),
    ];
    for (command, counted, refused) in rows {
        let shared = shared(limits);
        let (mut stream, connection) = connect(1000, &shared);
        stream.write_all(command.as_bytes()).await.unwrap();
        for _ in 0..1000 {
            tokio::task::yield_now().await;
        }
        let what = &command[..command.len().min(40)];
        let used = shared.memory.used_and_total().0;
        assert!(used >= counted, "{what:?}: {used} bytes count");
        let refusals = shared.counters.read().find(|(name, _)| *name == "memory_refusals");
        assert_eq!(refusals.unwrap().1, refused, "{what:?}");
        drop(stream);
        let _ = connection.await.unwrap();
        assert_eq!(shared.memory.used_and_total().0, 0, "{what:?}");
    }
}

/// Of the values in the answer to an MGET each counts that was read in parts, until all of it has
/// been read.
#[tokio::test]
async fn values_that_nobody_reads_count() {
    for len in [2_000, 60_000] {
        let limits = Limits { memory_bytes: 1 << 20, ..Limits::default() };
        let shared = shared(limits);
        let data = Arc::new(Fake::default());
        let (mut stream, connection) = connect_to(data.clone(), 1000, &shared);
        let keys: Vec<Bytes> = (0..10).map(|n| Bytes::from(format!("k{n}"))).collect();
        for key in &keys {
            let value = shared.memory.reserve(len).unwrap();
            let value = value.hold(Bytes::from(vec![b'x'; len]));
            data.set(key, &value, Put::default()).await.unwrap();
        }
        let command = "mget k0 k1 k2 k3 k4 k5 k6 k7 k8 k9\n";
        stream.write_all(command.as_bytes()).await.unwrap();
        let mut begun = [0];
        stream.read_exact(&mut begun).await.unwrap();
        for key in &keys {
            data.delete(key).await.unwrap();
        }
        let used = shared.memory.used_and_total().0;
        assert!(used >= 10 * len, "{used} of {} bytes count", 10 * len);
        drop(stream);
        let _ = connection.await.unwrap();
        assert_eq!(shared.memory.used_and_total().0, 0);
    }
}

/// Answers that are known at once wait behind one that is not: what they take counts towards the
/// connection's share.
#[tokio::test]
async fn answers_that_wait_for_their_turn_are_held_back() {
    let shared = shared(Limits::default());
    let session = Session::new(7, ([127, 0, 0, 1], 9).into());
    let mut connection = Connection::new(session, Arc::new(Fake::default()), shared.clone());
    connection.input.extend_from_slice(b"get a\n");
    connection.input.extend_from_slice("command docs\n".repeat(200).as_bytes());
    connection.start_commands();
    assert!(
        connection.answers.len() < 40,
        "{} answers of some kilobytes wait",
        connection.answers.len()
    );
}

/// A gateway that stops answers what it was sent, and not what comes after that; it closes its half
/// of the connection first, so that no answer is lost.
#[tokio::test]
async fn who_is_in_the_middle_of_something_is_answered_when_the_gateway_stops() {
    let shared = shared(Limits::default());
    let (stop, leaves) = watch::channel(false);
    let (mut stream, serves) = serve(Arc::default(), 1 << 20, &shared, leaves);
    // It is there before the connection is looked at, so it is what came.
    stream.write_all(b"set a 1\r\nget a\r\nget").await.unwrap();
    stop.send(true).unwrap();
    let serves = tokio::spawn(serves);
    let mut answers = [0; 12];
    stream.read_exact(&mut answers).await.unwrap();
    assert_eq!(&answers, b"+OK\r\n$1\r\n1\r\n");
    // What comes now is not carried out.
    stream.write_all(b" a\r\n").await.unwrap();
    let mut more = vec![];
    stream.read_to_end(&mut more).await.unwrap();
    assert_eq!(more, b"", "the connection has ended");
    drop(stream);
    serves.await.unwrap().unwrap();
}

/// A connection that is dropped with commands at work gives everything back.
#[tokio::test]
async fn clients_may_vanish() {
    let shared = shared(Limits::default());
    let (mut stream, connection) = connect(1 << 20, &shared);
    stream.write_all(set("a", 200_000).as_bytes()).await.unwrap();
    stream.write_all(b"get a\n*3\r\n$3\r\nset\r\n$9").await.unwrap();
    drop(stream);
    let _ = tokio::time::timeout(Duration::from_secs(10), connection).await.unwrap();
    assert_eq!(shared.memory.used_and_total().0, 0);
}

/// Commands, well-formed and not.
fn noise() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        (0..ROWS.len()).prop_map(|row| format!("{}\n", ROWS[row].0).into_bytes()),
        Just(b"*2\r\n$3\r\nget\r\n$1\r\na\r\n".to_vec()),
        Just(b"*3\r\n$3\r\nset\r\n$1\r\na\r\n$70\r\n".to_vec()),
        Just(b"*1000\r\n$4\r\nmget\r\n".to_vec()),
        prop::collection::vec(any::<u8>(), 0..40),
    ];
    prop::collection::vec(piece, 0..30).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn no_bytes_break_a_connection(bytes in noise(), pipe in 1usize..300) {
        let limits = Limits {
            inline_bytes: 128,
            bulk_bytes: 1000,
            words: 2000,
            pipeline: 4,
            connection_bytes: 256,
            output_bytes: 256,
            memory_bytes: 1 << 20,
            ..Limits::default()
        };
        talk(&bytes, pipe, limits);
    }
}
