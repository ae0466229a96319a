//! What Redis would say, and in its order.

use std::{
    io::Read,
    net::TcpStream,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::Instant,
};

use crate::support::{Gateway, MadeUpServer, PATIENCE, Redis, command, config, until};

/// Said to the gateway, and to a Redis beside the one behind it, one by one, on one connection.
const ALIKE: &[&str] = &[
    "PING",
    "ECHO a",
    "SET a 1",
    "GET a",
    "INCR a",
    "APPEND a x",
    "GET a",
    "INCR a",
    "GETRANGE a 0 0",
    "LPUSH l 1 2 3",
    "LRANGE l 0 -1",
    "GET l",
    "HSET h f v",
    "HGETALL h",
    "ZADD z 1 a 2 b",
    "ZRANGE z 0 -1 WITHSCORES",
    "nosuch a b",
    "GET",
    "GET a b",
    "SET a",
    "TYPE l",
    "DEL a l h z",
    // A transaction is one, and is none if it is given up.
    "SET a 1",
    "MULTI",
    "SET a 2",
    "GET a",
    "DISCARD",
    "GET a",
    "MULTI",
    "SET a 3",
    "INCR a",
    "EXEC",
    "GET a",
    "EXEC",
    "DISCARD",
    "MULTI",
    "MULTI",
    "nosuch",
    "EXEC",
    "GET a",
    "WATCH a",
    "SET a 5",
    "MULTI",
    "SET a 6",
    "EXEC",
    "GET a",
    "WATCH a",
    "UNWATCH",
    "GET a",
    "SELECT 1",
    "GET a",
    "SET a other",
    "SELECT 0",
    "GET a",
    // What is queued counts if it is carried out.
    "SELECT 1",
    "MULTI",
    "SELECT 0",
    "DISCARD",
    "SET a first",
    "SELECT 0",
    "GET a",
    "MULTI",
    "DISCARD x",
    "GET a",
    "EXEC",
    "GET a",
    "SELECT 99",
    "SELECT x",
    "GET a",
    "EVAL return{1,'a'} 0",
    "SCRIPT EXISTS a",
    "EVALSHA abc 0",
    "BLPOP none 0.01",
    "RPUSH l 1",
    "BLPOP l 0",
    "XADD s 1-1 f v",
    "XREAD COUNT 1 STREAMS s 0",
    "OBJECT ENCODING a",
    "CLIENT SETNAME me",
    "CLIENT GETNAME",
    "CLIENT SETNAME",
    "CLIENT NOSUCH",
    "HELLO 4",
    "HELLO x",
    "AUTH a wrong",
    "HELLO 3 AUTH a wrong",
    "CLIENT GETNAME",
    "HELLO 2 NOSUCH",
    "RESET x",
    "CLIENT GETNAME",
    "MULTI",
    "RESET x",
    "EXEC",
    "RESET",
    "GET none",
    "CLIENT GETNAME",
    "DBSIZE",
    "FLUSHALL",
    "DBSIZE",
];

#[test]
fn commands_are_answered_as_by_redis() {
    let (behind, beside) = (Redis::start(&[]), Redis::start(&[]));
    let gateway = Gateway::start(config(&behind.url()));
    let (mut ours, mut theirs) = (gateway.speak(), beside.speak());
    for line in ALIKE {
        assert_eq!(ours.ask(line), theirs.ask(line), "{line}");
    }
}

#[test]
fn the_same_in_the_newer_protocol() {
    let (behind, beside) = (Redis::start(&[]), Redis::start(&[]));
    let gateway = Gateway::start(config(&behind.url()));
    let (mut ours, mut theirs) = (gateway.speak(), beside.speak());
    assert!(ours.ask("HELLO 3").starts_with("%7\r\n"));
    theirs.ask("HELLO 3");
    for line in ALIKE.iter().filter(|line| **line != "RESET") {
        assert_eq!(ours.ask(line), theirs.ask(line), "{line}");
    }
}

/// Written at once, and without a Redis of its own or with one, so that commands change their way.
#[test]
fn a_pipeline_is_answered_in_its_order() {
    for direct in [false, true] {
        let (behind, beside) = (Redis::start(&[]), Redis::start(&[]));
        let mut config = config(&behind.url());
        config.backends.extend(direct.then(|| behind.url().parse().unwrap()));
        let gateway = Gateway::start(config);
        let (mut ours, mut theirs) = (gateway.speak(), beside.speak());
        let lines: Vec<&str> = ALIKE.iter().cycle().copied().take(20 * ALIKE.len()).collect();
        let bytes: Vec<u8> = lines.iter().flat_map(|line| command(line)).collect();
        for some in bytes.chunks(10_000) {
            ours.say(some);
        }
        for line in lines {
            assert_eq!(ours.answer(), theirs.ask(line), "{line}, direct: {direct}");
        }
    }
}

#[test]
fn what_redis_refuses_is_passed_on() {
    let redis = Redis::start(&[]);
    let gateway = Gateway::start(config(&redis.url()));
    let mut client = gateway.speak();
    client.ask("SET a 1");
    redis.speak().ask("CONFIG SET maxmemory 1");
    assert!(client.ask("SET a 2").starts_with("-OOM command not allowed"));
    redis.speak().ask("CONFIG SET maxmemory 0");
    redis.speak().ask("REPLICAOF 127.0.0.1 1");
    assert!(client.ask("SET a 2").starts_with("-READONLY "));
}

#[test]
fn users_are_redis_s() {
    let redis = Redis::start(&["--requirepass", "secret"]);
    let gateway = Gateway::start(config(&redis.url()));
    let mut client = gateway.speak();
    assert!(client.ask("GET a").starts_with("-NOAUTH "));
    assert!(client.ask("HELLO 3").starts_with("-NOAUTH "));
    assert!(client.ask("INFO gateway").starts_with("-NOAUTH "));
    assert!(client.ask("SELECT 0").starts_with("-NOAUTH "));
    assert!(client.ask("AUTH wrong").starts_with("-WRONGPASS "));
    assert!(client.ask("GET a").starts_with("-NOAUTH "));
    assert_eq!(client.ask("AUTH secret"), "+OK\r\n");
    assert_eq!(client.ask("SET a 1"), "+OK\r\n");
    assert_eq!(client.ask("ACL SETUSER reader on >r ~a +get"), "+OK\r\n");
    let mut reader = gateway.speak();
    assert!(reader.ask("HELLO 3 AUTH reader r").starts_with("%7\r\n"));
    assert_eq!(reader.ask("GET a"), "$1\r\n1\r\n");
    assert!(reader.ask("SET a 2").starts_with("-NOPERM "));
    assert!(
        gateway.speak().ask("GET a").starts_with("-NOAUTH "),
        "another's login is not everybody's"
    );
    assert!(client.ask("INFO gateway").contains("connected_clients"));
    assert_eq!(client.ask("SELECT 0"), "+OK\r\n");
    // By those who need not log in any more.
    let mut other = gateway.speak();
    assert!(other.ask("INFO gateway").starts_with("-NOAUTH "));
    assert_eq!(client.ask("CONFIG SET requirepass "), "+OK\r\n");
    until("nobody need log in", || other.ask("SELECT 0") == "+OK\r\n");
}

#[test]
fn messages_come_to_those_who_subscribe() {
    let redis = Redis::start(&[]);
    let gateway = Gateway::start(config(&redis.url()));
    for protocol in ["2", "3"] {
        let (mut listener, mut speaker) = (gateway.speak(), gateway.speak());
        assert!(!listener.ask(&format!("HELLO {protocol}")).starts_with('-'));
        assert!(listener.ask("SUBSCRIBE news").contains("subscribe"));
        assert_eq!(speaker.ask("PUBLISH news today"), ":1\r\n");
        let said = listener.answer();
        assert!(said.ends_with("$7\r\nmessage\r\n$4\r\nnews\r\n$5\r\ntoday\r\n"), "{said}");
        assert!(listener.ask("UNSUBSCRIBE").contains("unsubscribe"));
        assert!(listener.ask("PING").contains("PONG"));
    }
    let (mut monitor, mut speaker) = (gateway.speak(), gateway.speak());
    assert_eq!(monitor.ask("MONITOR"), "+OK\r\n");
    speaker.ask("SET seen 1");
    assert!(monitor.answer().contains("\"seen\""));
}

#[test]
fn what_is_said_behind_a_subscription_is_heard() {
    let redis = Redis::start(&[]);
    let gateway = Gateway::start(config(&redis.url()));
    let mut client = gateway.speak();
    client.say(&[command("SUBSCRIBE a"), command("SUBSCRIBE b"), command("PING")].concat());
    for said in ["subscribe\r\n$1\r\na", "subscribe\r\n$1\r\nb", "pong"] {
        assert!(client.answer().contains(said), "{said:?}");
    }
}

#[test]
fn clients_are_found_by_their_names_and_ended() {
    let redis = Redis::start(&[]);
    let gateway = Gateway::start(config(&redis.url()));
    let (mut one, mut other) = (gateway.speak(), gateway.speak());
    one.ask("CLIENT SETNAME one");
    other.ask("CLIENT SETNAME other");
    let list = one.ask("CLIENT LIST");
    let line = list.lines().find(|line| line.contains(" name=other ")).unwrap();
    let id = line.split(' ').next().unwrap().trim_start_matches("id=");
    assert_eq!(other.ask("CLIENT ID"), format!(":{id}\r\n"));
    assert_eq!(one.ask(&format!("CLIENT KILL ID {id}")), ":1\r\n");
    assert_eq!(other.answer(), "", "its connection has ended");
}

#[test]
fn a_client_s_cache_is_told_of_changes() {
    let redis = Redis::start(&[]);
    let gateway = Gateway::start(config(&redis.url()));
    let (mut client, mut writer) = (gateway.speak(), gateway.speak());
    assert!(client.ask("HELLO 3").starts_with('%'));
    assert_eq!(client.ask("CLIENT TRACKING ON"), "+OK\r\n");
    client.ask("GET a");
    writer.ask("SET a 1");
    assert_eq!(client.answer(), ">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\na\r\n");
}

#[test]
fn web_pages_are_closed_without_an_answer() {
    let redis = Redis::start(&[]);
    let gateway = Gateway::start(config(&redis.url()));
    for line in ["POST / HTTP/1.1\r\n", "host: a\r\n", "SET /a HTTP/1.1\r\n", "\x16\x03\x01\r\n"] {
        let mut page = gateway.speak();
        page.say(line.as_bytes());
        page.say(b"SET a 1\r\n");
        assert_eq!(page.answer(), "", "{line:?}");
    }
    let mut typed = gateway.speak();
    typed.say(b"set  a 'b c'\r\nGET a\r\n");
    assert_eq!([typed.answer(), typed.answer()], ["+OK\r\n", "$3\r\nb c\r\n"]);
    assert_eq!(gateway.counter("foreign_protocols"), 4);
}

#[test]
fn another_server_is_asked_anew_what_commands_it_has() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let gateway = Gateway::start(config(&format!("redis://{}", listener.local_addr().unwrap())));
    let has_left = std::sync::Arc::new(AtomicBool::new(false));
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (stream, has_left) = (stream.unwrap(), has_left.clone());
            std::thread::spawn(move || {
                let command = if has_left.load(Relaxed) { "new" } else { "old" };
                let mut server = MadeUpServer::with_command(stream, command);
                while let Some(words) = server.next() {
                    has_left.fetch_or(words == "leave", Relaxed);
                    server.answer(b"+OK\r\n");
                    if words == "leave" {
                        return;
                    }
                }
            });
        }
    });
    let mut client = gateway.speak();
    let known = |name: &str| gateway.speak().ask("INFO gateway").contains(&format!("_{name}:"));
    for name in ["old", "new", "leave"] {
        assert_eq!(client.ask(name), "+OK\r\n");
    }
    assert!(known("old") && !known("new"), "the first server has no command of this name");
    while !known("new") {
        client.ask("new");
    }
}

/// What was sent and the end of it may come together.
#[test]
fn who_has_said_all_is_answered_and_let_go() {
    let redis = Redis::start(&[]);
    let gateway = Gateway::start(config(&redis.url()));
    for _ in 0..100 {
        let mut client = gateway.speak();
        client.say(&command("PING"));
        client.stream.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!([client.answer(), client.answer()], ["+PONG\r\n", ""]);
    }
    // By a connection of its own, of which others do not wait.
    assert_eq!(gateway.speak().ask("XADD s 1-1 f v"), "$3\r\n1-1\r\n");
    for line in ["XREAD COUNT 1 STREAMS s 0", "ACL SAVE", "FAILOVER ABORT", "CLIENT ID"] {
        for _ in 0..20 {
            let mut client = gateway.speak();
            client.say(&command(line));
            client.stream.shutdown(std::net::Shutdown::Write).unwrap();
            assert!(!client.answer().is_empty(), "{line}");
            assert_eq!(client.answer(), "");
        }
    }
    until("all have gone", || gateway.counter("connected_clients") == 1);
}

/// It waits for no answer, so it does not stay until there is none to come.
#[test]
fn what_somebody_said_who_wants_no_answers_is_carried_out() {
    let redis = Redis::start(&[]);
    let gateway = Gateway::start(config(&redis.url()));
    let mut others = redis.speak();
    for number in 0..20 {
        let mut said = command("CLIENT REPLY OFF");
        said.extend(command(&format!("SET filler {}", "x".repeat(1000))).repeat(100));
        said.extend(command(&format!("SET last {number}")));
        gateway.speak().say(&said);
        let expected = format!("\r\n{number}\r\n");
        until("the last is carried out", || others.ask("GET last").ends_with(&expected));
    }
    until("all have gone", || gateway.counter("connected_clients") == 1);
}

#[test]
fn who_has_gone_takes_nothing_that_others_wait_for() {
    let redis = Redis::start(&[]);
    let gateway = Gateway::start(config(&redis.url()));
    let mut others = redis.speak();
    let mut client = gateway.speak();
    // More than the one command that waits: behind it, or by the same connection.
    for (database, before, then) in [("0", "PING", "GET a"), ("1", "SELECT 1", "PING")] {
        assert!(client.ask(before).starts_with('+'));
        client.say(&[command("BLPOP queue 0"), command(then)].concat());
        until("it waits", || others.ask("INFO clients").contains("blocked_clients:1"));
        drop(std::mem::replace(&mut client, gateway.speak()));
        until("it is gone", || others.ask("INFO clients").contains("blocked_clients:0"));
        others.ask(&format!("SELECT {database}"));
        assert_eq!(others.ask("RPUSH queue job"), ":1\r\n");
        assert_eq!(others.ask("LLEN queue"), ":1\r\n");
    }
}

/// A replica that stands still has nothing of what is written now, whichever way that went.
#[test]
fn a_write_counts_as_replicated_when_it_is() {
    let held = lab::port::held();
    let port = held.number.to_string();
    let redis = Redis::start(&["--port", &port, "--bind", "127.0.0.1"]);
    let replica = Redis::start(&["--replicaof", "127.0.0.1", &port]);
    let gateway = Gateway::start(config(&redis.url()));
    let mut client = gateway.speak();
    until("there is a replica", || redis.speak().ask("INFO replication").contains("state=online"));
    replica.process.stands_still();
    for number in 0..3 {
        assert_eq!(client.ask(&format!("SET a {number}")), "+OK\r\n");
        assert_eq!(client.ask("WAIT 1 50"), ":0\r\n", "{number}");
    }
    // Behind what was written by a connection that is shared.
    let mut other = gateway.speak();
    assert_eq!(other.ask("SET b 1"), "+OK\r\n");
    let transaction = ["MULTI", "SET c 1", "EXEC"].map(command).concat();
    other.say(&[transaction, command("WAIT 1 0")].concat());
    let answers: Vec<String> = std::iter::repeat_with(|| other.answer()).take(3).collect();
    assert_eq!(answers.concat(), "+OK\r\n+QUEUED\r\n*1\r\n+OK\r\n");
    replica.process.goes_on();
    assert_eq!(client.ask("SET a last"), "+OK\r\n");
    assert_eq!(client.ask("WAIT 1 0"), ":1\r\n");
    assert_eq!(other.answer(), ":1\r\n");
}

/// A server says of a connection that has written nothing that all replicas have that.
#[test]
fn what_writes_nothing_is_not_what_replicas_have() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let gateway = Gateway::start(config(&format!("redis://{}", listener.local_addr().unwrap())));
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut server = MadeUpServer::with_command(stream.unwrap(), "incr");
            std::thread::spawn(move || {
                while let Some(words) = server.next() {
                    server.answer(match &words[..] {
                        "WAIT 1 1000" => b":1\r\n",
                        "EXEC" => b"*-1\r\n",
                        "BLPOP queue 1" => b"*2\r\n+queue\r\n+job\r\n",
                        _ => b"+OK\r\n",
                    });
                }
            });
        }
    });
    let rows = [
        &["MULTI", "DISCARD"][..],
        &["MULTI", "SET b 1", "EXEC"],
        &["MULTI", "EXEC"],
        &["BLPOP queue 1"],
        &["CLIENT ID"],
        &["SELECT 1", "SELECT 0"],
    ];
    for row in rows {
        let mut client = gateway.speak();
        assert_eq!(client.ask("SET a 1"), "+OK\r\n");
        row.iter().for_each(|line| _ = client.ask(line));
        assert_eq!(client.ask("WAIT 1 1000"), ":0\r\n", "{row:?}");
        assert_eq!(client.ask("WAIT 1 1000"), ":0\r\n", "{row:?}");
    }
    let mut client = gateway.speak();
    for line in ["MULTI", "SET a 1", "EXEC", "SELECT 1", "SELECT 0"] {
        client.ask(line);
    }
    assert_eq!(client.ask("WAIT 1 1000"), ":0\r\n", "what has written is gone");
    assert_eq!(gateway.speak().ask("WAIT 1 1000"), ":1\r\n");
}

#[test]
fn who_says_half_a_command_and_no_more_is_let_go() {
    let redis = Redis::start(&[]);
    let gateway = Gateway::start(config(&redis.url()));
    for said in [&b"*1\r\n$4\r\nPI"[..], b"PING", b"*2\r\n"] {
        let mut client = gateway.speak();
        client.say(said);
        client.stream.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(client.answer(), "");
    }
}

/// Also what waits for the answers to others before it.
#[test]
fn what_was_sent_is_answered_when_the_gateway_stops() {
    let redis = Redis::start(&[]);
    let gateway = Gateway::start(config(&redis.url()));
    let mut client = gateway.speak();
    assert_eq!(client.ask("PING"), "+PONG\r\n");
    let said = ["SET a 1", "MULTI", "INCR a", "EXEC", "CLIENT SETNAME x", "GET a"].map(command);
    client.say(&said.concat());
    drop(gateway);
    let answers: Vec<String> = std::iter::repeat_with(|| client.answer()).take(7).collect();
    assert_eq!(answers.concat(), "+OK\r\n+OK\r\n+QUEUED\r\n*1\r\n:2\r\n+OK\r\n$1\r\n2\r\n");
}

/// Also what is more than is read at once, or carried out at a time.
#[test]
fn many_commands_are_answered_when_the_gateway_stops() {
    const MANY: usize = 2000;
    let redis = Redis::start(&[]);
    let gateway = Gateway::start(config(&redis.url()));
    let (mut client, mut hearer) = (gateway.speak(), gateway.speak());
    assert_eq!(client.ask("SET a 0"), "+OK\r\n");
    assert!(hearer.ask("SUBSCRIBE news").starts_with("*3\r\n"));
    redis.process.stands_still();
    client.say(&command("INCR a").repeat(MANY));
    hearer.say(&command("PING").repeat(MANY));
    let address = gateway.address;
    std::thread::scope(|scope| {
        scope.spawn(|| drop(gateway));
        until("it takes nobody any more", || TcpStream::connect(address).is_err());
        redis.process.goes_on();
        for number in 1..=MANY {
            assert_eq!(client.answer(), format!(":{number}\r\n"));
        }
        for _ in 0..MANY {
            assert_eq!(hearer.answer(), "*2\r\n$4\r\npong\r\n$0\r\n\r\n");
        }
        assert_eq!([client.answer(), hearer.answer()], ["", ""]);
    });
}

#[test]
fn what_is_no_command_says_nothing_about_another_client_s() {
    let redis = Redis::start(&[]);
    let gateway = Gateway::start(config(&redis.url()));
    let mut other = gateway.speak();
    for _ in 0..3 {
        let mut client = gateway.speak();
        client.say(b"*1000\r\n$4\r\nmget\r\n*2\r\n");
        assert_eq!(client.answer(), "-ERR Protocol error: expected '$', got '*'\r\n");
        assert_eq!(other.ask("PING"), "+PONG\r\n");
    }
}

/// Who subscribes and goes on without waiting for the answer, as some clients' libraries do, is
/// told what others publish from then on.
#[test]
fn a_message_comes_behind_the_subscriptions_that_were_said_before_it() {
    let redis = Redis::start(&[]);
    let gateway = Gateway::start(config(&redis.url()));
    let mut publisher = gateway.speak();
    // A Redis that stands still for long enough is not waited for.
    until("each message has its hearer", || {
        (0..200).all(|_| {
            let mut hearer = gateway.speak();
            assert_eq!(hearer.ask("PING"), "+PONG\r\n");
            hearer.say(&command("SUBSCRIBE news"));
            publisher.ask("PUBLISH news it") == ":1\r\n"
        })
    });
    // One that is never confirmed is not waited for without an end.
    let mut other = gateway.speak();
    assert_eq!(other.ask("PING"), "+PONG\r\n");
    other.say(&command("SUBSCRIBE"));
    assert_eq!(publisher.ask("PUBLISH old news"), ":0\r\n");
}

/// More of it than is read ahead for a client, on a gateway that has nothing else to do.
#[test]
fn a_long_answer_by_a_connection_of_its_own_does_not_wait_for_something_else_to_happen() {
    let held = lab::port::held();
    let port = held.number.to_string();
    let _redis = Redis::start(&["--port", &port, "--bind", "127.0.0.1"]);
    let gateway = Gateway::start(config(&format!("redis://127.0.0.1:{port}")));
    let mut client = gateway.speak();
    let value = "v".repeat(1 << 20);
    assert_eq!(client.ask(&format!("SET long {value}")), "+OK\r\n");
    assert!(client.ask("HELLO 3").starts_with('%'));
    assert_eq!(client.ask("CLIENT TRACKING ON"), "+OK\r\n");
    // The next thing that would happen is ten seconds away, at each of them.
    let began = Instant::now();
    let mut answer = vec![0; value.len() + 12];
    for _ in 0..200 {
        client.say(&command("GET long"));
        client.stream.read_exact(&mut answer).unwrap();
        assert!(answer.ends_with(b"v\r\n") && began.elapsed() < PATIENCE);
    }
}

#[test]
fn a_client_keeps_its_name_when_its_own_connection_changes() {
    let redis = Redis::start(&[]);
    let gateway = Gateway::start(config(&redis.url()));
    for said in [
        &["SELECT 1", "CLIENT SETNAME app", "SELECT 0"][..],
        &["HELLO 3 SETNAME app", "SELECT 1", "SELECT 0"],
        &["SELECT 1", "HELLO 3 SETNAME app", "SELECT 0"],
        &["CLIENT SETNAME app", "CLIENT SETNAME \n", "SELECT 1", "SELECT 0"],
    ] {
        let mut client = gateway.speak();
        said.iter().for_each(|line| _ = client.ask(line));
        assert_eq!(client.ask("CLIENT GETNAME"), "$3\r\napp\r\n", "{said:?}");
    }
    let mut client = gateway.speak();
    for line in ["CLIENT SETNAME app", "CLIENT SETNAME ", "SELECT 1", "SELECT 0"] {
        assert_eq!(client.ask(line), "+OK\r\n");
    }
    assert_eq!(client.ask("CLIENT GETNAME"), "$-1\r\n", "it has none any more");
}

#[test]
fn who_waits_for_what_may_never_come_holds_up_no_end() {
    let redis = Redis::start(&[]);
    let gateway = Gateway::start(config(&redis.url()));
    let mut others = redis.speak();
    let mut clients: Vec<_> = (0..2).map(|_| gateway.speak()).collect();
    for client in &mut clients {
        assert_eq!(client.ask("PING"), "+PONG\r\n");
    }
    clients[0].say(&command("BLPOP queue 0"));
    // What is behind it waits, too.
    clients[1].say(&[command("BLPOP queue 0"), command("GET a")].concat());
    until("they wait", || others.ask("INFO clients").contains("blocked_clients:2"));
    // Who has not ended when the gateway gives up stays connected.
    drop(gateway);
    for client in &mut clients {
        assert_eq!(client.answer(), "");
    }
    assert_eq!(others.ask("RPUSH queue job"), ":1\r\n");
    assert_eq!(others.ask("LLEN queue"), ":1\r\n", "nobody has taken it who is gone");
}
