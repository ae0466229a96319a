//! What memcached is, looked at whenever it is connected to, before it has the store's data.

use anyhow::{Context, bail};
use tokio::io::AsyncWriteExt;

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
}

impl Memcached {
    /// Asks for a meta no-op, the version and the settings.
    ///
    /// # Errors
    /// It is none that can be spoken to: which it is, and what is needed.
    pub(super) async fn check(&mut self) -> anyhow::Result<ServerFacts> {
        let (stream, requests) = self.stream().await?;
        requests.write_all(b"mn\r\nversion\r\nstats settings\r\n").await?;
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
        let mut found = ServerFacts { item_size_max: MAX_VALUE, evicts: true };
        loop {
            read_line(stream, &mut line).await?;
            let text = String::from_utf8_lossy(&line);
            if let Some(size) = text.strip_prefix("STAT item_size_max ") {
                found.item_size_max = size.parse().context("item_size_max is no number")?;
            } else if let Some(evictions) = text.strip_prefix("STAT evictions ") {
                found.evicts = evictions != "off";
            } else if text == "END" {
                return Ok(found);
            } else if !text.starts_with("STAT ") {
                bail!("answer {text:?} to stats settings");
            }
        }
    }
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
    async fn what_it_holds_and_whether_it_evicts_is_found() {
        let found = |item_size_max, evicts| ServerFacts { item_size_max, evicts };
        // (answers, what is found)
        let rows = [
            ("MN\r\nVERSION 1.6.10\r\nEND\r\n", found(MAX_VALUE, true)),
            ("MN\r\nVERSION 2.0.0\r\nSTAT evictions on\r\nEND\r\n", found(MAX_VALUE, true)),
            (
                "MN\r\nVERSION another one\r\nSTAT item_size_max 5\r\nSTAT evictions off\r\nEND\r\n",
                found(5, false),
            ),
        ];
        for (answers, expected) in rows {
            assert_eq!(checked(answers).await.unwrap(), expected, "{answers:?}");
        }
    }
}
