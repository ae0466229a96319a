//! Connections in Redis's own protocol: to a Redis, and to a gateway.

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    os::unix::net::UnixStream,
    path::PathBuf,
    time::Duration,
};

use anyhow::{Context, bail, ensure};

/// How long an answer may take.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Where to ask.
#[derive(Clone)]
pub(crate) enum Server {
    Unix(PathBuf),
    Tcp(SocketAddr),
}

trait Stream: Read + Write + Send {}
impl<T: Read + Write + Send> Stream for T {}

/// A command as it is sent.
pub(crate) fn write_command(out: &mut Vec<u8>, words: &[&[u8]]) -> io::Result<()> {
    write!(out, "*{}\r\n", words.len())?;
    for word in words {
        write!(out, "${}\r\n", word.len())?;
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
    Ok(())
}

/// A connection that asks one thing after the other.
pub(crate) struct Connection(BufReader<Box<dyn Stream>>);

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

    /// As [`Connection::to`], of which nothing may take longer than this.
    pub fn within(server: &Server, within: Duration) -> anyhow::Result<Connection> {
        let stream: Box<dyn Stream> = match server {
            Server::Unix(_) => return Connection::to(server),
            Server::Tcp(address) => {
                let stream = TcpStream::connect_timeout(address, within)?;
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(within))?;
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
        let mut bytes = vec![];
        write_command(&mut bytes, words)?;
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

/// A number that INFO tells.
pub(crate) fn info(connection: &mut Connection, name: &str) -> anyhow::Result<f64> {
    info_of(connection, &[b"INFO"], name)
}

/// A number that a gateway tells of itself.
pub(crate) fn info_of_gateway(connection: &mut Connection, name: &str) -> anyhow::Result<f64> {
    info_of(connection, &[b"INFO", b"gateway"], name)
}

fn info_of(connection: &mut Connection, words: &[&[u8]], name: &str) -> anyhow::Result<f64> {
    let told = connection.ask(words)?.unwrap_or_default();
    let told = String::from_utf8_lossy(&told).into_owned();
    let mut lines = told.lines().filter_map(|line| line.split_once(':'));
    let found = lines.find(|(key, _)| *key == name);
    let (_, value) = found.with_context(|| format!("INFO does not tell {name}"))?;
    let value: f64 = value.trim().parse()?;
    ensure!(value >= 0.0, "{name}: {value}");
    Ok(value)
}
