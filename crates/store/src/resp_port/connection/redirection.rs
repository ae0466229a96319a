//! What of a connection is on its way to another node of the Redis Cluster, because a slot is
//! there: the command whose answer is next, or the whole connection.
//!
//! In: what an answer has said of the slot, and what may be sent on. Out: how that ended.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use bytes::Bytes;
use redis::ConnectionAddr;
use tokio::task::{JoinError, JoinHandle};

use super::holds::Doubt;
use crate::{
    backend::redis::{Redirect, Upstream},
    resp_port::{
        detour::{Arrival, Leg, travel},
        greeting::Greeting,
        session::KeptCommand,
    },
    slot_map::NodeAddress,
};

/// How long a node that gave no connection is not asked for another: whatever waits behind the
/// command would wait for that, too.
const SILENT: Duration = Duration::from_secs(1);

/// A command on its way to another node.
pub(super) struct Detour {
    to: Redirect,
    writes: bool,
    /// How many nodes it was sent to.
    redirects: usize,
    /// As whom: how often the greeting had changed.
    greeting: u64,
    travels: JoinHandle<Arrival>,
}

impl Detour {
    /// Nobody needs its answer, which may never come.
    pub fn abort(self) {
        self.travels.abort();
    }

    /// Waits until it is over. Where the command may still take place then.
    pub async fn doubt(self) -> Option<Doubt> {
        match self.travels.await {
            Ok(Arrival::Lost(_, session)) => Some((session, address_of(self.to.at))),
            _ => None,
        }
    }
}

/// A connection on its way to another node, and the line that is answered if it does not get there.
struct Removal {
    at: NodeAddress,
    line: Bytes,
    opens: JoinHandle<anyhow::Result<Leg>>,
}

/// How something that was on its way has come back.
pub(super) enum Return {
    /// With an answer, after so many nodes were asked.
    Answer(Bytes, usize),
    /// With this line for the client in the place of an answer. Where its command may still take
    /// place, if it may.
    Failure(Bytes, Option<Doubt>),
    /// The connection goes on there, by this one.
    Connection(NodeAddress, Leg),
}

/// What is on its way, and the connections by which commands go.
#[derive(Default)]
pub(super) struct Redirection {
    /// Nodes that were asked something, and as whom: how often the greeting had changed.
    legs: HashMap<NodeAddress, (Box<Leg>, u64)>,
    /// Nodes that gave no connection, and when.
    silent: HashMap<NodeAddress, Instant>,
    detour: Option<Detour>,
    removal: Option<Removal>,
}

impl Redirection {
    /// Whether something is on its way: the answers behind it wait.
    pub fn is_under_way(&self) -> bool {
        self.detour.is_some() || self.removal.is_some()
    }

    /// Whether that is the whole connection.
    pub fn moves(&self) -> bool {
        self.removal.is_some()
    }

    /// Sends a command there, which so many nodes were asked before.
    pub fn send_command(
        &mut self,
        upstream: &Upstream,
        greeting: &Greeting,
        to: Redirect,
        command: KeptCommand,
        redirects: usize,
    ) {
        let changes = greeting.changes();
        let leg = self.legs.remove(&to.at).filter(|(_, as_whom)| *as_whom == changes);
        let leg = leg.map(|(leg, _)| leg);
        let (upstream, greeting) = (upstream.clone(), greeting.clone());
        let writes = command.writes;
        self.silent.retain(|_, since| since.elapsed() < SILENT);
        let is_silent = self.silent.contains_key(&to.at);
        let travels = match is_silent {
            true => {
                let why = format!("the node at {}: it gave no connection a moment ago", to.at);
                tokio::spawn(async { Arrival::NotAsked(why) })
            }
            false => tokio::spawn(travel(upstream, leg, greeting, to.clone(), command)),
        };
        self.detour =
            Some(Detour { to, writes, redirects: redirects + 1, greeting: changes, travels });
    }

    /// Sends the connection there, with these commands before what is not answered. `line` is
    /// answered if it does not get there.
    pub fn send_connection(
        &mut self,
        upstream: &Upstream,
        greeting: &Greeting,
        at: NodeAddress,
        before: Vec<Bytes>,
        line: Bytes,
    ) {
        let (upstream, greeting, there) = (upstream.clone(), greeting.clone(), at.clone());
        let opens = tokio::spawn(async move {
            let mut leg = Leg::open(&upstream, &there, &greeting).await?;
            if !before.is_empty() {
                let answer = leg.ask(&before.concat(), before.len()).await?;
                anyhow::ensure!(!answer.starts_with(b"-"), "it has refused a command");
            }
            Ok(leg)
        });
        self.removal = Some(Removal { at, line, opens });
    }

    /// Waits for what is on its way. Given up half-way, it loses nothing.
    pub async fn back(&mut self) -> Return {
        if let Some(detour) = &mut self.detour {
            let lost = |error: JoinError| Arrival::Lost(error.to_string(), None);
            let arrival = (&mut detour.travels).await.unwrap_or_else(lost);
            if let Some(detour) = self.detour.take() {
                return self.arrived(detour, arrival);
            }
        }
        if let Some(removal) = &mut self.removal {
            let opened = (&mut removal.opens).await.map_err(anyhow::Error::from).flatten();
            if let Some(removal) = self.removal.take() {
                return removed(removal, opened);
            }
        }
        std::future::pending().await
    }

    /// Takes what is known of the command that is on its way, which nobody waits for any more.
    pub fn take_detour(&mut self) -> Option<Detour> {
        self.detour.take()
    }

    /// A command has come back.
    fn arrived(&mut self, detour: Detour, arrival: Arrival) -> Return {
        let Detour { to, writes, redirects, greeting, .. } = detour;
        match arrival {
            Arrival::Answered(answer, leg) => {
                self.legs.insert(to.at, (leg, greeting));
                Return::Answer(answer, redirects)
            }
            Arrival::NotAsked(why) => {
                self.silent.entry(to.at).or_insert_with(Instant::now);
                Return::Failure(format!("-TRYAGAIN nothing was done: {why}\r\n").into(), None)
            }
            Arrival::Lost(why, session) => {
                let code = if writes { "ERR outcome unknown" } else { "TRYAGAIN no answer" };
                let doubt = (session, address_of(to.at));
                Return::Failure(format!("-{code}: {why}\r\n").into(), Some(doubt))
            }
        }
    }
}

/// A connection was opened to which another is to move, or not.
fn removed(removal: Removal, opened: anyhow::Result<Leg>) -> Return {
    match opened {
        Ok(leg) => Return::Connection(removal.at, leg),
        Err(error) => {
            tracing::debug!("RESP port: a connection stays where it is: {error:#}");
            Return::Failure(removal.line, None)
        }
    }
}

pub(super) fn address_of(node: NodeAddress) -> ConnectionAddr {
    ConnectionAddr::Tcp(node.host, node.port)
}
