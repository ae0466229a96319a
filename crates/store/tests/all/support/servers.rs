//! Real servers. They run on a free port of the loopback in a directory of their own and are killed
//! when the test ends.

use std::{
    io::{Read, Write},
    net::TcpStream,
    process::{Child, Command, Stdio},
};

use lab::{
    interrupt,
    port::{self, HeldPort},
};

use super::PATIENCE;

/// A server process; killed when dropped.
pub struct Process {
    child: Child,
    pub directory: tempfile::TempDir,
    pub port: u16,
    /// Nobody else's until it is let go.
    held: Option<HeldPort>,
}

impl Process {
    /// Makes it stand still: connections stay, nothing is answered.
    pub fn freeze(&self) {
        let pid = self.child.id().to_string();
        let status = Command::new("kill").args(["-STOP", &pid]).status();
        assert!(status.unwrap().success());
        // The signal is on its way: it stands still once its state says so.
        let stat = format!("/proc/{pid}/stat");
        while !std::fs::read_to_string(&stat).unwrap().contains(") T ") {
            std::thread::yield_now();
        }
    }

    /// Makes it go on.
    pub fn thaw(&self) {
        let status = Command::new("kill").args(["-CONT", &self.child.id().to_string()]).status();
        assert!(status.unwrap().success());
    }

    /// Ends it; its port stays taken.
    pub fn stop(mut self) -> HeldPort {
        self.held.take().expect("taken once")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts `command` on this port and waits until it accepts connections.
pub fn start_at(held: HeldPort, command: impl Fn(u16, &std::path::Path) -> Command) -> Process {
    let directory = tempfile::tempdir().unwrap();
    let port = held.number;
    let child = command(port, directory.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .stdin(Stdio::null())
        .spawn()
        .expect("redis-server and memcached are installed");
    let mut process = Process { child, directory, port, held: Some(held) };
    let child = &mut process.child;
    let up = port::listens(port, PATIENCE, || child.try_wait().unwrap().is_none());
    assert!(
        up,
        "{:?} on port {port}: {:?} (none: it runs, but takes no connections)",
        command(port, process.directory.path()),
        process.child.try_wait()
    );
    process
}

pub fn redis() -> Process {
    start_at(port::held(), redis_command)
}

/// With further arguments.
pub fn redis_with(arguments: &[&str]) -> Process {
    start_at(port::held(), |port, directory| {
        let mut command = redis_command(port, directory);
        command.args(arguments);
        command
    })
}

pub fn redis_command(port: u16, directory: &std::path::Path) -> Command {
    let mut command = Command::new("redis-server");
    command.current_dir(directory).args(["--save", "", "--port"]).arg(port.to_string());
    command.args(["--bind", "127.0.0.1", "--unixsocket"]).arg(directory.join("redis.sock"));
    command
}

pub fn memcached() -> Process {
    memcached_with(&[])
}

/// With further arguments.
pub fn memcached_with(arguments: &[&str]) -> Process {
    start_at(port::held(), |port, directory| {
        let mut command = memcached_command(port, directory);
        command.args(arguments);
        command
    })
}

pub fn memcached_command(port: u16, _: &std::path::Path) -> Command {
    let mut command = Command::new("memcached");
    command.args(["-u", "nobody", "-l", "127.0.0.1", "-U", "0", "-p"]).arg(port.to_string());
    command
}

/// The beginning of what a server answers; nothing if it has the connection ended, as Sentinels
/// have it do in a failover.
pub fn asked(server: &Process, line: &str) -> String {
    let ask = || {
        let mut stream = TcpStream::connect(("127.0.0.1", server.port))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(format!("{line}\r\n").as_bytes())?;
        let mut answer = vec![0; 1 << 14];
        let len = stream.read(&mut answer)?;
        answer.truncate(len);
        std::io::Result::Ok(String::from_utf8_lossy(&answer).into_owned())
    };
    ask().unwrap_or_default()
}

/// Waits until it is so.
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    interrupt::wait_for(what, PATIENCE, || Ok(is_so().then_some(()))).unwrap();
}
