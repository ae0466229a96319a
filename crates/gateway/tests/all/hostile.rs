//! Clients that never read, or never finish what they begin, and Redis servers that are away: they
//! stop nobody else.

use std::{
    io::{ErrorKind, Write},
    net::TcpStream,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use crate::support::{Gateway, MadeUpServer, PATIENCE, Redis, command, config, of_words, until};

/// Connections to a store by which clients' writes go.
const SHARED_CONNECTIONS: usize = 16;

/// Sends as much of this as the other side takes.
fn stuff(stream: &mut TcpStream, bytes: &[u8]) {
    stream.set_nonblocking(true).unwrap();
    let mut sent = 0;
    let mut full = 0;
    while sent < bytes.len() && full < 1000 {
        match stream.write(&bytes[sent..]) {
            Ok(len) => (sent, full) = (sent + len, 0),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                full += 1;
                std::thread::yield_now();
            }
            // It was closed.
            Err(_) => return,
        }
    }
}

#[test]
fn clients_that_never_read_stop_nobody() {
    let redis = Redis::start(&[]);
    let mut config = config(&redis.url());
    config.limits.memory_bytes = 8 << 20;
    let gateway = Gateway::start(config);
    let value = "v".repeat(2000);
    let one = [command(&format!("SET k {value}")), command("GET k")].concat();
    let many = one.repeat(5_000);
    let silent: Vec<TcpStream> = (0..20)
        .map(|_| {
            let mut stream = TcpStream::connect(gateway.address).unwrap();
            stuff(&mut stream, &many);
            stream
        })
        .collect();
    let mut client = gateway.speak();
    for number in 0..100 {
        assert_eq!(client.ask(&format!("SET mine {number}")), "+OK\r\n");
        assert!(client.ask("GET mine").ends_with(&format!("\r\n{number}\r\n")));
    }
    drop(silent);
}

#[test]
fn who_does_not_read_has_a_small_part_of_each_round() {
    const HOSTILE: usize = 4;
    const EACH: usize = 40_000;
    let redis = Redis::start(&[]);
    let gateway = Gateway::start(config(&redis.url()));
    let mut client = gateway.speak();
    client.ask(&format!("SET k {}", "v".repeat(1000)));
    let many = command("GET k").repeat(EACH);
    let silent: Vec<TcpStream> =
        (0..HOSTILE).map(|_| TcpStream::connect(gateway.address).unwrap()).collect();
    std::thread::scope(|scope| {
        for stream in &silent {
            let (mut stream, many) = (stream, &many);
            // An error: this test has ended.
            scope.spawn(move || stream.write_all(many));
        }
        let processed = || gateway.counter("total_commands_processed");
        // Until the system takes no more answers for them.
        while gateway.counter("held_memory") < (HOSTILE << 20) as u64 {}
        let beside = (0..20).map(|_| {
            let before = processed();
            assert!(client.ask("GET k").ends_with("v\r\n"));
            processed() - before
        });
        // The least: where this test stood still meanwhile, others went on.
        let least = beside.min().unwrap();
        assert!(least < 300, "{least} commands of theirs for one of ours");
        assert!(processed() < (HOSTILE * EACH) as u64, "they have no more to say");
        silent.iter().for_each(|stream| _ = stream.shutdown(std::net::Shutdown::Both));
    });
}

#[test]
fn a_pipeline_may_be_written_whole_before_it_is_read() {
    let redis = Redis::start(&[]);
    let gateway = Gateway::start(config(&redis.url()));
    let mut client = gateway.speak();
    let value = "v".repeat(4000);
    client.ask(&format!("SET k {value}"));
    let answer = client.ask("GET k");
    // 40 MB of answers: more than both sides' sockets hold.
    client.say(&command("GET k").repeat(10_000));
    for _ in 0..10_000 {
        assert!(client.answer() == answer);
    }
}

#[test]
fn answers_that_nobody_reads_are_given_up_at_a_limit() {
    let redis = Redis::start(&[]);
    let mut config = config(&redis.url());
    config.limits.memory_bytes = 4 << 20;
    let gateway = Gateway::start(config);
    let mut client = gateway.speak();
    client.ask(&format!("SET k {}", "v".repeat(4000)));
    let mut silent = TcpStream::connect(gateway.address).unwrap();
    silent.set_write_timeout(Some(PATIENCE)).unwrap();
    // The gateway takes commands when it has time for them: how many fit between is not known.
    let ended = (0..10_000_000).find_map(|_| silent.write_all(&command("GET k")).err());
    let ended = ended.expect("its answers are given up").kind();
    assert!(matches!(ended, ErrorKind::ConnectionReset | ErrorKind::BrokenPipe), "{ended:?}");
    assert!(client.ask("GET k").starts_with("$4000\r\n"));
    assert_eq!(gateway.counter("memory_refusals"), 1);
}

/// Says this by a connection of its own, which ends when the gateway has read it.
fn say_and_go(gateway: &Gateway, bytes: &[u8]) {
    let question = command("INFO gateway").len() as u64;
    let mut read = gateway.counter("total_net_input_bytes") + bytes.len() as u64;
    let mut stream = TcpStream::connect(gateway.address).unwrap();
    stream.write_all(bytes).unwrap();
    loop {
        read += question;
        if gateway.counter("total_net_input_bytes") >= read {
            return;
        }
    }
}

#[test]
fn what_a_server_that_stands_still_does_not_take_is_bounded() {
    let redis = Redis::start(&[]);
    let mut config = config(&redis.url());
    config.limits.memory_bytes = 8 << 20;
    let gateway = Gateway::start(config);
    let (mut client, mut other) = (gateway.speak(), gateway.speak());
    assert_eq!(client.ask("SET k first"), "+OK\r\n");
    assert_eq!(other.ask("MULTI"), "+OK\r\n");
    assert_eq!(other.ask("SET k half"), "+QUEUED\r\n");
    redis.process.stands_still();
    let large = of_words(&[b"SET", b"large", &[b'x'; 100 << 10]]);
    // Who asks and goes leaves behind what was asked.
    (0..100).for_each(|_| say_and_go(&gateway, &large));
    let waits = gateway.counter("backlog_memory");
    assert!((4 << 20..(4 << 20) + 2 * large.len() as u64).contains(&waits), "{waits}");
    assert!(gateway.counter("memory_refusals") > 0);
    client.say(&large);
    let refused = "-TRYAGAIN nothing was done: the store takes no commands\r\n";
    assert_eq!(client.answer(), refused);
    // A transaction of which a part was refused is not carried out.
    other.say(&[large.clone(), command("EXEC")].concat());
    assert_eq!(other.answer(), refused);
    assert_eq!(other.answer(), "");
    redis.process.goes_on();
    until("all has left", || gateway.counter("backlog_memory") == 0);
    client.say(&large);
    assert_eq!(client.answer(), "+OK\r\n");
    assert_eq!(client.ask("GET k"), "$5\r\nfirst\r\n");
}

#[test]
fn commands_whose_rest_does_not_come_hold_no_memory_that_others_need() {
    let redis = Redis::start(&[]);
    let mut config = config(&redis.url());
    config.limits.memory_bytes = 4 << 20;
    let gateway = Gateway::start(config);
    let value = vec![b'x'; 1 << 20];
    let half = &of_words(&[b"SET", b"half", &value])[..600 << 10];
    let words: Vec<&[u8]> =
        [&b"MSET"[..]].into_iter().chain((0..65_535).map(|_| &b"ab"[..])).collect();
    let many = of_words(&words);
    let begun: Vec<TcpStream> = (0..20)
        .map(|number| {
            let mut stream = TcpStream::connect(gateway.address).unwrap();
            let begun = if number % 2 == 0 { half } else { &many[..many.len() - 3] };
            // Each question for the counter counts, too.
            let question = command("INFO gateway").len() as u64;
            let mut taken = gateway.counter("total_net_input_bytes") + begun.len() as u64;
            stream.write_all(begun).unwrap();
            // Until then it is one that is just coming, as the client's below.
            loop {
                taken += question;
                if gateway.counter("total_net_input_bytes") >= taken {
                    break;
                }
            }
            stream
        })
        .collect();
    let mut client = gateway.speak();
    let whole = of_words(&[b"SET", b"whole", &value]);
    for _ in 0..3 {
        client.say(&whole);
        assert_eq!(client.answer(), "+OK\r\n");
    }
    assert!(gateway.counter("held_memory") <= 4 << 20);
    drop(begun);
}

#[test]
fn a_redis_that_is_away_is_said_to_be_and_found_again() {
    let port = lab::port::held();
    let address = std::net::SocketAddr::from(([127, 0, 0, 1], port.number));
    let gateway = Gateway::start(config(&format!("redis://{address}")));
    let mut client = gateway.speak();
    client.say(&[command("GET a"), command("SET a 1"), command("MULTI")].concat());
    for _ in 0..2 {
        let said = client.answer();
        assert!(said.starts_with("-TRYAGAIN nothing was done: the store is away"), "{said}");
    }
    // A transaction that cannot be kept ends with its connection, as when Redis goes.
    assert!(client.answer().starts_with("-TRYAGAIN "));
    assert_eq!(client.answer(), "");
    // Now something is there.
    let listener = std::net::TcpListener::bind(address).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut server = MadeUpServer::new(stream.unwrap());
            std::thread::spawn(move || {
                while server.next().is_some_and(|words| words == "GET a") {
                    server.answer(b"$1\r\n1\r\n");
                }
            });
        }
    });
    let mut client = gateway.speak();
    until("it is found again", || client.ask("GET a") == "$1\r\n1\r\n");
}

#[test]
fn a_lost_answer_of_a_write_is_in_doubt_and_of_a_read_is_not() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let gateway = Gateway::start(config(&format!("redis://{}", listener.local_addr().unwrap())));
    let server = std::thread::spawn(move || {
        // By the first it is asked what it has.
        let mut asked = MadeUpServer::new(listener.accept().unwrap().0);
        std::thread::spawn(move || asked.next());
        let mut server = MadeUpServer::new(listener.accept().unwrap().0);
        assert_eq!(server.next().unwrap(), "SET a 1");
        assert_eq!(server.next().unwrap(), "GET a");
    });
    let mut client = gateway.speak();
    client.say(&[command("SET a 1"), command("GET a")].concat());
    assert!(client.answer().starts_with("-ERR outcome unknown: "));
    assert!(client.answer().starts_with("-TRYAGAIN no answer from the store"));
    server.join().unwrap();
}

/// Tells a test that it is its own child, which has few descriptors.
const FEW_DESCRIPTORS: &str = "GATEWAY_TEST_FEW_DESCRIPTORS";

#[test]
fn a_connection_for_which_there_was_no_descriptor_is_taken_when_there_is_one() {
    if std::env::var_os(FEW_DESCRIPTORS).is_none() {
        let name = std::thread::current().name().unwrap().to_string();
        let mut child = std::process::Command::new("sh");
        child.args(["-c", "ulimit -n 64 && exec \"$0\" \"$@\""]);
        child.arg(std::env::current_exe().unwrap()).args(["--exact", &name, "--nocapture"]);
        let output = child.env(FEW_DESCRIPTORS, "1").output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        return;
    }
    let gateway = Gateway::start(config("redis://127.0.0.1:1"));
    let mut before = gateway.speak();
    assert!(before.ask("INFO gateway").contains("connected_clients:1\r\n"));
    let mut taken: Vec<std::fs::File> = vec![];
    while let Ok(file) = std::fs::File::open("/dev/null") {
        taken.push(file);
    }
    taken.pop();
    let mut waits = gateway.speak();
    // What the loop hears of after the connection it does after it, too.
    assert!(before.ask("INFO gateway").contains("connected_clients:1\r\n"));
    drop(taken);
    assert!(waits.ask("INFO gateway").contains("connected_clients:2\r\n"));
}

/// What such a server has met: commands that are slow, and connections by which they came.
#[derive(Default)]
struct SlowCommands {
    commands: AtomicUsize,
    connections: AtomicUsize,
}

/// A server that answers nothing on a connection by which `SET slow` has come, and all on others.
fn stuck_by_slow(listener: std::net::TcpListener, met: Arc<SlowCommands>) {
    for stream in listener.incoming() {
        let Ok(stream) = stream else { return };
        let met = met.clone();
        std::thread::spawn(move || {
            let mut server = MadeUpServer::new(stream);
            let mut is_stuck = false;
            while let Some(words) = server.next() {
                if words.contains("slow") {
                    met.connections.fetch_add(usize::from(!is_stuck), Relaxed);
                    met.commands.fetch_add(1, Relaxed);
                    is_stuck = true;
                }
                if !is_stuck {
                    server.answer(b"+PONG\r\n");
                }
            }
        });
    }
}

#[test]
fn a_command_that_the_store_carries_out_slowly_does_not_stop_others() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let gateway = Gateway::start(config(&format!("redis://{}", listener.local_addr().unwrap())));
    std::thread::spawn(move || stuck_by_slow(listener, Arc::default()));
    let mut slow = gateway.speak();
    slow.say(&command("SET slow 1"));
    let began = std::time::Instant::now();
    // Those that come in its first moments may be behind it.
    while began.elapsed() < PATIENCE {
        let mut other = gateway.speak();
        other.stream.set_read_timeout(Some(std::time::Duration::from_secs(1))).unwrap();
        other.say(&command("PING"));
        let mut answer = [0; 7];
        if std::io::Read::read_exact(&mut other.stream, &mut answer).is_ok() {
            assert_eq!(&answer, b"+PONG\r\n");
            // And everybody from now on.
            assert_eq!(gateway.speak().ask("PING"), "+PONG\r\n");
            gateway.give_up();
            return;
        }
    }
    panic!("everybody waits for one command");
}

/// As those of a Redis that is told to pause writes.
#[test]
fn writes_that_all_wait_do_not_stop_reads() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let gateway = Gateway::start(config(&format!("redis://{}", listener.local_addr().unwrap())));
    let met = Arc::new(SlowCommands::default());
    let server = met.clone();
    std::thread::spawn(move || stuck_by_slow(listener, server));
    assert_eq!(gateway.speak().ask("GET a"), "+PONG\r\n");
    // By as many connections as there are; who has gone has asked all the same.
    until("writes wait everywhere", || {
        let before = met.commands.load(Relaxed);
        gateway.speak().say(&command("SET slow 1"));
        until("it is there", || met.commands.load(Relaxed) > before);
        met.connections.load(Relaxed) == SHARED_CONNECTIONS
    });
    assert_eq!(gateway.speak().ask("GET a"), "+PONG\r\n");
    gateway.give_up();
}

/// They are left where their client has them.
#[test]
fn of_commands_that_a_server_does_not_take_few_are_read() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let gateway = Gateway::start(config(&format!("redis://{}", listener.local_addr().unwrap())));
    std::thread::spawn(move || {
        let mut streams: Vec<_> = vec![];
        for stream in listener.incoming() {
            // It says what it has, and then nothing.
            let mut server = MadeUpServer::new(stream.unwrap());
            streams.push(std::thread::spawn(move || {
                server.next();
                std::thread::park();
            }));
        }
    });
    let value = vec![b'x'; 256 << 10];
    let commands = of_words(&[b"SET", b"k", &value]).repeat(200);
    let mut stream = TcpStream::connect(gateway.address).unwrap();
    stuff(&mut stream, &commands);
    // Whatever more it reads of them it has read when it has answered so often.
    let read = (0..1000).map(|_| gateway.counter("total_net_input_bytes")).max();
    assert!(read < Some(4 << 20), "{read:?} bytes were read");
    gateway.give_up();
}

#[test]
fn a_store_that_lets_everybody_in_and_says_nothing_is_said_to_be_away() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let gateway = Gateway::start(config(&format!("redis://{}", listener.local_addr().unwrap())));
    std::thread::spawn(move || listener.incoming().for_each(drop));
    let mut client = gateway.speak();
    for _ in 0..3 {
        let said = client.ask("GET a");
        assert!(said.starts_with("-TRYAGAIN "), "{said}");
    }
}

#[test]
fn a_store_that_does_not_say_what_commands_it_has_is_not_waited_for_without_end() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let gateway = Gateway::start(config(&format!("redis://{}", listener.local_addr().unwrap())));
    let mut client = gateway.speak();
    // It takes connections, and nobody answers.
    let said = client.ask("GET a");
    assert!(said.starts_with("-TRYAGAIN "), "{said}");
    drop(listener);
    gateway.give_up();
}

/// More than one connection may hold, and than both sides' sockets do.
#[test]
fn who_reads_what_it_asked_for_is_answered_however_much_that_is() {
    let redis = Redis::start(&[]);
    let gateway = Gateway::start(config(&redis.url()));
    let mut client = gateway.speak();
    let value = vec![b'x'; 1_000_000];
    client.say(&of_words(&[b"SET", b"k", &value]));
    assert_eq!(client.answer(), "+OK\r\n");
    client.say(&command("GET k").repeat(250));
    for _ in 0..250 {
        assert_eq!(client.answer().len(), value.len() + 12);
    }
    assert_eq!(gateway.counter("memory_refusals"), 0);
}
