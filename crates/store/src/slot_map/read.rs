//! Asks the nodes of a Redis Cluster for their views, and makes a map of them.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use anyhow::{Context, anyhow, bail};
use futures_util::future::join_all;
use redis::{ConnectionAddr, ConnectionInfo};
use tls::Connector;
use tokio::time::timeout;

use super::{NodeAddress, NodeView, SlotMap};
use crate::backend::redis::{Dial, addresses};

/// Nodes that are asked for one map: those before others that have slots, for without the word of
/// most of these there is none.
const NODES: usize = 256;

/// The map of the Redis Cluster of which these are nodes: `redis://HOST:PORT`, by TLS `rediss://`,
/// several separated by commas. The nodes that they name are asked, too; each has so long for its
/// answer.
///
/// # Errors
/// What is no such address, or why the nodes' answers make no map.
pub async fn read(
    urls: &str,
    password: Option<&str>,
    connector: &Connector,
    within: Duration,
) -> anyhow::Result<SlotMap> {
    let (is_secure, seeds) = addresses("the URL", urls, password)?;
    let dial = Dial::new(is_secure.then(|| connector.clone()), within);
    MapReader::new(seeds, dial).read(&[]).await
}

/// A node that is to be asked.
struct NodeToAsk {
    /// It is a replica, or a master whose word does not count, as far as others say.
    has_no_slots: bool,
    at: NodeAddress,
    info: ConnectionInfo,
}

/// Asks for maps, again and again.
#[derive(Clone)]
pub struct MapReader {
    seeds: Vec<ConnectionInfo>,
    dial: Dial,
}

impl MapReader {
    /// Of the cluster of which these are nodes.
    pub(crate) fn new(seeds: Vec<ConnectionInfo>, dial: Dial) -> MapReader {
        MapReader { seeds, dial }
    }

    /// How a node is connected to, by what the first seed says of users and passwords.
    pub(crate) fn info(&self, at: &NodeAddress) -> ConnectionInfo {
        self.seeds[0].clone().set_addr(ConnectionAddr::Tcp(at.host.clone(), at.port))
    }

    /// The map, from the seeds, from nodes that are known besides, and from all that they name.
    ///
    /// # Errors
    /// Why there is none.
    pub async fn read(&self, known: &[NodeAddress]) -> anyhow::Result<SlotMap> {
        let mut next: Vec<NodeToAsk> = vec![];
        for seed in &self.seeds {
            let ConnectionAddr::Tcp(host, port) = seed.addr() else {
                bail!("{}: expected a node of a Redis Cluster at HOST:PORT", seed.addr());
            };
            let at = NodeAddress { host: host.clone(), port: *port };
            next.push(NodeToAsk { has_no_slots: false, at, info: seed.clone() });
        }
        next.extend(known.iter().map(|at| NodeToAsk {
            has_no_slots: false,
            at: at.clone(),
            info: self.info(at),
        }));
        let mut views: HashMap<String, NodeView> = HashMap::new();
        let mut asked: HashSet<NodeAddress> = HashSet::new();
        let mut failed = vec![];
        while !next.is_empty() {
            next.retain(|node| asked.len() < NODES && asked.insert(node.at.clone()));
            let answers = join_all(next.drain(..).map(|node| self.view(node.at, node.info))).await;
            for answer in answers {
                match answer {
                    Ok(view) => {
                        let named = view.nodes.iter().filter(|node| !node.is_failed);
                        next.extend(named.map(|node| NodeToAsk {
                            has_no_slots: !node.is_master_with_slots(),
                            at: node.address.clone(),
                            info: self.info(&node.address),
                        }));
                        views.insert(view.myself.clone(), view);
                    }
                    Err(error) => failed.push(format!("{error:#}")),
                }
            }
            next.sort_by(|a, b| (a.has_no_slots, &a.at).cmp(&(b.has_no_slots, &b.at)));
        }
        let views: Vec<NodeView> = views.into_values().collect();
        SlotMap::of(&views).map_err(|why| match failed.is_empty() {
            true => anyhow!(why),
            false => anyhow!("{why}; {}", failed.join("; ")),
        })
    }

    async fn view(&self, at: NodeAddress, info: ConnectionInfo) -> anyhow::Result<NodeView> {
        let ask = async {
            let (mut connection, _carries) = self.dial.connection(info).await?;
            let mut command = redis::cmd("CLUSTER");
            command.arg("NODES");
            anyhow::Ok(command.query_async::<String>(&mut connection).await?)
        };
        let text = timeout(self.dial.within, ask).await;
        let text = text.map_err(anyhow::Error::from).flatten();
        let text = text.with_context(|| format!("CLUSTER NODES of {at}"))?;
        NodeView::parse(&text, &at.host).map_err(|why| anyhow!("{at}: {why}"))
    }
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpListener,
    };

    use super::*;

    /// A node that answers whatever it is asked with this text.
    async fn answers(listener: TcpListener, text: String) {
        loop {
            let (mut node, _) = listener.accept().await.unwrap();
            let answer = format!("${}\r\n{text}\r\n", text.len());
            tokio::spawn(async move {
                let mut said = vec![];
                // What the client library says first has answers, too.
                while node.read_buf(&mut said).await.is_ok_and(|len| len > 0) {
                    let told = String::from_utf8_lossy(&said).into_owned();
                    let setinfo = "+OK\r\n".repeat(told.matches("SETINFO").count());
                    node.write_all(setinfo.as_bytes()).await.unwrap();
                    if told.contains("NODES") {
                        node.write_all(answer.as_bytes()).await.unwrap();
                    }
                    said.clear();
                }
            });
        }
    }

    #[tokio::test]
    async fn of_many_nodes_masters_are_asked_first() {
        let mut masters = vec![];
        for host in ["127.0.0.1", "127.9.9.1", "127.9.9.2"] {
            masters.push(TcpListener::bind((host, 0)).await.unwrap());
        }
        let places: Vec<_> = masters.iter().map(|one| one.local_addr().unwrap()).collect();
        let slots = ["0-5000", "5001-9999", "10000-16383"];
        let text = |own: usize| {
            let rows = (0..).zip(places.iter().zip(slots)).map(|(id, (at, slots))| {
                let own = if id == own { "myself," } else { "" };
                format!("m{id} {at}@1 {own}master - 0 0 1 connected {slots}\n")
            });
            // Nobody is there, and they come before two of the masters by their addresses.
            let replicas = (0..2 * NODES).map(|id| {
                format!("r{id} 127.1.{}.{}:1@1 slave m0 0 0 1 connected\n", id / 200, id % 200 + 1)
            });
            rows.chain(replicas).collect::<String>()
        };
        for (id, listener) in (0..).zip(masters) {
            tokio::spawn(answers(listener, text(id)));
        }
        let seeds = vec![format!("redis://{}", places[0]).parse().unwrap()];
        let reader = MapReader::new(seeds, Dial::new(None, Duration::from_secs(90)));
        let map = reader.read(&[]).await.unwrap();
        assert_eq!(map.shards.len(), 3);
        assert!(map.shards.iter().all(|shard| shard.is_agreed));
    }
}
