//! Clients of Redis's own protocol: at a Redis, and at a gateway.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    os::unix::net::UnixStream,
    path::PathBuf,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use anyhow::{Context, bail, ensure};

use super::values::{Seen, Values};

/// How long an answer may take.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Where to ask.
#[derive(Clone)]
pub(super) enum Server {
    Unix(PathBuf),
    Tcp(SocketAddr),
}

trait Stream: Read + Write + Send {}
impl<T: Read + Write + Send> Stream for T {}

/// A connection that asks one thing after the other.
pub(super) struct Connection(BufReader<Box<dyn Stream>>);

impl Connection {
    pub fn to(server: &Server) -> anyhow::Result<Connection> {
        let stream: Box<dyn Stream> = match server {
            Server::Unix(path) => {
                let stream =
                    UnixStream::connect(path).with_context(|| path.display().to_string())?;
                stream.set_read_timeout(Some(TIMEOUT))?;
                Box::new(stream)
            }
            Server::Tcp(address) => {
                let stream = TcpStream::connect(address)?;
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(TIMEOUT))?;
                Box::new(stream)
            }
        };
        Ok(Connection(BufReader::with_capacity(1 << 16, stream)))
    }

    /// Sends some of a command, or all of it.
    pub fn send(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        self.0.get_mut().write_all(bytes)?;
        Ok(())
    }

    /// The answer to a command: a value or a line; none: nil.
    pub fn ask(&mut self, words: &[&[u8]]) -> anyhow::Result<Option<Vec<u8>>> {
        let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            bytes.extend_from_slice(word);
            bytes.extend_from_slice(b"\r\n");
        }
        self.send(&bytes)?;
        let mut line = String::new();
        self.0.read_line(&mut line)?;
        let line = line.trim_end();
        match line.split_at_checked(1) {
            Some(("$", "-1")) => Ok(None),
            Some(("$", len)) => {
                let mut value = vec![0; len.parse::<usize>()? + 2];
                self.0.read_exact(&mut value)?;
                value.truncate(value.len() - 2);
                Ok(Some(value))
            }
            Some(("+" | ":", said)) => Ok(Some(said.into())),
            _ => bail!("{line}"),
        }
    }
}

/// Asks for values by so many connections for so long.
pub(super) fn run(
    server: &Server,
    values: Values,
    workers: usize,
    length: Duration,
) -> anyhow::Result<Seen> {
    let start = Instant::now();
    let values = Mutex::new(values);
    let locked =
        || -> MutexGuard<'_, Values> { values.lock().unwrap_or_else(PoisonError::into_inner) };
    std::thread::scope(|scope| {
        let work = || -> anyhow::Result<()> {
            let mut connection = Connection::to(server)?;
            while start.elapsed() < length {
                let (ask, name) = {
                    let mut values = locked();
                    let ask = values.next(start.elapsed());
                    let name = values.name(ask.key);
                    (ask, name)
                };
                match &ask.write {
                    Some(value) => {
                        let said = connection.ask(&[b"SET", name.as_bytes(), value]);
                        let is_done = said.is_ok_and(|said| said.as_deref() == Some(b"OK"));
                        locked().wrote(&ask, is_done, start.elapsed());
                    }
                    None => {
                        let found = connection.ask(&[b"GET", name.as_bytes()]).ok();
                        let found = found.as_ref().map(|value| (value.as_deref(), false));
                        locked().read(&ask, found, start.elapsed());
                    }
                }
            }
            Ok(())
        };
        let threads: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        for thread in threads {
            let ended = thread.join();
            ended.map_err(|_| anyhow::anyhow!("a client panicked"))??;
        }
        anyhow::Ok(())
    })?;
    let mut values = locked();
    Ok(std::mem::take(&mut values.seen))
}

/// A number that INFO tells.
pub(super) fn info(connection: &mut Connection, name: &str) -> anyhow::Result<f64> {
    let told = connection.ask(&[b"INFO"])?.unwrap_or_default();
    let told = String::from_utf8_lossy(&told).into_owned();
    let mut lines = told.lines().filter_map(|line| line.split_once(':'));
    let found = lines.find(|(key, _)| *key == name);
    let (_, value) = found.with_context(|| format!("INFO does not tell {name}"))?;
    let value: f64 = value.trim().parse()?;
    ensure!(value >= 0.0, "{name}: {value}");
    Ok(value)
}
