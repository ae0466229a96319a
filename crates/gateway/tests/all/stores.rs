//! Real stores before real Redis servers, found by what the cluster file says.

use std::net::{SocketAddr, TcpStream};

use gateway::NetworkUse;
use wire::{Cluster, KeyPlaces, Secret, Store, TENANT_OPEN, Tenant, partition_of};

use crate::{
    store_thread::StoreThread,
    support::{Config, Gateway, Redis, Speaker, config, until},
};

pub const TENANT_SECRET: &str = "000102030405060708090a0b0c0d0e0f";

/// Two stores, each before a Redis of its own.
pub struct Rack {
    pub stores: [StoreThread; 2],
    pub redis: [Redis; 2],
    of_stores: Cluster,
}

impl Rack {
    pub fn start() -> Rack {
        Rack::in_database(0)
    }

    /// The stores' data is in this database of each Redis.
    fn in_database(number: u32) -> Rack {
        let names: [SocketAddr; 2] = [([10, 9, 9, 1], 7117).into(), ([10, 9, 9, 2], 7117).into()];
        let part = |at: u32, address| Store::new(address, at, at);
        let tenants = vec![Tenant::new(7, TENANT_SECRET)];
        let of_stores = Cluster {
            stores: vec![part(0, names[0]), part(1, names[1])],
            tenants,
            ..Cluster::single(names[0], 2)
        };
        let redis = [0, 1].map(|_| Redis::start(&[]));
        let stores = [0, 1].map(|at| {
            let url = format!("{}?db={number}", redis[at].url());
            StoreThread::start(of_stores.clone(), Some(names[at]), &url)
        });
        Rack { stores, redis, of_stores }
    }

    pub fn config(&self) -> Config {
        let of_gateway = self.of_stores.stores.iter().zip(&self.stores).map(|(of, store)| Store {
            address: store.address,
            resp: store.port.map(|resp| format!("redis://{resp}")),
            ..of.clone()
        });
        let cluster = Cluster { stores: of_gateway.collect(), ..self.of_stores.clone() };
        Config { resp: vec![], cluster, ..config("redis://127.0.0.1:1") }
    }

    /// As if there were the first store only, whose keys the test is about.
    pub fn config_of_first(&self) -> Config {
        let config = self.config();
        let first = &config.cluster.stores[0];
        let resp = first.resp.clone().unwrap().parse().unwrap();
        let stores = vec![Store::new(first.address, first.first, 1)];
        let cluster = Cluster { stores, ..config.cluster.clone() };
        Config { cluster, resp: vec![resp], ..config }
    }
}

/// Keys of which each is another store's.
pub fn keys(secret: Secret, tenant: u32) -> [String; 2] {
    [0, 1].map(|store| {
        let of_store =
            |key: &String| partition_of(secret.key_hash(tenant, key.as_bytes()), 2) == store;
        (0..).map(|at| format!("k{at}")).find(of_store).unwrap()
    })
}

/// Reads a key until it is read by the network, for which there is no answer in time where the
/// machine stands still; every answer is this one.
fn read_by_network(gateway: &Gateway, client: &mut Speaker<TcpStream>, key: &str, value: &str) {
    until("it is read by the network", || {
        let before = gateway.counter("network_reads");
        assert_eq!(client.ask(&format!("GET {key}")), value);
        gateway.counter("network_reads") > before
    });
}

/// Writes as soon as stores and their Redis servers have greeted one another, for which a machine
/// that stands still takes longer than they wait.
fn written(client: &mut Speaker<TcpStream>, line: &str) {
    until("it is written", || {
        let said = client.ask(line);
        let is_late = said.starts_with("-TRYAGAIN ") || said.starts_with("-ERR outcome unknown");
        assert!(is_late || said == "+OK\r\n", "{said}");
        !is_late
    });
}

#[test]
fn the_network_and_the_resp_ports_lead_to_the_same_stores() {
    let rack = Rack::start();
    let gateway = Gateway::start(Config { network: NetworkUse::Always, ..rack.config() });
    let mut client = gateway.speak();
    let [a, b] = keys(Secret::NONE, TENANT_OPEN);
    written(&mut client, &format!("MSET {a} 1 {b} 2"));
    for round in 2..20 {
        for (key, more) in [(&a, 0), (&b, 1)] {
            let number = (round + more).to_string();
            assert_eq!(client.ask(&format!("INCR {key}")), format!(":{number}\r\n"));
            let said = format!("${}\r\n{number}\r\n", number.len());
            assert_eq!(client.ask(&format!("GET {key}")), said);
        }
    }
    // The first of each store goes before it is known that the gateway may read every key there.
    assert!(gateway.counter("network_reads") <= 34);
    for (key, last) in [(&a, "19"), (&b, "20")] {
        read_by_network(&gateway, &mut client, key, &format!("$2\r\n{last}\r\n"));
    }
    for (redis, key) in rack.redis.iter().zip([&a, &b]) {
        assert_eq!(redis.speak().ask(&format!("EXISTS {key}")), ":1\r\n");
        assert_eq!(redis.speak().ask("DBSIZE"), ":1\r\n");
    }
}

/// Many more than find room at a time in what such values have of its memory.
#[test]
fn values_that_no_packet_holds_are_read_by_the_network() {
    const READS: u64 = 100;
    let rack = Rack::start();
    let mut config = Config { network: NetworkUse::Always, ..rack.config() };
    config.limits.memory_bytes = 1 << 20;
    let gateway = Gateway::start(config);
    let mut client = gateway.speak();
    let value = "v".repeat(20_000);
    let said = format!("${}\r\n{value}\r\n", value.len());
    for key in keys(Secret::NONE, TENANT_OPEN) {
        written(&mut client, &format!("SET {key} {value}"));
        for _ in 0..READS {
            read_by_network(&gateway, &mut client, &key, &said);
        }
    }
}

/// It takes Redis milliseconds to say what commands it has.
#[test]
fn of_many_event_loops_one_asks_what_commands_there_are() {
    until("each is answered", || {
        let rack = Rack::start();
        let gateway = Gateway::start(Config { threads: 4, ..rack.config() });
        let mut clients = vec![];
        for _ in 0..32 {
            let mut client = gateway.speak();
            let said = client.ask("ECHO here");
            // Who did not answer in time is asked again.
            if said.starts_with("-TRYAGAIN ") {
                return false;
            }
            assert_eq!(said, "$4\r\nhere\r\n");
            clients.push(client);
        }
        let told = rack.redis[0].speak().ask("INFO commandstats");
        assert!(told.contains("cmdstat_command:calls=2,"), "the store asks once, too: {told}");
        true
    });
}

#[test]
fn a_tenant_s_keys_are_the_same_by_the_network_and_by_the_resp_ports() {
    let rack = Rack::start();
    let secret = Tenant::new(7, TENANT_SECRET).secrets(&KeyPlaces::Anywhere).hash.seed();
    let keys = keys(secret, 7);
    for network in [NetworkUse::Always, NetworkUse::Never] {
        let gateway = Gateway::start(Config { network, tenant: 7, ..rack.config() });
        let mut client = gateway.speak();
        let [a, b] = &keys;
        written(&mut client, &format!("MSET {a} 1 {b} 2"));
        assert_eq!(client.ask(&format!("MGET {b} {a}")), "*2\r\n$1\r\n2\r\n$1\r\n1\r\n");
        let named = keys.each_ref().map(|key| format!("GET shortstop:7:{key}"));
        for ((key, named), redis) in keys.iter().zip(&named).zip(&rack.redis) {
            assert!(client.ask(&format!("INCR {key}")).starts_with(':'));
            let named = redis.speak().ask(named);
            for _ in 0..2 {
                assert_eq!(client.ask(&format!("GET {key}")), named);
            }
            assert_eq!(redis.speak().ask("DBSIZE"), ":1\r\n");
        }
        let most = if network == NetworkUse::Always { 2 } else { 0 };
        assert!(gateway.counter("network_reads") <= most);
        for ((key, named), redis) in keys.iter().zip(&named).zip(&rack.redis) {
            if network == NetworkUse::Always {
                read_by_network(&gateway, &mut client, key, &redis.speak().ask(named));
            }
        }
    }
}

#[test]
fn a_client_that_comes_back_from_another_database_is_in_that_of_the_store() {
    let rack = Rack::in_database(3);
    let gateway = Gateway::start(rack.config_of_first());
    let mut client = gateway.speak();
    let [key, _] = keys(Secret::NONE, TENANT_OPEN);
    written(&mut client, &format!("SET {key} first"));
    for line in ["SELECT 1", "SELECT 0", "MULTI"] {
        assert_eq!(client.ask(line), "+OK\r\n", "{line}");
    }
    assert_eq!(client.ask(&format!("SET {key} second")), "+QUEUED\r\n");
    assert_eq!(client.ask("EXEC"), "*1\r\n+OK\r\n");
    assert_eq!(client.ask(&format!("GET {key}")), "$6\r\nsecond\r\n");
    assert_eq!(rack.redis[0].speak().ask(&format!("EXISTS {key}")), ":0\r\n");
}
