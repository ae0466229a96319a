//! Servers and programs of ours that an experiment starts on this machine's loopback, and that end
//! with it however it ends.

use std::{
    net::{SocketAddr, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Context, ensure};
use lab::{
    port,
    process::{ProcessId, product},
};

/// How long a server may take to listen.
const PATIENCE: Duration = Duration::from_secs(60);

/// The address of a port here.
pub(crate) fn address(port: u16) -> SocketAddr {
    ([127, 0, 0, 1], port).into()
}

/// A process that ends when this is dropped.
pub(crate) struct Process(pub Child);

impl Process {
    /// Starts a server, and waits until it listens at this port.
    ///
    /// # Errors
    /// There is no such program, or it ends.
    pub fn server(program: &str, words: &[&str], port: u16) -> anyhow::Result<Process> {
        let child = Command::new(program)
            .args(words)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("{program} is needed"))?;
        let mut process = Process(child);
        let lives = || matches!(process.0.try_wait(), Ok(None));
        ensure!(port::listens(port, PATIENCE, lives), "{program} does not listen at port {port}");
        Ok(process)
    }

    /// Starts `shortstop` in a directory, in which its log is.
    ///
    /// # Errors
    /// It is not there.
    pub fn of_product(directory: &Path, words: &[&str]) -> anyhow::Result<Process> {
        let name = format!("{}-{}.log", words.first().unwrap_or(&"shortstop"), port::free());
        let log = std::fs::File::create(directory.join(name))?;
        let child = Command::new(product()?)
            .args(words)
            .current_dir(directory)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()?;
        Ok(Process(child))
    }

    pub fn signal(&self, signal: i32) {
        if let Some(process) = ProcessId::of(self.0.id() as i32) {
            process.signal(signal);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What `shortstop` prints when it is asked this.
///
/// # Errors
/// It fails: what it says.
pub(crate) fn printed(words: &[&str]) -> anyhow::Result<String> {
    let output = Command::new(product()?).args(words).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "shortstop {}: {said}", words.join(" "));
    Ok(String::from_utf8(output.stdout)?)
}

/// A connection whose answers take no longer than a server may.
///
/// # Errors
/// Nobody listens.
pub(crate) fn stream(port: u16) -> anyhow::Result<TcpStream> {
    let stream = TcpStream::connect(address(port))?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// A directory of a run, which is removed with this.
pub(crate) struct Directory(pub PathBuf);

impl Directory {
    /// A new one, of the run of this name.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn of_run(name: &str) -> anyhow::Result<Directory> {
        let path = std::env::temp_dir().join(format!("shortstop-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).with_context(|| path.display().to_string())?;
        Ok(Directory(path))
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
