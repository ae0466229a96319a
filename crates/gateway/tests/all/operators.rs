//! What operators ask: what Redis measures is asked of Redis, what the gateway measures of the
//! gateway.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
};

use gateway::NetworkUse;

use crate::{
    network::Store,
    support::{Config, Gateway, PATIENCE, Redis, command, config, until},
};

/// The `calls` of a command that somebody counts.
fn calls(told: &str, name: &str) -> u64 {
    let line = told.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{name}:calls=")));
    let digits = line.and_then(|line| line.split(',').next());
    digits.and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

#[test]
fn what_redis_measures_is_told_by_redis() {
    let redis = Redis::start(&["--slowlog-log-slower-than", "0"]);
    let gateway = Gateway::start(config(&redis.url()));
    let mut client = gateway.speak();
    assert_eq!(client.ask("SET measured here"), "+OK\r\n");
    assert!(client.ask("SLOWLOG GET").contains("measured"));
    let told = client.ask("INFO commandstats");
    assert_eq!(calls(&told, "set"), 1);
    assert!(!told.contains("# Gateway"), "{told}");
    assert!(client.ask("LATENCY HISTOGRAM set").contains("histogram_usec"));
    assert_eq!(client.ask("LATENCY LATEST"), "*0\r\n");
    assert_eq!(client.ask("CONFIG RESETSTAT"), "+OK\r\n");
    assert_eq!(calls(&client.ask("INFO commandstats"), "set"), 0);
    assert_eq!(calls(&client.ask("INFO gateway"), "set"), 1, "the gateway counts for itself");
}

#[test]
fn what_redis_does_not_see_is_told_by_the_gateway() {
    let (store, redis) = (Store::start(), Redis::start(&[]));
    let gateway = store.gateway(&redis, NetworkUse::Always);
    let mut client = gateway.speak();
    let mut seen = 0;
    until("all go by the network", || {
        let before = calls(&client.ask("INFO gateway"), "get");
        seen = calls(&client.ask("INFO commandstats"), "get");
        client.say(&command("GET k").repeat(1000));
        let said: Vec<String> = (0..1000).map(|_| client.answer()).collect();
        assert_eq!(calls(&client.ask("INFO gateway"), "get"), before + 1000);
        // What the store did not answer in time Redis did, which has no such key.
        said.iter().all(|said| said != "$-1\r\n")
    });
    assert!(client.ask("INCR text").starts_with(':'));
    assert_eq!(client.ask("SET text x"), "+OK\r\n");
    assert!(client.ask("INCR text").starts_with("-ERR value is not an integer"));
    let told = client.ask("INFO gateway");
    let incr = told.lines().find(|line| line.starts_with("cmdstat_incr:")).unwrap();
    assert!(incr.contains("calls=2,") && incr.contains(",failed_calls=1,"), "{incr}");
    // Redis has seen what the gateway asks for itself, and none of these.
    assert!(calls(&client.ask("INFO commandstats"), "get") < seen + 1000);
}

/// What is answered by HTTP; who stands still meanwhile is not waited for, and asks again.
fn fetch(at: SocketAddr, path: &str) -> String {
    let ask = || {
        let mut stream = TcpStream::connect(at)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        std::io::Result::Ok(answer)
    };
    let mut answer = String::new();
    until("it is answered by HTTP", || {
        answer = ask().unwrap_or_default();
        !answer.is_empty()
    });
    answer
}

#[test]
fn prometheus_finds_what_is_counted() {
    let redis = Redis::start(&[]);
    let port = lab::port::held();
    let at = SocketAddr::from(([127, 0, 0, 1], port.number));
    let gateway = Gateway::start(Config { metrics: Some(at), ..config(&redis.url()) });
    let mut client = gateway.speak();
    for _ in 0..3 {
        client.ask("GET a");
    }
    client.ask("LPUSH l 1");
    client.ask("GET l");
    // Somebody who says nothing holds up others for no longer than a moment.
    let silent = TcpStream::connect(at).unwrap();
    let said = fetch(at, "/metrics");
    drop(silent);
    for line in [
        "HTTP/1.1 200 OK",
        "# TYPE shortstop_gateway_total_commands_processed counter",
        "shortstop_gateway_total_commands_processed 5",
        "shortstop_gateway_connected_clients 1",
        "shortstop_gateway_failed_calls{command=\"get\"} 1",
        "# TYPE shortstop_gateway_command_seconds histogram",
        "shortstop_gateway_command_seconds_bucket{command=\"get\",le=\"+Inf\"} 4",
        "shortstop_gateway_command_seconds_count{command=\"get\"} 4",
        "shortstop_gateway_command_seconds_count{command=\"lpush\"} 1",
    ] {
        assert!(said.lines().any(|there| there == line), "{line}: {said}");
    }
    assert!(fetch(at, "/").starts_with("HTTP/1.1 404 "));
}
