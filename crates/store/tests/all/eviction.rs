//! Real servers that are full, and a key that only a switch reads: it stays, beside cold writes
//! that take the place of everything else.
//!
//! The test plays the switch. What it waits for are evictions that the server counts, and marks
//! that the store counts.

use std::{
    io::{BufRead, BufReader, Write},
    net::TcpStream,
    time::Instant,
};

use store::{BackendConfig, Config, OutsideWrites};

use super::support::{
    self, Client, PATIENCE, StoreThread,
    others::{Outsider, Switch},
    servers::{Process, memcached_with, redis, redis_command, start_at},
};

/// What Redis counts as the uses of a key that is new.
const NEW_KEYS_USES: u64 = 5;
/// Bytes of the values that are written beside the hot key, and in memcached of its own.
const COLD_BYTES: usize = 400;

fn store_over(backend: &str) -> StoreThread {
    StoreThread::start(Config {
        backend: backend.parse::<BackendConfig>().unwrap(),
        outside_writes: OutsideWrites::Track,
        ..support::loopback()
    })
}

/// A number of INFO.
fn info(redis: &mut Outsider, section: &str, name: &str) -> u64 {
    let text = redis.command(&format!("INFO {section}"));
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    value.unwrap_or_else(|| panic!("{name} in {text:?}")).trim().parse().unwrap()
}

/// How often a command was called before this.
fn calls(redis: &mut Outsider, command: &str) -> u64 {
    let text = redis.command("INFO commandstats");
    let name = format!("cmdstat_{command}:calls=");
    let line = text.lines().find_map(|line| line.strip_prefix(&name[..]));
    line.map_or(0, |line| line.split(',').next().unwrap().parse().unwrap())
}

/// Redis with little room for what is written, and a switch that holds a copy of `hot`.
fn full_redis(policy: &str) -> (Process, StoreThread, Switch, Outsider) {
    let server = redis();
    let mut other = Outsider::of(&server);
    let most = info(&mut other, "memory", "used_memory") + 2_000_000;
    for line in [
        format!("CONFIG SET maxmemory {most}"),
        format!("CONFIG SET maxmemory-policy {policy}"),
        // The oldest, and not one that is old.
        "CONFIG SET maxmemory-samples 64".into(),
    ] {
        assert_eq!(other.command(&line), "+OK\r\n", "{line}");
    }
    let store = store_over(&format!("redis://127.0.0.1:{}", server.port));
    assert_eq!(other.command("SET hot v"), "+OK\r\n");
    let mut switch = Switch::to(store.address);
    assert_eq!(switch.copy(b"hot"), b"v");
    (server, store, switch, other)
}

/// Writes cold keys, and reads each so often, until so many have been evicted; the number of the
/// next one.
fn write_until_evicted(redis: &mut Outsider, evicted: u64, mut next: u64, reads: u64) -> u64 {
    let value = "x".repeat(COLD_BYTES);
    while info(redis, "stats", "evicted_keys") < evicted {
        for _ in 0..100 {
            assert_eq!(redis.command(&format!("SET cold{next} {value}")), "+OK\r\n");
            (0..reads).for_each(|_| _ = redis.command(&format!("STRLEN cold{next}")));
            next += 1;
        }
    }
    next
}

/// The switch tells again and again that it has read the key, until Redis was told.
fn read_at_the_switch(switch: &mut Switch, redis: &mut Outsider) {
    let (before, deadline) = (calls(redis, "touch"), Instant::now() + PATIENCE);
    while calls(redis, "touch") == before {
        switch.lease();
        switch.tell_reads(b"hot", 10_000);
        assert!(Instant::now() < deadline, "Redis is not told");
    }
}

#[test]
fn a_full_redis_keeps_what_switches_read() {
    for policy in ["allkeys-lru", "allkeys-lfu"] {
        let (_server, _store, mut switch, mut redis) = full_redis(policy);
        let value = "x".repeat(COLD_BYTES);
        for n in 0..2_000 {
            assert_eq!(redis.command(&format!("SET cold{n} {value}")), "+OK\r\n");
        }
        assert_eq!(info(&mut redis, "stats", "evicted_keys"), 0);
        let connections = info(&mut redis, "stats", "total_connections_received");
        let (mut next, mut evicted) = (2_000, 0);
        // Some times everything that there is room for.
        for _ in 0..4 {
            read_at_the_switch(&mut switch, &mut redis);
            // Redis's clock of uses goes by the second: what was written before has to be older in
            // its eyes, too, or the key of the switch is one of many that are all as old.
            let newest = format!("OBJECT IDLETIME cold{}", next - 1);
            while policy == "allkeys-lru"
                && [":0\r\n", ":1\r\n"].contains(&&redis.command(&newest)[..])
            {
                read_at_the_switch(&mut switch, &mut redis);
            }
            // When all that is older has gone, what was read before is the oldest: on a machine
            // that is slow by the seconds in which the others were written.
            for _ in 0..2 {
                evicted += 1_000;
                next = write_until_evicted(&mut redis, evicted, next, 0);
                assert_eq!(redis.command("EXISTS hot"), ":1\r\n", "{policy}: {evicted} evicted");
                read_at_the_switch(&mut switch, &mut redis);
            }
        }
        if policy == "allkeys-lru" {
            assert_eq!(redis.command("EXISTS cold0"), ":0\r\n");
        }
        let now = info(&mut redis, "stats", "total_connections_received");
        assert_eq!(now, connections, "{policy}: marks alone are no reason to connect anew");
    }
}

#[test]
fn a_full_redis_evicts_what_nobody_reads() {
    // It is what happened to the hottest key of all as long as nobody told Redis.
    for policy in ["allkeys-lru", "allkeys-lfu"] {
        let (_server, _store, _switch, mut redis) = full_redis(policy);
        let deadline = Instant::now() + PATIENCE;
        let (mut next, mut evicted) = (0, 0);
        // Redis counts a use only now and then, and forgets one a minute. Others have one more than
        // the key has had.
        let reads = match policy {
            "allkeys-lfu" => {
                assert_eq!(redis.command("CONFIG SET lfu-log-factor 0"), "+OK\r\n");
                let uses = redis.command("OBJECT FREQ hot");
                let uses: u64 = uses.trim().trim_start_matches(':').parse().unwrap();
                (uses + 1).saturating_sub(NEW_KEYS_USES)
            }
            _ => 0,
        };
        while redis.command("EXISTS hot") == ":1\r\n" {
            evicted += 500;
            next = write_until_evicted(&mut redis, evicted, next, reads);
            assert!(Instant::now() < deadline, "{policy}: {evicted} evicted, and it is there");
        }
    }
}

#[test]
fn a_redis_whose_policy_asks_for_no_use_is_told_of_none() {
    let (_server, _store, mut switch, mut redis) = full_redis("volatile-ttl");
    let deadline = Instant::now() + PATIENCE;
    let (before, mut own) = (calls(&mut redis, "info"), 1);
    // The store has looked at the policy when more asked for INFO than this test.
    while calls(&mut redis, "info") <= before + own {
        own += 1;
        switch.lease();
        switch.tell_reads(b"hot", 10_000);
        assert!(Instant::now() < deadline, "the store does not look at the policy");
    }
    assert_eq!(calls(&mut redis, "touch"), 0);
}

#[test]
fn a_redis_that_lets_nobody_touch_is_asked_and_goes_on() {
    let server = start_at(lab::port::held(), |port, directory| {
        let mut command = redis_command(port, directory);
        command.args(["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"]);
        command.args(["--rename-command", "TOUCH", ""]);
        command
    });
    let mut redis = Outsider::of(&server);
    assert_eq!(redis.command("SET hot v"), "+OK\r\n");
    let store = store_over(&format!("redis://127.0.0.1:{}", server.port));
    let mut switch = Switch::to(store.address);
    assert_eq!(switch.copy(b"hot"), b"v");
    let deadline = Instant::now() + PATIENCE;
    let refused = |redis: &mut Outsider| info(redis, "stats", "total_error_replies");
    let before = refused(&mut redis);
    while refused(&mut redis) == before {
        switch.lease();
        switch.tell_reads(b"hot", 10_000);
        assert!(Instant::now() < deadline, "the store does not ask");
    }
    assert_eq!(Client::to(store.address).read(b"hot").value, b"v");
}

/// A client of a memcached.
struct Memcached(BufReader<TcpStream>);

impl Memcached {
    fn of(server: &Process) -> Memcached {
        let stream = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Memcached(BufReader::new(stream))
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        line.trim_end().into()
    }

    fn command(&mut self, line: &str) -> String {
        self.0.get_mut().write_all(format!("{line}\r\n").as_bytes()).unwrap();
        self.line()
    }

    fn stat(&mut self, name: &str) -> u64 {
        let mut line = self.command("stats");
        let mut found = None;
        while line != "END" {
            let value = line.strip_prefix("STAT ").and_then(|line| line.strip_prefix(name));
            found = found.or(value.and_then(|value| value.trim().parse().ok()));
            line = self.line();
        }
        found.unwrap_or_else(|| panic!("no {name}"))
    }

    /// Writes a key; its value has as many bytes as those of all others.
    fn set(&mut self, key: &str) {
        let value = "x".repeat(COLD_BYTES);
        assert_eq!(self.command(&format!("set {key} 0 0 {COLD_BYTES}\r\n{value}")), "STORED");
    }
}

#[test]
fn a_full_memcached_keeps_what_switches_read_and_evicts_the_rest() {
    // Where it moves pages between classes of values it asks no key for its use.
    let server = memcached_with(&["-m", "4", "-o", "slab_automove=0"]);
    let mut memcached = Memcached::of(&server);
    let store = store_over(&format!("memcached://127.0.0.1:{}", server.port));
    let (mut next, mut evicted) = (0, 1);
    while memcached.stat("evictions ") < evicted {
        memcached.set(&format!("cold{next}"));
        next += 1;
    }
    memcached.set("hot");
    memcached.set("cold");
    let mut switch = Switch::to(store.address);
    assert_eq!(switch.copy(b"hot").len(), COLD_BYTES);
    for _ in 0..8 {
        // The switch tells that it has read the key, until memcached was told.
        let (before, deadline) = (memcached.stat("cmd_get "), Instant::now() + PATIENCE);
        while memcached.stat("cmd_get ") == before {
            switch.lease();
            switch.tell_reads(b"hot", 10_000);
            assert!(Instant::now() < deadline, "memcached is not told");
        }
        evicted += 2_000;
        while memcached.stat("evictions ") < evicted {
            for _ in 0..100 {
                memcached.set(&format!("cold{next}"));
                next += 1;
            }
        }
    }
    assert!(memcached.command("mg cold").starts_with("EN"));
    assert!(memcached.command("mg hot").starts_with("HD"), "after {next} cold writes");
}
