//! Real clients through a real gateway: redis-cli and redis-benchmark, a store, and a Redis
//! behind it.
//!
//! All on loopback, with a Redis of the test's own that writes nothing to disk. redis-server,
//! redis-cli and redis-benchmark are needed.

use std::{
    collections::HashSet,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use lab::{interrupt, port};

/// Processes that end with the test, however it ends.
#[derive(Default)]
struct Rack {
    children: Vec<Child>,
    redis: u16,
    gateway: u16,
    store: String,
    /// What the gateway seals with.
    seal_key: Option<PathBuf>,
    /// Holds what the Redis asks for.
    password_file: Option<PathBuf>,
}

impl Drop for Rack {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// How long anything may take on a machine that is busy with something else.
const PATIENCE: Duration = Duration::from_secs(90);

fn needs(program: &str) {
    let version = Command::new(program).arg("--version").output();
    let found = version.is_ok_and(|output| output.status.success());
    assert!(found, "{program} is needed and not installed (Debian: redis-server, redis-tools)");
}

impl Rack {
    /// Starts a process; returns when it accepts connections at this port of TCP, if it is to.
    fn start(&mut self, program: &str, words: &[&str], port: Option<u16>) {
        let child =
            Command::new(program).args(words).stdin(Stdio::null()).stdout(Stdio::null()).spawn();
        self.children.push(child.expect(program));
        let child = self.children.last_mut().unwrap();
        if let Some(port) = port {
            let up = port::listens(port, PATIENCE, || child.try_wait().unwrap().is_none());
            assert!(up, "{program} {words:?}: {:?}", child.try_wait());
        }
    }

    /// A Redis, a store before it and a gateway; the gateway knows the Redis or not.
    fn on_redis(with_backend: bool) -> Rack {
        Rack::default().start_on_redis(with_backend)
    }

    fn start_on_redis(mut self, with_backend: bool) -> Rack {
        for tool in ["redis-server", "redis-cli", "redis-benchmark"] {
            needs(tool);
        }
        let rack = &mut self;
        rack.redis = port::free();
        let port = rack.redis.to_string();
        rack.start(
            "redis-server",
            &["--port", &port, "--save", "", "--bind", "127.0.0.1"],
            Some(rack.redis),
        );
        if let Some(file) = &rack.password_file {
            let password = std::fs::read_to_string(file).unwrap();
            let command = format!("config set requirepass {password}");
            assert_eq!(cli_at(rack.redis, &[&command]), ["OK"]);
        }
        let url = format!("redis://127.0.0.1:{port}");
        rack.store_and_gateway(&url, with_backend.then_some(&url[..]));
        self
    }

    fn store_and_gateway(&mut self, backend: &str, direct: Option<&str>) {
        let shortstop = env!("CARGO_BIN_EXE_shortstop");
        let store = format!("127.0.0.1:{}", port::free());
        let password_file = self.password_file.clone();
        let password: Vec<&str> = password_file
            .iter()
            .flat_map(|file| ["--backend-password-file", file.to_str().unwrap()])
            .collect();
        self.store.clone_from(&store);
        let mut words = vec!["store", "--listen", &store, "--backend", backend];
        words.extend(&password);
        self.start(shortstop, &words, None);
        self.gateway = port::free();
        let listen = format!("127.0.0.1:{}", self.gateway);
        let mut words = vec!["gateway", "--server", &store, "--listen", &listen];
        words.extend(direct.into_iter().flat_map(|url| ["--backend", url]));
        words.extend(password);
        let seal_key = self.seal_key.clone();
        let seal_key = seal_key.as_ref().and_then(|file| file.to_str());
        words.extend(seal_key.into_iter().flat_map(|file| ["--seal-key", file]));
        self.start(shortstop, &words, Some(self.gateway));
        // The store takes no writes for its first two seconds, and a client waits no longer
        // than that.
        let deadline = Instant::now() + PATIENCE;
        while self.cli(&["set ready yes"]) != ["OK"] {
            assert!(Instant::now() < deadline, "the store takes no writes");
        }
    }

    /// What redis-cli prints for these commands, given on its standard input.
    fn cli(&self, commands: &[&str]) -> Vec<String> {
        cli_at(self.gateway, commands)
    }

    /// Likewise for commands that may be carried out again, until none of them is in doubt.
    fn sure(&self, commands: &[&str]) -> Vec<String> {
        let is_late = |said: &Vec<String>| said.iter().any(|line| is_in_doubt(line));
        until_sure(&format!("{:.40}", commands.concat()), || self.cli(commands), is_late)
    }

    /// Types the commands of rows, one after the other, and looks whether what is printed is what
    /// the row says. If one of them is in doubt all begin anew, without the keys that they make.
    fn types<E>(
        &self,
        rows: &[(impl AsRef<str>, E)],
        keys: &[&str],
        is_so: impl Fn(&[String], &E) -> bool,
    ) {
        let is_sure = |(command, expected): &(_, E)| {
            let command: &str = AsRef::as_ref(command);
            let said = self.cli(&[command]);
            let is_sure = !said.iter().any(|line| is_in_doubt(line));
            let is_good = !is_sure || is_so(&said, expected);
            assert!(is_good, "{command:.40}: {:.200}", said.join("|"));
            is_sure
        };
        let done = interrupt::wait_for("rows of which none is in doubt", PATIENCE, || {
            if rows.iter().all(is_sure) {
                return Ok(Some(()));
            }
            keys.iter().for_each(|key| drop(self.sure(&[&format!("del {key}")])));
            Ok(None)
        });
        done.unwrap();
    }
}

fn cli_at(port: u16, commands: &[&str]) -> Vec<String> {
    let mut child = Command::new("redis-cli")
        .args(["-p", &port.to_string(), "--no-raw"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let text = commands.join("\n") + "\n";
    let mut stdin = child.stdin.take().unwrap();
    let writer = std::thread::spawn(move || stdin.write_all(text.as_bytes()));
    let mut out = String::new();
    child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
    writer.join().unwrap().unwrap();
    child.wait().unwrap();
    out.lines().filter(|line| !line.is_empty()).map(String::from).collect()
}

/// Whether this was said. `~` before a number at the end stands for what is left of a life of so
/// many seconds: a command is a process, and between two of them a busy machine takes its time.
fn is_answer(said: &str, expected: &str) -> bool {
    let Some((before, life)) = expected.split_once('~') else { return said == expected };
    let life: u64 = life.parse().expect("seconds");
    let left = said.strip_prefix(before).and_then(|left| left.parse().ok());
    left.is_some_and(|left: u64| (life - 90..=life).contains(&left))
}

/// Whether what was printed is this, or begins with it.
fn begins_so(said: &[String], expected: &&str) -> bool {
    let said = said.join("|");
    said.starts_with(expected) || is_answer(&said, expected)
}

/// What comes of something that may be done again, once that is not in doubt.
fn until_sure<T>(what: &str, mut once: impl FnMut() -> T, is_late: impl Fn(&T) -> bool) -> T {
    let sure = || Ok(Some(once()).filter(|said| !is_late(said)));
    interrupt::wait_for(what, PATIENCE, sure).unwrap()
}

/// Whether something was not carried out within its time, or is not known to be: a machine that
/// stood still has that said, and it says nothing about the gateway.
fn is_in_doubt(said: &str) -> bool {
    said.contains("outcome unknown") || said.contains("TRYAGAIN ")
}

#[test]
fn redis_cli_works_on_the_embedded_backend() {
    needs("redis-cli");
    let mut rack = Rack::default();
    rack.store_and_gateway("embedded", None);
    let rows: &[(&str, &[&str])] = &[
        ("get a", &["(nil)"]),
        ("set a 1", &["OK"]),
        ("get a", &["\"1\""]),
        ("set a 2 nx", &["(nil)"]),
        ("set a 2 xx get", &["\"1\""]),
        ("set b 1 ex 100", &["OK"]),
        ("set b 2 keepttl get", &["\"1\""]),
        ("ttl b", &["(integer) ~100"]),
        ("mset c 3 d 4", &["OK"]),
        ("mget a c nosuch", &["1) \"2\"", "2) \"3\"", "3) (nil)"]),
        ("exists a b c nosuch", &["(integer) 3"]),
        ("getdel a", &["\"2\""]),
        ("del b c", &["(integer) 2"]),
        ("type d", &["string"]),
        ("hello 3", &["1# \"server\" => \"redis\"", "2# \"version\" => \"7.0.0\""]),
        (
            "lpush x y",
            &[
                "(error) ERR unknown command 'lpush': it needs the store's RESP port: start the store with --resp, and the \
                 gateway with --resp",
            ],
        ),
    ];
    rack.types(rows, &["a", "b", "c", "d"], |said, expected| {
        let mut lines = said.iter().zip(*expected);
        said.len() >= expected.len() && lines.all(|(line, expected)| is_answer(line, expected))
    });
    let large = "x".repeat(1 << 20);
    assert_eq!(rack.sure(&[&format!("set a {large}")]), ["OK"]);
    assert!(rack.sure(&["get a"])[0] == format!("\"{large}\""));
    assert_eq!(rack.sure(&["strlen a"]), ["(integer) 1048576"]);
    let refused = rack.cli(&[&format!("set a x{large}")]);
    assert!(
        refused[0].contains("value of 1048577 bytes") && refused[0].contains("max_value"),
        "{refused:?}"
    );
    let long = "k".repeat(300);
    let refused = rack.cli(&[&format!("set {long} v"), "set b v ex 10000000"]);
    for refused in refused {
        assert!(refused.starts_with("(error)") && refused.contains("--backend"), "{refused:?}");
    }
}

/// The same values by the command line and by the gateway, to the longest.
#[test]
fn large_values_go_up_and_come_down_by_every_way() {
    let rack = Rack::on_redis(false);
    let store = rack.store.clone();
    let once = |words: &[&str], input: &[u8]| {
        let mut child = Command::new(env!("CARGO_BIN_EXE_shortstop"))
            .args(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let input = input.to_vec();
        let writer = std::thread::spawn(move || stdin.write_all(&input));
        let output = child.wait_with_output().unwrap();
        let _ = writer.join().unwrap();
        output
    };
    // Where the machine stood still it may be done again.
    let shortstop = |words: &[&str], input: &[u8]| {
        let was_late = |output: &Output| {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            ["outcome unknown", "no answer", "took too few"].iter().any(|why| said.contains(why))
        };
        until_sure(&words.join(" "), || once(words, input), was_late)
    };
    for len in [1391, 1392, 5000, 65_536, 1 << 20] {
        let value: Vec<u8> = (0..len).map(|i| b'a' + (i / 7 + len) as u8 % 26).collect();
        let set = shortstop(&["set", "--server", &store, "k", "-"], &value);
        assert!(set.status.success(), "{len} bytes: {set:?}");
        let get = shortstop(&["get", "--server", &store, "k", "--raw"], b"");
        assert!(get.stdout == value, "{len} bytes");
        let text = String::from_utf8(value).unwrap();
        assert!(rack.sure(&["get k"])[0] == format!("\"{text}\""), "{len} bytes");
        assert_eq!(rack.sure(&[&format!("set k {text}x xx")])[0] == "OK", len < 1 << 20);
        let there = if len < 1 << 20 { len + 1 } else { len };
        assert_eq!(cli_at(rack.redis, &["strlen k"]), [format!("(integer) {there}")]);
    }
    let one_more = vec![7; (1 << 20) + 1];
    let set = shortstop(&["set", "--server", &store, "k", "-"], &one_more);
    let error = String::from_utf8(set.stderr).unwrap();
    assert!(!set.status.success() && error.contains("max_value"), "{error}");
}

#[test]
fn what_no_packet_carries_goes_to_redis_and_back() {
    let rack = Rack::on_redis(true);
    let (large, long) = ("x".repeat(100_000), "k".repeat(300));
    let quoted = format!("\"{large}\"");
    let rows: Vec<(String, &str)> = vec![
        ("set a small".into(), "OK"),
        (format!("set a {large}"), "OK"),
        ("get a".into(), &quoted),
        ("strlen a".into(), "(integer) 100000"),
        ("ttl a".into(), "(integer) -1"),
        ("type a".into(), "string"),
        ("exists a".into(), "(integer) 1"),
        (format!("set a {large} nx"), "(nil)"),
        ("set a small get".into(), &quoted),
        ("get a".into(), "\"small\""),
        (format!("set a {large} ex 1000 xx get"), "\"small\""),
        ("ttl a".into(), "(integer) ~1000"),
        ("set a small keepttl".into(), "OK"),
        ("ttl a".into(), "(integer) ~1000"),
        ("getdel a".into(), "\"small\""),
        (format!("set a {large}"), "OK"),
        ("getdel a".into(), &quoted),
        ("get a".into(), "(nil)"),
        (format!("set {long} v px 100000"), "OK"),
        (format!("get {long}"), "\"v\""),
        (format!("ttl {long}"), "(integer) ~100"),
        (format!("del {long} {long}"), "(integer) 1"),
        ("set b v ex 10000000".into(), "OK"),
        ("ttl b".into(), "(integer) ~10000000"),
        ("set b v keepttl".into(), "OK"),
        ("ttl b".into(), "(integer) ~10000000"),
        ("set shortstop:1:x v".into(), "(error)"),
        (format!("set shortstop:1:x {large}"), "(error)"),
    ];
    rack.types(&rows, &["a", "b", &long], begins_so);
    // What Redis has that is longer than the cluster's values may be can be read, and no more.
    cli_at(rack.redis, &["setrange huge 1048576 x"]);
    assert_eq!(rack.sure(&["strlen huge"]), ["(integer) 1048577"]);
    assert!(rack.sure(&["get huge"])[0].ends_with("x\""));
    assert!(rack.sure(&["getdel huge"])[0].starts_with("(error)"));
    assert_eq!(rack.sure(&["set huge small", "get huge"]), ["OK", "\"small\""]);
    // A key that holds no string: Redis's own error.
    cli_at(rack.redis, &["lpush list 1"]);
    let wrong = rack.sure(&["get list"]);
    assert!(wrong[0].starts_with("(error) WRONGTYPE"), "{wrong:?}");
    // One connection, a pipeline of small and large values under one key.
    let (mut commands, mut expected) = (String::new(), String::new());
    for round in 0..20 {
        let value = if round % 2 == 0 { format!("small{round}") } else { large.clone() };
        let value = format!("${}\r\n{value}\r\n", value.len());
        commands += &format!("*3\r\n$3\r\nSET\r\n$1\r\np\r\n{value}*2\r\n$3\r\nGET\r\n$1\r\np\r\n");
        expected += &format!("+OK\r\n{value}");
    }
    let answered = || {
        let mut stream = TcpStream::connect(("127.0.0.1", rack.gateway)).unwrap();
        let mut reader = stream.try_clone().unwrap();
        let reading = std::thread::spawn(move || {
            let mut out = String::new();
            reader.read_to_string(&mut out).unwrap();
            out
        });
        stream.write_all(commands.as_bytes()).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        reading.join().unwrap()
    };
    let said = until_sure("a pipeline", answered, |out| is_in_doubt(out));
    assert!(said == expected, "a pipeline of small and large values");
}

#[test]
fn a_gateway_that_seals_leaves_nothing_to_read_in_redis() {
    let seal_key = Path::new(env!("CARGO_TARGET_TMPDIR")).join("gateway-seal.key");
    std::fs::write(&seal_key, "5a".repeat(32)).unwrap();
    std::fs::set_permissions(&seal_key, PermissionsExt::from_mode(0o600)).unwrap();
    let mut rack = Rack::default();
    rack.seal_key = Some(seal_key);
    let rack = rack.start_on_redis(true);
    let (large, long) = ("secret".repeat(10_000), "patient".repeat(40));
    let quoted = format!("\"{large}\"");
    let rows: Vec<(String, &str)> = vec![
        ("set patient secret".into(), "OK"),
        ("get patient".into(), "\"secret\""),
        ("strlen patient".into(), "(integer) 6"),
        (format!("set patient {large}"), "OK"),
        ("get patient".into(), &quoted),
        ("strlen patient".into(), "(integer) 60000"),
        ("set patient secret get ex 1000".into(), &quoted),
        (format!("set patient {large} keepttl"), "OK"),
        ("ttl patient".into(), "(integer) ~1000"),
        ("getdel patient".into(), &quoted),
        ("get patient".into(), "(nil)"),
        ("set patient secret ex 10000000".into(), "OK"),
        ("get patient".into(), "\"secret\""),
        ("set shortstop:patient secret".into(), "OK"),
        (format!("set {long} secret"), "OK"),
        (format!("get {long}"), "\"secret\""),
        (format!("set large-patient {large}"), "OK"),
        ("set empty-patient \"\"".into(), "OK"),
        ("strlen empty-patient".into(), "(integer) 0"),
        ("get empty-patient".into(), "\"\""),
    ];
    let keys = ["patient", "shortstop:patient", &long, "large-patient", "empty-patient"];
    rack.types(&rows, &keys, begins_so);
    // `ready` of the start, and five of the above.
    assert_eq!(cli_at(rack.redis, &["dbsize"]), ["(integer) 6"]);
    for part in ["patient", "secret", "ready", "yes", "shortstop"] {
        let found = format!(
            "eval \"for _, k in ipairs(redis.call('keys', '*')) do \
             if string.find(k, ARGV[1], 1, true) or string.find(redis.call('get', k), ARGV[1], 1, true) \
             then return k end end return 0\" 0 {part}"
        );
        assert_eq!(cli_at(rack.redis, &[&found]), ["(integer) 0"], "{part}");
    }
    // What another one wrote over it, without the key, is refused and not passed on.
    let forge = "eval \"for _, k in ipairs(redis.call('keys', '*')) do \
                 redis.call('set', k, string.rep('forged', 20)) end return 0\" 0";
    assert_eq!(cli_at(rack.redis, &[forge]), ["(integer) 0"]);
    for key in ["patient", "large-patient", &long] {
        let out = rack.sure(&[&format!("get {key}")]).join("|");
        assert!(out.starts_with("(error) ERR"), "{key}: {out}");
        assert!(out.contains("does not open"), "{key}: {out}");
    }
    assert_eq!(rack.sure(&["set patient secret"]), ["OK"]);
    assert_eq!(rack.sure(&["get patient"]), ["\"secret\""]);
}

/// A connection that speaks the protocol itself: many small commands, one after the other.
struct Connection {
    stream: BufReader<TcpStream>,
}

impl Connection {
    fn to(port: u16) -> Connection {
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_nodelay(true).unwrap();
        Connection { stream: BufReader::new(stream) }
    }

    /// The answer to a command: a bulk string or a line, `None` for nil.
    fn ask(&mut self, words: &[&str]) -> Option<String> {
        let mut bytes = format!("*{}\r\n", words.len());
        for word in words {
            bytes += &format!("${}\r\n{word}\r\n", word.len());
        }
        self.stream.get_mut().write_all(bytes.as_bytes()).unwrap();
        let mut line = String::new();
        self.stream.read_line(&mut line).unwrap();
        let line = line.trim_end();
        match line.strip_prefix('$') {
            Some("-1") => None,
            Some(len) => {
                let mut value = vec![0; len.parse::<usize>().unwrap() + 2];
                self.stream.read_exact(&mut value).unwrap();
                value.truncate(value.len() - 2);
                Some(String::from_utf8(value).unwrap())
            }
            None => Some(line.into()),
        }
    }
}

/// GETDEL takes what it answers with and nothing else: not a large value that was written while it
/// read a small one.
#[test]
fn what_reads_and_writes_never_loses_a_large_value_written_meanwhile() {
    let rack = Rack::on_redis(true);
    let port = rack.gateway;
    let (over, in_doubt) = (AtomicBool::new(false), AtomicUsize::new(0));
    let taken = Mutex::new(HashSet::new());
    std::thread::scope(|scope| {
        for taker in 0..3 {
            let (over, in_doubt, taken) = (&over, &in_doubt, &taken);
            scope.spawn(move || {
                let mut connection = Connection::to(port);
                while !over.load(Relaxed) {
                    let got = match taker {
                        0 => connection.ask(&["GETSET", "k", "small"]),
                        _ => connection.ask(&["GETDEL", "k"]),
                    };
                    if got.as_ref().is_some_and(|got| got.contains("outcome unknown")) {
                        in_doubt.fetch_add(1, Relaxed);
                    } else if let Some(got) = got.filter(|got| got.len() > 5000) {
                        taken.lock().unwrap().insert(got[..4].to_string());
                    }
                }
            });
        }
        let _until = Ends(&over);
        let mut connection = Connection::to(port);
        for round in 0..200 {
            let large = format!("{round:04}").repeat(5000);
            let is_taken = || taken.lock().unwrap().contains(&large[..4]);
            let deadline = Instant::now() + PATIENCE;
            while !is_taken() {
                let doubts = in_doubt.load(Relaxed);
                connection.ask(&["SET", "k", "small"]);
                let said = connection.ask(&["SET", "k", &large]).unwrap_or_default();
                assert!(Instant::now() < deadline, "value {round}: {said}");
                if is_in_doubt(&said) {
                    continue;
                }
                assert_eq!(said, "+OK");
                // It is gone from there once somebody has got it, who may not have been answered
                // yet; whose outcome is unknown may have taken it without being told what it was.
                while !is_taken() && in_doubt.load(Relaxed) == doubts {
                    let there = connection.ask(&["GET", "k"]);
                    assert!(
                        Instant::now() < deadline,
                        "nobody has got value {round}, and there is {:.10}",
                        there.unwrap_or_default()
                    );
                }
            }
        }
    });
}

/// Tells others to end when it is dropped, also by a panic.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

#[test]
fn a_redis_with_a_password_is_reached_without_telling_it_to_everybody() {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("redis.password");
    std::fs::write(&file, "a:strange/one@\n").unwrap();
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
    let mut rack = Rack::default();
    rack.password_file = Some(file);
    let rack = rack.start_on_redis(true);
    let large = "x".repeat(5000);
    assert_eq!(rack.sure(&["set a small"]), ["OK"]);
    assert_eq!(rack.sure(&[&format!("set b {large}")]), ["OK"]);
    assert_eq!(rack.sure(&["get a", "strlen b"]), ["\"small\"", "(integer) 5000"]);
    let stranger = cli_at(rack.redis, &["get a"]);
    assert!(stranger[0].contains("NOAUTH"), "{stranger:?}");
}

#[test]
fn redis_benchmark_meets_no_error() {
    let deadline = Instant::now() + PATIENCE;
    while !is_benchmarked() {
        assert!(Instant::now() < deadline, "each time something was in doubt");
    }
}

/// Has a rack of its own benchmarked without an error; not if something was in doubt, whose error
/// ends it.
fn is_benchmarked() -> bool {
    let rack = Rack::on_redis(false);
    // What was tried before the store took writes may have failed.
    let errors = || {
        let info = rack.cli(&["info stats"]).join(" ");
        let count = info.split("total_error_replies:").nth(1);
        let count = count.and_then(|rest| rest.split_whitespace().next());
        count.map(String::from).expect("it is told")
    };
    let before = errors();
    for depth in ["1", "16"] {
        let output = Command::new("redis-benchmark")
            .args(["-p", &rack.gateway.to_string(), "-P", depth])
            .args(["-t", "get,set", "-n", "5000", "-r", "1000", "--csv"])
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
        if is_in_doubt(&text) || is_in_doubt(&complaint) {
            return false;
        }
        assert!(output.status.success(), "{text}{complaint}");
        assert!(text.contains("\"GET\"") && text.contains("\"SET\""), "{text}");
        assert!(!(text + &complaint).to_lowercase().contains("err"), "-P {depth}");
    }
    assert_eq!(errors(), before);
    true
}

/// Commands, in their order, that the gateway and a Redis must answer alike, one by one. `{past}`
/// and `{soon}` are moments in seconds since 1970.
#[rustfmt::skip]
const ALIKE: &[&str] = &[
    // A life that was over before it began.
    "SET a 1", "SET a 2 EXAT {past}", "GET a", "EXISTS a", "TTL a",
    "SET a 1", "SET a 2 NX PXAT 1", "GET a", "SET a 2 XX GET PXAT 1", "GET a",
    "SET a 2 XX EXAT {past}", "SET a 2 NX EXAT {past}", "EXISTS a", "SET a 2 EXAT 0",
    "SET a 1 EXAT {soon}", "GET a",
    // Numbers as they are written.
    "SET a 1 EX 05", "SET a 1 EX +5", "SET a 1 EX -5", "SET a 1 EX 5x", "SET a 1 PX 0", "SETEX a 05 1",
    "SET a 1 EX 9223372036854775807",
    // Options that stand there twice, or exclude one another.
    "SET a 1 EX 5 EX 6000", "SET a 1 KEEPTTL KEEPTTL", "SET a 1 EX 5 PX 5", "SET a 1 EX 5 KEEPTTL",
    "SET a 1 NX NX", "SET a 1 NX XX", "SET a 1 GET GET", "SET a 1 EX",
    // Other types.
    "TYPE list", "EXISTS list a", "TTL list", "PTTL list", "GET list", "MGET a list a", "STRLEN list",
    "GETDEL list", "GETSET list 1", "SET list 1 GET", "SETNX list 1", "SET list 1 NX", "TYPE hash",
    "TYPE a", "TYPE none", "EXISTS hash", "DEL hash", "EXISTS hash", "SET list 1", "GET list",
    "SET other 1 XX EXAT {past}", "TYPE other",
    // Names that are nobody else's.
    "SET shortstop:x 1", "GET shortstop:x", "DEL shortstop:x", "SET shortstop:07:x 1", "GET shortstop:07:x",
];

#[test]
fn the_gateway_answers_as_redis_does_beside_it() {
    let rack = Rack::on_redis(true);
    let beside = port::free();
    let mut other = Rack::default();
    other.start("redis-server", &["--port", &beside.to_string(), "--save", ""], Some(beside));
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let past = (now.as_secs() - 1_000).to_string();
    let soon = (now.as_secs() + 100_000).to_string();
    let lines: Vec<String> =
        ALIKE.iter().map(|line| line.replace("{past}", &past).replace("{soon}", &soon)).collect();
    // What differs; nothing is known where something was in doubt.
    let differ = || {
        for key in ["a", "list", "hash", "other", "shortstop:x", "shortstop:07:x"] {
            let delete = format!("DEL {key}");
            rack.sure(&[&delete]);
            cli_at(beside, &[&delete]);
        }
        let types = ["RPUSH list 1 2", "HSET hash f v", "RPUSH other 1"];
        assert_eq!(cli_at(rack.redis, &types), cli_at(beside, &types));
        let mut differ = vec![];
        for line in &lines {
            let (here, there) = (rack.cli(&[line]), cli_at(beside, &[line]));
            if here.iter().any(|line| is_in_doubt(line)) {
                return None;
            }
            if here != there {
                differ.push(format!("{line}: {here:?}, and Redis {there:?}"));
            }
        }
        Some(differ)
    };
    let deadline = Instant::now() + PATIENCE;
    let mut all = std::iter::repeat_with(differ);
    let sure = all.find(|differ| differ.is_some() || Instant::now() > deadline).flatten();
    let differ = sure.expect("each time something was in doubt");
    assert!(differ.is_empty(), "{differ:#?}");
    // These are another tenant's in the Redis behind the store.
    for line in ["GET shortstop:7:a", "SET shortstop:7:a 1", "EXISTS shortstop:7:a"] {
        let said = rack.sure(&[line]).concat();
        assert!(said.contains("NOPERM") && said.contains("--tenant"), "{line}: {said}");
    }
}
