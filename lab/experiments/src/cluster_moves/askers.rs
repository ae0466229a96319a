//! How keys are read and written: by a gateway, by packets to the stores, or at the nodes of the
//! Redis Cluster, as its own clients do.

use std::{net::SocketAddr, time::Duration};

use client::{Client, Error};
use wire::{Cluster, TENANT_OPEN};

use crate::{
    loopback::address,
    redis_cluster::number_in,
    resp::{Connection, Server},
};

/// How long a client waits for an answer.
pub(super) const WITHIN: Duration = Duration::from_secs(1);
/// From one attempt to the next, where one was refused.
const AGAIN: Duration = Duration::from_millis(5);
/// Nodes to which a client is sent on for one command.
const REDIRECTS: usize = 5;

/// What came of a command.
pub(super) enum Outcome {
    /// It was carried out: the value that was read, if there is one.
    Done(Option<u64>),
    /// It was not carried out.
    NotDone,
    /// Nobody can tell.
    Unknown,
}

/// A client that asks one thing after the other. A `value` is written, without one it is read.
pub(super) trait Asker {
    fn ask(&mut self, key: &str, value: Option<u64>) -> anyhow::Result<Outcome>;

    /// How often it was sent to another node.
    fn redirects(&self) -> u64 {
        0
    }
}

/// A client of a gateway that knows of no cluster.
pub(super) struct GatewayClient {
    gateway: SocketAddr,
    connection: Option<Connection>,
    redirects: u64,
}

impl GatewayClient {
    pub fn new(gateway: SocketAddr) -> GatewayClient {
        GatewayClient { gateway, connection: None, redirects: 0 }
    }
}

impl Asker for GatewayClient {
    fn ask(&mut self, key: &str, value: Option<u64>) -> anyhow::Result<Outcome> {
        let connection = match self.connection.take() {
            Some(connection) => connection,
            None => match Connection::within(&Server::Tcp(self.gateway), WITHIN) {
                Ok(connection) => connection,
                Err(_) => {
                    std::thread::sleep(AGAIN);
                    return Ok(Outcome::NotDone);
                }
            },
        };
        let (told, connection) = one(connection, key, value, false)?;
        self.connection = connection;
        Ok(match told {
            Answer::Done(value) => Outcome::Done(value),
            Answer::Lost => Outcome::Unknown,
            Answer::Refused(words) => {
                self.redirects += u64::from(is_redirect(&words));
                std::thread::sleep(AGAIN);
                if words.contains("outcome unknown") { Outcome::Unknown } else { Outcome::NotDone }
            }
        })
    }

    fn redirects(&self) -> u64 {
        self.redirects
    }
}

/// What a server says to a command.
enum Answer {
    Done(Option<u64>),
    Refused(String),
    Lost,
}

/// Puts one command; the connection, if it may be used again.
fn one(
    mut connection: Connection,
    key: &str,
    value: Option<u64>,
    asking: bool,
) -> anyhow::Result<(Answer, Option<Connection>)> {
    let text = value.map(|value| value.to_string());
    let words: Vec<&[u8]> = match &text {
        Some(text) => vec![b"SET", key.as_bytes(), text.as_bytes()],
        None => vec![b"GET", key.as_bytes()],
    };
    if asking && connection.ask(&[b"ASKING"]).is_err() {
        return Ok((Answer::Lost, None));
    }
    Ok(match connection.ask(&words) {
        Ok(_) if value.is_some() => (Answer::Done(None), Some(connection)),
        Ok(read) => {
            let read = read.as_deref().map(number_in).transpose()?;
            (Answer::Done(read), Some(connection))
        }
        Err(error) => {
            let words = error.to_string();
            match words.starts_with('-') {
                true => (Answer::Refused(words), Some(connection)),
                false => (Answer::Lost, None),
            }
        }
    })
}

fn is_redirect(words: &str) -> bool {
    words.starts_with("-MOVED") || words.starts_with("-ASK")
}

/// A client that sends packets to the stores.
pub(super) struct PacketClient {
    runtime: tokio::runtime::Runtime,
    client: Client,
}

impl PacketClient {
    pub fn new(cluster: &Cluster) -> anyhow::Result<PacketClient> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let options = client::Options { deadline: WITHIN, ..client::Options::default() };
        let client = runtime.block_on(Client::connect(cluster, TENANT_OPEN, options))?;
        Ok(PacketClient { runtime, client })
    }
}

impl Asker for PacketClient {
    fn ask(&mut self, key: &str, value: Option<u64>) -> anyhow::Result<Outcome> {
        let told = self.runtime.block_on(async {
            match value {
                Some(value) => self.client.set(key, value.to_string(), None).await.map(|_| None),
                None => self.client.get(key).await,
            }
        });
        match told {
            Ok(read) => Ok(Outcome::Done(read.map(|read| number_in(&read.bytes)).transpose()?)),
            Err(Error::Refused { .. }) => {
                std::thread::sleep(AGAIN);
                Ok(Outcome::NotDone)
            }
            Err(_) => Ok(Outcome::Unknown),
        }
    }
}

/// A client of the Redis Cluster itself: it knows the nodes, goes where it is sent, and asks
/// another node if one does not answer.
pub(super) struct ClusterClient {
    nodes: Vec<u16>,
    /// The one that has the key, as far as is known: a client of one key.
    at: u16,
    connection: Option<Connection>,
    next: usize,
}

impl ClusterClient {
    pub fn new(nodes: &[u16]) -> ClusterClient {
        ClusterClient { nodes: nodes.to_vec(), at: nodes[0], connection: None, next: 0 }
    }

    /// Asks another node, which knows better.
    fn loses(&mut self) {
        self.connection = None;
        self.next = (self.next + 1) % self.nodes.len();
        self.at = self.nodes[self.next];
        std::thread::sleep(AGAIN);
    }
}

impl Asker for ClusterClient {
    fn ask(&mut self, key: &str, value: Option<u64>) -> anyhow::Result<Outcome> {
        let mut asking = false;
        for _ in 0..REDIRECTS {
            let connection = match self.connection.take() {
                Some(connection) => connection,
                None => {
                    let server = Server::Tcp(address(self.at));
                    let Ok(connection) = Connection::within(&server, WITHIN) else {
                        self.loses();
                        return Ok(Outcome::NotDone);
                    };
                    connection
                }
            };
            let (answer, connection) = one(connection, key, value, asking)?;
            self.connection = connection;
            match answer {
                Answer::Done(read) => return Ok(Outcome::Done(read)),
                Answer::Refused(words) if is_redirect(&words) => {
                    asking = words.starts_with("-ASK");
                    let port = words.rsplit(':').next().and_then(|port| port.parse().ok());
                    self.at = port.unwrap_or(self.at);
                    self.connection = None;
                }
                Answer::Refused(_) => {
                    self.loses();
                    return Ok(Outcome::NotDone);
                }
                Answer::Lost => {
                    self.loses();
                    return Ok(Outcome::Unknown);
                }
            }
        }
        Ok(Outcome::NotDone)
    }
}
