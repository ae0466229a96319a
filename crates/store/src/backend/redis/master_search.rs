//! Where the master is: who says so, and where it was last.

use anyhow::{Context, anyhow};
use redis::{ConnectionAddr, ConnectionInfo};
use tokio::sync::watch;

use super::{
    dial::Dial,
    follow::Follower,
    link::{self, Contact, Link},
    sentinel::Sentinels,
    upstream::MasterPlace,
};
use crate::backend::remote::Completions;

/// Servers that are asked for the master, each named by the one before, before that is given up.
const HOPS: usize = 8;

/// Who says where the master is.
pub(super) enum Guide {
    /// These servers: one of them is the master, or a replica, which names it.
    Servers(Vec<ConnectionInfo>),
    /// Its Sentinels.
    Sentinels(Sentinels),
    /// The nodes of its Redis Cluster.
    Cluster(Follower),
}

/// The search for the master.
pub(super) struct MasterSearch {
    guide: Guide,
    /// Where it was last.
    at: ConnectionInfo,
    /// The same, for connections that are not the store's own.
    place: watch::Sender<MasterPlace>,
    dial: Dial,
}

impl MasterSearch {
    /// One that takes the master to be at `at` until it has been connected to.
    pub fn new(guide: Guide, at: ConnectionInfo, dial: Dial) -> MasterSearch {
        let place = watch::Sender::new(MasterPlace { info: at.clone(), was_left: false });
        MasterSearch { guide, at, place, dial }
    }

    /// Where the master was last.
    pub fn at(&self) -> &ConnectionAddr {
        self.at.addr()
    }

    /// Where it is, now and from now on.
    pub fn place(&self) -> watch::Receiver<MasterPlace> {
        self.place.subscribe()
    }

    /// What follows it, if it is a node of a Redis Cluster.
    pub fn follower(&self) -> Option<&Follower> {
        match &self.guide {
            Guide::Cluster(follower) => Some(follower),
            Guide::Servers(_) | Guide::Sentinels(_) => None,
        }
    }

    /// Connects to the master: where it was last, where it may be, or where a replica says
    /// that it is.
    ///
    /// # Errors
    /// Nobody says where it is, or it is not there.
    pub async fn connect(&mut self, told: Option<&Completions>) -> anyhow::Result<Link> {
        let info = match &mut self.guide {
            Guide::Cluster(follower) => follower.master().await?,
            Guide::Sentinels(sentinels) => sentinels.master().await.context("the Sentinels")?,
            Guide::Servers(servers) => {
                let mut next: Vec<ConnectionInfo> = servers.iter().rev().cloned().collect();
                next.push(self.at.clone());
                return self.ask_servers(next, told).await;
            }
        };
        match link::open(&info, told, &self.dial).await? {
            Contact::Master(link) => {
                self.is_at(info);
                Ok(link)
            }
            // What named it is older than that: it is asked again.
            Contact::ReplicaOf(master) => {
                Err(anyhow!("Redis at {} is a replica of {master}", info.addr()))
            }
        }
    }

    /// Asks servers, from the last one on, whether they are the master, and whom they name.
    async fn ask_servers(
        &mut self,
        mut next: Vec<ConnectionInfo>,
        told: Option<&Completions>,
    ) -> anyhow::Result<Link> {
        let (mut asked, mut failed) = (vec![], vec![]);
        while let Some(info) = next.pop() {
            if asked.len() == HOPS {
                break;
            }
            if asked.contains(info.addr()) {
                continue;
            }
            asked.push(info.addr().clone());
            match link::open(&info, told, &self.dial).await {
                Ok(Contact::Master(link)) => {
                    self.is_at(info);
                    return Ok(link);
                }
                Ok(Contact::ReplicaOf(master)) => {
                    failed.push(format!("Redis at {} is a replica of {master}", info.addr()));
                    next.push(info.set_addr(master));
                }
                Err(error) => failed.push(format!("{error:#}")),
            }
        }
        Err(anyhow!(failed.join("; ")))
    }

    /// The master is there.
    fn is_at(&mut self, info: ConnectionInfo) {
        self.place.send_if_modified(|place| {
            let moved = place.info.addr() != info.addr() || place.was_left;
            *place = MasterPlace { info: info.clone(), was_left: false };
            moved
        });
        self.at = info;
    }

    /// Another Redis is the master: clients ask this one nothing any more either.
    pub fn leave(&self) {
        self.place.send_modify(|place| place.was_left = true);
    }

    /// Why the master is not the one that is connected any more, as far as those who were asked
    /// meanwhile say. They are asked again; it does not wait for them.
    pub async fn moved(&mut self) -> Option<String> {
        match &mut self.guide {
            Guide::Servers(_) => None,
            Guide::Sentinels(sentinels) => {
                sentinels.doubts();
                sentinels.moved_from(&self.at).await
            }
            Guide::Cluster(follower) => {
                follower.doubts();
                follower.moved_from(&self.at).await
            }
        }
    }

    /// Whether slots have gone to other shards since this was asked last: see
    /// [`Follower::take_lost`].
    pub fn take_lost(&mut self) -> bool {
        match &mut self.guide {
            Guide::Cluster(follower) => follower.take_lost(),
            Guide::Servers(_) | Guide::Sentinels(_) => false,
        }
    }
}
