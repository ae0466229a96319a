//! Puts the populated keys, with the lengths of their values, into real servers, as
//! `store --populate` does into its own table.

use std::{
    io::{Read, Write},
    net::TcpStream,
    os::unix::net::UnixStream,
    path::Path,
    time::Duration,
};

use anyhow::{Context, ensure};
use lab::{interrupt, namespace};
use load::workload::{KEY_LEN, populated_value};

use crate::resp::write_command;

/// Items sent before answers are read.
const BATCH: usize = 1000;
const TIMEOUT: Duration = Duration::from_secs(10);

/// Fills a Redis behind a Unix socket.
///
/// # Errors
/// It is not there, or refuses an item.
pub fn redis(
    socket: &Path,
    keys: impl Iterator<Item = ([u8; KEY_LEN], usize)>,
) -> anyhow::Result<()> {
    let stream = UnixStream::connect(socket).with_context(|| socket.display().to_string())?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    let set =
        |key: &[u8], value: &[u8], out: &mut Vec<u8>| write_command(out, &[b"SET", key, value]);
    fill(stream, keys, set, b"+OK\r\n")
}

/// Fills a memcached on its usual port of a namespace's loopback.
///
/// # Errors
/// It is not there within some seconds, or refuses an item.
pub fn memcached(
    space: &str,
    keys: impl Iterator<Item = ([u8; KEY_LEN], usize)>,
) -> anyhow::Result<()> {
    let connect =
        || Ok(namespace::within(space, || Ok(TcpStream::connect("127.0.0.1:11211")?)).ok());
    let stream = interrupt::wait_for("memcached", TIMEOUT, connect)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    let set = |key: &[u8], value: &[u8], out: &mut Vec<u8>| {
        out.extend_from_slice(b"set ");
        out.extend_from_slice(key);
        write!(out, " 0 0 {}\r\n", value.len())?;
        out.extend_from_slice(value);
        out.write_all(b"\r\n")
    };
    fill(stream, keys, set, b"STORED\r\n")
}

fn fill(
    mut stream: impl Read + Write,
    keys: impl Iterator<Item = ([u8; KEY_LEN], usize)>,
    set: impl Fn(&[u8], &[u8], &mut Vec<u8>) -> std::io::Result<()>,
    done: &[u8],
) -> anyhow::Result<()> {
    let mut keys = keys.peekable();
    while keys.peek().is_some() {
        interrupt::check()?;
        let mut out = vec![];
        let mut count = 0;
        for (key, len) in keys.by_ref().take(BATCH) {
            set(&key, &populated_value(&key, len), &mut out)?;
            count += 1;
        }
        stream.write_all(&out)?;
        let mut answers = vec![0; count * done.len()];
        stream.read_exact(&mut answers).context("the server did not take all items")?;
        let refused = answers.chunks(done.len()).find(|answer| *answer != done);
        ensure!(
            refused.is_none(),
            "the server refused an item: {:?}",
            String::from_utf8_lossy(&answers[..answers.len().min(200)])
        );
    }
    Ok(())
}
