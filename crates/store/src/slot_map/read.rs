//! Asks the nodes of a Redis Cluster for their views, and makes a map of them.

use std::{
    collections::{BTreeMap, HashSet},
    time::Duration,
};

use anyhow::{Context, anyhow, bail, ensure};
use futures_util::future::join_all;
use redis::{ConnectionAddr, ConnectionInfo};
use tls::Connector;
use tokio::time::timeout;

use super::{
    NodeAddress, NodeView, SlotMap,
    same_cluster::{HeardNode, of_one_cluster},
};
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
    MapReader::new(seeds, dial).read(None).await
}

/// Nodes that a message names.
const NAMED: usize = 4;

/// A node that is to be asked.
struct NodeToAsk {
    /// It is one of the seeds.
    is_seed: bool,
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

    /// The map, from the seeds, from the nodes that there were `before`, by the last map of this
    /// cluster, and from all that they name.
    ///
    /// # Errors
    /// Why there is none.
    pub async fn read(&self, before: Option<&SlotMap>) -> anyhow::Result<SlotMap> {
        let mut next: Vec<NodeToAsk> = vec![];
        for seed in &self.seeds {
            let ConnectionAddr::Tcp(host, port) = seed.addr() else {
                bail!("{}: expected a node of a Redis Cluster at HOST:PORT", seed.addr());
            };
            let at = NodeAddress { host: host.clone(), port: *port };
            next.push(NodeToAsk { is_seed: true, has_no_slots: false, at, info: seed.clone() });
        }
        let other = |at: &NodeAddress, has_no_slots| NodeToAsk {
            is_seed: false,
            has_no_slots,
            at: at.clone(),
            info: self.info(at),
        };
        next.extend(before.iter().flat_map(|map| map.addresses()).map(|at| other(at, false)));
        // In an order of their own: no two readings differ by it.
        let mut heard: BTreeMap<String, HeardNode> = BTreeMap::new();
        let mut asked: HashSet<NodeAddress> = HashSet::new();
        let (mut strangers, mut failed) = (vec![], vec![]);
        while !next.is_empty() {
            next.retain(|node| asked.len() < NODES && asked.insert(node.at.clone()));
            let answers = join_all(next.drain(..).map(|node| async move {
                let view = self.view(&node.at, node.info).await;
                view.map(|view| HeardNode { at: node.at, seeds: usize::from(node.is_seed), view })
            }));
            for answer in answers.await {
                match answer {
                    Ok(said) if before.is_some_and(|map| !map.is_of(&said.view)) => {
                        // One without slots may be about to come.
                        if said.view.masters().next().is_some() {
                            strangers.push(said.at);
                        }
                    }
                    Ok(said) => {
                        let named = said.view.nodes.iter().filter(|node| !node.is_failed);
                        next.extend(
                            named.map(|node| other(&node.address, !node.is_master_with_slots())),
                        );
                        let seeds = heard.get(&said.view.myself).map_or(0, |same| same.seeds);
                        let seeds = seeds + said.seeds;
                        heard.insert(said.view.myself.clone(), HeardNode { seeds, ..said });
                    }
                    Err(error) => failed.push(format!("{error:#}")),
                }
            }
            next.sort_by(|a, b| (a.has_no_slots, &a.at).cmp(&(b.has_no_slots, &b.at)));
        }
        let mut heard: Vec<HeardNode> = heard.into_values().collect();
        if before.is_none() {
            let (ours, others) =
                of_one_cluster(heard, self.seeds.len()).map_err(|why| anyhow!(why))?;
            heard = ours;
            strangers.extend(others);
        }
        strangers.sort();
        ensure!(
            !heard.is_empty() || strangers.is_empty(),
            "those that answer ({}) are nodes of another Redis Cluster than before: their addresses may have been given to \
             it; if this one was made anew, start the store anew",
            list(&strangers)
        );
        let views: Vec<NodeView> = heard.into_iter().map(|heard| heard.view).collect();
        let map = SlotMap::of(&views).map_err(|why| match failed.is_empty() {
            true => anyhow!(why),
            false => anyhow!("{why}; {}", failed.join("; ")),
        })?;
        Ok(SlotMap { strangers, ..map })
    }

    async fn view(&self, at: &NodeAddress, info: ConnectionInfo) -> anyhow::Result<NodeView> {
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

/// Some of these.
pub(crate) fn list(nodes: &[NodeAddress]) -> String {
    let named: Vec<String> = nodes.iter().take(NAMED).map(NodeAddress::to_string).collect();
    let more = if nodes.len() > NAMED { ", ..." } else { "" };
    named.join(", ") + more
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
        let map = reader.read(None).await.unwrap();
        assert_eq!(map.shards.len(), 3);
        assert!(map.shards.iter().all(|shard| shard.is_agreed));
    }

    /// Addresses of replicas and seeds may be given to nodes of another cluster, whose numbers are
    /// higher.
    #[tokio::test]
    async fn nodes_of_another_cluster_have_no_say_in_the_map() {
        let mut nodes = vec![];
        for _ in 0..6 {
            nodes.push(TcpListener::bind(("127.0.0.1", 0)).await.unwrap());
        }
        let places: Vec<_> = nodes.iter().map(|one| one.local_addr().unwrap()).collect();
        let seed = |at: usize| format!("redis://{}", places[at]).parse().unwrap();
        let slots = ["0-5000", "5001-9999", "10000-16383"];
        // The first three are one cluster, of which the fourth was a replica.
        let text = |own: usize| {
            let row = |id: usize| {
                let flag = if id == own { "myself," } else { "" };
                let epoch = if id < 3 { 1 } else { 9 };
                let (at, slots) = (places[id], slots[id % 3]);
                format!("{id:040} {at}@1 {flag}master - 0 0 {epoch} connected {slots}\n")
            };
            let of = if own < 3 { 0..3 } else { 3..6 };
            let replica = format!("{:040} {}@1 slave {:040} 0 0 1 connected\n", 7, places[3], 0);
            of.map(row).chain((own < 3).then_some(replica)).collect::<String>()
        };
        let servers: Vec<_> = (0..)
            .zip(nodes)
            .map(|(id, listener)| tokio::spawn(answers(listener, text(id))))
            .collect();
        let dial = Dial::new(None, Duration::from_secs(90));
        let reader = |seeds: &[usize]| {
            MapReader::new(seeds.iter().map(|at| seed(*at)).collect(), dial.clone())
        };
        let is_ours = |map: &SlotMap| map.epoch == 1 && map.shards.len() == 3;
        let address = |at: usize| NodeAddress { host: "127.0.0.1".into(), port: places[at].port() };
        let map = reader(&[4, 0, 1]).read(None).await.unwrap();
        assert!(is_ours(&map), "{map:?}");
        assert!(map.strangers.contains(&address(3)) && map.strangers.contains(&address(4)));
        let error = reader(&[4, 0]).read(None).await.unwrap_err();
        assert!(error.to_string().contains("nodes of two Redis Clusters"), "{error}");
        // All seeds are others' by now.
        let again = reader(&[4]).read(Some(&map)).await.unwrap();
        assert!(is_ours(&again), "{again:?}");
        servers[..3].iter().for_each(|server| server.abort());
        let error = reader(&[4]).read(Some(&map)).await.unwrap_err();
        assert!(error.to_string().contains("of another Redis Cluster than before"), "{error}");
    }
}
