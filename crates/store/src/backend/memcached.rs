//! memcached 1.6, spoken to in its meta text protocol, pipelined.
//!
//! Its clock has one-second steps. A time to live is rounded up to the next second and one more, so that a key lives at
//! least as long as asked; a reading of the remaining seconds counts for one less, so that a copy never
//! outlives its key. Keys with spaces or control characters travel as base64, which must fit its 250 bytes.

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
    sync::mpsc::UnboundedReceiver,
};

use super::{
    Backend, Completion,
    remote::{BATCH_BYTES, Command, OnlyIf, Outcome, Protocol, Remote, SMALL, Verb},
};
use crate::coherence::Watch;

/// Longest key on the line, in bytes.
const MAX_NAME: usize = 250;
/// Times to live above this are taken as seconds after 1970 by memcached.
const MAX_RELATIVE_S: u64 = 30 * 24 * 3600;
/// Longest value that it may have: more than anybody reads, but it must be read past. memcached itself has 1 MiB, unless `-I` says
/// otherwise.
const MAX_VALUE: usize = 64 << 20;
/// Bytes of an item beside name and value, at most. Longer ones than memcached takes it must not be sent: it would remove the old one.
const ITEM_OVERHEAD: usize = 128;

/// Connects to `server` (HOST:PORT).
///
/// # Errors
/// It does not answer, or not as memcached 1.6 does.
pub async fn connect(
    server: &str,
    base_version: u64,
) -> anyhow::Result<(Box<dyn Backend>, UnboundedReceiver<Completion>)> {
    let mut protocol = Memcached {
        server: server.into(),
        stream: None,
        request: Vec::new(),
    };
    let item_size_max = protocol
        .check()
        .await
        .with_context(|| format!("memcached at {server}"))?;
    let (completions, done) = tokio::sync::mpsc::unbounded_channel();
    // memcached has no means to tell of what its other clients do.
    let remote = Remote::start(protocol, Watch::Unneeded, base_version, completions)
        .that_takes(item_size_max.saturating_sub(ITEM_OVERHEAD));
    Ok((Box::new(remote), done))
}

struct Memcached {
    server: String,
    stream: Option<BufReader<TcpStream>>,
    request: Vec<u8>,
}

impl Memcached {
    async fn stream(&mut self) -> anyhow::Result<&mut BufReader<TcpStream>> {
        if self.stream.is_none() {
            let stream = TcpStream::connect(&self.server).await?;
            stream.set_nodelay(true)?;
            // Given up, it takes along what has not arrived: behind a partition the system would deliver a write much later, over
            // those that were acknowledged since.
            stream.set_zero_linger()?;
            self.stream = Some(BufReader::with_capacity(64 << 10, stream));
        }
        Ok(self.stream.as_mut().expect("connected above"))
    }

    /// Asks for a meta no-op: only memcached 1.6 and later knows it. And how large its items may be, in bytes.
    async fn check(&mut self) -> anyhow::Result<usize> {
        let ask = async {
            let stream = self.stream().await?;
            stream.write_all(b"mn\r\nstats settings\r\n").await?;
            let mut line = Vec::new();
            read_line(stream, &mut line).await?;
            if line != b"MN" {
                bail!("it does not know meta commands; version 1.6 or later is needed");
            }
            let mut most = MAX_VALUE;
            while line != b"END" {
                read_line(stream, &mut line).await?;
                let text = String::from_utf8_lossy(&line);
                if let Some(size) = text.strip_prefix("STAT item_size_max ") {
                    most = size.parse().context("item_size_max is no number")?;
                } else if !text.starts_with("STAT ") && text != "END" {
                    bail!("answer {text:?} to stats settings");
                }
            }
            Ok(most)
        };
        tokio::time::timeout(std::time::Duration::from_secs(5), ask)
            .await
            .context("no answer within 5 s")?
    }
}

impl Protocol for Memcached {
    async fn execute(&mut self, commands: &[Command]) -> anyhow::Result<Vec<Outcome>> {
        let mut request = std::mem::take(&mut self.request);
        request.clear();
        let sent: Vec<bool> = commands
            .iter()
            .map(|c| write_command(c, &mut request))
            .collect();
        let stream = self.stream().await.context("cannot connect to memcached")?;
        stream.write_all(&request).await?;
        let (mut outcomes, mut line) = (Vec::with_capacity(commands.len()), Vec::new());
        let mut room = BATCH_BYTES;
        for (command, sent) in commands.iter().zip(sent) {
            outcomes.push(match sent {
                true => read_outcome(stream, &command.verb, &mut line, &mut room).await?,
                false if matches!(command.verb, Verb::Put { .. }) => Outcome::TooLarge,
                false => Outcome::Absent,
            });
        }
        self.request = request;
        Ok(outcomes)
    }

    fn disconnect(&mut self) {
        self.stream = None;
    }
}

/// Appends a command; false if its key cannot be named to memcached, and nothing was appended.
fn write_command(command: &Command, out: &mut Vec<u8>) -> bool {
    let plain = command.name.iter().all(|b| *b > b' ' && *b != 0x7f);
    let encoded;
    let (name, flag): (&[u8], &str) = if plain {
        (&command.name, "")
    } else {
        encoded = STANDARD.encode(&command.name);
        (encoded.as_bytes(), " b")
    };
    if name.len() > MAX_NAME {
        return false;
    }
    let mut put = |parts: &[&[u8]]| parts.iter().for_each(|part| out.extend_from_slice(part));
    let flag = flag.as_bytes();
    match &command.verb {
        Verb::Get { .. } => put(&[b"mg ", name, b" v t", flag, b"\r\n"]),
        Verb::Delete {
            only_if: OnlyIf::Absent,
        } => put(&[b"mg ", name, flag, b"\r\n"]),
        Verb::Delete { .. } => put(&[b"md ", name, flag, b"\r\n"]),
        Verb::Put {
            value,
            ttl_ms,
            only_if,
        } => {
            let mode = match only_if {
                OnlyIf::Always => "MS",
                OnlyIf::Absent => "ME",
                OnlyIf::Present => "MR",
            };
            let sizes = format!(" {} T{} {mode}", value.len(), exptime(*ttl_ms));
            put(&[
                b"ms ",
                name,
                sizes.as_bytes(),
                flag,
                b"\r\n",
                value,
                b"\r\n",
            ]);
        }
    }
    true
}

/// A time to live as memcached takes it: see the module's documentation.
fn exptime(ttl_ms: u32) -> u64 {
    let seconds = u64::from(ttl_ms).div_ceil(1000) + 1;
    match ttl_ms {
        0 => 0,
        _ if seconds <= MAX_RELATIVE_S => seconds,
        _ => {
            seconds
                + SystemTime::now()
                    .duration_since(UNIX_EPOCH)
                    .map_or(0, |d| d.as_secs())
        }
    }
}

/// Reads the answer to a command. Of large values it keeps as many as `room` has bytes for, and those that were asked for as such.
async fn read_outcome(
    stream: &mut BufReader<TcpStream>,
    verb: &Verb,
    line: &mut Vec<u8>,
    room: &mut usize,
) -> anyhow::Result<Outcome> {
    read_line(stream, line).await?;
    let text = std::str::from_utf8(line).context("memcached: an answer is not text")?;
    let mut words = text.split(' ');
    Ok(match words.next() {
        Some("VA") => {
            let len: usize = words
                .next()
                .and_then(|len| len.parse().ok())
                .filter(|len| *len <= MAX_VALUE)
                .with_context(|| format!("memcached: bad length in {text:?}"))?;
            let expiry_ms = expiry_ms(words.find_map(|word| word.strip_prefix('t')))
                .with_context(|| format!("memcached: no time to live in {text:?}"))?;
            let keep = match verb {
                Verb::Get { most, large, .. } => {
                    len <= SMALL || (len <= *most && (large.is_some() || len <= *room))
                }
                _ => false,
            };
            if !keep {
                pass_over(stream, len + 2).await?;
                return Ok(Outcome::Large(len));
            }
            if len > SMALL {
                *room = room.saturating_sub(len);
            }
            let mut value = vec![0; len];
            stream.read_exact(&mut value).await?;
            pass_over(stream, 2).await?;
            Outcome::Value { value, expiry_ms }
        }
        Some("HD") => match verb {
            Verb::Delete {
                only_if: OnlyIf::Absent,
            } => Outcome::NotStored,
            _ => Outcome::Done,
        },
        Some("EN" | "NF") => Outcome::Absent,
        Some("NS") => Outcome::NotStored,
        _ if text.starts_with("SERVER_ERROR object too large") => Outcome::TooLarge,
        _ if text.starts_with("SERVER_ERROR out of memory") => Outcome::Full,
        _ => bail!("memcached: answer {text:?} to {}", name(verb)),
    })
}

/// Remaining seconds, -1 for no end, as milliseconds that the key surely has left; 0 for no end.
fn expiry_ms(seconds: Option<&str>) -> Option<u32> {
    let seconds: i64 = seconds?.parse().ok()?;
    Some(match seconds {
        ..0 => 0,
        _ => u32::try_from((seconds - 1).max(0) * 1000)
            .unwrap_or(u32::MAX)
            .max(1),
    })
}

fn name(verb: &Verb) -> &'static str {
    match verb {
        Verb::Get { .. } => "mg",
        Verb::Put { .. } => "ms",
        Verb::Delete { .. } => "md",
    }
}

/// Takes so many bytes and keeps none: memcached has no means to give a part of a value only, or none of it if it is long.
async fn pass_over(stream: &mut BufReader<TcpStream>, mut len: usize) -> anyhow::Result<()> {
    while len > 0 {
        let some = stream.fill_buf().await?.len().min(len);
        if some == 0 {
            bail!("memcached closed the connection");
        }
        stream.consume(some);
        len -= some;
    }
    Ok(())
}

async fn read_line(stream: &mut BufReader<TcpStream>, line: &mut Vec<u8>) -> anyhow::Result<()> {
    line.clear();
    stream.take(1024).read_until(b'\n', line).await?;
    if line.last() != Some(&b'\n') {
        bail!("memcached closed the connection");
    }
    line.pop();
    if line.last() == Some(&b'\r') {
        line.pop();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_never_outlives_its_key_nor_the_key_its_promise() {
        assert_eq!(
            [exptime(0), exptime(1), exptime(1000), exptime(1001)],
            [0, 2, 2, 3]
        );
        assert!(
            exptime(u32::MAX) > 1_000_000_000,
            "more than 30 days: an absolute time"
        );
        let left = |s| expiry_ms(Some(s));
        assert_eq!(
            [left("-1"), left("0"), left("1"), left("2")],
            [Some(0), Some(1), Some(1), Some(1000)]
        );
        assert_eq!([left("x"), expiry_ms(None)], [None, None]);
    }

    #[tokio::test]
    async fn what_has_not_arrived_when_the_connection_is_given_up_never_does() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut memcached = Memcached {
            server: listener.local_addr().unwrap().to_string(),
            stream: None,
            request: vec![],
        };
        memcached.stream().await.unwrap();
        let (mut server, _) = listener.accept().await.unwrap();
        memcached.disconnect();
        let read = server.read(&mut [0]).await;
        let kind = read.map_err(|error| error.kind());
        assert_eq!(kind, Err(std::io::ErrorKind::ConnectionReset));
    }
}
