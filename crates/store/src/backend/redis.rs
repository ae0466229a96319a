//! Redis or Valkey, over TCP or a Unix socket, pipelined.
//!
//! A read is GETRANGE and PTTL: of a value no more than a packet can carry, so that one of many
//! megabytes costs no more than another and does not keep the connection from answering in time;
//! and its time to live, so that a copy knows when its key ends. What is longer is asked for its
//! length (STRLEN), and if anybody has a use for it read in one piece when its turn has come.
//! GETRANGE answers alike for a key that is empty and one that is absent. PTTL knows an absent one;
//! what seems empty is read once more by GET, because between two commands another client may have
//! come. A write is SET, with PX, NX or XX; a removal is DEL.
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

mod answers;
mod dial;
mod eviction;
mod follow;
mod link;
mod other_nodes;
mod role;
mod sentinel;
mod sessions;
mod upstream;

use std::{collections::HashMap, time::Duration};

use anyhow::{Context, anyhow};
use redis::{
    ConnectionAddr, ConnectionInfo, IntoConnectionInfo, Pipeline, PushInfo, PushKind, Value,
    aio::MultiplexedConnection, io::tcp::TcpSettings,
};
use tls::Connector;
use tokio::{
    sync::{mpsc::UnboundedReceiver, watch},
    time::timeout,
};

use super::{
    Backend, Completion, OutsideEvent, Refusal,
    outage::Outage,
    remote::{Command, Completions, Health, OnlyIf, Outcome, Protocol, Remote, SMALL, Verb},
};
use crate::{OutsideWrites, clock::boot_ns, coherence::Watch, slot_map::NodeAddress};
use answers::{Class, class_of, is_of_server, refusal, words_of};
pub(crate) use dial::{Dial, Reader, Writer};
use eviction::{Eviction, MARKS};
use follow::Follower;
pub(crate) use follow::{Redirect, is_elsewhere, put_off};
use link::{Contact, Link};
use other_nodes::OtherNodes;
use role::{Role, role_of};
use sentinel::{Sentinels, address_of_sentinels};
use sessions::FormerSessions;
pub(crate) use sessions::Session;
use upstream::MasterPlace;
pub(crate) use upstream::Upstream;

/// Other nodes of a Redis Cluster to which a command is sent on, each by the one before.
const REDIRECTS: usize = 4;
/// Servers that are asked for the master, each named by the one before, before that is given up.
const HOPS: usize = 8;
/// A server that has refused nothing for so long is said to refuse nothing any more.
const CALM: Duration = Duration::from_secs(10);

/// Connects to the server at `url`, with this password or the one in there; it has so long for each
/// answer. Several addresses, separated by commas, are those at which one master may be. A server
/// that is not there is connected to when it is: until then requests are refused. Where outside
/// writes are to be tracked and the server cannot, the backend says so ([`OutsideEvent::Watch`]),
/// and a warning tells why. `slots`: the addresses are nodes of a Redis Cluster, and the store's
/// data is at the master that has these, the first and the last of each run.
///
/// # Errors
/// The address is not one.
pub(crate) async fn connect(
    url: &str,
    password: Option<&str>,
    outside_writes: OutsideWrites,
    base_version: u64,
    within: Duration,
    connector: &Connector,
    slots: Option<Vec<(u32, u32)>>,
) -> anyhow::Result<(Box<dyn Backend>, UnboundedReceiver<Completion>, Upstream)> {
    let (completions, done) = tokio::sync::mpsc::unbounded_channel();
    let dial = |is_secure: bool| Dial { connector: is_secure.then(|| connector.clone()), within };
    let (given, dial, sentinels) = match address_of_sentinels(url) {
        Some((rest, is_secure)) => {
            let dial = dial(is_secure);
            let sentinels = Sentinels::new(rest, password, dial.clone())?;
            (vec![sentinels.anywhere()], dial, Some(sentinels))
        }
        None => {
            let (is_secure, plain) = plain_urls(url)?;
            let given = addresses(&plain, password)
                .map_err(|error| anyhow!("the address of the Redis server: {error}"))?;
            (given, dial(is_secure), None)
        }
    };
    let (told, watch) = match outside_writes {
        OutsideWrites::Track => (Some(completions.clone()), Watch::Tracked),
        OutsideWrites::Ignore => (None, Watch::Unneeded),
    };
    let health = Health::new();
    if slots.is_none() {
        // One command cannot name keys of several slots.
        health.can_mark(MARKS);
    }
    let mut redis = Redis::new(given.clone(), told, dial.clone(), health.clone());
    anyhow::ensure!(
        slots.is_none() || sentinels.is_none(),
        "--backend: a Redis Cluster has no Sentinels: expected redis://NODE of one of its nodes"
    );
    redis.sentinels = sentinels;
    redis.follower = slots.map(|own| Follower::new(given, dial.clone(), own));
    let masters = redis.follower.as_ref().map(Follower::masters);
    let is_tracked = outside_writes == OutsideWrites::Track;
    let upstream = Upstream::new(redis.master.subscribe(), dial, masters, is_tracked);
    let mut remote = Remote::start(redis, health, watch, base_version, completions, within);
    remote.has_tried().await;
    Ok((Box::new(remote), done, upstream))
}

/// The URLs as they are without TLS, which is all that `redis` reads here; and whether TLS is
/// meant.
pub(crate) fn plain_urls(urls: &str) -> anyhow::Result<(bool, Vec<String>)> {
    // A comma may stand in a URL, too.
    let urls = urls.replace(",redis", "\nredis");
    let secure = urls.split('\n').filter(|url| url.starts_with("rediss://")).count();
    anyhow::ensure!(
        secure == 0 || secure == urls.split('\n').count(),
        "--backend: expected rediss:// for all of the servers that one master may be at, or for none"
    );
    let plain = |url: &str| match url.strip_prefix("rediss://") {
        Some(rest) => format!("redis://{rest}"),
        None => url.to_string(),
    };
    Ok((secure > 0, urls.split('\n').map(plain).collect()))
}

/// The servers that are named, with the password.
pub(crate) fn addresses(
    urls: &[String],
    password: Option<&str>,
) -> redis::RedisResult<Vec<ConnectionInfo>> {
    urls.iter().map(|url| address(url, password)).collect()
}

fn address(url: &str, password: Option<&str>) -> redis::RedisResult<ConnectionInfo> {
    // Given up, a connection takes along what has not arrived: behind a partition the system would
    // deliver a write much later, over those that were acknowledged since.
    let reset = TcpSettings::default().set_linger_time(Duration::ZERO);
    let info = url.into_connection_info()?.set_tcp_settings(reset);
    let Some(password) = password else {
        if info.redis_settings().password().is_some() {
            tracing::warn!(
                "the password in --backend can be read by every user of this machine: use --backend-password-file"
            );
        }
        return Ok(info);
    };
    let settings = info.redis_settings().clone().set_password(password);
    Ok(info.set_redis_settings(settings))
}

struct Redis {
    /// Where the master may be.
    given: Vec<ConnectionInfo>,
    /// Where it was last.
    at: ConnectionInfo,
    /// The same, for connections that are not the store's own.
    master: watch::Sender<MasterPlace>,
    /// Where Redis's messages go, if outside writes are tracked.
    told: Option<Completions>,
    /// Whether they were, when that was told last.
    watch: Watch,
    dial: Dial,
    link: Option<Link>,
    /// Why the link is of no use any more.
    over: Option<String>,
    /// That it refuses requests because of how it is.
    refuses: Outage,
    refused_ns: u64,
    health: Health,
    eviction: Eviction,
    former: FormerSessions,
    /// Says where the master is, if it is a node of a Redis Cluster.
    follower: Option<Follower>,
    /// They say where the master is, if it was so asked for.
    sentinels: Option<Sentinels>,
    /// That cluster's other nodes.
    other_nodes: OtherNodes,
}

impl Redis {
    fn new(
        given: Vec<ConnectionInfo>,
        told: Option<Completions>,
        dial: Dial,
        health: Health,
    ) -> Redis {
        Redis {
            at: given[0].clone(),
            master: watch::Sender::new(MasterPlace { info: given[0].clone(), was_left: false }),
            given,
            told,
            watch: Watch::Tracked,
            other_nodes: OtherNodes::new(dial.clone()),
            dial,
            link: None,
            over: None,
            refuses: Outage::default(),
            refused_ns: 0,
            health,
            eviction: Eviction::default(),
            former: FormerSessions::default(),
            follower: None,
            sentinels: None,
        }
    }

    /// Connects to the master: where it was last, where it may be, or where a replica says
    /// that it is.
    async fn find(&mut self) -> anyhow::Result<Link> {
        let named = match (&mut self.follower, &mut self.sentinels) {
            (Some(follower), _) => Some(follower.master().await?),
            (None, Some(sentinels)) => Some(sentinels.master().await.context("the Sentinels")?),
            (None, None) => None,
        };
        if let Some(info) = named {
            return match link::open(&info, self.told.as_ref(), &self.dial).await? {
                Contact::Master(link) => {
                    self.is_at(info);
                    Ok(link)
                }
                // What named it is older than that: it is asked again.
                Contact::ReplicaOf(master) => {
                    Err(anyhow!("Redis at {} is a replica of {master}", info.addr()))
                }
            };
        }
        let mut next: Vec<ConnectionInfo> = self.given.iter().rev().cloned().collect();
        next.push(self.at.clone());
        let (mut asked, mut failed) = (vec![], vec![]);
        while let Some(info) = next.pop() {
            if asked.len() == HOPS {
                break;
            }
            if asked.contains(info.addr()) {
                continue;
            }
            asked.push(info.addr().clone());
            match link::open(&info, self.told.as_ref(), &self.dial).await {
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

    /// Another Redis is the master, for this reason: clients ask this one nothing any more either.
    fn leaves(&mut self, why: String) {
        self.over.get_or_insert(why);
        self.master.send_modify(|place| place.was_left = true);
    }

    /// The master is there.
    fn is_at(&mut self, info: ConnectionInfo) {
        self.master.send_if_modified(|place| {
            let moved = place.info.addr() != info.addr() || place.was_left;
            *place = MasterPlace { info: info.clone(), was_left: false };
            moved
        });
        self.at = info;
    }

    /// What a node of a Redis Cluster says of slots that it does not have is for the store, not for
    /// its clients: it asks where they are.
    async fn follow(&mut self, commands: &[Command], outcomes: &mut [Outcome]) {
        if let Some(sentinels) = &mut self.sentinels {
            sentinels.doubts();
            if let Some(why) = sentinels.moved_from(&self.at).await {
                self.leaves(why);
            }
        }
        if self.follower.is_none() {
            return;
        }
        for _ in 0..REDIRECTS {
            let parts = self.redirected(commands, outcomes);
            if parts.is_empty() {
                break;
            }
            for (to, part) in parts {
                let asked: Vec<Command> = part.iter().map(|at| commands[*at].clone()).collect();
                let answers = self.ask_elsewhere(&to, &asked).await;
                for (at, outcome) in part.into_iter().zip(answers) {
                    outcomes[at] = outcome;
                }
            }
        }
        let Some(follower) = &mut self.follower else { return };
        follower.doubts();
        for outcome in outcomes {
            if let Outcome::Refused(refusal) = outcome
                && is_elsewhere(refusal.words())
            {
                *refusal = Refusal::new(&put_off(refusal.words()));
            }
        }
        let why = follower.moved_from(&self.at).await;
        let has_lost = follower.take_lost();
        if let Some(why) = why {
            self.leaves(why);
        }
        if has_lost && let Some(told) = &self.told {
            let _ = told.send(Completion::Outside(OutsideEvent::Everything));
        }
        self.settle();
    }

    /// The commands that are to be asked at other nodes, in their order: those that were sent on,
    /// and reads behind a write that was. What such a read has found may be older.
    fn redirected(
        &self,
        commands: &[Command],
        outcomes: &[Outcome],
    ) -> Vec<(Redirect, Vec<usize>)> {
        let host = match self.at.addr() {
            ConnectionAddr::Tcp(host, _) => host,
            _ => return vec![],
        };
        let mut written: HashMap<&[u8], Redirect> = HashMap::new();
        let mut parts: Vec<(Redirect, Vec<usize>)> = vec![];
        for (at, (command, outcome)) in commands.iter().zip(outcomes).enumerate() {
            let is_read = matches!(command.verb, Verb::Get { .. });
            let said = match outcome {
                Outcome::Refused(refusal) => Redirect::in_words(refusal.words(), host),
                _ => None,
            };
            let behind = || written.get(&command.name[..]).filter(|_| is_read).cloned();
            let Some(to) = said.or_else(behind) else { continue };
            if !is_read {
                written.insert(&command.name, to.clone());
            }
            match parts.iter_mut().find(|(other, _)| *other == to) {
                Some((_, part)) => part.push(at),
                None => parts.push((to, vec![at])),
            }
        }
        parts
    }

    /// Has another node carry out commands, in order.
    async fn ask_elsewhere(&mut self, to: &Redirect, commands: &[Command]) -> Vec<Outcome> {
        let refused = |why: &str| Outcome::Refused(Refusal::new(&format!("TRYAGAIN {why}")));
        let Some(follower) = &self.follower else { return vec![] };
        let info = follower.info_of(&to.at);
        let patience = self.other_nodes.patience();
        let (node, is_new) = match self.other_nodes.reach(&to.at, info.clone()).await {
            Ok(reached) => reached,
            Err(error) => return vec![refused(&format!("{error:#}")); commands.len()],
        };
        let mut faults = Faults::default();
        let asked = async {
            if is_new {
                let session = node.session.as_ref();
                self.former.end(&mut node.connection, info.addr(), session).await?;
            }
            let how = Way { tracks: false, asking: to.asking };
            carry_out(&mut node.connection, commands, how, &mut faults).await
        };
        let why = match timeout(patience, asked).await {
            Ok(Ok(mut outcomes)) => {
                for (command, outcome) in commands.iter().zip(&mut outcomes) {
                    if let (Verb::Get { track: true, .. }, Outcome::Value { value, expiry_ms }) =
                        (&command.verb, &mut *outcome)
                    {
                        let value = std::mem::take(value);
                        *outcome = Outcome::Untold { value, expiry_ms: *expiry_ms };
                    }
                }
                if faults.over.is_some() {
                    self.other_nodes.give_up(&to.at);
                }
                return outcomes;
            }
            Ok(Err(error)) => format!("{error:#}"),
            Err(_) => format!("no answer within {patience:?}"),
        };
        if let Some(session) = self.other_nodes.give_up(&to.at) {
            self.former.add(info.addr(), session);
        }
        let why = format!("the node at {}: {why}", to.at);
        tracing::debug!("backend: {why}");
        let lost = |command: &Command| match command.verb {
            Verb::Get { .. } => refused(&why),
            _ => Outcome::Failed,
        };
        commands.iter().map(lost).collect()
    }

    /// Tells if nothing that has failed can still take place.
    fn settle(&mut self) {
        let masters = self.follower.as_ref().map(Follower::masters);
        let counts = |at: &ConnectionAddr| {
            let masters = masters.as_ref().map(watch::Receiver::borrow);
            masters.is_some_and(|masters| masters.iter().any(|master| is_there(at, master)))
        };
        if self.former.are_over(counts)
            && let Some(told) = &self.told
        {
            let _ = told.send(Completion::Settled);
        }
    }

    /// Tells whether this Redis tells of outside writes: while it does not, nothing is granted, and
    /// what was granted before is called back.
    fn watches(&mut self, untracked: Option<&str>) {
        let Some(told) = &self.told else { return };
        let watch = if untracked.is_some() { Watch::Impossible } else { Watch::Tracked };
        if watch == self.watch {
            return;
        }
        self.watch = watch;
        // In this order: what is granted before the first is called back by the second.
        let _ = told.send(Completion::Outside(OutsideEvent::Watch(watch)));
        match untracked {
            None => tracing::warn!("backend: outside writes are tracked: copies are granted"),
            Some(why) => {
                let _ = told.send(Completion::Outside(OutsideEvent::Everything));
                tracing::warn!(
                    "outside writes cannot be tracked, so switches are granted no copies: {why}. CLIENT TRACKING needs \
                     Redis 6; if nobody else writes to this Redis, say --outside-writes ignore"
                );
            }
        }
    }

    /// What the log says of refusals: that there are some, and that there are none any more.
    fn note(&mut self, refused: Option<&str>) {
        let now_ns = boot_ns();
        let at = self.at.addr();
        if let Some(why) = refused {
            self.refused_ns = now_ns;
            self.health.refuses(why, now_ns);
            if self.refuses.failed(why, now_ns) {
                tracing::warn!("backend: Redis at {at} refuses requests: {why}");
            }
        } else if now_ns >= self.refused_ns + CALM.as_nanos() as u64 {
            self.health.refuses_nothing();
            if self.refuses.answered(now_ns).is_some() {
                tracing::warn!("backend: Redis at {at} has refused nothing for {CALM:?}");
            }
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
            let at = self.at.addr();
            self.over = Some(format!("Redis at {at} has become a replica of {host}:{port}"));
            return Ok(true);
        }
        if link.may_track_now(now_ns) && link.track().await? {
            self.watches(None);
        }
        Ok(false)
    }
}

fn lost(error: redis::RedisError) -> anyhow::Error {
    anyhow!("{}", words_of(&error))
}

/// Passes a message of Redis on. Called in the order of the connection, before any later answer
/// is given.
fn tell(message: PushInfo, told: &Completions) -> Result<(), ()> {
    let tell = |event| told.send(Completion::Outside(event)).map_err(drop);
    match message.kind {
        PushKind::Disconnection => tell(OutsideEvent::Everything),
        PushKind::Invalidate => changes(message.data).into_iter().try_for_each(tell),
        _ => Ok(()),
    }
}

/// What an invalidation names: keys, or nothing for everything.
fn changes(data: Vec<Value>) -> Vec<OutsideEvent> {
    let Some(Value::Array(names)) = data.into_iter().next() else {
        return vec![OutsideEvent::Everything];
    };
    let event = |name| match name {
        Value::BulkString(name) => {
            let (tenant, key) = wire::key_of_backend_name(&name);
            OutsideEvent::Changed { tenant, key: key.into() }
        }
        _ => OutsideEvent::Everything,
    };
    names.into_iter().map(event).collect()
}

impl Protocol for Redis {
    async fn connect(&mut self) -> anyhow::Result<()> {
        if self.link.is_none() {
            let mut link = self.find().await?;
            let session = link.session.as_ref();
            if self.former.end(&mut link.connection, self.at.addr(), session).await? {
                self.settle();
            }
            self.watches(link.untracked.as_deref());
            self.link = Some(link);
        }
        Ok(())
    }

    async fn execute(&mut self, commands: &[Command]) -> anyhow::Result<Vec<Outcome>> {
        let link = self.link.as_mut().context("not connected")?;
        if commands.is_empty() {
            self.note(None);
            self.is_demoted().await?;
            self.follow(&[], &mut []).await;
            return Ok(vec![]);
        }
        let mut faults = Faults::default();
        let how = Way { tracks: link.untracked.is_none(), asking: false };
        self.eviction.mark(&mut link.connection, commands).await?;
        let mut outcomes = carry_out(&mut link.connection, commands, how, &mut faults).await?;
        let is_due = link.is_due(boot_ns());
        self.follow(commands, &mut outcomes).await;
        let is_followed = |words: &String| self.follower.is_some() && is_elsewhere(words);
        let refused = faults.of_server.filter(|words| !is_followed(words));
        self.note(refused.as_deref());
        if let Some(why) = faults.over {
            self.over = Some(format!("Redis at {}: {why}", self.at.addr()));
        } else if is_due {
            match self.is_demoted().await {
                Ok(false) => {}
                Ok(true) => self.disown(commands, &mut outcomes),
                // What was answered stands.
                Err(error) => self.over = Some(format!("Redis at {}: {error:#}", self.at.addr())),
            }
        }
        Ok(outcomes)
    }

    fn over(&mut self) -> Option<String> {
        let is_gone = self.link.as_ref().is_some_and(Link::is_gone);
        let gone = || format!("Redis at {} has closed the connection", self.at.addr());
        self.over.take().or_else(|| is_gone.then(gone))
    }

    fn disconnect(&mut self) {
        if let Some(link) = self.link.take() {
            self.former.add(self.at.addr(), link.session);
        }
        self.over = None;
    }

    fn name(&self) -> String {
        format!("Redis at {}", self.at.addr())
    }
}

/// What answers say beside the outcomes.
#[derive(Default)]
struct Faults {
    /// The words of one that says how the server is.
    of_server: Option<String>,
    /// Those of one after which the connection is of no use.
    over: Option<String>,
}

impl Faults {
    /// An answer has come.
    fn see(&mut self, answer: &redis::RedisResult<Value>) {
        let Err(error) = answer else { return };
        if is_of_server(error) {
            self.of_server.get_or_insert_with(|| words_of(error));
        }
        if matches!(class_of(answer), Class::Demoted | Class::Gone) {
            self.over.get_or_insert_with(|| words_of(error));
        }
    }
}

/// How commands are put to a server.
#[derive(Clone, Copy)]
struct Way {
    /// It is to tell of changes to what is read for a grant.
    tracks: bool,
    /// It is taking the slot in: each command has ASKING before it.
    asking: bool,
}

impl Way {
    /// Says what has to stand before a command with a key.
    fn before(self, pipeline: &mut Pipeline) {
        if self.asking {
            pipeline.cmd("ASKING").ignore();
        }
    }
}

/// Whether a node is there.
pub(crate) fn is_there(at: &ConnectionAddr, node: &NodeAddress) -> bool {
    matches!(at, ConnectionAddr::Tcp(host, port) if *host == node.host && *port == node.port)
}

/// Carries commands out in order, and finds one outcome for each.
async fn carry_out(
    connection: &mut MultiplexedConnection,
    commands: &[Command],
    how: Way,
    faults: &mut Faults,
) -> anyhow::Result<Vec<Outcome>> {
    let mut outcomes = ask(connection, commands, Bytes::Some, how, faults).await?;
    let unclear: Vec<usize> = (0..commands.len()).filter(|at| outcomes[*at].is_none()).collect();
    if !unclear.is_empty() {
        let again: Vec<Command> = unclear.iter().map(|at| commands[*at].clone()).collect();
        let clear = ask(connection, &again, Bytes::All, how, faults).await?;
        for (at, outcome) in unclear.into_iter().zip(clear) {
            outcomes[at] = outcome;
        }
    }
    let clear = |outcome: Option<Outcome>| outcome.context("neither a value nor none");
    let mut outcomes: Vec<Outcome> = outcomes.into_iter().map(clear).collect::<Result<_, _>>()?;
    measure(connection, commands, how, &mut outcomes).await?;
    Ok(outcomes)
}

/// Asks how long the values are that were cut short, and puts that in their place; what is longer
/// than anybody wants is too large.
async fn measure(
    connection: &mut MultiplexedConnection,
    commands: &[Command],
    how: Way,
    outcomes: &mut [Outcome],
) -> anyhow::Result<()> {
    let mut pipeline = Pipeline::new();
    pipeline.ignore_errors();
    let mut cut = vec![];
    for (command, outcome) in commands.iter().zip(outcomes) {
        let (Verb::Get { most, large, .. }, Outcome::Value { value, .. }) =
            (&command.verb, &outcome)
        else {
            continue;
        };
        if large.is_none() && value.len() == SMALL {
            how.before(&mut pipeline);
            pipeline.cmd("STRLEN").arg(&command.name[..]);
            cut.push(outcome);
        } else if value.len() > (*most).max(SMALL) {
            *outcome = Outcome::TooLarge;
        }
    }
    if cut.is_empty() {
        return Ok(());
    }
    let lengths: Vec<redis::RedisResult<Value>> =
        pipeline.query_async(connection).await.map_err(lost)?;
    for (outcome, len) in cut.into_iter().zip(lengths) {
        *outcome = match len {
            Ok(Value::Int(len)) => Outcome::Large(usize::try_from(len).unwrap_or(usize::MAX)),
            other => unfit("STRLEN", &other),
        };
    }
    Ok(())
}

/// How much of values is read.
#[derive(Clone, Copy)]
enum Bytes {
    /// As much as a packet can carry, or as a value may have that is known to be large, by
    /// GETRANGE.
    Some,
    /// All, by GET.
    All,
}

/// Carries commands out in one pipeline. `None`: the key is empty, or was absent a moment ago.
async fn ask(
    connection: &mut MultiplexedConnection,
    commands: &[Command],
    bytes: Bytes,
    how: Way,
    faults: &mut Faults,
) -> anyhow::Result<Vec<Option<Outcome>>> {
    let mut pipeline = Pipeline::with_capacity(3 * commands.len());
    // One command that fails must not hide the answers to the others.
    pipeline.ignore_errors();
    for command in commands {
        add(command, bytes, how, &mut pipeline);
    }
    let asked_ns = boot_ns();
    // Keys that are only marked are no command of this pipeline, and an empty one is refused.
    let values: Vec<redis::RedisResult<Value>> = match pipeline.cmd_iter().next() {
        Some(_) => pipeline.query_async(connection).await.map_err(lost)?,
        None => vec![],
    };
    values.iter().for_each(|value| faults.see(value));
    // The time to live was read at the other end, and has gone on since.
    let elapsed_ms = ((boot_ns() - asked_ns) / 1_000_000) as i64 + 1;
    let mut values = values.into_iter();
    let mut next = || values.next().context("an answer is missing");
    let mut outcomes = Vec::with_capacity(commands.len());
    for command in commands {
        outcomes.push(match command.verb {
            Verb::Get { track, .. } => {
                let tracked = if track && how.tracks { next()? } else { Ok(Value::Okay) };
                let outcome = found(next()?, next()?, bytes, elapsed_ms);
                match tracked {
                    Ok(Value::Okay) => outcome,
                    // A new connection shows whether it can be had again.
                    other => {
                        let why = other.as_ref().err().map(words_of).unwrap_or_default();
                        faults.over.get_or_insert_with(|| format!("CLIENT CACHING: {why}"));
                        Some(unfit("CLIENT CACHING", &other))
                    }
                }
            }
            Verb::Put { .. } => Some(stored(next()?)),
            Verb::Delete { only_if } => Some(removed(next()?, only_if)),
            // That was done before.
            Verb::Mark(_) => Some(Outcome::Done),
        });
    }
    Ok(outcomes)
}

fn add(command: &Command, bytes: Bytes, how: Way, pipeline: &mut Pipeline) {
    let name = &command.name[..];
    if !matches!(command.verb, Verb::Mark(_)) {
        how.before(pipeline);
    }
    match &command.verb {
        Verb::Get { track, most, large } => {
            // One byte more than is of use, so that what has grown is known to be too long.
            let last = large.map_or(SMALL - 1, |_| *most);
            if *track && how.tracks {
                pipeline.cmd("CLIENT").arg("CACHING").arg("YES");
            }
            match bytes {
                Bytes::Some => pipeline.cmd("GETRANGE").arg(name).arg(0).arg(last),
                Bytes::All => pipeline.cmd("GET").arg(name),
            };
            how.before(pipeline);
            pipeline.cmd("PTTL").arg(name);
        }
        Verb::Delete { only_if: OnlyIf::Absent } => drop(pipeline.cmd("EXISTS").arg(name)),
        Verb::Delete { .. } => drop(pipeline.cmd("DEL").arg(name)),
        Verb::Mark(_) => {}
        Verb::Put { value, ttl_ms, only_if } => {
            pipeline.cmd("SET").arg(name).arg(&value[..]);
            if *ttl_ms > 0 {
                pipeline.arg("PX").arg(*ttl_ms);
            }
            match only_if {
                OnlyIf::Always => {}
                OnlyIf::Absent => drop(pipeline.arg("NX")),
                OnlyIf::Present => drop(pipeline.arg("XX")),
            }
        }
    }
}

fn found(
    value: redis::RedisResult<Value>,
    left_ms: redis::RedisResult<Value>,
    bytes: Bytes,
    elapsed_ms: i64,
) -> Option<Outcome> {
    Some(match (value, left_ms) {
        (Ok(Value::Nil), _) => Outcome::Absent,
        (Ok(Value::BulkString(value)), Ok(Value::Int(left_ms))) => {
            if value.is_empty() && matches!(bytes, Bytes::Some) {
                // -2: it is absent.
                return (left_ms == -2).then_some(Outcome::Absent);
            }
            // -1: it does not expire; -2: it has, between the two commands.
            let left = if left_ms == -1 { 0 } else { (left_ms - elapsed_ms).max(1) };
            Outcome::Value { value, expiry_ms: u32::try_from(left).unwrap_or(u32::MAX) }
        }
        (Err(error), _) | (Ok(_), Err(error)) => unfit("GETRANGE", &Err(error)),
        (Ok(_), Ok(_)) => Outcome::Failed,
    })
}

fn stored(value: redis::RedisResult<Value>) -> Outcome {
    match value {
        Ok(Value::Okay) => Outcome::Done,
        Ok(Value::Nil) => Outcome::NotStored,
        other => unfit("SET", &other),
    }
}

fn removed(value: redis::RedisResult<Value>, only_if: OnlyIf) -> Outcome {
    match value {
        Ok(Value::Int(0)) => Outcome::Absent,
        Ok(Value::Int(_)) if only_if == OnlyIf::Absent => Outcome::NotStored,
        Ok(Value::Int(_)) => Outcome::Done,
        other => unfit("DEL", &other),
    }
}

/// What comes of a command whose answer is none that belongs to it: a refusal, or a doubt.
fn unfit(command: &str, answer: &redis::RedisResult<Value>) -> Outcome {
    match refusal(answer) {
        Some(refusal) => Outcome::Refused(refusal),
        None => {
            // A value is nobody's business.
            let answer = answer.as_ref().map(|_| "something else");
            tracing::debug!("Redis: {command} answered {answer:?}");
            Outcome::Failed
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    fn plainly() -> Dial {
        Dial { connector: None, within: Duration::from_secs(90) }
    }

    #[test]
    fn an_invalidation_names_keys_or_everything() {
        let name = |name: &[u8]| Value::BulkString(name.into());
        let changed = |tenant, key: &[u8]| OutsideEvent::Changed { tenant, key: key.into() };
        // (data, events)
        let rows = [
            (vec![Value::Nil], vec![OutsideEvent::Everything]),
            (vec![], vec![OutsideEvent::Everything]),
            (
                vec![Value::Array(vec![name(b"a"), name(b"shortstop:7:b")])],
                vec![changed(0, b"a"), changed(7, b"b")],
            ),
            (vec![Value::Array(vec![name(b"shortstop:?")])], vec![changed(0, b"shortstop:?")]),
            (vec![Value::Array(vec![Value::Int(1)])], vec![OutsideEvent::Everything]),
        ];
        for (data, events) in rows {
            assert_eq!(changes(data.clone()), events, "{data:?}");
        }
    }

    #[tokio::test]
    async fn what_has_not_arrived_when_the_connection_is_given_up_never_does() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("redis://{}", listener.local_addr().unwrap());
        let given = addresses(&[url], None).unwrap();
        let mut redis = Redis::new(given, None, plainly(), Health::new());
        let (mut server, greeted) = {
            let accept = async {
                let (mut server, _) = listener.accept().await.unwrap();
                let mut greeting = [0; 4096];
                // Every answer to what it says at first.
                let len = server.read(&mut greeting).await.unwrap();
                let commands = greeting[..len].iter().filter(|byte| **byte == b'*').count();
                let answers = "+OK\r\n".repeat(commands);
                server.write_all(answers.as_bytes()).await.unwrap();
                server
            };
            let (server, greeted) = tokio::join!(accept, redis.connect());
            (server, greeted.is_ok())
        };
        assert!(greeted);
        redis.disconnect();
        let read = server.read(&mut [0]).await;
        let kind = read.map_err(|error| error.kind());
        assert_eq!(kind, Err(std::io::ErrorKind::ConnectionReset));
    }

    /// Whether a server is connected to that closes the connection on which it is told HELLO, and
    /// on the next one answers ROLE so; and why it does not tell of outside writes.
    async fn hangs_up_and_says(role: &[u8]) -> Result<Option<String>, String> {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("redis://{}", listener.local_addr().unwrap());
        let (told, _events) = tokio::sync::mpsc::unbounded_channel();
        let given = addresses(&[url], None).unwrap();
        let mut redis = Redis::new(given, Some(told), plainly(), Health::new());
        let serves = async {
            let mut said = [0; 4096];
            let (mut first, _) = listener.accept().await.unwrap();
            assert!(first.read(&mut said).await.unwrap() > 0);
            drop(first);
            let (mut second, _) = listener.accept().await.unwrap();
            assert!(second.read(&mut said).await.unwrap() > 0);
            second.write_all(role).await.unwrap();
            second
        };
        let (_second, made) = tokio::join!(serves, redis.connect());
        let untracked = |()| redis.link.as_ref().and_then(|link| link.untracked.clone());
        made.map(untracked).map_err(|error| error.to_string())
    }

    #[tokio::test]
    async fn a_proxy_that_hangs_up_on_hello_is_served_from_and_a_redis_is_asked_again() {
        let proxy = hangs_up_and_says(b"-ERR unknown command\r\n").await.unwrap();
        assert!(proxy.is_some_and(|why| why.starts_with("HELLO 3: ")));
        let redis = hangs_up_and_says(b"*3\r\n$6\r\nmaster\r\n:0\r\n*0\r\n").await;
        assert!(redis.unwrap_err().contains("has closed the connection"));
    }
}
