//! What a real Redis says when it does not do what it is asked, and what the store makes of it: a
//! refusal reaches who asked in Redis's own words, at once; a replica is left, and nothing granted
//! of it; one that is away is connected to when it is there.

use std::{
    net::{SocketAddr, UdpSocket},
    path::Path,
    time::{Duration, Instant},
};

use lab::port;
use store::{BackendState, BackendTroubleStatus, Config};
use wire::{Flags, Header, Op, Status};

use super::support::{
    self, Client, PATIENCE, Reply, StoreThread,
    others::{Outsider, Switch},
    servers::{Process, memcached_command, redis, redis_command, redis_with, start_at},
};

/// Room for what is said.
const ROOM: usize = 512;

fn over(address: impl std::fmt::Display) -> Config {
    Config { backend: format!("redis://{address}").parse().unwrap(), ..support::loopback() }
}

fn store_over(server: &Process) -> StoreThread {
    StoreThread::start(over(address(server)))
}

fn address(server: &Process) -> String {
    format!("127.0.0.1:{}", server.port)
}

/// What is asked of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Request {
    Read,
    Write,
    Delete,
}

use Request::{Delete, Read, Write};

impl Request {
    fn ask(self, client: &mut Client, key: &[u8]) -> Reply {
        match self {
            Read => client.read_padded(key, ROOM),
            Write => client.ask(Header::new(Op::WriteRequest), key, b"v", ROOM),
            Delete => client.ask(Header::new(Op::DeleteRequest), key, &[], ROOM),
        }
    }

    /// Asks until it is not refused any more.
    fn is_done_again(self, client: &mut Client, key: &[u8]) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let reply = self.ask(client, key);
            match reply.header.status {
                Status::Ok | Status::NotFound => return,
                // A batch that was under way when the connection was lost.
                Status::BackendError => {}
                other => panic!("{self:?}: {other:?}"),
            }
            assert!(Instant::now() < deadline, "{self:?}: {:?}", words(&reply));
        }
    }
}

/// What a refusal says.
fn words(reply: &Reply) -> Option<String> {
    let Header { status, version, .. } = reply.header;
    let is_refused = (status, version) == (Status::BackendError, wire::BACKEND_REFUSED);
    is_refused.then(|| String::from_utf8(reply.value.clone()).unwrap())
}

/// Asks until that is refused with words that begin so: the first may have come before.
fn is_refused(client: &mut Client, request: Request, key: &[u8], begin: &str) -> String {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let reply = request.ask(client, key);
        let said = words(&reply);
        if let Some(said) = said.filter(|said| said.starts_with(begin)) {
            return said;
        }
        assert!(
            Instant::now() < deadline,
            "{request:?}: {:?}, {:?}, expected {begin}",
            reply.header,
            String::from_utf8_lossy(&reply.value)
        );
    }
}

/// A way in which a Redis refuses: what makes it, what is refused, the words, what ends it.
type Row = (&'static [&'static str], Request, &'static str, &'static [&'static str]);

/// One server for all; after each row it serves again. `k` is there, `list` is a list.
const ROWS: &[Row] = &[
    (
        &["CONFIG SET maxmemory 1"],
        Write,
        "OOM command not allowed when used memory > 'maxmemory'",
        &["CONFIG SET maxmemory 0"],
    ),
    (
        &["CONFIG SET min-replicas-to-write 1"],
        Write,
        "NOREPLICAS Not enough good replicas to write",
        &["CONFIG SET min-replicas-to-write 0"],
    ),
    (
        &["CONFIG SET min-replicas-to-write 1"],
        Delete,
        "NOREPLICAS Not enough good replicas to write",
        &["CONFIG SET min-replicas-to-write 0"],
    ),
    (&["ACL SETUSER default -set"], Write, "NOPERM ", &["ACL SETUSER default +set"]),
    (&["ACL SETUSER default -getrange"], Read, "NOPERM ", &["ACL SETUSER default +getrange"]),
    (&["ACL SETUSER default -pttl"], Read, "NOPERM ", &["ACL SETUSER default +pttl"]),
    // It does not say that it is a replica.
    (
        &["ACL SETUSER default -role", "REPLICAOF 127.0.0.1 1"],
        Write,
        "READONLY You can't write against a read only replica",
        &["REPLICAOF NO ONE", "ACL SETUSER default +role"],
    ),
    (
        &[
            "ACL SETUSER default -role",
            "CONFIG SET replica-serve-stale-data no",
            "REPLICAOF 127.0.0.1 1",
        ],
        Read,
        "MASTERDOWN Link with MASTER is down",
        &[
            "REPLICAOF NO ONE",
            "CONFIG SET replica-serve-stale-data yes",
            "ACL SETUSER default +role",
        ],
    ),
    // Whoever is connected stays so.
    (
        &["CONFIG SET requirepass secret", "CLIENT KILL TYPE normal SKIPME yes"],
        Read,
        "TRYAGAIN cannot connect to Redis at ",
        &["CONFIG SET requirepass \"\""],
    ),
];

#[test]
fn what_redis_refuses_is_refused_in_its_own_words_and_done_when_it_is_not_any_more() {
    let server = redis();
    let mut operator = Outsider::of(&server);
    operator.command("SET k before");
    let store = store_over(&server);
    let mut client = Client::to(store.address);
    for (begins, request, said, ends) in ROWS {
        for line in *begins {
            let done = operator.command(line);
            assert!(!done.starts_with('-'), "{line}: {done}");
        }
        is_refused(&mut client, *request, b"k", said);
        for line in *ends {
            let done = operator.command(line);
            assert!(!done.starts_with('-'), "{line}: {done}");
        }
        request.is_done_again(&mut client, b"k");
    }
    // What is the request's own fault is no matter of when.
    operator.command("RPUSH list x");
    is_refused(&mut client, Read, b"list", "WRONGTYPE Operation against a key");
    Write.is_done_again(&mut client, b"list");
}

#[test]
fn a_redis_that_could_not_save_refuses_writes() {
    let server = redis();
    let mut operator = Outsider::of(&server);
    operator.command("SET k before");
    // A file cannot take the place of a folder; and once it answers it has read what was there.
    std::fs::create_dir(server.directory.path().join("dump.rdb")).unwrap();
    operator.command("CONFIG SET save \"3600 1\"");
    let store = store_over(&server);
    let mut client = Client::to(store.address);
    operator.command("BGSAVE");
    is_refused(&mut client, Write, b"k", "MISCONF ");
    assert_eq!(client.read_padded(b"k", ROOM).header.status, Status::Ok, "reads go on");
    operator.command("CONFIG SET stop-writes-on-bgsave-error no");
    Write.is_done_again(&mut client, b"k");
}

#[test]
fn a_redis_that_runs_a_script_is_busy() {
    let server = redis();
    let store = store_over(&server);
    let mut operator = Outsider::of(&server);
    operator.command("CONFIG SET lua-time-limit 1");
    let mut client = Client::to(store.address);
    Write.is_done_again(&mut client, b"k");
    let mut script = Outsider::of(&server);
    let runs = std::thread::spawn(move || script.command("EVAL \"while true do end\" 0"));
    for request in [Read, Write, Delete] {
        is_refused(&mut client, request, b"k", "BUSY Redis is busy running a script");
    }
    operator.command("SCRIPT KILL");
    assert!(runs.join().unwrap().starts_with("-ERR"));
    Write.is_done_again(&mut client, b"k");
}

#[test]
fn a_redis_that_loads_its_data_is_said_to() {
    let server = redis();
    let mut operator = Outsider::of(&server);
    operator.command("CONFIG SET rdbcompression no");
    let fills = "for i=1,200 do redis.call('SET', 'key'..i, string.rep('x', 10000)) end";
    operator.command(&format!("EVAL \"{fills}\" 0"));
    assert_eq!(operator.command("SAVE"), "+OK\r\n");
    let saved = std::fs::read(server.directory.path().join("dump.rdb")).unwrap();
    drop(operator);
    // It takes a minute to load, and looks up from that all the time.
    let server = start_at(server.stop(), |port, directory| {
        std::fs::write(directory.join("dump.rdb"), &saved).unwrap();
        let mut command = redis_command(port, directory);
        command.args(["--key-load-delay", "300000", "--loading-process-events-interval-bytes"]);
        command.arg("1024");
        command
    });
    let store = store_over(&server);
    let mut client = Client::to(store.address);
    for request in [Read, Write, Delete] {
        is_refused(&mut client, request, b"k", "LOADING Redis is loading the dataset in memory");
    }
    let done = Outsider::of(&server).command("CONFIG SET key-load-delay 0");
    assert_eq!(done, "+OK\r\n");
    Write.is_done_again(&mut client, b"k");
    assert_eq!(Switch::to(store.address).copy(b"k"), b"v");
}

#[test]
fn a_command_that_redis_does_not_know_is_refused_and_the_others_are_not() {
    let server = redis_with(&["--rename-command", "DEL", ""]);
    let store = store_over(&server);
    let mut client = Client::to(store.address);
    Write.is_done_again(&mut client, b"k");
    is_refused(&mut client, Delete, b"k", "ERR unknown command 'DEL'");
    assert_eq!(client.read_padded(b"k", ROOM).value, b"v");
}

#[test]
fn a_redis_of_a_cluster_without_the_key_refuses_it() {
    let bus = port::held();
    let bus = bus.number.to_string();
    let server = redis_with(&["--cluster-enabled", "yes", "--cluster-port", &bus]);
    let store = store_over(&server);
    let mut client = Client::to(store.address);
    for request in [Read, Write, Delete] {
        is_refused(&mut client, request, b"k", "CLUSTERDOWN Hash slot not served");
    }
    Outsider::of(&server).command("CLUSTER ADDSLOTSRANGE 0 16383");
    Write.is_done_again(&mut client, b"k");
}

/// What to do about a node of a Redis cluster.
const OF_A_CLUSTER: &str = "(the backend is a node of a Redis Cluster, with some of the keys only: `shortstop cluster \
                            import` writes the cluster file for one)";

/// A node of a Redis cluster whose slots are another node's, or are about to be.
#[test]
fn a_redis_of_a_cluster_says_which_node_has_the_key() {
    let [there, here] = [(); 2].map(|()| {
        let bus = port::held();
        let number = bus.number.to_string();
        (redis_with(&["--cluster-enabled", "yes", "--cluster-port", &number]), bus)
    });
    let mut operators = [&there.0, &here.0].map(Outsider::of);
    let ids = operators.each_mut().map(|of| {
        let id = of.command("CLUSTER MYID");
        id.lines().nth(1).expect("an id").to_owned()
    });
    let meet = format!("CLUSTER MEET 127.0.0.1 {} {}", there.0.port, there.1.number);
    assert_eq!(operators[1].command(&meet), "+OK\r\n");
    assert_eq!(operators[1].command("CLUSTER ADDSLOTSRANGE 0 16383"), "+OK\r\n");
    let deadline = Instant::now() + PATIENCE;
    for of in &mut operators {
        while !of.command("CLUSTER INFO").contains("cluster_state:ok") {
            assert!(Instant::now() < deadline, "{}", of.command("CLUSTER INFO"));
        }
    }
    // The node that has no slots.
    let store = store_over(&there.0);
    let mut client = Client::to(store.address);
    let slot = operators[1].command("CLUSTER KEYSLOT k");
    let slot: u16 = slot.trim_start_matches(':').trim().parse().unwrap();
    let said = |words: &str| format!("{words} {OF_A_CLUSTER}");
    let moved = format!("MOVED {slot} 127.0.0.1:{}", here.0.port);
    for request in [Read, Write, Delete] {
        assert_eq!(is_refused(&mut client, request, b"k", "MOVED "), said(&moved));
    }
    // The node that has them, and is giving this one away.
    let store = store_over(&here.0);
    let mut client = Client::to(store.address);
    Write.is_done_again(&mut client, b"k");
    Delete.is_done_again(&mut client, b"k");
    let migrates = format!("CLUSTER SETSLOT {slot} MIGRATING {}", ids[0]);
    assert_eq!(operators[1].command(&migrates), "+OK\r\n");
    let ask = format!("ASK {slot} 127.0.0.1:{}", there.0.port);
    for request in [Read, Write, Delete] {
        assert_eq!(is_refused(&mut client, request, b"k", "ASK "), said(&ask));
    }
    assert_eq!(operators[1].command(&format!("CLUSTER SETSLOT {slot} STABLE")), "+OK\r\n");
    Write.is_done_again(&mut client, b"k");
}

#[test]
fn a_password_that_is_missing_or_wrong_is_said_and_where_it_is_given() {
    let server = redis_with(&["--requirepass", "secret"]);
    // (password, what is said)
    let rows: [(Option<&str>, &[&str]); 2] = [
        (None, &["it wants a password (--backend-password-file)", "NOAUTH "]),
        (Some("other"), &["the password is wrong", "WRONGPASS "]),
    ];
    let with = |password: Option<&str>| {
        let backend_password = password.map(Into::into);
        StoreThread::start(Config { backend_password, ..over(address(&server)) })
    };
    for (password, parts) in rows {
        let store = with(password);
        let said = is_refused(&mut Client::to(store.address), Read, b"k", "TRYAGAIN ");
        assert!(parts.iter().all(|part| said.contains(part)), "{said}");
    }
    let store = with(Some("secret"));
    Write.is_done_again(&mut Client::to(store.address), b"k");
}

#[test]
fn protected_mode_is_said_to_who_asks() {
    // Whoever comes from this machine's own address comes from elsewhere, for Redis.
    let own = UdpSocket::bind("0.0.0.0:0").unwrap();
    let own = match own.connect("192.0.2.77:9").and_then(|()| own.local_addr()) {
        Ok(SocketAddr::V4(own)) => own.ip().to_string(),
        _ => "127.0.0.1".into(),
    };
    let server = redis_with(&["--bind", "0.0.0.0", "--protected-mode", "yes"]);
    let store = StoreThread::start(over(format!("{own}:{}", server.port)));
    let mut client = Client::to(store.address);
    if own != "127.0.0.1" {
        let said = is_refused(&mut client, Read, b"k", "TRYAGAIN cannot connect to Redis at ");
        assert!(said.contains("DENIED") || said.contains("reset"), "{said}");
    }
    Outsider::of(&server).command("CONFIG SET protected-mode no");
    Write.is_done_again(&mut client, b"k");
}

#[test]
fn a_refused_write_did_nothing_also_when_it_comes_again() {
    let server = redis();
    let mut operator = Outsider::of(&server);
    operator.command("SET k before");
    let store = store_over(&server);
    let mut client = Client::to(store.address);
    operator.command("CONFIG SET maxmemory 1");
    let said = is_refused(&mut client, Write, b"k", "OOM ");
    operator.command("CONFIG SET maxmemory 0");
    // The same request, late. Without room he is told how much there must be.
    for (room, status) in [(0, Status::NeedPadding), (ROOM, Status::BackendError)] {
        client.request -= 1;
        let again = client.ask(Header::new(Op::WriteRequest), b"k", b"v", room);
        assert_eq!(again.header.status, status);
        match status {
            Status::NeedPadding => assert_eq!(again.header.total as usize, said.len()),
            _ => assert_eq!(words(&again).as_ref(), Some(&said)),
        }
    }
    assert_eq!(client.read_padded(b"k", ROOM).value, b"before");
}

#[test]
fn a_store_starts_without_its_redis_and_serves_when_it_is_there() {
    let held = port::held();
    let store = StoreThread::start(over(format!("127.0.0.1:{}", held.number)));
    let mut client = Client::to(store.address);
    for request in [Read, Write, Delete] {
        let reply = request.ask(&mut client, b"k");
        let said = words(&reply).expect("nothing was sent, so nothing is in doubt");
        assert!(said.starts_with("TRYAGAIN cannot connect to Redis at 127.0.0.1:"), "{said}");
        assert!(said.contains("refused"), "{said}");
    }
    let server = start_at(held, redis_command);
    Write.is_done_again(&mut client, b"k");
    assert_eq!(Switch::to(store.address).copy(b"k"), b"v", "outside writes are tracked");
    let mut switch = Switch::to(store.address);
    assert_eq!(switch.copy(b"k"), b"v");
    Outsider::of(&server).command("SET k w");
    switch.loses(b"k", "SET by another");
}

#[test]
fn a_store_starts_without_its_memcached_and_serves_when_it_is_there() {
    let held = port::held();
    let backend = format!("memcached://127.0.0.1:{}", held.number).parse().unwrap();
    let store = StoreThread::start(Config { backend, ..support::with_short_leases() });
    let mut client = Client::to(store.address);
    for request in [Read, Write, Delete] {
        let reply = request.ask(&mut client, b"k");
        let said = words(&reply).expect("nothing was sent, so nothing is in doubt");
        assert!(said.starts_with("TRYAGAIN cannot connect to memcached at 127.0.0.1:"), "{said}");
        assert!(said.contains("refused"), "{said}");
    }
    let server = start_at(held, memcached_command);
    Write.is_done_again(&mut client, b"k");
    assert_eq!(client.read_padded(b"k", ROOM).value, b"v");
    // It goes, and another one comes.
    let held = server.stop();
    is_refused(&mut client, Write, b"k", "TRYAGAIN ");
    let _server = start_at(held, memcached_command);
    Write.is_done_again(&mut client, b"k");
}

/// Asks for the status until it shows that trouble, or none.
fn shows(socket: &Path, state: Option<BackendState>, begin: &str) -> Option<BackendTroubleStatus> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let trouble = store::read_status(socket).unwrap().backend_trouble;
        let is_it =
            |of: &BackendTroubleStatus| Some(of.state) == state && of.words.starts_with(begin);
        if trouble.as_ref().map_or(state.is_none(), is_it) {
            return trouble;
        }
        assert!(Instant::now() < deadline, "{trouble:?}, expected {state:?} {begin}");
    }
}

#[test]
fn the_status_says_what_is_wrong_with_the_backend_and_since_when() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("status");
    let held = port::held();
    let store = StoreThread::start(Config {
        status_socket: Some(socket.clone()),
        backend_within: PATIENCE,
        ..over(format!("127.0.0.1:{}", held.number))
    });
    let mut client = Client::to(store.address);
    let away = Some(BackendState::Away);
    let first = shows(&socket, away, "cannot connect to Redis at 127.0.0.1:").unwrap();
    let second = shows(&socket, away, "cannot connect to Redis at 127.0.0.1:").unwrap();
    assert!(first.for_ms <= second.for_ms && first.since_unix_ms > 0, "{first:?}, {second:?}");
    let server = start_at(held, redis_command);
    Write.is_done_again(&mut client, b"k");
    shows(&socket, None, "");
    server.freeze();
    shows(&socket, Some(BackendState::Slow), "");
    server.thaw();
    shows(&socket, None, "");
    let mut operator = Outsider::of(&server);
    operator.command("CONFIG SET maxmemory 1");
    is_refused(&mut client, Write, b"k", "OOM ");
    shows(&socket, Some(BackendState::Refuses), "OOM command not allowed when used memory");
    operator.command("REPLICAOF 127.0.0.1 1");
    let demoted = shows(&socket, away, "").unwrap();
    assert!(demoted.words.contains("replica of 127.0.0.1:1"), "{demoted:?}");
}

#[test]
fn a_redis_that_was_slow_at_the_start_is_tracked_all_the_same() {
    let server = redis();
    Outsider::of(&server).command("SET k v");
    server.freeze();
    let config = Config { backend_within: Duration::from_secs(1), ..over(address(&server)) };
    let store = StoreThread::start(config);
    let mut client = Client::to(store.address);
    let said = is_refused(&mut client, Read, b"k", "TRYAGAIN ");
    assert!(said.contains(&address(&server)), "{said}");
    server.thaw();
    assert_eq!(Switch::to(store.address).copy(b"k"), b"v");
}

#[test]
fn a_redis_that_refuses_to_track_from_some_day_on_is_served_from_without_copies() {
    let server = redis();
    let mut operator = Outsider::of(&server);
    let kill = "CLIENT KILL TYPE normal SKIPME yes";
    let store = store_over(&server);
    let mut client = Client::to(store.address);
    let mut switch = Switch::to(store.address);
    Write.is_done_again(&mut client, b"k");
    for round in 0..3 {
        assert_eq!(switch.copy(b"k"), b"v", "round {round}");
        operator.command("ACL SETUSER default -client|tracking");
        operator.command(kill);
        switch.loses(b"k", "tracking was refused");
        Write.is_done_again(&mut client, b"k");
        assert_eq!(client.read_padded(b"k", ROOM).value, b"v");
        switch.lease();
        let (header, value) = switch.fetch(b"k");
        assert_eq!((header.status, &value[..]), (Status::Ok, &b"v"[..]));
        assert!(!header.flags.has(Flags::GRANT), "nothing tells of outside writes");
        operator.command("ACL SETUSER default +client|tracking");
        operator.command(kill);
    }
}

#[test]
fn a_redis_that_knows_no_hello_is_served_from_without_copies() {
    let server = redis_with(&["--rename-command", "HELLO", ""]);
    let store = store_over(&server);
    let mut client = Client::to(store.address);
    Write.is_done_again(&mut client, b"k");
    let mut switch = Switch::to(store.address);
    switch.lease();
    let (header, value) = switch.fetch(b"k");
    assert_eq!((header.status, &value[..]), (Status::Ok, &b"v"[..]));
    assert!(!header.flags.has(Flags::GRANT), "nothing tells of outside writes");
}

#[test]
fn a_demoted_redis_is_left_for_its_master() {
    let (first, second) = (redis(), redis());
    let (mut of_first, mut of_second) = (Outsider::of(&first), Outsider::of(&second));
    let store = store_over(&first);
    let mut client = Client::to(store.address);
    let mut switch = Switch::to(store.address);
    Write.is_done_again(&mut client, b"k");
    assert_eq!(switch.copy(b"k"), b"v");
    // Nobody tells the store, and it is not asked for anything.
    of_second.command("SET k newer");
    of_first.command(&format!("REPLICAOF 127.0.0.1 {}", second.port));
    switch.loses(b"k", "its server is a replica");
    Write.is_done_again(&mut client, b"other");
    assert_eq!(of_second.command("GET other"), "$1\r\nv\r\n", "written at the master");
    assert_eq!(switch.copy(b"k"), b"newer");
    // And back.
    of_first.command("REPLICAOF NO ONE");
    of_second.command(&format!("REPLICAOF 127.0.0.1 {}", first.port));
    of_first.command("SET k newest");
    switch.loses(b"k", "the other is a replica now");
    assert_eq!(switch.copy(b"k"), b"newest");
}

#[test]
fn of_a_replica_whose_master_is_away_nothing_is_served_or_granted() {
    // Nobody answers there.
    let away = port::held();
    let of_it = format!("is a replica of 127.0.0.1:{}", away.number);
    let server = redis();
    let mut operator = Outsider::of(&server);
    let store = store_over(&server);
    let mut client = Client::to(store.address);
    let mut switch = Switch::to(store.address);
    Write.is_done_again(&mut client, b"k");
    assert_eq!(switch.copy(b"k"), b"v");
    operator.command(&format!("REPLICAOF 127.0.0.1 {}", away.number));
    switch.loses(b"k", "its server is a replica");
    for request in [Read, Write, Delete] {
        let said = is_refused(&mut client, request, b"k", "TRYAGAIN Redis at ");
        assert!(said.contains(&of_it), "{said}");
    }
    let (header, _) = switch.fetch(b"k");
    assert_eq!((header.status, header.flags), (Status::BackendError, Flags::NONE));
    operator.command("REPLICAOF NO ONE");
    assert_eq!(switch.copy(b"k"), b"v");
}

#[test]
fn the_master_is_looked_for_at_every_address_that_is_given() {
    let (first, second) = (redis(), redis());
    Outsider::of(&first).command(&format!("REPLICAOF 127.0.0.1 {}", second.port));
    let addresses = format!("{},redis://{}", address(&first), address(&second));
    // A write that is in doubt holds its key for a lease.
    let cluster = support::with_short_leases().cluster;
    let store = StoreThread::start(Config { cluster, ..over(addresses) });
    let mut client = Client::to(store.address);
    Write.is_done_again(&mut client, b"k");
    assert_eq!(Outsider::of(&second).command("GET k"), "$1\r\nv\r\n");
    // The master dies, and the other takes its place.
    drop(second);
    Outsider::of(&first).command("REPLICAOF NO ONE");
    Write.is_done_again(&mut client, b"k");
    assert_eq!(Outsider::of(&first).command("GET k"), "$1\r\nv\r\n");
}
