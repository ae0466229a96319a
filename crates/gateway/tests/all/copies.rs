//! Copies that the gateway keeps: real stores before real Redis servers, and whoever else writes.

use std::time::Duration;

use client::{Client, Options, Seal};
use gateway::NetworkUse;
use tokio::runtime::Runtime;
use wire::{KeyPlaces, Secret, TENANT_OPEN, Tenant};

use crate::{
    stores::{Rack, TENANT_SECRET, keys},
    support::{Config, Gateway, PATIENCE, Speaker, command, until},
};

const CACHE: usize = 8 << 20;

/// As long as the stores' own. A write of the client library takes no longer than its cluster's
/// leases allow, and is in doubt then.
const LEASE_MS: u32 = 60_000;

/// A client of the library that waits also for a machine that stands still.
fn patient() -> Options {
    Options { deadline: PATIENCE, ..Options::default() }
}

fn caching(rack: &Rack) -> Config {
    Config { cache_bytes: CACHE, ..rack.config() }
}

fn bulk(value: &str) -> String {
    format!("${}\r\n{value}\r\n", value.len())
}

/// Reads a key until the gateway answers by itself; every answer is this one.
fn warm(
    gateway: &Gateway,
    client: &mut Speaker<impl std::io::Read + std::io::Write>,
    key: &str,
    value: &str,
) {
    let before = gateway.counter("local_hits");
    until("the gateway keeps the key", || {
        assert_eq!(client.ask(&format!("GET {key}")), bulk(value));
        gateway.counter("local_hits") > before
    });
}

#[test]
fn no_way_to_write_a_key_leaves_a_copy_behind() {
    let rack = Rack::start();
    let secret = Tenant::new(7, TENANT_SECRET).secrets(&KeyPlaces::Anywhere).hash.seed();
    for (tenant, secret) in [(TENANT_OPEN, Secret::NONE), (7, secret)] {
        for network in [NetworkUse::Never, NetworkUse::Hot] {
            let of_tenant = || Config { tenant, network, ..caching(&rack) };
            let gateway = Gateway::start(of_tenant());
            let other = Gateway::start(Config { cache_bytes: 0, ..of_tenant() });
            let (mut client, mut writer) = (gateway.speak(), other.speak());
            for key in keys(secret, tenant) {
                let get = format!("GET {key}");
                assert_eq!(writer.ask(&format!("SET {key} first")), "+OK\r\n");
                warm(&gateway, &mut client, &key, "first");
                // By a store's RESP port.
                assert_eq!(writer.ask(&format!("APPEND {key} more")), ":9\r\n");
                assert_eq!(client.ask(&get), bulk("firstmore"));
                warm(&gateway, &mut client, &key, "firstmore");
                // By a packet.
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
                runtime.unwrap().block_on(async {
                    let cluster = rack.config().cluster.with_lease_ms(LEASE_MS);
                    let by_packets = Client::connect(&cluster, tenant, patient());
                    let by_packets = by_packets.await.unwrap();
                    by_packets.set(key.as_bytes(), b"by a packet", None).await.unwrap();
                });
                assert_eq!(client.ask(&get), bulk("by a packet"));
                warm(&gateway, &mut client, &key, "by a packet");
                // By the gateway itself, in one pipeline.
                let set = format!("SET {key} own");
                let pipeline = [&get, &set, &get].map(|line| command(line)).concat();
                client.say(&pipeline);
                assert_eq!(client.answer(), bulk("by a packet"));
                assert_eq!(client.answer(), "+OK\r\n");
                assert_eq!(client.answer(), bulk("own"));
                warm(&gateway, &mut client, &key, "own");
                assert_eq!(writer.ask(&format!("DEL {key}")), ":1\r\n");
                assert_eq!(client.ask(&get), "$-1\r\n");
            }
            assert!(gateway.counter("local_invalidations") >= 8);
        }
    }
}

#[test]
fn what_others_write_in_redis_ends_a_copy_too() {
    let rack = Rack::start();
    let gateway = Gateway::start(caching(&rack));
    let mut client = gateway.speak();
    let keys = keys(Secret::NONE, TENANT_OPEN);
    for (key, redis) in keys.iter().zip(&rack.redis) {
        assert_eq!(client.ask(&format!("SET {key} v1")), "+OK\r\n");
        warm(&gateway, &mut client, key, "v1");
        assert_eq!(redis.speak().ask(&format!("SET {key} v2")), "+OK\r\n");
        until("the store hears of it", || client.ask(&format!("GET {key}")) == bulk("v2"));
        warm(&gateway, &mut client, key, "v2");
        assert_eq!(redis.speak().ask("FLUSHALL"), "+OK\r\n");
        until("the store hears of it", || client.ask(&format!("GET {key}")) == "$-1\r\n");
    }
}

#[test]
fn a_value_of_many_packets_is_kept_whole() {
    let rack = Rack::start();
    let gateway = Gateway::start(caching(&rack));
    let mut client = gateway.speak();
    let value: String = (0..20_000).map(|at| format!("{at},")).collect();
    for key in keys(Secret::NONE, TENANT_OPEN) {
        assert_eq!(client.ask(&format!("SET {key} {value}")), "+OK\r\n");
        warm(&gateway, &mut client, &key, &value);
    }
}

/// The key's value is longer than what a client may have of what all do.
#[test]
fn what_is_answered_at_once_is_sent_or_counted_before_more_is() {
    const EACH: usize = 40;
    let rack = Rack::start();
    let mut config = Config { cache_bytes: 64 << 20, ..rack.config() };
    config.limits.memory_bytes = 4 << 20;
    let gateway = Gateway::start(config);
    let value = "v".repeat(1 << 20);
    let key = &keys(Secret::NONE, TENANT_OPEN)[0];
    let mut client = gateway.speak();
    // By pieces: a command may be as long as half of what all may hold.
    assert_eq!(client.ask(&format!("SET {key} {value}")), "+OK\r\n");
    warm(&gateway, &mut client, key, &value);
    let mut silent = gateway.speak();
    assert_eq!(silent.ask("PING"), "+PONG\r\n");
    let before = gateway.counter("local_hits");
    silent.say(&command(&format!("GET {key}")).repeat(EACH));
    until("it is sent away", || gateway.counter("memory_refusals") > 0);
    // The system's buffers take some of it.
    let hits = gateway.counter("local_hits") - before;
    assert!(hits < 20, "{hits} answers of a MiB were written for one who reads none");
}

#[test]
fn what_is_asked_about_a_value_is_answered_from_its_copy_as_redis_does() {
    let rack = Rack::start();
    let gateway = Gateway::start(caching(&rack));
    let mut client = gateway.speak();
    for (key, redis) in keys(Secret::NONE, TENANT_OPEN).iter().zip(&rack.redis) {
        assert_eq!(client.ask(&format!("SET {key} a_value")), "+OK\r\n");
        warm(&gateway, &mut client, key, "a_value");
        let copied = ["EXISTS", "STRLEN", "TYPE", "GETRANGE 1 -2", "SUBSTR -3 99"];
        let wrong = ["GETRANGE x 1", "GETRANGE +0 1", "GETRANGE 007 9", "GETRANGE -0 1"];
        for ask in copied.into_iter().chain(wrong) {
            let (name, rest) = ask.split_once(' ').unwrap_or((ask, ""));
            let line = format!("{name} {key} {rest}");
            let from_redis = redis.speak().ask(line.trim());
            let mut is_from_copy = || {
                let before = gateway.counter("local_hits");
                assert_eq!(client.ask(line.trim()), from_redis, "{line}");
                gateway.counter("local_hits") > before
            };
            match wrong.contains(&ask) {
                true => assert!(!is_from_copy(), "{line}"),
                false => until(&line, is_from_copy),
            }
        }
    }
}

#[test]
fn a_copy_of_what_expires_expires() {
    let rack = Rack::start();
    let gateway = Gateway::start(caching(&rack));
    let mut client = gateway.speak();
    for key in keys(Secret::NONE, TENANT_OPEN) {
        let before = gateway.counter("local_hits");
        until("a copy is kept before it expires", || {
            assert_eq!(client.ask(&format!("SET {key} v PX 1000")), "+OK\r\n");
            until("it expires", || client.ask(&format!("GET {key}")) == "$-1\r\n");
            gateway.counter("local_hits") > before
        });
        assert_eq!(client.ask(&format!("EXISTS {key}")), ":0\r\n");
    }
}

#[test]
fn inside_a_transaction_and_in_another_database_nothing_is_answered_from_copies() {
    let rack = Rack::start();
    let gateway = Gateway::start(Config { cache_bytes: CACHE, ..rack.config_of_first() });
    let [key, _] = keys(Secret::NONE, TENANT_OPEN);
    let (mut client, mut other) = (gateway.speak(), gateway.speak());
    assert_eq!(client.ask(&format!("SET {key} v")), "+OK\r\n");
    warm(&gateway, &mut client, &key, "v");
    let before = gateway.counter("local_hits");
    assert_eq!(client.ask(&format!("WATCH {key}")), "+OK\r\n");
    assert_eq!(client.ask(&format!("GET {key}")), bulk("v"));
    assert_eq!(client.ask("MULTI"), "+OK\r\n");
    assert_eq!(client.ask(&format!("GET {key}")), "+QUEUED\r\n");
    assert_eq!(client.ask("EXEC"), format!("*1\r\n{}", bulk("v")));
    assert_eq!(other.ask("SELECT 3"), "+OK\r\n");
    assert_eq!(other.ask(&format!("GET {key}")), "$-1\r\n");
    assert_eq!(gateway.counter("local_hits"), before);
    warm(&gateway, &mut client, &key, "v");
}

/// Reads a key until the client answers from a copy of its own; every answer is this one.
fn warm_client(runtime: &Runtime, client: &Client, key: &str, value: &str) -> client::Value {
    let mut last = None;
    until("the client keeps the key", || {
        let found = runtime.block_on(client.get(key)).expect("an answer").expect("a value");
        assert_eq!(found.bytes, value);
        last.insert(found).from_copy
    });
    last.expect("it was read")
}

#[test]
fn a_client_with_copies_of_its_own_reads_nothing_old() {
    let rack = Rack::start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let cluster = rack.config().cluster.with_lease_ms(LEASE_MS);
    let seals = [None, Some(Seal::new([0x5a; 32]))];
    for seal in seals {
        let options = |cache| Options { cache, seal: seal.clone(), ..patient() };
        let client =
            runtime.block_on(Client::connect(&cluster, TENANT_OPEN, options(CACHE))).unwrap();
        let writer = runtime.block_on(Client::connect(&cluster, TENANT_OPEN, options(0))).unwrap();
        for key in ["local 1", "local 2", "local 3"] {
            let first = runtime.block_on(writer.set(key, "first", None)).unwrap();
            let found = warm_client(&runtime, &client, key, "first");
            assert_eq!((found.version, found.expires_in), (first, None));
            let life = Duration::from_secs(3600);
            let second = runtime.block_on(writer.set(key, "second", Some(life))).unwrap();
            let found = runtime.block_on(client.get(key)).unwrap().unwrap();
            assert_eq!((&found.bytes[..], found.version), (&b"second"[..], second));
            let found = warm_client(&runtime, &client, key, "second");
            assert!(found.expires_in.is_some_and(|left| left <= life && left > life / 2));
            let about = runtime.block_on(client.about(key)).unwrap().unwrap();
            assert_eq!((about.version, about.from_copy), (second, true));
            // Its own write, and a removal.
            runtime.block_on(client.set(key, "own", None)).unwrap();
            let found = warm_client(&runtime, &client, key, "own");
            assert!(found.version > second);
            assert!(runtime.block_on(writer.delete(key)).unwrap());
            assert_eq!(runtime.block_on(client.get(key)).unwrap(), None);
        }
        let counts = client.counts();
        assert!(counts.local_hits >= 9 && counts.local_invalidations >= 9, "{counts:?}");
        assert_eq!(writer.counts().local_hits, 0);
    }
}
