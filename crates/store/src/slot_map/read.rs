//! Asks the nodes of a Redis Cluster for their views, and makes a map of them.

use std::{collections::HashMap, time::Duration};

use anyhow::{Context, anyhow, bail};
use futures_util::future::join_all;
use redis::{AsyncConnectionConfig, ConnectionAddr, ConnectionInfo};
use tls::Connector;
use tokio::time::timeout;

use super::{NodeAddress, NodeView, SlotMap};
use crate::backend::redis::{Dial, addresses, plain_urls};

/// Nodes that are asked for one map.
const NODES: usize = 64;

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
    let (is_secure, plain) = plain_urls(urls)?;
    let seeds = addresses(&plain, password).map_err(|error| anyhow!("{urls}: {error}"))?;
    let dial = Dial::new(is_secure.then(|| connector.clone()), within);
    MapReader::new(seeds, dial).read(&[]).await
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
        let mut next: Vec<(NodeAddress, ConnectionInfo)> = vec![];
        for seed in &self.seeds {
            let ConnectionAddr::Tcp(host, port) = seed.addr() else {
                bail!("{}: expected a node of a Redis Cluster at HOST:PORT", seed.addr());
            };
            next.push((NodeAddress { host: host.clone(), port: *port }, seed.clone()));
        }
        next.extend(known.iter().map(|at| (at.clone(), self.info(at))));
        let mut views: HashMap<String, NodeView> = HashMap::new();
        let mut asked: Vec<NodeAddress> = vec![];
        let mut failed = vec![];
        while !next.is_empty() {
            next.retain(|(at, _)| !asked.contains(at));
            next.truncate(NODES - asked.len());
            asked.extend(next.iter().map(|(at, _)| at.clone()));
            let answers = join_all(next.drain(..).map(|(at, info)| self.view(at, info))).await;
            for answer in answers {
                match answer {
                    Ok(view) => {
                        let named = view.nodes.iter().filter(|node| !node.is_failed);
                        next.extend(
                            named.map(|node| (node.address.clone(), self.info(&node.address))),
                        );
                        views.insert(view.myself.clone(), view);
                    }
                    Err(error) => failed.push(format!("{error:#}")),
                }
            }
            next.sort_by(|a, b| a.0.cmp(&b.0));
            next.dedup_by(|a, b| a.0 == b.0);
        }
        let views: Vec<NodeView> = views.into_values().collect();
        SlotMap::of(&views).map_err(|why| match failed.is_empty() {
            true => anyhow!(why),
            false => anyhow!("{why}; {}", failed.join("; ")),
        })
    }

    async fn view(&self, at: NodeAddress, info: ConnectionInfo) -> anyhow::Result<NodeView> {
        let ask = async {
            let config = AsyncConnectionConfig::new();
            let (mut connection, _carries) = self.dial.connection(info, &config).await?;
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
