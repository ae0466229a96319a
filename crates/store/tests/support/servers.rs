//! Real servers. They run on a free port of the loopback in a directory of their own and are killed when the test ends.

use std::{
    net::TcpListener,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

/// A server process; killed when dropped.
pub struct Process {
    child: Child,
    pub directory: tempfile::TempDir,
    pub port: u16,
}

impl Process {
    /// Makes it stand still: connections stay, nothing is answered.
    pub fn freeze(&self) {
        let pid = self.child.id().to_string();
        let status = Command::new("kill").args(["-STOP", &pid]).status();
        assert!(status.unwrap().success());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
}

/// Starts `command` on a free port, or this one, and waits until it accepts connections.
pub fn start_at(port: Option<u16>, command: impl Fn(u16, &std::path::Path) -> Command) -> Process {
    let directory = tempfile::tempdir().unwrap();
    // Free now; if another process takes it before the server does, the server ends, and another one is tried.
    for _ in 0..5 {
        let port = port.unwrap_or_else(free_port);
        let mut child = command(port, directory.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .stdin(Stdio::null())
            .spawn()
            .expect("redis-server and memcached are installed");
        let deadline = Instant::now() + Duration::from_secs(10);
        while Instant::now() < deadline && child.try_wait().unwrap().is_none() {
            if std::net::TcpStream::connect(("127.0.0.1", port)).is_ok() {
                return Process {
                    child,
                    directory,
                    port,
                };
            }
            std::thread::yield_now();
        }
        let _ = child.kill();
        let _ = child.wait();
    }
    panic!("the server does not start");
}

pub fn redis() -> Process {
    start_at(None, redis_command)
}

pub fn redis_command(port: u16, directory: &std::path::Path) -> Command {
    let mut command = Command::new("redis-server");
    command
        .current_dir(directory)
        .args(["--save", "", "--port"])
        .arg(port.to_string());
    command
        .args(["--bind", "127.0.0.1", "--unixsocket"])
        .arg(directory.join("redis.sock"));
    command
}

pub fn memcached() -> Process {
    start_at(None, |port, _| {
        let mut command = Command::new("memcached");
        command
            .args(["-u", "nobody", "-l", "127.0.0.1", "-U", "0", "-p"])
            .arg(port.to_string());
        command
    })
}
