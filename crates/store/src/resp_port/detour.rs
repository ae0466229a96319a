//! The way of a command whose key's slot is at another node of the Redis Cluster than the
//! connection's own: one command at a time goes there, and its answer comes back.
//!
//! In: the command, where it goes, and what the client has said of itself, which is said there,
//! too. Out: the answer, or what may still take place there without one.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::FutureExt;
use resp::ReplyScanner;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::{sleep, timeout},
};

use super::{greeting::Greeting, session::KeptCommand};
use crate::{
    backend::redis::{Reader, Redirect, Session, Upstream, Writer},
    slot_map::NodeAddress,
};

/// Room for one read.
const READ_BYTES: usize = 16 << 10;
/// A longer answer is not taken: the client is told so.
const REPLY_BYTES: usize = 64 << 20;
/// A node that says nothing for so long to a command that waits for nobody is not waited for: the
/// answers of others stand behind it. To Redis, too, a command that takes longer is none that
/// others can wait for (`busy-reply-threshold`).
const ANSWERS_WITHIN: Duration = Duration::from_secs(5);
/// What the answer to names a connection.
pub(super) const WHO: &[u8] = b"CLIENT ID\r\nINFO server\r\n";

/// A connection to a node.
pub(super) struct Leg {
    pub reads: Reader,
    pub writes: Writer,
    /// What the node knows it as, if it says so.
    pub session: Option<Session>,
    read: BytesMut,
}

/// How a command's way has ended.
pub(super) enum Arrival {
    /// With an answer, and the connection may be used again.
    Answered(Bytes, Box<Leg>),
    /// Nothing was asked, for this reason.
    NotAsked(String),
    /// Without an answer, for this reason. What the node knew the connection as.
    Lost(String, Option<Session>),
}

impl Leg {
    /// To a node, which is told what the client has said of itself: commands, so many.
    ///
    /// # Errors
    /// There is nobody who answers, or it refuses what the client has said: it would carry out as
    /// somebody else what it is asked.
    pub async fn open(
        upstream: &Upstream,
        at: &NodeAddress,
        greeting: &Greeting,
    ) -> anyhow::Result<Leg> {
        let open = async {
            let at = redis::ConnectionAddr::Tcp(at.host.clone(), at.port);
            let (reads, writes) = upstream.open(&at).await?;
            let mut leg = Leg { reads, writes, session: None, read: BytesMut::new() };
            leg.writes.write_all(&greeting.bytes()).await?;
            leg.writes.write_all(WHO).await?;
            leg.writes.flush().await?;
            for _ in 0..greeting.len() {
                let reply = leg.reply().await?;
                let words = String::from_utf8_lossy(reply.get(1..).unwrap_or_default());
                let is_refused = matches!(reply.first(), Some(b'-' | b'!'));
                anyhow::ensure!(!is_refused, "it refuses the client: {}", words.trim());
            }
            let who = [leg.reply().await?, leg.reply().await?];
            let who: Vec<_> =
                who.iter().filter_map(|bytes| redis::parse_redis_value(bytes).ok()).collect();
            leg.session = Session::in_answers(&who);
            anyhow::Ok(leg)
        };
        timeout(upstream.within(), open).await?
    }

    /// Sends commands, and takes so many answers: the last one.
    ///
    /// # Errors
    /// The connection is of no use any more, or the answer is too long.
    pub async fn ask(&mut self, commands: &[u8], answers: usize) -> anyhow::Result<Bytes> {
        self.writes.write_all(commands).await?;
        self.writes.flush().await?;
        let mut last = Bytes::new();
        for _ in 0..answers {
            last = self.reply().await?;
        }
        Ok(last)
    }

    /// Whether the other end has closed it, as far as is known here.
    fn is_closed(&mut self) -> bool {
        let read = self.reads.read_buf(&mut self.read).now_or_never();
        matches!(read, Some(Ok(0) | Err(_)))
    }

    /// The next reply that answers something.
    async fn reply(&mut self) -> anyhow::Result<Bytes> {
        loop {
            let mut scanner = ReplyScanner::default();
            let mut scanned = 0;
            let reply = loop {
                let found = scanner.scan(&self.read[scanned..])?;
                if let Some(found) = found {
                    let len = scanned + found.len;
                    break (found, self.read.split_to(len).freeze());
                }
                scanned = self.read.len();
                anyhow::ensure!(
                    scanned <= REPLY_BYTES,
                    "an answer of more than {REPLY_BYTES} bytes"
                );
                self.read.reserve(READ_BYTES);
                let len = self.reads.read_buf(&mut self.read).await?;
                anyhow::ensure!(len > 0, "it has closed the connection");
            };
            if !reply.0.is_push() {
                return Ok(reply.1);
            }
        }
    }
}

/// Takes a command to a node, by a connection that is there or a new one, and waits for its answer:
/// as long as that is a node whose data counts.
pub(super) async fn travel(
    upstream: Upstream,
    leg: Option<Box<Leg>>,
    greeting: Greeting,
    to: Redirect,
    command: KeptCommand,
) -> Arrival {
    let opened = match leg.and_then(|mut leg| (!leg.is_closed()).then_some(leg)) {
        Some(leg) => Ok(leg),
        None => Leg::open(&upstream, &to.at, &greeting).await.map(Box::new),
    };
    let mut leg = match opened {
        Ok(leg) => leg,
        Err(error) => return Arrival::NotAsked(format!("the node at {}: {error:#}", to.at)),
    };
    let mut bytes = BytesMut::new();
    if to.asking {
        bytes.extend_from_slice(b"ASKING\r\n");
    }
    bytes.extend_from_slice(&command.bytes);
    let answers = 1 + usize::from(to.asking);
    let late = async {
        match command.waits {
            true => std::future::pending().await,
            false => sleep(ANSWERS_WITHIN).await,
        }
    };
    let answered = tokio::select! {
        answered = leg.ask(&bytes, answers) => answered,
        () = upstream.ceases(&to.at) => Err(anyhow::anyhow!("it is no master any more")),
        () = late => Err(anyhow::anyhow!("it has said nothing for {ANSWERS_WITHIN:?}")),
    };
    match answered {
        Ok(answer) => Arrival::Answered(answer, leg),
        Err(error) => Arrival::Lost(format!("the node at {}: {error:#}", to.at), leg.session),
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    /// What becomes of a client at a node that answers this to its AUTH.
    async fn arrives(answer: &str) -> Arrival {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let to = Redirect { at: NodeAddress { host: "127.0.0.1".into(), port }, asking: false };
        let mut greeting = Greeting::default();
        greeting.hears("auth", &Bytes::from_static(b"AUTH alice secret\r\n"));
        let command = KeptCommand { bytes: "GET k\r\n".into(), writes: false, waits: false };
        let upstream = Upstream::of_node(&to.at);
        let travels = travel(upstream, None, greeting, to, command);
        let serves = async {
            let (mut node, _) = listener.accept().await.unwrap();
            let (mut said, mut told) = (BytesMut::new(), 0);
            loop {
                let lines = String::from_utf8_lossy(&said).lines().count();
                for line in String::from_utf8_lossy(&said).lines().skip(told) {
                    let answer = match line {
                        "AUTH alice secret" => answer,
                        "GET k" => "$1\r\nv\r\n",
                        _ => "+OK\r\n",
                    };
                    node.write_all(answer.as_bytes()).await.unwrap();
                }
                told = lines;
                if node.read_buf(&mut said).await.unwrap() == 0 {
                    std::future::pending::<()>().await;
                }
            }
        };
        tokio::select! {
            arrival = travels => arrival,
            () = serves => unreachable!("it serves for ever"),
        }
    }

    #[tokio::test]
    async fn a_node_that_refuses_who_the_client_is_is_asked_nothing() {
        assert!(
            matches!(arrives("+OK\r\n").await, Arrival::Answered(answer, _) if answer == "$1\r\nv\r\n")
        );
        match arrives("-WRONGPASS invalid username-password pair\r\n").await {
            Arrival::NotAsked(why) => assert!(why.contains(": WRONGPASS invalid"), "{why}"),
            _ => panic!("it was asked"),
        }
    }
}
