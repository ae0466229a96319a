//! What memcached is, looked at whenever it is connected to, before it has the store's data.

use anyhow::{Context, bail};
use tokio::{
    io::{AsyncWriteExt, BufReader, ReadHalf},
    net::TcpStream,
};

use super::{MAX_VALUE, Memcached, read_line};

/// The first version whose meta commands are those that are spoken here. The ones before it have
/// others under the same names.
const FIRST: [u32; 3] = [1, 6, 10];

/// What there is.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ServerFacts {
    /// Bytes of the longest item that it takes.
    pub item_size_max: usize,
    /// Whether it makes room by dropping what was not read lately; not so under `-M`.
    pub evicts: bool,
    /// Which process it is, if it says so.
    pub process: Option<ServerProcess>,
}

/// One run of memcached. In a container each has the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ServerProcess {
    number: u64,
    /// When it was started, in seconds after 1970 by its clock of then.
    started_s: u64,
}

impl Memcached {
    /// Asks for a meta no-op, the version, the settings, and which process it is.
    ///
    /// # Errors
    /// It is none that can be spoken to: which it is, and what is needed.
    pub(super) async fn check(&mut self) -> anyhow::Result<ServerFacts> {
        let (stream, requests) = self.stream().await?;
        requests.write_all(b"mn\r\nversion\r\nstats settings\r\nstats\r\n").await?;
        let mut line = Vec::new();
        read_line(stream, &mut line).await?;
        let text = String::from_utf8_lossy(&line);
        if text.contains("unauthenticated") {
            bail!("it wants a user and a password (-Y), and is given none; start it without -Y");
        }
        if text != "MN" {
            bail!("it does not know meta commands; version 1.6.10 or later is needed");
        }
        read_line(stream, &mut line).await?;
        let version = String::from_utf8_lossy(&line);
        let version = version.strip_prefix("VERSION ").unwrap_or(&version);
        // What has no such version is another program that speaks as memcached does.
        if numbers(version).is_some_and(|numbers| numbers < FIRST) {
            bail!(
                "it is version {version}, whose meta commands are others; 1.6.10 or later is needed"
            );
        }
        let mut found = ServerFacts { item_size_max: MAX_VALUE, evicts: true, process: None };
        while let Some((name, value)) = next_fact(stream, &mut line, "stats settings").await? {
            match name {
                "item_size_max" => {
                    found.item_size_max = value.parse().context("item_size_max is no number")?;
                }
                "evictions" => found.evicts = value != "off",
                _ => {}
            }
        }
        let (mut number, mut uptime_s, mut time_s) = (None, None, None);
        while let Some((name, value)) = next_fact(stream, &mut line, "stats").await? {
            let told = match name {
                "pid" => &mut number,
                "uptime" => &mut uptime_s,
                "time" => &mut time_s,
                _ => continue,
            };
            *told = value.parse::<u64>().ok();
        }
        if let (Some(number), Some(uptime_s), Some(time_s)) = (number, uptime_s, time_s) {
            // It counts both by one clock, so this is the same at all times.
            let started_s = time_s.saturating_sub(uptime_s);
            found.process = Some(ServerProcess { number, started_s });
        }
        Ok(found)
    }
}

/// The next thing that is told in answer to `asked`, by its name; `None`: that was all.
async fn next_fact<'a>(
    answers: &mut BufReader<ReadHalf<TcpStream>>,
    line: &'a mut Vec<u8>,
    asked: &str,
) -> anyhow::Result<Option<(&'a str, &'a str)>> {
    read_line(answers, line).await?;
    if line == b"END" {
        return Ok(None);
    }
    let text = std::str::from_utf8(line).context("memcached: an answer is not text")?;
    let fact = text.strip_prefix("STAT ");
    let fact = fact.with_context(|| format!("answer {text:?} to {asked}"))?;
    Ok(Some(fact.split_once(' ').unwrap_or((fact, ""))))
}

/// The three numbers with which a version begins.
fn numbers(version: &str) -> Option<[u32; 3]> {
    let mut parts = version.splitn(3, '.');
    let mut next = || {
        let part = parts.next()?;
        let digits = part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len());
        part[..digits].parse().ok()
    };
    Some([next()?, next()?, next()?])
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;

    use super::*;
    use crate::backend::remote::Health;

    /// What is said of a server that answers so.
    async fn checked(answers: &'static str) -> anyhow::Result<ServerFacts> {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let mut memcached = Memcached::at(address, Health::new());
        let serve = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.write_all(answers.as_bytes()).await.unwrap();
            // Until the other side has what it wants.
            let _ = stream.read_to_end(&mut vec![]).await;
        };
        tokio::select! {
            found = memcached.check() => found,
            () = serve => unreachable!("the other side does not end first"),
        }
    }

    #[tokio::test]
    async fn a_server_that_cannot_be_spoken_to_is_not_connected_to() {
        // (answers, what is said)
        let rows = [
            ("ERROR\r\n", "1.6.10 or later is needed"),
            ("MN\r\nVERSION 1.6.0\r\n", "it is version 1.6.0,"),
            ("MN\r\nVERSION 1.6.9_beta3\r\n", "it is version 1.6.9_beta3,"),
            ("CLIENT_ERROR unauthenticated\r\n", "without -Y"),
            ("MN\r\nVERSION 1.6.10\r\nERROR\r\n", "\"ERROR\" to stats settings"),
        ];
        for (answers, said) in rows {
            let error = checked(answers).await.unwrap_err().to_string();
            assert!(error.contains(said), "{answers:?}: {error}");
        }
    }

    #[tokio::test]
    async fn what_it_holds_whether_it_evicts_and_which_process_it_is_is_found() {
        let found = |item_size_max, evicts| {
            let process = Some(ServerProcess { number: 7, started_s: 1000 });
            ServerFacts { item_size_max, evicts, process }
        };
        let nameless = ServerFacts { process: None, ..found(MAX_VALUE, true) };
        // (answers, what is found)
        let rows = [
            ("MN\r\nVERSION 1.6.10\r\nEND\r\nEND\r\n", nameless),
            (
                "MN\r\nVERSION 2.0.0\r\nSTAT evictions on\r\nEND\r\nSTAT pid 7\r\nSTAT uptime 5\r\nSTAT time 1005\r\nSTAT version 2.0.0\r\nEND\r\n",
                found(MAX_VALUE, true),
            ),
            (
                "MN\r\nVERSION another one\r\nSTAT item_size_max 5\r\nSTAT evictions off\r\nEND\r\nSTAT pid 7\r\nSTAT uptime 9\r\nSTAT time 1009\r\nEND\r\n",
                found(5, false),
            ),
        ];
        for (answers, expected) in rows {
            assert_eq!(checked(answers).await.unwrap(), expected, "{answers:?}");
        }
    }
}
