//! Several stores behind one gateway: each command at the store of its keys, and what is said of
//! all of them is one answer.

use std::{collections::BTreeSet, net::TcpListener};

use wire::{Cluster, Secret, Store, TENANT_OPEN, partition_of};

use crate::support::{Gateway, MadeUpServer, PATIENCE, Redis, Speaker, command, config, until};

const STORES: u32 = 3;

/// Three servers, each of one partition, and a gateway to them.
struct Rack {
    servers: Vec<Redis>,
    gateway: Gateway,
}

impl Rack {
    fn start() -> Rack {
        let servers: Vec<Redis> = (0..STORES).map(|_| Redis::start(&[])).collect();
        let urls: Vec<String> = servers.iter().map(Redis::url).collect();
        Rack { servers, gateway: Rack::gateway_to(&urls) }
    }

    /// A gateway to these, each of one partition.
    fn gateway_to(urls: &[String]) -> Gateway {
        let mut config = config(&urls[0]);
        let stores = (0..STORES).map(|at| {
            let address = ([127, 0, 0, 1], 1 + at as u16).into();
            Store::new(address, at, at)
        });
        let single = Cluster::single(([127, 0, 0, 1], 1).into(), STORES);
        config.cluster = Cluster { stores: stores.collect(), ..single };
        let urls = urls.iter().enumerate();
        config.resp = urls.map(|(at, url)| format!("{at}={url}").parse().unwrap()).collect();
        Gateway::start(config)
    }

    /// The number of keys at each server.
    fn sizes(&self) -> Vec<String> {
        self.servers.iter().map(|server| server.speak().ask("DBSIZE")).collect()
    }
}

/// A key of this store; of different numbers different ones.
fn key(store: u32, number: usize) -> String {
    let of_store = |key: &String| {
        partition_of(Secret::NONE.key_hash(TENANT_OPEN, key.as_bytes()), STORES) == store
    };
    (0..).map(|at| format!("k{at}")).filter(of_store).nth(number).unwrap()
}

fn keys() -> [String; 3] {
    [0, 1, 2].map(|store| key(store, 0))
}

const CROSSING: &str = "-CROSSSLOT Keys in request don't hash to the same slot\r\n";

#[test]
fn keys_are_where_their_stores_are_and_answers_are_joined() {
    let rack = Rack::start();
    let mut client = rack.gateway.speak();
    let [a, b, c] = keys();
    assert_eq!(client.ask(&format!("MSET {a} 1 {b} 2 {c} 3")), "+OK\r\n");
    assert_eq!(rack.sizes(), [":1\r\n"; 3]);
    for (key, server) in [&a, &b, &c].into_iter().zip(&rack.servers) {
        assert_eq!(server.speak().ask(&format!("EXISTS {key}")), ":1\r\n");
        assert_eq!(client.ask(&format!("INCR {key}")).len(), 4);
    }
    // (said, answered)
    let rows = [
        (
            format!("MGET {c} none {a} {c} {b}"),
            "*5\r\n$1\r\n4\r\n$-1\r\n$1\r\n2\r\n$1\r\n4\r\n$1\r\n3\r\n",
        ),
        (format!("EXISTS {a} {b} {c} {a} none"), ":4\r\n"),
        (format!("TOUCH {a} {b}"), ":2\r\n"),
        ("DBSIZE".into(), ":3\r\n"),
        (format!("MSET {a} 1 {b}"), "-ERR wrong number of arguments for 'mset' command\r\n"),
        (format!("RENAME {a} {b}"), CROSSING),
        (format!("MSETNX {a} 1 {b} 2"), CROSSING),
        (format!("EVAL return(1) 2 {a} {b}"), CROSSING),
        (format!("EVAL return(KEYS[1]) 1 {b}"), ""),
        (format!("DEL {a} {b}"), ":2\r\n"),
        (format!("MGET {a} {b}"), "*2\r\n$-1\r\n$-1\r\n"),
        (format!("UNLINK {c} {a}"), ":1\r\n"),
        ("DBSIZE".into(), ":0\r\n"),
        ("SELECT 1".into(), "-ERR SELECT is not allowed in cluster mode\r\n"),
        (
            "READONLY".into(),
            "-ERR this command is not possible where keys are in several stores\r\n",
        ),
        (
            format!("SORT {a} BY w_*"),
            "-ERR BY and GET options of SORT are denied where keys are in several stores\r\n",
        ),
        (format!("SORT {a} BY nosort GET #"), "*0\r\n"),
    ];
    for (line, answer) in rows {
        let said = client.ask(&line);
        match answer {
            "" => assert!(said.contains(&b), "{line}: {said}"),
            _ => assert_eq!(said, answer, "{line}"),
        }
    }
}

#[test]
fn a_pipeline_to_several_stores_is_answered_in_its_order() {
    let rack = Rack::start();
    let mut client = rack.gateway.speak();
    let [a, b, c] = keys();
    let mut said = vec![];
    let mut expected = vec![];
    for round in 1..=100 {
        for key in [&a, &b, &c] {
            said.extend(command(&format!("INCR {key}")));
            expected.push(format!(":{round}\r\n"));
        }
        said.extend(command(&format!("MGET {b} {c}")));
        let text = round.to_string();
        let one = format!("${}\r\n{text}\r\n", text.len());
        expected.push(format!("*2\r\n{one}{one}"));
        said.extend(command("DBSIZE"));
        expected.push(":3\r\n".into());
    }
    client.say(&said);
    for expected in expected {
        assert_eq!(client.answer(), expected);
    }
}

/// The keys that a whole SCAN names, and that KEYS does.
fn scanned(client: &mut Speaker<std::net::TcpStream>) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut cursor = "0".to_string();
    loop {
        let answer = client.ask(&format!("SCAN {cursor} COUNT 10"));
        let mut lines = answer.lines().skip(2);
        cursor = lines.next().unwrap().to_string();
        found.extend(lines.filter(|line| line.starts_with('k')).map(str::to_string));
        if cursor == "0" {
            return found;
        }
    }
}

#[test]
fn all_keys_are_listed_and_flushed() {
    let rack = Rack::start();
    let mut client = rack.gateway.speak();
    let all: BTreeSet<String> = (0..200).map(|number| format!("k{number}")).collect();
    for key in &all {
        assert_eq!(client.ask(&format!("SET {key} v")), "+OK\r\n");
    }
    assert!(rack.sizes().iter().all(|size| size != ":0\r\n"));
    assert_eq!(scanned(&mut client), all);
    let listed = client.ask("KEYS *");
    assert!(listed.starts_with("*200\r\n"), "{listed}");
    let named: BTreeSet<String> =
        listed.lines().filter(|line| line.starts_with('k')).map(str::to_string).collect();
    assert_eq!(named, all);
    assert!(client.ask("RANDOMKEY").starts_with('$'));
    assert_eq!(client.ask("FLUSHALL"), "+OK\r\n");
    assert_eq!(rack.sizes(), [":0\r\n"; 3]);
    assert_eq!(client.ask("RANDOMKEY"), "$-1\r\n");
}

#[test]
fn scripts_are_at_every_store() {
    let rack = Rack::start();
    let mut client = rack.gateway.speak();
    let said = client.ask("SCRIPT LOAD return(redis.call('incr',KEYS[1]))");
    let sha = said.lines().nth(1).unwrap().to_string();
    for key in keys() {
        assert_eq!(client.ask(&format!("EVALSHA {sha} 1 {key}")), ":1\r\n");
    }
    rack.servers[1].speak().ask("SCRIPT FLUSH");
    assert_eq!(client.ask(&format!("SCRIPT EXISTS {sha}")), "*1\r\n:0\r\n");
}

#[test]
fn a_transaction_is_at_the_store_of_its_first_key() {
    let rack = Rack::start();
    let mut client = rack.gateway.speak();
    let [a, b, _] = keys();
    let aborted = "-EXECABORT Transaction discarded because of previous errors.\r\n";
    let rows = [
        // One that is whole, at another store than the first.
        ("MULTI".into(), "+OK\r\n"),
        (format!("SET {b} 1"), "+QUEUED\r\n"),
        (format!("INCR {b}"), "+QUEUED\r\n"),
        ("EXEC".into(), "*2\r\n+OK\r\n:2\r\n"),
        // One that crosses is not carried out, and ends.
        ("MULTI".into(), "+OK\r\n"),
        (format!("SET {a} 1"), "+QUEUED\r\n"),
        (format!("SET {b} 9"), CROSSING),
        ("PING".into(), "+QUEUED\r\n"),
        ("EXEC".into(), aborted),
        (format!("MGET {a} {b}"), "*2\r\n$-1\r\n$1\r\n2\r\n"),
        ("EXEC".into(), "-ERR EXEC without MULTI\r\n"),
        // One whose first command crosses.
        ("MULTI".into(), "+OK\r\n"),
        (format!("MSET {a} 1 {b} 1"), CROSSING),
        ("EXEC".into(), aborted),
        // One that is given up, and an empty one.
        ("MULTI".into(), "+OK\r\n"),
        (format!("SET {a} 1"), "+QUEUED\r\n"),
        ("DISCARD".into(), "+OK\r\n"),
        ("MULTI".into(), "+OK\r\n"),
        ("EXEC".into(), "*0\r\n"),
        ("MULTI".into(), "+OK\r\n"),
        ("DISCARD".into(), "+OK\r\n"),
        // What is watched says where it is.
        (format!("WATCH {b}"), "+OK\r\n"),
        (format!("GET {b}"), "$1\r\n2\r\n"),
        (format!("GET {a}"), CROSSING),
        ("MULTI".into(), "+OK\r\n"),
        (format!("SET {b} 3"), "+QUEUED\r\n"),
        ("EXEC".into(), "*1\r\n+OK\r\n"),
        (format!("WATCH {a} {b}"), CROSSING),
        (format!("MGET {a} {b}"), "*2\r\n$-1\r\n$1\r\n3\r\n"),
        (format!("WATCH {b}"), "+OK\r\n"),
    ];
    for (line, answer) in rows {
        assert_eq!(client.ask(&line), answer, "{line}");
    }
    assert_eq!(rack.gateway.speak().ask(&format!("SET {b} 4")), "+OK\r\n");
    for (line, answer) in [
        ("MULTI".into(), "+OK\r\n"),
        (format!("SET {b} 5"), "+QUEUED\r\n"),
        ("EXEC".into(), "*-1\r\n"),
        (format!("GET {b}"), "$1\r\n4\r\n"),
    ] {
        assert_eq!(client.ask(&line), answer, "{line}");
    }
    // All of it in one write.
    let said = ["MULTI".into(), format!("SET {b} 6"), "EXEC".into(), format!("SET {a} 7")];
    client.say(&said.iter().flat_map(|line| command(line)).collect::<Vec<_>>());
    let heard: Vec<String> = (0..4).map(|_| client.answer()).collect();
    assert_eq!(heard, ["+OK\r\n", "+QUEUED\r\n", "*1\r\n+OK\r\n", "+OK\r\n"]);
    assert_eq!(client.ask(&format!("MGET {a} {b}")), "*2\r\n$1\r\n7\r\n$1\r\n6\r\n");
}

/// It would be carried out at the store of the transaction alone.
#[test]
fn what_is_about_all_stores_is_refused_where_a_connection_is_at_one() {
    let rack = Rack::start();
    let [a, b, _] = keys();
    let mut client = rack.gateway.speak();
    for key in [&a, &b] {
        assert_eq!(client.ask(&format!("SET {key} 1")), "+OK\r\n");
    }
    for begins in [vec!["MULTI".into(), format!("GET {a}")], vec![format!("WATCH {a}")]] {
        begins.iter().for_each(|line| assert!(client.ask(line).starts_with('+'), "{line}"));
        for line in ["FLUSHALL", "DBSIZE", "KEYS *", "SCAN 0", "SCRIPT LOAD return(1)"] {
            let said = client.ask(line);
            assert!(said.starts_with("-ERR several stores: "), "{line}: {said}");
        }
        if begins.len() > 1 {
            assert!(client.ask("EXEC").starts_with("-EXECABORT "));
        } else {
            assert_eq!(client.ask("UNWATCH"), "+OK\r\n");
        }
    }
    assert_eq!(client.ask("DBSIZE"), ":2\r\n");
}

#[test]
fn who_waits_waits_at_the_key_s_store_and_is_known_there() {
    let rack = Rack::start();
    let mut client = rack.gateway.speak();
    assert_eq!(client.ask("CLIENT SETNAME waiter"), "+OK\r\n");
    for store in 0..STORES {
        let list = key(store, 1);
        client.say(&command(&format!("BLPOP {list} 0")));
        let mut server = rack.servers[store as usize].speak();
        let began = std::time::Instant::now();
        while !server.ask("CLIENT LIST").contains("name=waiter") {
            assert!(began.elapsed() < PATIENCE);
        }
        let mut other = rack.gateway.speak();
        assert_eq!(other.ask(&format!("RPUSH {list} v")), ":1\r\n");
        assert_eq!(client.answer(), format!("*2\r\n${}\r\n{list}\r\n$1\r\nv\r\n", list.len()));
    }
    let [a, b, _] = keys();
    assert_eq!(client.ask(&format!("BLPOP {a} {b} 1")), CROSSING);
}

#[test]
fn who_listens_hears_everybody_and_reaches_no_wrong_store() {
    let rack = Rack::start();
    let (mut listener, mut client) = (rack.gateway.speak(), rack.gateway.speak());
    let [a, b, _] = keys();
    assert!(listener.ask("HELLO 3").starts_with('%'));
    assert!(listener.ask("SUBSCRIBE news").starts_with(">3\r\n"));
    assert_eq!(client.ask("PUBLISH news hello"), ":1\r\n");
    assert!(listener.answer().contains("hello"));
    assert_eq!(listener.ask(&format!("SET {a} 1")), "+OK\r\n");
    let said = listener.ask(&format!("SET {b} 1"));
    assert!(said.starts_with("-ERR unknown command 'CROSSSLOT Keys in request"), "{said}");
    assert_eq!(client.ask(&format!("MGET {a} {b}")), "*2\r\n$1\r\n1\r\n$-1\r\n");
}

#[test]
fn one_store_that_is_away_is_its_keys_trouble() {
    let mut rack = Rack::start();
    let mut client = rack.gateway.speak();
    let [a, b, c] = keys();
    assert_eq!(client.ask(&format!("MSET {a} 1 {b} 2 {c} 3")), "+OK\r\n");
    drop(rack.servers.pop());
    assert!(client.ask(&format!("MGET {a} {b} {c}")).starts_with("-TRYAGAIN "));
    assert!(client.ask(&format!("GET {c}")).starts_with("-TRYAGAIN "));
    assert_eq!(client.ask(&format!("MGET {a} {b}")), "*2\r\n$1\r\n1\r\n$1\r\n2\r\n");
    assert!(client.ask(&format!("DEL {a} {c}")).starts_with("-TRYAGAIN "));
    assert_eq!(client.ask(&format!("EXISTS {a}")), ":0\r\n", "its part was carried out");
}

#[test]
fn who_logs_in_is_known_at_every_store() {
    let rack = Rack::start();
    for server in &rack.servers {
        assert_eq!(server.speak().ask("ACL SETUSER ada on >secret ~* +@all"), "+OK\r\n");
    }
    let mut client = rack.gateway.speak();
    let [a, b, c] = keys();
    assert!(client.ask("AUTH ada wrong").starts_with("-WRONGPASS "));
    assert_eq!(client.ask("AUTH ada secret"), "+OK\r\n");
    assert_eq!(client.ask(&format!("MSET {a} 1 {b} 2 {c} 3")), "+OK\r\n");
    assert_eq!(client.ask("MULTI"), "+OK\r\n");
    assert_eq!(client.ask(&format!("SET {c} 4")), "+QUEUED\r\n");
    assert_eq!(client.ask("ACL WHOAMI"), "+QUEUED\r\n");
    assert_eq!(client.ask("EXEC"), "*2\r\n+OK\r\n$3\r\nada\r\n");
    assert_eq!(client.ask(&format!("MGET {b} {c}")), "*2\r\n$1\r\n2\r\n$1\r\n4\r\n");
}

#[test]
fn who_is_made_a_user_is_one_at_every_store() {
    let rack = Rack::start();
    let mut client = rack.gateway.speak();
    assert_eq!(client.ask("ACL SETUSER ada on >secret ~* +@all"), "+OK\r\n");
    let mut ada = rack.gateway.speak();
    assert_eq!(ada.ask("AUTH ada secret"), "+OK\r\n");
    for key in keys() {
        assert_eq!(ada.ask(&format!("SET {key} 1")), "+OK\r\n");
    }
    assert_eq!(client.ask("ACL DELUSER ada"), ":1\r\n");
    for server in &rack.servers {
        assert_eq!(server.speak().ask("ACL USERS"), "*1\r\n$7\r\ndefault\r\n");
    }
}

/// Only the server knows which words of a command are keys.
#[test]
fn no_store_is_guessed_while_it_is_not_known_where_keys_stand() {
    let rack = Rack::start();
    for server in &rack.servers {
        assert_eq!(server.speak().ask("ACL SETUSER default -command"), "+OK\r\n");
    }
    let mut client = rack.gateway.speak();
    let [_, b, _] = keys();
    for line in [format!("SET {b} 1"), format!("WATCH {b}"), "FLUSHALL".into()] {
        let said = client.ask(&line);
        assert!(said.starts_with("-TRYAGAIN nothing was done"), "{line}: {said}");
    }
    assert_eq!(client.ask("MULTI"), "+OK\r\n");
    assert!(client.ask(&format!("SET {b} 1")).starts_with("-TRYAGAIN nothing was done"));
    assert!(client.ask("EXEC").starts_with("-EXECABORT"));
    assert_eq!(client.ask(&format!("GET {b}")), "$-1\r\n", "whose key it is is known");
    assert_eq!(rack.sizes(), [":0\r\n"; 3]);
    assert_eq!(rack.servers[0].speak().ask("ACL SETUSER default +command"), "+OK\r\n");
    until("it is asked again", || client.ask(&format!("SET {b} 1")) == "+OK\r\n");
    assert_eq!(rack.sizes(), [":0\r\n", ":1\r\n", ":0\r\n"]);
}

#[test]
fn another_store_tells_where_keys_stand_if_the_first_is_away() {
    let mut rack = Rack::start();
    drop(rack.servers.remove(0));
    let mut client = rack.gateway.speak();
    let [a, b, c] = keys();
    until("another is asked", || client.ask(&format!("MSET {b} 2 {c} 3")) == "+OK\r\n");
    assert!(client.ask(&format!("SET {a} 1")).starts_with("-TRYAGAIN nothing was done"));
    assert_eq!(rack.sizes(), [":1\r\n"; 2]);
}

/// The line that is said in its place could be taken for the rest of it.
#[test]
fn of_an_answer_whose_rest_does_not_come_nothing_is_told() {
    let redis: Vec<Redis> = (0..STORES - 1).map(|_| Redis::start(&[])).collect();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut urls: Vec<String> = redis.iter().map(Redis::url).collect();
    urls.push(format!("redis://{}", listener.local_addr().unwrap()));
    let gateway = Rack::gateway_to(&urls);
    let mut client = gateway.speak();
    let [a, _, c] = keys();
    let both = format!("MGET {a} {c}");
    let mut line = String::new();
    for _ in 0..2 {
        client.say(&command(&both));
        let mut server = MadeUpServer::new(listener.accept().unwrap().0);
        assert_eq!(server.next(), Some(format!("MGET {c}")));
        if !line.is_empty() {
            server.answer(format!("*1\r\n${}\r\n", line.len() - 2).as_bytes());
        }
        drop(server);
        let said = client.answer();
        assert!(said.starts_with("-TRYAGAIN no answer"), "{said}");
        line = said;
    }
}

/// Wherever it has been before.
#[test]
fn who_listens_listens_where_messages_come() {
    let rack = Rack::start();
    let mut other = rack.gateway.speak();
    let [a, b, _] = keys();
    let been: [&[String]; 4] = [
        &["MULTI".into(), format!("SET {b} 1"), "EXEC".into()],
        &[format!("WATCH {b}"), "UNWATCH".into()],
        &[format!("BLPOP {} 0.01", key(1, 1))],
        &[],
    ];
    for been in been {
        let mut listener = rack.gateway.speak();
        been.iter().for_each(|line| assert!(!listener.ask(line).starts_with('-'), "{line}"));
        assert!(listener.ask("SUBSCRIBE news").starts_with("*3\r\n"));
        assert_eq!(other.ask("PUBLISH news hello"), ":1\r\n", "{been:?}");
        assert!(listener.answer().ends_with("hello\r\n"));
        let mut monitor = rack.gateway.speak();
        been.iter().for_each(|line| assert!(!monitor.ask(line).starts_with('-'), "{line}"));
        assert_eq!(monitor.ask("MONITOR"), "+OK\r\n");
        assert_eq!(other.ask(&format!("SET {a} seen")), "+OK\r\n");
        until("it is seen", || monitor.answer().contains("\"seen\""));
    }
    // Said where nobody would hear it, or to hear what is not said there.
    let mut client = rack.gateway.speak();
    assert_eq!(client.ask("MULTI"), "+OK\r\n");
    assert_eq!(client.ask(&format!("SET {b} 2")), "+QUEUED\r\n");
    assert!(client.ask("PUBLISH news lost").starts_with("-ERR several stores: "));
    assert!(client.ask("EXEC").starts_with("-EXECABORT "));
    assert_eq!(client.ask(&format!("WATCH {b}")), "+OK\r\n");
    for line in ["PUBLISH news lost", "SUBSCRIBE news", "MONITOR"] {
        assert!(client.ask(line).starts_with("-ERR several stores: "), "{line}");
    }
    // At the store where all is said and heard it may.
    let begun = ["MULTI".into(), format!("SET {a} 2"), "PUBLISH news hello".into()];
    let mut client = rack.gateway.speak();
    begun.iter().for_each(|line| assert!(client.ask(line).starts_with('+'), "{line}"));
    assert!(client.ask("EXEC").starts_with("*2\r\n+OK\r\n:"));
}
