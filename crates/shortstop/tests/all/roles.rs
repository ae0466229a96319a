//! What roles say to whoever runs them: one line when they start, and one each time that what they
//! depend on is lost or is there again.

use std::{
    fs::{File, Permissions},
    io::{BufRead, BufReader, Write},
    net::TcpStream,
    os::{
        fd::AsRawFd,
        unix::{fs::PermissionsExt, process::CommandExt},
    },
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::mpsc::{Receiver, channel},
    time::{Duration, Instant},
};

use lab::port;

use super::support::{files, shortstop};

/// How long anything may take on a machine that is busy with something else.
const PATIENCE: Duration = Duration::from_secs(90);

/// A process whose lines are read; it ends with the test.
struct Role {
    child: Child,
    lines: Receiver<String>,
}

impl Role {
    fn start(words: &[&str]) -> Role {
        Role::of(Command::new(env!("CARGO_BIN_EXE_shortstop")).args(words))
    }

    fn of(command: &mut Command) -> Role {
        let command = command.env_remove("SHORTSTOP_LOG").stdin(Stdio::null());
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let said = BufReader::new(child.stderr.take().unwrap()).lines();
        let (tell, lines) = channel();
        std::thread::spawn(move || said.map_while(Result::ok).try_for_each(|line| tell.send(line)));
        Role { child, lines }
    }

    /// The next line that has all of this.
    fn says(&self, parts: &[&str]) -> String {
        let mut before = String::new();
        loop {
            let Ok(line) = self.lines.recv_timeout(PATIENCE) else {
                panic!("no line has {parts:?}, but there were:\n{before}");
            };
            if parts.iter().all(|part| line.contains(part)) {
                return line;
            }
            before += &(line + "\n");
        }
    }
}

impl Drop for Role {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A cluster of one store at this port, which only its owner reads.
fn cluster_file(directory: &Path, port: u16, tenants: &str) -> PathBuf {
    let path = directory.join("cluster.toml");
    let store = format!("[[store]]\naddress = \"127.0.0.1:{port}\"\nfirst = 0\nlast = 3\n");
    std::fs::write(&path, format!("partitions = 4\n{store}{tenants}")).unwrap();
    std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    path
}

#[test]
fn a_store_says_what_it_serves_and_when_it_has_no_controller_and_why() {
    let directory = files("followed");
    let (at, control) = (port::free(), port::free());
    let cluster = cluster_file(&directory, at, "").to_str().unwrap().to_owned();
    let listen = format!("127.0.0.1:{control}");
    let state = directory.join("control").to_str().unwrap().to_owned();
    let words = ["control", "--cluster", &cluster, "--listen", &listen, "--state", &state];
    let controller = Role::start(&words);
    controller.says(&["controller listens on http://", &listen, "1 stores", "discipline", &state]);
    let (address, url) = (format!("127.0.0.1:{at}"), format!("http://{listen}"));
    let words = ["store", "--cluster", &cluster, "--listen", &address, "--control", &url];
    let store = Role::start(&words);
    store.says(&["store listens on", &address, "4 of 4 partitions", "data in embedded"]);
    store.says(&["follows the controller", &url]);
    controller.says(&["a store follows", &address]);
    drop(controller);
    store.says(&["WARN", "controller: ", "tenants stay as they are"]);
    store.says(&["WARN", "no controller answers", "refused", "trying again"]);
    let words = ["control", "--cluster", &cluster, "--listen", &listen, "--state", &state];
    let controller = Role::start(&words);
    store.says(&["follows the controller", &url]);
    drop(store);
    controller.says(&["a store follows no longer: ", &address]);
}

/// As when the session goes that it was started in. A role that is to outlive it ignores that.
#[test]
fn a_role_ends_in_order_when_its_terminal_goes_unless_it_ignores_that() {
    let words = ["store", "--listen", "127.0.0.1:0"];
    let program = env!("CARGO_BIN_EXE_shortstop");
    let role = |kept: &str| Role::of(Command::new("env").arg(kept).arg(program).args(words));
    let signal = |role: &Role, signal| {
        // SAFETY: signals a child that has not been waited for.
        assert_eq!(unsafe { libc::kill(role.child.id() as i32, signal) }, 0);
    };
    let catches = |role: &Role, signal: i32| {
        let status = format!("/proc/{}/status", role.child.id());
        let began = Instant::now();
        loop {
            let text = std::fs::read_to_string(&status).unwrap();
            let caught = text.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
            if u64::from_str_radix(caught.trim(), 16).unwrap() >> (signal - 1) & 1 == 1 {
                return;
            }
            assert!(began.elapsed() < PATIENCE, "signal {signal}: {caught}");
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    let mut store = role("--default-signal=HUP");
    catches(&store, libc::SIGHUP);
    signal(&store, libc::SIGHUP);
    store.says(&["store has ended", "the next one takes writes"]);
    assert!(store.child.wait().unwrap().success());
    let mut store = role("--ignore-signal=HUP");
    catches(&store, libc::SIGTERM);
    signal(&store, libc::SIGHUP);
    std::thread::sleep(Duration::from_millis(200));
    assert!(store.child.try_wait().unwrap().is_none());
    signal(&store, libc::SIGTERM);
    assert!(store.child.wait().unwrap().success());
}

/// Without a signature, which a store that does not know the tenant cannot make.
#[test]
fn a_write_of_a_tenant_that_the_store_does_not_know_is_denied_and_not_in_doubt() {
    let directory = files("denied");
    let at = port::free();
    let address = format!("127.0.0.1:{at}");
    let store = Role::start(&["store", "--listen", &address]);
    store.says(&["store listens on", &address]);
    let tenant = "[[tenant]]\nid = 7\nsecret = \"07070707070707070707070707070707\"\n";
    let cluster = cluster_file(&directory, at, tenant);
    let reach = ["--cluster", cluster.to_str().unwrap(), "--tenant", "7"];
    let output = shortstop(&directory, &[&["set"], &reach[..], &["k", "v"]].concat());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("denies the request: tenant 7 is unknown there"), "{said}");
    assert_eq!((output.status.code(), said.contains("outcome unknown")), (Some(1), false));
}

/// A command for the gateway's backend: its key is longer than a packet's may be.
fn ask_backend(gateway: u16) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", gateway)).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(format!("GET {}\r\n", "k".repeat(300)).as_bytes()).unwrap();
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer).expect("an answer");
    answer
}

const AWAY: &str = "-TRYAGAIN nothing was done: the backend is away\r\n";

/// The same of one that is there again, which the gateway tries ten times a second.
fn ask_backend_that_is_there(gateway: u16) -> String {
    let began = Instant::now();
    loop {
        let answer = ask_backend(gateway);
        if answer != AWAY || began.elapsed() > PATIENCE {
            return answer;
        }
    }
}

#[test]
fn a_gateway_says_that_its_backend_cannot_be_used_and_that_it_can_again() {
    let (redis, listen) = (port::free(), port::free());
    let (url, address) = (format!("redis://127.0.0.1:{redis}"), format!("127.0.0.1:{listen}"));
    let server = ["gateway", "--server", "127.0.0.1:1", "--backend", &url];
    let gateway = Role::start(&[&server[..], &["--listen", &address]].concat());
    gateway.says(&["gateway listens on", &address, "tenant 0 at store 127.0.0.1:1"]);
    gateway.says(&["WARN", &format!("--backend 127.0.0.1:{redis}"), "refused"]);
    assert_eq!(ask_backend(listen), AWAY);
    let port = redis.to_string();
    let options = ["--save", "", "--bind", "127.0.0.1", "--requirepass", "opensesame"];
    let mut redis_server = Command::new("redis-server");
    let mut redis_server = Role::of(redis_server.args([&["--port", &port], &options[..]].concat()));
    let lives = || redis_server.child.try_wait().unwrap().is_none();
    assert!(port::listens(redis, PATIENCE, lives), "redis-server is needed");
    assert!(ask_backend_that_is_there(listen).starts_with("-NOAUTH"));
    // One that starts now has another trouble, which it says in Redis's words.
    let (other, password) = (port::free().to_string(), "SHORTSTOP_BACKEND_PASSWORD");
    let everywhere = format!("0.0.0.0:{other}");
    let second = Role::start(&[&server[..], &["--listen", &everywhere]].concat());
    second.says(&["WARN", "--listen 0.0.0.0", "other machines", "no password", "tenant 0"]);
    second.says(&["WARN", "NOAUTH", "--backend-password-file"]);
    let third = port::free();
    let at_third = format!("127.0.0.1:{third}");
    let mut command = Command::new(env!("CARGO_BIN_EXE_shortstop"));
    let command = command.args(&server[..]).args(["--listen", &at_third]);
    drop(redis_server);
    let third_gateway = Role::of(command.env(password, "opensesame"));
    third_gateway.says(&["WARN", "--backend", "refused"]);
    let mut redis_server = Command::new("redis-server");
    let mut redis_server = Role::of(redis_server.args([&["--port", &port], &options[..]].concat()));
    let lives = || redis_server.child.try_wait().unwrap().is_none();
    assert!(port::listens(redis, PATIENCE, lives));
    assert_eq!(ask_backend_that_is_there(third), "$-1\r\n");
    third_gateway.says(&["--backend", "answers again"]);
}

/// The program as a user who may nothing, wherever it lies.
fn as_nobody(words: &[&str]) -> Output {
    let program = File::open(env!("CARGO_BIN_EXE_shortstop")).unwrap();
    let number = program.as_raw_fd();
    let mut command = Command::new(format!("/proc/self/fd/{number}"));
    command.args(words).env_remove("XDG_RUNTIME_DIR").env_remove("SHORTSTOP_LOG");
    command.current_dir("/").stdin(Stdio::null()).uid(65_534).gid(65_534);
    // SAFETY: between fork and exec, one system call.
    unsafe {
        command.pre_exec(move || match libc::fcntl(number, libc::F_SETFD, 0) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        });
    }
    command.output().expect("the binary runs")
}

#[test]
fn whoever_is_not_root_is_told_that_it_takes_root() {
    // SAFETY: geteuid cannot fail.
    assert_eq!(unsafe { libc::geteuid() }, 0, "only root becomes nobody");
    // Else there is nothing that may not be looked at.
    std::fs::create_dir_all("/sys/fs/bpf/shortstop").unwrap();
    for (words, expected) in [
        (&["switch", "status"][..], &["only root may look"][..]),
        (&["switch", "detach"], &["root"]),
        (&["switch", "--interface", "lo"], &["run this as root"]),
        (
            &["switch", "--soft", "--interface", "lo"],
            &["run this as root", "--soft", "XDG_RUNTIME_DIR"],
        ),
    ] {
        let output = as_nobody(words);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{words:?}: {said}");
        assert!(expected.iter().all(|part| said.contains(part)), "{words:?}: {said}");
        assert!(!said.contains("--state-dir"), "{words:?}: {said}");
    }
}
