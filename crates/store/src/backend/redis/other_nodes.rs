//! Slots of the store that are not at the master of its shard, or are on their way: what that
//! answers MOVED or ASK to is asked where the answer says.
//!
//! Nothing that is read there is granted: these connections do not tell of changes. So whatever
//! moves when, and whoever knows of it how late, a copy is of what the shard's own master has
//! answered, which tells of each key that it gives away (`MIGRATE` removes it there).
//!
//! A node that does not answer is given up, and is not waited for again before it has.

use std::{collections::HashMap, sync::Arc, time::Duration};

use redis::{AsyncConnectionConfig, ConnectionInfo, aio::MultiplexedConnection};
use tokio::{
    task::{JoinHandle, JoinSet},
    time::timeout,
};

use super::{dial::Dial, lost, sessions::Session};
use crate::slot_map::NodeAddress;

/// The part of the time for an answer that such a node has for a batch.
const PATIENCE: u32 = 4;

/// A connection to such a node.
pub(super) struct OtherNode {
    pub connection: MultiplexedConnection,
    /// What the node knows it as, if it says so.
    pub session: Option<Session>,
    _carries: JoinSet<()>,
}

enum Contact {
    Up(Box<OtherNode>),
    Opening(JoinHandle<anyhow::Result<OtherNode>>),
}

/// All such nodes.
pub(super) struct OtherNodes {
    nodes: HashMap<NodeAddress, Contact>,
    dial: Arc<Dial>,
}

impl OtherNodes {
    pub fn new(dial: Dial) -> OtherNodes {
        OtherNodes { nodes: HashMap::new(), dial: Arc::new(dial) }
    }

    /// How long a node has for a batch.
    pub fn patience(&self) -> Duration {
        self.dial.within / PATIENCE
    }

    /// The connection to a node; true: it is new.
    ///
    /// # Errors
    /// There is none yet.
    pub async fn reach(
        &mut self,
        at: &NodeAddress,
        info: ConnectionInfo,
    ) -> anyhow::Result<(&mut OtherNode, bool)> {
        let mut is_new = false;
        if !matches!(self.nodes.get(at), Some(Contact::Up(_))) {
            // Only the first request for it waits.
            let (mut opening, patience) = match self.nodes.remove(at) {
                Some(Contact::Opening(opening)) => (opening, Duration::ZERO),
                _ => (self.opens(info.clone()), self.patience()),
            };
            let opened = timeout(patience, &mut opening).await;
            let (contact, why) =
                match opened.map(|opened| opened.map_err(anyhow::Error::from).flatten()) {
                    Ok(Ok(node)) => (Contact::Up(Box::new(node)), None),
                    Ok(Err(error)) => (Contact::Opening(self.opens(info)), Some(error)),
                    Err(_) => (Contact::Opening(opening), Some(anyhow::anyhow!("no answer"))),
                };
            self.nodes.insert(at.clone(), contact);
            if let Some(why) = why {
                return Err(why.context(format!("the node at {at}")));
            }
            is_new = true;
        }
        match self.nodes.get_mut(at) {
            Some(Contact::Up(node)) => Ok((node, is_new)),
            _ => anyhow::bail!("no connection to the node at {at}"),
        }
    }

    fn opens(&self, info: ConnectionInfo) -> JoinHandle<anyhow::Result<OtherNode>> {
        let dial = self.dial.clone();
        tokio::spawn(async move {
            timeout(dial.within, async {
                let config = AsyncConnectionConfig::new()
                    .set_connection_timeout(Some(dial.within))
                    .set_response_timeout(Some(dial.within));
                let (mut connection, _carries) =
                    dial.connection(info, &config).await.map_err(lost)?;
                let session = Session::of(&mut connection).await?;
                Ok(OtherNode { connection, session, _carries })
            })
            .await?
        })
    }

    /// The connection to a node is of no use any more. What the node knew it as, if there was one.
    pub fn give_up(&mut self, at: &NodeAddress) -> Option<Option<Session>> {
        match self.nodes.remove(at)? {
            Contact::Up(node) => Some(node.session),
            opening @ Contact::Opening(_) => {
                self.nodes.insert(at.clone(), opening);
                None
            }
        }
    }
}
