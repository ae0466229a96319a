//! Connections to Redis: how they are made and given up.

use std::time::Duration;

use redis::ConnectionInfo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;

/// A master that is at one of these, and is reached without TLS.
fn of_servers(given: Vec<ConnectionInfo>, notices: Option<Notices>) -> Redis {
    let dial = Dial::new(None, Duration::from_secs(90));
    let first = given[0].clone();
    let search = MasterSearch::new(Guide::Servers(given), first, dial.clone(), Default::default());
    Redis::new(search, OtherNodes::new(dial), notices, Health::new())
}

#[test]
fn what_was_read_a_while_ago_ends_sooner() {
    let value = |expiry_ms| Outcome::Value { value: b"v".into(), expiry_ms };
    let untold = |expiry_ms| Outcome::Untold(Some((b"v".into(), expiry_ms)));
    let mut outcomes = [value(300), value(0), value(100), untold(300), Outcome::Absent];
    age(&mut outcomes, 250_000_001);
    assert_eq!(outcomes, [value(49), value(0), value(1), untold(49), Outcome::Absent]);
}

#[tokio::test]
async fn what_has_not_arrived_when_the_connection_is_given_up_never_does() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    let given = addresses(&[url], None).unwrap();
    let mut redis = of_servers(given, None);
    let (mut server, greeted) = {
        let accept = async {
            let (mut server, _) = listener.accept().await.unwrap();
            let mut greeting = [0; 4096];
            // Every answer to what it says at first.
            let len = server.read(&mut greeting).await.unwrap();
            let commands = greeting[..len].iter().filter(|byte| **byte == b'*').count();
            let answers = "+OK\r\n".repeat(commands);
            server.write_all(answers.as_bytes()).await.unwrap();
            server
        };
        let (server, greeted) = tokio::join!(accept, redis.connect());
        (server, greeted.is_ok())
    };
    assert!(greeted);
    redis.disconnect();
    let read = server.read(&mut [0]).await;
    let kind = read.map_err(|error| error.kind());
    assert_eq!(kind, Err(std::io::ErrorKind::ConnectionReset));
}

/// Whether a server is connected to that closes the connection on which it is told HELLO, and
/// on the next one answers ROLE so; and why it does not tell of outside writes.
async fn hangs_up_and_says(role: &[u8]) -> Result<Option<String>, String> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    let (told, _events) = tokio::sync::mpsc::unbounded_channel();
    let given = addresses(&[url], None).unwrap();
    let mut redis = of_servers(given, Some(Notices::new(told)));
    let serves = async {
        let mut said = [0; 4096];
        let (mut first, _) = listener.accept().await.unwrap();
        assert!(first.read(&mut said).await.unwrap() > 0);
        drop(first);
        let (mut second, _) = listener.accept().await.unwrap();
        assert!(second.read(&mut said).await.unwrap() > 0);
        second.write_all(role).await.unwrap();
        second
    };
    let (_second, made) = tokio::join!(serves, redis.connect());
    let untracked = |()| redis.link.as_ref().and_then(|link| link.untracked.clone());
    made.map(untracked).map_err(|error| error.to_string())
}

#[tokio::test]
async fn a_proxy_that_hangs_up_on_hello_is_served_from_and_a_redis_is_asked_again() {
    let proxy = hangs_up_and_says(b"-ERR unknown command\r\n").await.unwrap();
    assert!(proxy.is_some_and(|why| why.starts_with("HELLO 3: ")));
    let redis = hangs_up_and_says(b"*3\r\n$6\r\nmaster\r\n:0\r\n*0\r\n").await;
    assert!(redis.unwrap_err().contains("has closed the connection"));
}
