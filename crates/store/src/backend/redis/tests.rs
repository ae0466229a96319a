//! Connections to Redis: how they are made and given up, and what answers on them prove.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use bytes::{Buf, BytesMut};
use redis::ConnectionInfo;
use resp::{Limits, RequestParser};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
    time::timeout,
};

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
    let given = addresses("--backend", &url, None).unwrap().1;
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
    let given = addresses("--backend", &url, None).unwrap().1;
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

/// Ends a test that hangs; nothing takes that long.
const PATIENCE: Duration = Duration::from_secs(90);

/// A master of a Redis Cluster, by the text that it has of that; or a Sentinel, by the port of the
/// master there.
#[derive(Clone)]
struct FakeNode {
    map: String,
    /// What it answers to GETRANGE.
    read: Arc<Mutex<&'static str>>,
    /// How often it was asked for the map, or the master.
    asked: Arc<AtomicUsize>,
}

impl FakeNode {
    fn starts(map: String, listener: TcpListener) -> (FakeNode, JoinHandle<()>) {
        let read = Arc::new(Mutex::new("$1\r\nv\r\n"));
        let node = FakeNode { map, read, asked: Arc::default() };
        let serves = node.clone();
        let task = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(serves.clone().serves(stream));
            }
        });
        (node, task)
    }

    async fn serves(self, mut stream: TcpStream) {
        let (mut parser, mut said) = (RequestParser::default(), BytesMut::new());
        while stream.read_buf(&mut said).await.is_ok_and(|len| len > 0) {
            let mut skipped = 0;
            while let Some(request) = parser.next(&said, &Limits::default(), &mut skipped).unwrap()
            {
                let word = |at| request.words.get(at).unwrap_or_default();
                let answer = self.answer(word(0), word(1));
                let len = request.bytes.len();
                said.advance(skipped + len);
                if stream.write_all(answer.as_bytes()).await.is_err() {
                    return;
                }
            }
        }
    }

    fn answer(&self, name: &[u8], what: &[u8]) -> String {
        match name {
            b"SENTINEL" if what == b"MASTER" => {
                self.asked.fetch_add(1, SeqCst);
                "*2\r\n$12\r\nconfig-epoch\r\n$1\r\n4\r\n".into()
            }
            b"SENTINEL" => {
                format!("*2\r\n$9\r\n127.0.0.1\r\n${}\r\n{}\r\n", self.map.len(), self.map)
            }
            b"ROLE" => "*3\r\n$6\r\nmaster\r\n:0\r\n*0\r\n".into(),
            b"GETRANGE" => self.read.lock().unwrap().to_string(),
            b"PTTL" => ":-1\r\n".into(),
            b"CLUSTER" => {
                self.asked.fetch_add(1, SeqCst);
                format!("${}\r\n{}\r\n", self.map.len(), self.map)
            }
            _ => "+OK\r\n".into(),
        }
    }
}

/// Masters with these slots; and a store's connection to the first, not made yet.
async fn cluster(slots: &[&str]) -> (Vec<(FakeNode, JoinHandle<()>)>, Redis) {
    let mut listeners = vec![];
    for _ in slots {
        listeners.push(TcpListener::bind("127.0.0.1:0").await.unwrap());
    }
    let places: Vec<_> = listeners.iter().map(|one| one.local_addr().unwrap()).collect();
    let map = |own: usize| {
        let rows = (0..).zip(places.iter().zip(slots)).map(|(id, (at, slots))| {
            let own = if id == own { "myself," } else { "" };
            format!("m{id} {at}@1 {own}master - 0 0 {id} connected {slots}\n")
        });
        rows.collect::<String>()
    };
    let started = (0..).zip(listeners).map(|(id, at)| FakeNode::starts(map(id), at));
    let given = addresses("--backend", &format!("redis://{}", places[0]), None).unwrap().1;
    let dial = Dial::new(None, Duration::from_secs(1));
    let first = given[0].clone();
    let guide = Guide::Cluster(Follower::new(given, dial.clone(), vec![(0, 9)]));
    let search = MasterSearch::new(guide, first, dial.clone(), Default::default());
    (started.collect(), Redis::new(search, OtherNodes::new(dial), None, Health::new()))
}

/// Asks until it is so.
async fn until(redis: &mut Redis, is_so: impl Fn(&Redis) -> bool) {
    let asks = async {
        while !is_so(redis) {
            redis.execute(&[]).await.unwrap();
        }
    };
    timeout(PATIENCE, asks).await.expect("it comes to that");
}

/// Connects to the master, and has two end of these three who say which it is: what it tells counts
/// no longer then.
async fn proves_for_a_while(nodes: &[(FakeNode, JoinHandle<()>)], mut redis: Redis) {
    redis.connect().await.unwrap();
    let latest = |redis: &Redis| redis.seen(u64::MAX).unwrap();
    assert_eq!(redis.seen(1), Some(1));
    let first = latest(&redis);
    assert!(first < u64::MAX, "what was asked later is not proven yet");
    // Two of three are enough.
    nodes[2].1.abort();
    until(&mut redis, |redis| latest(redis) > first).await;
    nodes[1].1.abort();
    let asked = |more: usize| {
        let (asked, now) = (nodes[0].0.asked.clone(), nodes[0].0.asked.load(SeqCst));
        move |_: &Redis| asked.load(SeqCst) >= now + more
    };
    // They may be asked just now.
    until(&mut redis, asked(2)).await;
    let last = latest(&redis);
    until(&mut redis, asked(2)).await;
    assert_eq!(latest(&redis), last, "it is alone, and says that it is a master");
}

#[tokio::test]
async fn a_master_of_a_cluster_proves_nothing_for_long_when_most_masters_cannot_be_asked() {
    let (nodes, redis) = cluster(&["0-9", "10-99", "100-16383"]).await;
    proves_for_a_while(&nodes, redis).await;
}

#[tokio::test]
async fn a_master_that_takes_its_cluster_for_down_proves_nothing() {
    let (nodes, mut redis) = cluster(&["0-16383"]).await;
    redis.connect().await.unwrap();
    let verb = Verb::Get { track: false, most: 9, large: None };
    let name = b"k".to_vec();
    let get = Command { ticket: 1, tenant: 0, name, version: 1, compared: None, verb };
    // (what it answers to a read, whether it has told all that was written before)
    let rows = [
        ("$1\r\nv\r\n", true),
        ("-CLUSTERDOWN The cluster is down\r\n", false),
        // It has no such slot, and is well.
        ("-CLUSTERDOWN Hash slot not served\r\n", true),
    ];
    for (answer, proves) in rows {
        *nodes[0].0.read.lock().unwrap() = answer;
        redis.execute(std::slice::from_ref(&get)).await.unwrap();
        assert_eq!(redis.seen(1).is_some(), proves, "{answer}");
    }
    *nodes[0].0.read.lock().unwrap() = rows[1].0;
    redis.execute(std::slice::from_ref(&get)).await.unwrap();
    redis.execute(&[]).await.unwrap();
    assert_eq!(redis.seen(1), Some(1), "by the map");
}

/// The same of one that Sentinels name.
#[tokio::test]
async fn a_master_proves_nothing_for_long_when_most_sentinels_cannot_be_asked() {
    let listen = || TcpListener::bind("127.0.0.1:0");
    let master = listen().await.unwrap();
    let port = master.local_addr().unwrap().port().to_string();
    let _master = FakeNode::starts(String::new(), master);
    let (mut nodes, mut places) = (vec![], vec![]);
    for _ in 0..3 {
        let listener = listen().await.unwrap();
        places.push(listener.local_addr().unwrap().to_string());
        nodes.push(FakeNode::starts(port.clone(), listener));
    }
    let dial = Dial::new(None, Duration::from_secs(1));
    let sentinels = Sentinels::new(&format!("{}/m", places.join(",")), None, dial.clone());
    let sentinels = sentinels.unwrap();
    let first = sentinels.anywhere();
    let guide = Guide::Sentinels(sentinels);
    let search = MasterSearch::new(guide, first, dial.clone(), Default::default());
    let redis = Redis::new(search, OtherNodes::new(dial), None, Health::new());
    proves_for_a_while(&nodes, redis).await;
}
