//! Slots of the store that are not at the master of its shard, or are on their way: what that
//! answers MOVED or ASK to is asked where the answer says.
//!
//! Nothing that is read there is granted: these connections do not tell of changes. So whatever
//! moves when, and whoever knows of it how late, a copy is of what the shard's own master has
//! answered, which tells of each key that it gives away (`MIGRATE` removes it there).
//!
//! A node that does not answer is given up, and is not waited for again before it has.

use std::{collections::HashMap, sync::Arc, time::Duration};

use redis::{ConnectionAddr, ConnectionInfo, aio::MultiplexedConnection};
use tokio::{
    task::{JoinHandle, JoinSet},
    time::timeout,
};

use super::{
    answers::lost,
    dial::Dial,
    follow::Follower,
    pipeline::{Faults, Way, carry_out},
    redirect::{Redirect, is_elsewhere, put_off, redirected},
    sessions::{FormerSessions, Session},
};
use crate::{
    backend::{
        Refusal,
        remote::{Command, Outcome, Verb},
    },
    slot_map::NodeAddress,
};

/// Other nodes to which a command is sent on, each by the one before.
const REDIRECTS: usize = 4;
/// The part of the time for an answer that such a node has for a batch.
const PATIENCE: u32 = 4;

/// A connection to such a node.
struct OtherNode {
    connection: MultiplexedConnection,
    /// What the node knows it as, if it says so.
    session: Option<Session>,
    _carries: JoinSet<()>,
}

enum Contact {
    Up(Box<OtherNode>),
    Opening(JoinHandle<anyhow::Result<OtherNode>>),
}

/// All such nodes.
pub(super) struct OtherNodes {
    nodes: HashMap<NodeAddress, Contact>,
    /// The one that is being asked.
    asked: Option<(NodeAddress, ConnectionAddr)>,
    dial: Arc<Dial>,
}

impl OtherNodes {
    pub fn new(dial: Dial) -> OtherNodes {
        OtherNodes { nodes: HashMap::new(), asked: None, dial: Arc::new(dial) }
    }

    /// A batch was given up half-way: so is the connection to the node that was being asked. Where
    /// that is, and what it knew the connection as.
    pub fn give_up_asked(&mut self) -> Option<(ConnectionAddr, Option<Session>)> {
        let (node, at) = self.asked.take()?;
        Some((at, self.give_up(&node)?))
    }

    /// Has other nodes carry out the commands that the one at `from` has sent on, and puts what
    /// they answer in the place of its outcomes. What nodes say of where slots are is for the
    /// store, not for its clients: they are to try again. `former` takes the connections that are
    /// given up.
    pub async fn carry_out(
        &mut self,
        from: &ConnectionAddr,
        follower: &Follower,
        commands: &[Command],
        outcomes: &mut [Outcome],
        former: &mut FormerSessions,
    ) {
        for _ in 0..REDIRECTS {
            let parts = redirected(from, commands, outcomes);
            if parts.is_empty() {
                break;
            }
            for (to, part) in parts {
                let asked: Vec<Command> = part.iter().map(|at| commands[*at].clone()).collect();
                let answers = self.ask(&to, follower.info_of(&to.at), &asked, former).await;
                for (at, outcome) in part.into_iter().zip(answers) {
                    outcomes[at] = outcome;
                }
            }
        }
        for outcome in outcomes {
            if let Outcome::Refused(refusal) = outcome
                && is_elsewhere(refusal.words())
            {
                *refusal = Refusal::new(&put_off(refusal.words()));
            }
        }
    }

    /// Has a node carry out commands, in order. Given up half-way, it leaves behind which node that
    /// was.
    async fn ask(
        &mut self,
        to: &Redirect,
        info: ConnectionInfo,
        commands: &[Command],
        former: &mut FormerSessions,
    ) -> Vec<Outcome> {
        self.asked = Some((to.at.clone(), info.addr().clone()));
        let outcomes = self.ask_one(to, info, commands, former).await;
        self.asked = None;
        outcomes
    }

    async fn ask_one(
        &mut self,
        to: &Redirect,
        info: ConnectionInfo,
        commands: &[Command],
        former: &mut FormerSessions,
    ) -> Vec<Outcome> {
        let refused = |why: &str| Outcome::Refused(Refusal::new(&format!("TRYAGAIN {why}")));
        let patience = self.patience();
        let (node, is_new) = match self.reach(&to.at, info.clone()).await {
            Ok(reached) => reached,
            Err(error) => return vec![refused(&format!("{error:#}")); commands.len()],
        };
        let mut faults = Faults::default();
        let asked = async {
            if is_new {
                let session = node.session.as_ref();
                former.end(&mut node.connection, info.addr(), session).await?;
            }
            let how = Way { tracks: false, asking: to.asking };
            carry_out(&mut node.connection, commands, how, &mut faults).await
        };
        let why = match timeout(patience, asked).await {
            Ok(Ok(mut outcomes)) => {
                if faults.over.is_some() {
                    self.give_up(&to.at);
                }
                commands.iter().zip(&mut outcomes).for_each(|(of, it)| untell(of, it));
                return outcomes;
            }
            Ok(Err(error)) => format!("{error:#}"),
            Err(_) => format!("no answer within {patience:?}"),
        };
        if let Some(session) = self.give_up(&to.at) {
            former.add(info.addr(), session);
        }
        let why = format!("the node at {}: {why}", to.at);
        tracing::debug!("backend: {why}");
        let lost = |command: &Command| match command.verb {
            Verb::Get { .. } => refused(&why),
            _ => Outcome::Failed,
        };
        commands.iter().map(lost).collect()
    }

    /// How long a node has for a batch.
    fn patience(&self) -> Duration {
        self.dial.within / PATIENCE
    }

    /// The connection to a node; true: it is new.
    ///
    /// # Errors
    /// There is none yet.
    async fn reach(
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
                let (mut connection, _carries) = dial.connection(info).await.map_err(lost)?;
                let session = Session::of(&mut connection).await?;
                Ok(OtherNode { connection, session, _carries })
            })
            .await?
        })
    }

    /// The connection to a node is of no use any more. What the node knew it as, if there was one.
    fn give_up(&mut self, at: &NodeAddress) -> Option<Option<Session>> {
        match self.nodes.remove(at)? {
            Contact::Up(node) => Some(node.session),
            opening @ Contact::Opening(_) => {
                self.nodes.insert(at.clone(), opening);
                None
            }
        }
    }
}

/// What was answered by a node that will not tell if others change what was read for a grant.
pub(super) fn untell(command: &Command, outcome: &mut Outcome) {
    let Verb::Get { track: true, .. } = command.verb else { return };
    match outcome {
        Outcome::Value { value, expiry_ms } => {
            *outcome = Outcome::Untold(Some((std::mem::take(value), *expiry_ms)));
        }
        Outcome::Absent => *outcome = Outcome::Untold(None),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use redis::Value;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::backend::{redis::addresses, remote::OnlyIf};

    /// What it was asked it may still carry out.
    #[tokio::test]
    async fn a_node_is_given_up_with_the_batch_that_asked_it() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let info =
            addresses("--backend", &format!("redis://127.0.0.1:{port}"), None).unwrap().1.remove(0);
        let to = Redirect { at: NodeAddress { host: "127.0.0.1".into(), port }, asking: false };
        let mut nodes = OtherNodes::new(Dial::new(None, Duration::from_secs(360)));
        let mut former = FormerSessions::default();
        let verb = Verb::Delete { only_if: OnlyIf::Always };
        let command =
            Command { ticket: 1, tenant: 0, name: b"k".into(), version: 1, compared: None, verb };
        // It says who it is, and does not answer to the command.
        let serves = async {
            let (mut node, _) = listener.accept().await.unwrap();
            let mut room = [0; 4096];
            loop {
                let len = node.read(&mut room).await.unwrap();
                let said = String::from_utf8_lossy(&room[..len]).into_owned();
                if said.contains("DEL") {
                    return node;
                }
                let answer = match said.contains("\r\nID\r\n") {
                    true => ":7\r\n$11\r\nrun_id:4e5f\r\n".into(),
                    false => "+OK\r\n".repeat(said.matches('*').count()),
                };
                node.write_all(answer.as_bytes()).await.unwrap();
            }
        };
        let _node = tokio::select! {
            _ = nodes.ask(&to, info, std::slice::from_ref(&command), &mut former) => panic!("it has answered"),
            node = serves => node,
        };
        let known = [Value::Int(7), Value::BulkString(b"run_id:4e5f".into())];
        let given_up = nodes.give_up_asked().map(|(_, session)| session);
        assert_eq!(given_up, Some(Session::in_answers(&known)));
        assert_eq!(nodes.give_up_asked(), None);
    }
}
