//! Clients that keep a cache of their own (CLIENT TRACKING), before several stores and before the
//! slots of a Redis Cluster.

use std::{
    collections::HashSet,
    io::{ErrorKind, Read},
    net::{SocketAddr, TcpStream},
};

use wire::{CLUSTER_SLOTS, Cluster, Scheme, Store, cluster_slot};

use crate::support::{Config, Gateway, Redis, Speaker, command, config, until};

/// Servers that have as many of the slots each, and a gateway to them.
struct Rack<const SERVERS: usize = 2> {
    servers: [Redis; SERVERS],
    gateway: Gateway,
    config: Config,
}

impl<const SERVERS: usize> Rack<SERVERS> {
    fn start() -> Self {
        let servers = std::array::from_fn(|_| Redis::start(&[]));
        let each = CLUSTER_SLOTS / SERVERS as u32;
        let (mut stores, mut resp) = (vec![], vec![]);
        for (server, at) in servers.iter().zip(0..) {
            let address = ([127, 0, 0, 1], 1 + at as u16).into();
            let (first, last) = (at * each, (at + 1) * each - 1);
            stores.push(Store::new(address, first, last));
            resp.push(format!("{first}-{last}={}", Redis::url(server)).parse().unwrap());
        }
        let single = Cluster::single(([127, 0, 0, 1], 1).into(), CLUSTER_SLOTS);
        let cluster = Cluster { scheme: Scheme::RedisCluster, stores, ..single };
        let config = Config { cluster, resp, ..config(&servers[0].url()) };
        Rack { servers, gateway: Gateway::start(config.clone()), config }
    }

    /// A client that speaks RESP3 and has said this.
    fn speak(&self, said: &str) -> Speaker<TcpStream> {
        let mut client = self.gateway.speak();
        assert!(client.ask("HELLO 3").starts_with('%'));
        assert_eq!(client.ask(said), "+OK\r\n");
        client
    }
}

/// Of each store a key.
fn keys() -> [String; 2] {
    [0, 1].map(|store| {
        let of_store = |key: &String| cluster_slot(key.as_bytes()) / (CLUSTER_SLOTS / 2) == store;
        (0..).map(|at| format!("k{at}")).find(of_store).unwrap()
    })
}

fn invalidation(key: &str) -> String {
    format!(">2\r\n$10\r\ninvalidate\r\n*1\r\n${}\r\n{key}\r\n", key.len())
}

fn bulk(value: &str) -> String {
    format!("${}\r\n{value}\r\n", value.len())
}

#[test]
fn a_cache_of_a_client_is_kept_true_by_all_stores() {
    let rack: Rack = Rack::start();
    let mut other = rack.gateway.speak();
    let [a, b] = keys();
    assert_eq!(other.ask(&format!("MSET {a} 1 {b} 2")), "+OK\r\n");
    let mut client = rack.speak("CLIENT TRACKING ON");
    for (key, value) in [(&a, "1"), (&b, "2"), (&a, "1x"), (&b, "2x")] {
        assert_eq!(client.ask(&format!("GET {key}")), bulk(value));
        assert!(other.ask(&format!("APPEND {key} x")).starts_with(':'));
        assert_eq!(client.answer(), invalidation(key));
    }
    // Keys of both in one command.
    let both = format!("*2\r\n{}{}", bulk("1xx"), bulk("2xx"));
    assert_eq!(client.ask(&format!("MGET {a} {b}")), both);
    for key in [&b, &a] {
        assert_eq!(other.ask(&format!("DEL {key}")), ":1\r\n");
        assert_eq!(client.answer(), invalidation(key));
    }
    // It is one of the cluster's clients still, and hears no node's word of it.
    let slots = client.ask("CLUSTER SLOTS");
    assert!(slots.starts_with("*1\r\n*3\r\n:0\r\n:16383\r\n"), "{slots}");
    assert_eq!(client.ask("CLIENT TRACKING OFF"), "+OK\r\n");
    assert_eq!(client.ask(&format!("GET {a}")), "_\r\n");
    assert_eq!(other.ask(&format!("SET {a} 1")), "+OK\r\n");
    assert_eq!(client.ask(&format!("GET {a}")), bulk("1"));
}

/// Whether it keeps a cache of its own or not.
#[test]
fn a_channel_that_has_a_slot_is_listened_to_where_that_is() {
    let rack: Rack = Rack::start();
    let mut clients = vec![];
    for (server, channel) in rack.servers.iter().zip(keys()) {
        let mut client = rack.gateway.speak();
        assert!(client.ask(&format!("SSUBSCRIBE {channel}")).contains("ssubscribe"));
        let listened = server.speak().ask("PUBSUB SHARDCHANNELS");
        assert!(listened.contains(&channel), "{channel}: {listened}");
        clients.push(client);
    }
    let mut asks = rack.gateway.speak();
    let [a, b] = keys();
    let listened = asks.ask("PUBSUB SHARDCHANNELS");
    assert!(listened.starts_with("*2\r\n"), "{listened}");
    assert!(listened.contains(&a) && listened.contains(&b), "{listened}");
    let counts = |line: String| line.replace("\r\n", " ");
    let said = counts(asks.ask(&format!("PUBSUB SHARDNUMSUB {b} other {a}")));
    assert_eq!(said, format!("*6 $2 {b} :1 $5 other :0 $2 {a} :1 "));
    assert_eq!(asks.ask("PUBSUB SHARDNUMSUB"), "*0\r\n");
}

#[test]
fn only_what_a_client_chose_is_tracked() {
    let rack: Rack = Rack::start();
    let mut other = rack.gateway.speak();
    let [a, b] = keys();
    let mut client = rack.speak("CLIENT TRACKING ON OPTIN");
    for round in 0..2 {
        for (key, unseen) in [(&a, &b), (&b, &a)] {
            assert_eq!(other.ask(&format!("MSET {key} 1 {unseen} 1")), "+OK\r\n");
            assert_eq!(client.ask(&format!("GET {unseen}")), bulk("1"));
            assert_eq!(client.ask("CLIENT CACHING YES"), "+OK\r\n");
            // As libraries do it: with the key's life, in one transaction.
            if round == 1 {
                let said = ["MULTI".into(), format!("PTTL {key}"), format!("GET {key}")];
                client.say(&said.iter().flat_map(|line| command(line)).collect::<Vec<_>>());
                let heard: Vec<String> = (0..3).map(|_| client.answer()).collect();
                assert_eq!(heard, ["+OK\r\n", "+QUEUED\r\n", "+QUEUED\r\n"]);
                assert_eq!(client.ask("EXEC"), format!("*2\r\n:-1\r\n{}", bulk("1")));
            } else {
                assert_eq!(client.ask(&format!("GET {key}")), bulk("1"));
            }
            for key in [unseen, key] {
                assert_eq!(other.ask(&format!("SET {key} 2")), "+OK\r\n");
            }
            assert_eq!(client.answer(), invalidation(key));
        }
    }
    let said = client.ask("CLIENT CACHING NO");
    assert!(said.starts_with("-ERR CLIENT CACHING NO is only valid"), "{said}");
    assert_eq!(client.ask("CLIENT CACHING"), {
        "-ERR wrong number of arguments for 'client|caching' command\r\n"
    });
}

#[test]
fn a_key_that_changed_is_told_of_behind_the_value_that_was_read() {
    let rack: Rack = Rack::start();
    let mut other = rack.gateway.speak();
    let [a, b] = keys();
    assert_eq!(other.ask(&format!("MSET {a} 1 {b} 2")), "+OK\r\n");
    let mut client = rack.speak("CLIENT TRACKING ON");
    // The first store answers no writes for a while, the second does.
    let mut slow = rack.servers[0].speak();
    assert_eq!(slow.ask("CLIENT PAUSE 1000000 WRITE"), "+OK\r\n");
    client.say(&[command(&format!("SET {a} 9")), command(&format!("GET {b}"))].concat());
    let mut server = rack.servers[1].speak();
    until("the second store has been asked", || {
        let said = server.ask("INFO commandstats");
        said.contains("cmdstat_get:calls=1")
    });
    assert_eq!(server.ask(&format!("SET {b} 3")), "+OK\r\n");
    // What the gateway hears by that connection is in its order; so this is behind it.
    client.say(&command(&format!("GET {b}")));
    until("the second store has been asked again", || {
        server.ask("INFO commandstats").contains("cmdstat_get:calls=2")
    });
    assert_eq!(slow.ask("CLIENT UNPAUSE"), "+OK\r\n");
    let heard: Vec<String> = (0..4).map(|_| client.answer()).collect();
    assert_eq!(heard, ["+OK\r\n".into(), bulk("2"), invalidation(&b), bulk("3")]);
}

#[test]
fn who_keeps_a_cache_may_listen_and_ask_all_stores() {
    let rack: Rack = Rack::start();
    let mut other = rack.gateway.speak();
    let [a, b] = keys();
    let mut client = rack.speak("CLIENT TRACKING ON");
    assert!(client.ask("SUBSCRIBE news more").starts_with(">3\r\n$9\r\nsubscribe\r\n"));
    assert!(client.answer().starts_with(">3\r\n$9\r\nsubscribe\r\n$4\r\nmore"));
    for (key, number) in [(&a, 1), (&b, 2)] {
        assert_eq!(client.ask(&format!("INCRBY {key} {number}")), format!(":{number}\r\n"));
        assert_eq!(client.ask(&format!("GET {key}")), bulk(&number.to_string()));
        assert_eq!(other.ask("PUBLISH news hello"), ":1\r\n");
        assert_eq!(client.answer(), ">3\r\n$7\r\nmessage\r\n$4\r\nnews\r\n$5\r\nhello\r\n");
    }
    assert!(client.ask("UNSUBSCRIBE news").starts_with(">3\r\n$11\r\nunsubscribe\r\n"));
    assert_eq!(other.ask("PUBLISH news hello"), ":0\r\n");
    assert_eq!(client.ask(&format!("GET {a}")), bulk("1"));
}

#[test]
fn what_only_some_of_its_connections_would_hear_is_refused() {
    let rack: Rack = Rack::start();
    let mut client = rack.speak("CLIENT TRACKING ON");
    for line in ["AUTH ada secret", "HELLO 2", "HELLO 3 AUTH ada secret"] {
        let said = client.ask(line);
        assert!(said.starts_with("-ERR after CLIENT TRACKING the user"), "{line}: {said}");
    }
    let said = client.ask("MONITOR");
    assert!(said.starts_with("-ERR this command is not possible"), "{said}");
    assert!(client.ask("HELLO 3").starts_with('%'));
    assert_eq!(client.ask("RESET"), "+RESET\r\n");
    assert!(client.ask("AUTH ada secret").starts_with("-WRONGPASS"));
    // By RESP2 nothing could be told between answers.
    let said = client.ask("CLIENT TRACKING ON");
    assert!(said.starts_with("-ERR CLIENT: not where keys are in several stores"), "{said}");
}

#[test]
fn a_store_that_is_lost_ends_the_cache_with_its_connection() {
    let rack: Rack = Rack::start();
    let [_, b] = keys();
    let mut client = rack.speak("CLIENT TRACKING ON");
    assert_eq!(client.ask(&format!("GET {b}")), "_\r\n");
    let Rack { servers: [first, _second], gateway: _gateway, config: _ } = rack;
    drop(first);
    let end = client.stream.read(&mut [0]).map_err(|error| error.kind());
    let is_over = matches!(end, Ok(0) | Err(ErrorKind::ConnectionReset));
    assert!(is_over, "what it keeps would be told true for good: {end:?}");
}

#[test]
fn no_client_in_cluster_mode_hears_of_nodes_whatever_it_has_said_before() {
    let one: Rack<1> = Rack::start();
    let two: Rack = Rack::start();
    for gateway in [&one.gateway, &two.gateway] {
        let slots = gateway.speak().ask("CLUSTER SLOTS");
        assert!(slots.starts_with("*1\r\n*3\r\n:0\r\n:16383\r\n"), "{slots}");
        for said in ["CLIENT TRACKING ON", "WATCH a", "CLIENT SETNAME ada"] {
            let mut client = gateway.speak();
            assert!(client.ask("HELLO 3").starts_with('%'));
            assert_eq!(client.ask(said), "+OK\r\n");
            assert_eq!(client.ask("CLUSTER SLOTS"), slots, "{said}");
        }
        let mut client = gateway.speak();
        assert_eq!(client.ask("MULTI"), "+OK\r\n");
        assert_eq!(client.ask("CLUSTER SLOTS"), "-ERR CLUSTER: not in a transaction\r\n");
        assert!(client.ask("EXEC").starts_with("-EXECABORT"));
        let mut client = gateway.speak();
        assert!(client.ask("HELLO 3").starts_with('%'));
        assert!(client.ask("SUBSCRIBE news").starts_with(">3\r\n"));
        let said = client.ask("CLUSTER SLOTS");
        assert!(said.starts_with("-ERR unknown command 'ERR CLUSTER: not by a"), "{said}");
    }
}

/// By clients in cluster mode, who have a connection to each node.
#[test]
fn gateways_that_know_one_another_look_like_nodes_and_take_a_dead_one_s_slots() {
    let rack: Rack = Rack::start();
    let ports = [0; 3].map(|_| lab::port::held());
    let nodes = ports.each_ref().map(|port| SocketAddr::from(([127, 0, 0, 1], port.number)));
    let gateway = |listen: SocketAddr| {
        let nodes = nodes.to_vec();
        Gateway::start(Config { listen, nodes, ..rack.config.clone() })
    };
    let [first, second, third] = nodes.map(gateway);
    let slots = |gateway: &Gateway, node: SocketAddr| {
        let said = gateway.speak().ask("CLUSTER NODES");
        let line = said.lines().find(|line| line.contains(&format!("{node}@")));
        line.unwrap().split(' ').skip(8).map(str::to_owned).collect::<Vec<_>>()
    };
    // Two stores: the first and the third share what is the first one's.
    until("all are there", || slots(&first, nodes[2]) == ["4096-8191"]);
    for gateway in [&first, &second, &third] {
        let seen = || nodes.map(|node| slots(gateway, node));
        until("each says the same", || seen() == [["0-4095"], ["8192-16383"], ["4096-8191"]]);
    }
    let ids: HashSet<String> =
        [&first, &second, &third].map(|gateway| gateway.speak().ask("CLUSTER MYID")).into();
    assert_eq!(ids.len(), 3);
    drop(third);
    until("what it had is the first one's", || slots(&second, nodes[0]) == ["0-8191"]);
    until("it is named as one that is away", || {
        second.speak().ask("CLUSTER NODES").contains("master,fail - 0 0 1 disconnected")
    });
    // Whoever is asked carries it out.
    let [a, b] = keys();
    assert_eq!(second.speak().ask(&format!("MSET {a} 1 {b} 2")), "+OK\r\n");
    let again = gateway(nodes[2]);
    until("it is back", || slots(&second, nodes[2]) == ["4096-8191"]);
    drop((first, again));
}
