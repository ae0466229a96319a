//! Redis or Valkey, over TCP or a Unix socket, pipelined.
//!
//! What other clients change, Redis tells (`CLIENT TRACKING`, Redis 6 and later). Of its ways, this
//! is the one without a hole:
//!
//! - On the connection that reads (RESP3), not on a second one. Answers and messages stand in one
//!   order; the connection cannot be lost without the tracking, nor the reverse; and an answer
//!   proves that every earlier message has come.
//! - Keys that were read, one by one (OPTIN), not prefixes (BCAST): only keys that are read for a
//!   grant are remembered by Redis and told of, not every write to the server. When Redis forgets
//!   one (`tracking-table-max-keys`), it says that it changed.
//! - `CLIENT CACHING YES` stands before GETRANGE (and before GET) in the same pipeline, so a key is
//!   tracked before its value is read.
//! - Our own writes are told, too, if their key was tracked. That is harmless: until a write is
//!   answered its key has no copies, and the message stands beside the answer. NOLOOP would
//!   suppress more than these: also what Redis evicts, expires or forgets while it carries out a
//!   command of ours.
//! - A write ends the tracking of its key and does not begin it anew: so a write is never answered
//!   with a grant.
//!
//! A Redis that is a replica is left, and its master looked for: it is asked for its role (`ROLE`)
//! when it is connected to, and from then on as often as [`HEARTBEAT`](super::remote) says, after a
//! batch: of that batch nothing counts if it is a replica. What its answers mean says [`answers`].

mod address;
mod answers;
mod dial;
mod eviction;
mod follow;
mod latest_epoch;
mod link;
mod master_search;
mod masters;
mod names;
mod notices;
mod other_nodes;
mod pipeline;
mod proof;
mod redirect;
mod refusals;
mod role;
mod sentinel;
mod sessions;
#[cfg(test)]
mod tests;
mod upstream;

use anyhow::{Context, bail};
use tls::Connector;
use tokio::sync::mpsc::UnboundedReceiver;

use super::{
    Backend, Completion, Refusal,
    remote::{Command, Health, Outcome, Protocol, Remote, Verb},
};
use crate::{Config, OutsideWrites, clock::boot_ns, coherence::Watch};
pub(crate) use address::addresses;
use answers::lost;
pub(crate) use dial::{Dial, Reader, Writer};
use eviction::{Eviction, MARKS};
use follow::Follower;
use link::Link;
use master_search::{Guide, MasterSearch};
use notices::Notices;
use other_nodes::{OtherNodes, untell};
use pipeline::{Faults, Way, carry_out};
pub(crate) use redirect::{Redirect, is_elsewhere, put_off};
use refusals::Refusals;
use role::{Role, role_of};
use sentinel::{Sentinels, address_of_sentinels};
use sessions::FormerSessions;
pub(crate) use sessions::Session;
pub(crate) use upstream::Upstream;

/// Connects to the server at `url`, with the configuration's password or the one in there. Several
/// addresses, separated by commas, are those at which one master may be. A server that is not
/// there is connected to when it is: until then requests are refused. Where outside writes are to
/// be tracked and the server cannot, the backend says so
/// ([`OutsideEvent::Watch`](super::OutsideEvent)), and a warning tells why. Where the store has
/// slots of a Redis Cluster the addresses are nodes of it, and the store's data is at the master
/// that has these.
///
/// # Errors
/// The address is not one.
pub(crate) async fn connect(
    url: &str,
    config: &Config,
    base_version: u64,
) -> anyhow::Result<(Box<dyn Backend>, UnboundedReceiver<Completion>, Upstream)> {
    let (completions, done) = tokio::sync::mpsc::unbounded_channel();
    let connector = Connector::new(config.backend_tls.clone())?;
    let (password, within) = (config.backend_password.as_deref(), config.backend_within);
    let slots = config.cluster_slots();
    let dial = |is_secure: bool| Dial::new(is_secure.then(|| connector.clone()), within);
    let is_cluster = slots.is_some();
    let (dial, first, guide) = match (address_of_sentinels(url), slots) {
        (Some(_), Some(_)) => bail!(
            "--backend: a Redis Cluster has no Sentinels: expected redis://NODE of one of its nodes"
        ),
        (Some((rest, is_secure)), None) => {
            let dial = dial(is_secure);
            let sentinels = Sentinels::new(rest, password, dial.clone())?;
            (dial, sentinels.anywhere(), Guide::Sentinels(sentinels))
        }
        (None, slots) => {
            let (is_secure, given) = addresses("--backend", url, password)?;
            let dial = dial(is_secure);
            let first = given[0].clone();
            let guide = match slots {
                Some(own) => Guide::Cluster(Follower::new(given, dial.clone(), own)),
                None => Guide::Servers(given),
            };
            (dial, first, guide)
        }
    };
    let is_tracked = config.outside_writes == OutsideWrites::Track;
    let watch = if is_tracked { Watch::Tracked } else { Watch::Unneeded };
    let notices = is_tracked.then(|| Notices::new(completions.clone()));
    let health = Health::new();
    if !is_cluster {
        // One command cannot name keys of several slots.
        health.can_mark(MARKS);
    }
    let search = MasterSearch::new(guide, first, dial.clone(), config.resolver.clone());
    let masters = search.follower().map(Follower::masters);
    let upstream = Upstream::new(search.place(), dial.clone(), masters, is_tracked);
    let redis = Redis::new(search, OtherNodes::new(dial), notices, health.clone());
    let mut remote = Remote::start(redis, health, watch, base_version, completions, within);
    remote.has_tried().await;
    Ok((Box::new(remote), done, upstream))
}

struct Redis {
    search: MasterSearch,
    /// Those of the master's Redis Cluster, if it is a node of one.
    other_nodes: OtherNodes,
    /// If outside writes are tracked.
    notices: Option<Notices>,
    link: Option<Link>,
    /// Why the link is of no use any more.
    over: Option<String>,
    /// The master has said of its Redis Cluster, in the last batch, that it is down.
    is_cluster_down: bool,
    refusals: Refusals,
    eviction: Eviction,
    former: FormerSessions,
}

impl Redis {
    fn new(
        search: MasterSearch,
        other_nodes: OtherNodes,
        notices: Option<Notices>,
        health: Health,
    ) -> Redis {
        Redis {
            search,
            other_nodes,
            notices,
            link: None,
            over: None,
            is_cluster_down: false,
            refusals: Refusals::new(health),
            eviction: Eviction::default(),
            former: FormerSessions::default(),
        }
    }

    /// Has commands that a node of a Redis Cluster has sent on carried out elsewhere, and looks
    /// whether the master is another one by now.
    async fn follow(&mut self, commands: &[Command], outcomes: &mut [Outcome]) {
        if let Some(follower) = self.search.follower() {
            let (from, former) = (self.search.at(), &mut self.former);
            self.other_nodes.carry_out(from, follower, commands, outcomes, former).await;
        }
        if let Some(why) = self.search.moved().await {
            self.over.get_or_insert(why);
            self.search.leave(boot_ns());
        }
        // Who was the master may not have heard that it is none of the slot any more, and answers:
        // it tells nobody what is written at the other.
        if let Some(follower) = self.search.follower() {
            for (command, outcome) in commands.iter().zip(outcomes) {
                if follower.is_away(&command.name) {
                    untell(command, outcome);
                }
            }
        }
        if self.search.take_lost() {
            match &self.notices {
                Some(notices) => notices.everything(),
                // Nobody is told of changes: copies go with the connection.
                None => {
                    self.over.get_or_insert_with(|| "slots have another master".into());
                }
            }
        }
        if self.search.follower().is_some() {
            self.settle();
        }
    }

    /// Tells if nothing that has failed can still take place.
    fn settle(&mut self) {
        let follower = self.search.follower();
        let counts = |at: &_| follower.is_some_and(|follower| follower.may_count(at));
        if self.former.are_over(counts)
            && let Some(notices) = &self.notices
        {
            notices.settled();
        }
    }

    /// Tells whether it tells of outside writes, and why not.
    fn watches(&mut self, untracked: Option<&str>) {
        if let Some(notices) = &mut self.notices {
            notices.watches(untracked);
        }
    }

    /// These are answers of a Redis that was no master any more when it gave them, or soon after:
    /// what it read may be old, and what it wrote may be lost.
    fn disown(&self, commands: &[Command], outcomes: &mut [Outcome]) {
        let why = self.over.as_deref().unwrap_or_default();
        let refusal = Refusal::new(&format!("TRYAGAIN {why}"));
        for (command, outcome) in commands.iter().zip(outcomes) {
            *outcome = match (&command.verb, &*outcome) {
                (_, Outcome::Refused(_)) | (Verb::Mark(_), _) => continue,
                (Verb::Get { .. }, _) => Outcome::Refused(refusal.clone()),
                (Verb::Put { .. } | Verb::Delete { .. }, _) => Outcome::Failed,
            };
        }
    }

    /// Asks whether it is a master still, and if it could not track outside writes whether it can
    /// by now. True: it is a replica.
    async fn is_demoted(&mut self) -> anyhow::Result<bool> {
        let now_ns = boot_ns();
        let link = self.link.as_mut().context("not connected")?;
        let role = role_of(&mut link.connection).await.map_err(lost)?;
        link.asked(now_ns);
        if let Role::Replica(host, port) = role {
            let at = self.search.at();
            self.over = Some(format!("Redis at {at} has become a replica of {host}:{port}"));
            self.search.is_demoted();
            return Ok(true);
        }
        if link.may_track_now(now_ns) && link.track().await? {
            self.watches(None);
        }
        Ok(false)
    }
}

/// What was read has less left to live by now: so long later.
fn age(outcomes: &mut [Outcome], later_ns: u64) {
    let later_ms = u32::try_from(later_ns.div_ceil(1_000_000)).unwrap_or(u32::MAX);
    for outcome in outcomes {
        let (Outcome::Value { expiry_ms, .. } | Outcome::Untold(Some((_, expiry_ms)))) = outcome
        else {
            continue;
        };
        // 0 is what does not end.
        if *expiry_ms > 0 {
            *expiry_ms = expiry_ms.saturating_sub(later_ms).max(1);
        }
    }
}

impl Protocol for Redis {
    async fn connect(&mut self) -> anyhow::Result<()> {
        if self.link.is_none() {
            let told = self.notices.as_ref().map(Notices::to);
            let mut link = self.search.connect(told).await?;
            let session = link.session.as_ref();
            if self.former.end(&mut link.connection, self.search.at(), session).await? {
                self.settle();
            }
            self.watches(link.untracked.as_deref());
            self.link = Some(link);
        }
        Ok(())
    }

    async fn execute(&mut self, commands: &[Command]) -> anyhow::Result<Vec<Outcome>> {
        let link = self.link.as_mut().context("not connected")?;
        self.is_cluster_down = false;
        if commands.is_empty() {
            self.refusals.note(self.search.at(), None);
            self.is_demoted().await?;
            self.follow(&[], &mut []).await;
            return Ok(vec![]);
        }
        let mut faults = Faults::default();
        let how = Way { tracks: link.untracked.is_none(), asking: false };
        self.eviction.mark(&mut link.connection, commands).await?;
        let mut outcomes = carry_out(&mut link.connection, commands, how, &mut faults).await?;
        let read_ns = boot_ns();
        self.is_cluster_down = faults.of_cluster_down;
        // Of marks alone Redis need not have been asked anything: what it is asked now proves that
        // it can be heard.
        let asks_nothing = commands.iter().all(|command| matches!(command.verb, Verb::Mark(_)));
        let is_due = link.is_due(read_ns) || asks_nothing;
        self.follow(commands, &mut outcomes).await;
        let is_followed = |words: &String| self.search.follower().is_some() && is_elsewhere(words);
        let refused = faults.of_server.filter(|words| !is_followed(words));
        self.refusals.note(self.search.at(), refused.as_deref());
        if let Some(why) = faults.over {
            self.over = Some(format!("Redis at {}: {why}", self.search.at()));
        } else if is_due {
            match self.is_demoted().await {
                Ok(false) => {}
                Ok(true) => self.disown(commands, &mut outcomes),
                // What was answered stands.
                Err(error) => self.over = Some(format!("Redis at {}: {error:#}", self.search.at())),
            }
        }
        age(&mut outcomes, boot_ns() - read_ns);
        Ok(outcomes)
    }

    fn over(&mut self) -> Option<String> {
        let is_gone = self.link.as_ref().is_some_and(Link::is_gone);
        let gone = || format!("Redis at {} has closed the connection", self.search.at());
        self.over.take().or_else(|| is_gone.then(gone))
    }

    /// A master that is cut off from the rest of its Redis Cluster, or from its Sentinels, answers,
    /// and tells nothing of what is written at its successor.
    fn seen(&self, asked_ns: u64) -> Option<u64> {
        match self.search.proven_until() {
            None => Some(asked_ns),
            Some(_) if self.is_cluster_down => None,
            Some(until_ns) => Some(asked_ns.min(until_ns)),
        }
    }

    fn disconnect(&mut self) {
        if let Some(link) = self.link.take() {
            self.search.gives_up();
            self.former.add(self.search.at(), link.session);
        }
        if let Some((at, session)) = self.other_nodes.give_up_asked() {
            self.former.add(&at, session);
        }
        self.over = None;
    }

    fn name(&self) -> String {
        format!("Redis at {}", self.search.at())
    }
}
