//! Servers that answer as the test says, and real ones.

use super::*;

#[test]
fn a_copy_never_outlives_its_key_nor_the_key_its_promise() {
    assert_eq!([exptime(0), exptime(1), exptime(1000), exptime(1001)], [0, 2, 2, 3]);
    assert!(exptime(u32::MAX) > 1_000_000_000, "more than 30 days: an absolute time");
    let left = |s| expiry_ms(Some(s));
    assert_eq!(
        [left("-1"), left("0"), left("1"), left("2")],
        [Some(0), Some(1), Some(1), Some(1000)]
    );
    assert_eq!([left("x"), expiry_ms(None)], [None, None]);
}

#[tokio::test]
async fn what_has_not_arrived_when_the_connection_is_given_up_never_does() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut memcached = Memcached::at(listener.local_addr().unwrap().to_string(), Health::new());
    memcached.stream().await.unwrap();
    let (mut server, _) = listener.accept().await.unwrap();
    memcached.disconnect();
    let read = server.read(&mut [0]).await;
    let kind = read.map_err(|error| error.kind());
    assert_eq!(kind, Err(std::io::ErrorKind::ConnectionReset));
}

fn get(name: String) -> Command {
    let (track, most, large) = (false, 1 << 20, None);
    Command {
        ticket: 0,
        tenant: 0,
        name: name.into_bytes(),
        version: 0,
        compared: None,
        verb: Verb::Get { track, most, large },
    }
}

/// A server whose values have so many bytes. Counts how often it was asked for a value, and for
/// a length.
async fn server(len: usize) -> (Memcached, tokio::task::JoinHandle<[usize; 2]>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut memcached = Memcached::at(listener.local_addr().unwrap().to_string(), Health::new());
    memcached.longest = 1 << 20;
    let serve = async move {
        let (stream, mut answers) = tokio::io::split(listener.accept().await.unwrap().0);
        let mut stream = BufReader::new(stream);
        let (mut asked, mut line) = ([0, 0], vec![]);
        while read_line(&mut stream, &mut line).await.is_ok() {
            let length = line.ends_with(b" s");
            asked[usize::from(length)] += 1;
            let mut answer = format!("HD s{len}\r\n").into_bytes();
            if !length {
                answer = format!("VA {len} t-1\r\n").into_bytes();
                answer.resize(answer.len() + len, b'x');
                answer.extend_from_slice(b"\r\n");
            }
            answers.write_all(&answer).await.unwrap();
        }
        asked
    };
    (memcached, tokio::spawn(serve))
}

#[tokio::test]
async fn values_that_may_be_large_are_asked_for_their_lengths_first() {
    let commands: Vec<Command> = (0..100).map(|n| get(format!("k{n}"))).collect();
    // (length of the values, batches, values and lengths that are asked for)
    let rows = [(1 << 20, 1, [4, 96]), (10, 1, [100, 96]), (10, 3, [300, 96])];
    for (len, batches, expected) in rows {
        let (mut memcached, served) = server(len).await;
        for _ in 0..batches {
            let outcomes = memcached.execute(&commands).await.unwrap();
            let whole = |outcome: &&Outcome| matches!(outcome, Outcome::Value { .. });
            let values = outcomes.iter().filter(whole).count();
            assert_eq!(values, if len == 10 { 100 } else { 4 });
        }
        drop(memcached);
        assert_eq!(served.await.unwrap(), expected, "{batches} of {len} bytes");
    }
}

/// As memcached does: it reads nothing while somebody does not take its answer.
#[tokio::test]
async fn large_values_go_both_ways_at_once() {
    const LEN: usize = 32 << 20;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut memcached = Memcached::at(listener.local_addr().unwrap().to_string(), Health::new());
    let serve = async {
        let (stream, mut answers) = tokio::io::split(listener.accept().await.unwrap().0);
        let mut stream = BufReader::new(stream);
        let mut line = vec![];
        read_line(&mut stream, &mut line).await.unwrap();
        let mut answer = format!("VA {LEN} t-1\r\n").into_bytes();
        answer.resize(answer.len() + LEN, b'x');
        answers.write_all(&answer).await.unwrap();
        read_line(&mut stream, &mut line).await.unwrap();
        pass_over(&mut stream, LEN + 2).await.unwrap();
        answers.write_all(b"\r\nHD\r\n").await.unwrap();
        (stream, answers)
    };
    let read = Verb::Get { track: false, most: LEN, large: Some(LEN) };
    let write = Verb::Put { value: vec![b'y'; LEN].into(), ttl_ms: 0, only_if: OnlyIf::Always };
    let commands = [read, write].map(|verb| Command { verb, ..get("k".into()) });
    let both = async { tokio::join!(memcached.execute(&commands), serve) };
    let both = tokio::time::timeout(Duration::from_secs(90), both).await;
    let outcomes = both.expect("neither waits for the other").0.unwrap();
    assert!(matches!(&outcomes[0], Outcome::Value { value, .. } if value.len() == LEN));
    assert_eq!(outcomes[1], Outcome::Done);
}

impl Memcached {
    /// The number that the server has given a key's value.
    async fn numbered(&mut self, name: &str) -> u64 {
        let (answers, requests) = self.stream().await.unwrap();
        requests.write_all(format!("mg {name} c\r\n").as_bytes()).await.unwrap();
        let mut line = vec![];
        read_line(answers, &mut line).await.unwrap();
        cas(std::str::from_utf8(&line).unwrap()).expect("a value")
    }
}

/// A memcached that ends with the test.
struct Server(std::process::Child, Option<lab::port::HeldPort>);

impl Server {
    fn start(arguments: &[&str]) -> Server {
        Server::start_at(lab::port::held(), arguments)
    }

    fn start_at(held: lab::port::HeldPort, arguments: &[&str]) -> Server {
        let mut command = std::process::Command::new("memcached");
        command.args(arguments).args(["-u", "nobody", "-l", "127.0.0.1", "-U", "0", "-p"]);
        let mut child = command.arg(held.number.to_string()).spawn().expect("memcached");
        let patience = Duration::from_secs(90);
        let up = lab::port::listens(held.number, patience, || child.try_wait().unwrap().is_none());
        assert!(up, "{arguments:?}: it takes no connections");
        Server(child, Some(held))
    }

    /// Another one in its place.
    fn anew(mut self) -> Server {
        let held = self.1.take().expect("it has a port");
        drop(self);
        Server::start_at(held, &[])
    }

    fn client(&self) -> Memcached {
        let port = self.1.as_ref().expect("it has a port").number;
        Memcached::at(format!("127.0.0.1:{port}"), Health::new())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn put(name: &str, len: usize) -> Command {
    let verb = Verb::Put { value: vec![b'x'; len].into(), ttl_ms: 0, only_if: OnlyIf::Always };
    Command { verb, ..get(name.into()) }
}

/// A row of the table of refusals each, as a real server says it, and that the next command is
/// answered after it.
#[tokio::test]
async fn what_a_real_server_refuses_is_told_apart() {
    let server = Server::start(&["-M", "-m", "2"]);
    let mut memcached = server.client();
    // Longer than an item may be; a store does not send that, for it knows.
    let outcomes = memcached.execute(&[put("large", 2 << 20), put("small", 1)]).await.unwrap();
    assert_eq!(outcomes, [Outcome::TooLarge, Outcome::Done]);
    let mut refused = None;
    for n in 0..10_000 {
        let outcomes = memcached.execute(&[put(&format!("k{n}"), 1_000)]).await.unwrap();
        refused = outcomes.into_iter().find(|outcome| *outcome != Outcome::Done);
        if refused.is_some() {
            break;
        }
    }
    assert_eq!(refused, Some(Outcome::Full));
    let outcomes = memcached.execute(&[get("k1".into()), get("none".into())]).await.unwrap();
    assert!(matches!(&outcomes[0], Outcome::Value { value, .. } if value.len() == 1_000));
    assert_eq!(outcomes[1], Outcome::Absent);
}

#[tokio::test]
async fn what_is_marked_counts_as_read() {
    let server = Server::start(&[]);
    let mut memcached = server.client();
    let names = ["plain", "not plain"];
    let puts: Vec<Command> = names.iter().map(|name| put(name, 1)).collect();
    assert_eq!(memcached.execute(&puts).await.unwrap(), [Outcome::Done, Outcome::Done]);
    let mark =
        |name: &str| Command { verb: Verb::Mark(vec![(name.into(), 5)]), ..get(String::new()) };
    let marks = [mark("plain"), mark("not plain"), mark("none")];
    let outcomes = memcached.execute(&marks).await.unwrap();
    assert_eq!(outcomes, [Outcome::Done, Outcome::Done, Outcome::Absent]);
    // `h1`: it has been read since it was written.
    memcached
        .stream()
        .await
        .unwrap()
        .1
        .write_all(b"mg plain h\r\nmg bm90IHBsYWlu h b\r\n")
        .await
        .unwrap();
    for _ in names {
        let mut line = vec![];
        read_line(&mut memcached.stream().await.unwrap().0, &mut line).await.unwrap();
        assert!(line.starts_with(b"HD h1"), "{}", String::from_utf8_lossy(&line));
    }
}

/// It numbers its values from one again.
#[tokio::test]
async fn no_value_of_a_memcached_that_was_started_anew_has_a_life_of_one_before() {
    let life = |ttl_ms| {
        let verb = Verb::Put { value: b"v".to_vec().into(), ttl_ms, only_if: OnlyIf::Always };
        Command { verb, ..get("k".into()) }
    };
    let server = Server::start(&[]);
    let mut memcached = server.client();
    memcached.connect().await.unwrap();
    assert_eq!(memcached.execute(&[life(1)]).await.unwrap(), [Outcome::Done]);
    let number = memcached.numbered("k").await;
    let lives = memcached.lives.clone();
    assert!(lives.left_ns(b"k", number, 0).is_some());
    // Another connection to the same one.
    memcached.disconnect();
    memcached.connect().await.unwrap();
    assert!(lives.left_ns(b"k", number, 0).is_some(), "it is the same process");

    // Somebody else writes, for as long as it may be.
    let server = server.anew();
    let mut other = server.client();
    assert_eq!(other.execute(&[life(0)]).await.unwrap(), [Outcome::Done]);
    assert_eq!(other.numbered("k").await, number, "or this test proves nothing");
    memcached.disconnect();
    memcached.connect().await.unwrap();
    let outcomes = memcached.execute(&[get("k".into())]).await.unwrap();
    assert!(matches!(&outcomes[0], Outcome::Value { expiry_ms: 0, .. }), "{outcomes:?}");
}
