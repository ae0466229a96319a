//! Where the master is: who says so, and where it was last.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, anyhow, ensure};
use redis::{ConnectionAddr, ConnectionInfo};
use tokio::{sync::watch, task::JoinHandle};

use super::{
    dial::Dial,
    follow::Follower,
    link::{self, Contact, Link},
    names::{Names, Server, name_of},
    sentinel::Sentinels,
    sessions::Session,
    upstream::MasterPlace,
};
use crate::{
    backend::remote::{Completions, HEARTBEAT},
    clock::boot_ns,
    resolver::Resolver,
};

/// Servers that are asked for the master, each named by the one before, before that is given up.
const HOPS: usize = 8;
/// From one question for the master, where a name means other servers than that, to the next.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// For so long after clients of the RESP port have heard of a master the last time no other is
/// asked anything: gateways may read there for as long as that word holds. A quarter for what was
/// under way, and for clocks that differ.
const HEARD_FOR: Duration = Duration::from_millis(resp::MASTER_HOLDS.as_millis() as u64 * 5 / 4);
/// Nobody passes anything on of a master that was left so long ago.
const CUT_WITHIN: Duration = Duration::from_millis(100);

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
    /// What the guide said last: the master is one of these, or one that they name.
    named: Vec<ConnectionInfo>,
    resolver: Resolver,
    names: Names,
    /// When names were looked at last.
    looked_ns: u64,
    /// Who is the master, where a name means other servers than the one that is taken for it.
    asking: Option<JoinHandle<anyhow::Result<Server>>>,
    asked_ns: u64,
    /// Where it was last.
    at: Server,
    /// Since when it has not been taken for the master any more.
    left_ns: Option<u64>,
    /// It sends everybody to its successor who asks.
    sends_on: bool,
    /// When clients of the RESP port heard of a master last; 0: never.
    heard_ns: Arc<AtomicU64>,
    /// The last connection there whose process is known.
    session: Option<Session>,
    /// When a connection there was given up.
    given_up: Instant,
    /// Where it was, for connections that are not the store's own.
    place: watch::Sender<MasterPlace>,
    dial: Dial,
}

impl MasterSearch {
    /// One that takes the master to be at `at` until it has been connected to.
    pub fn new(guide: Guide, at: ConnectionInfo, dial: Dial, resolver: Resolver) -> MasterSearch {
        let at = Server::given(at);
        let since = Instant::now();
        let heard_ns = Arc::<AtomicU64>::default();
        let place =
            MasterPlace { server: at.clone(), was_left: false, since, heard_ns: heard_ns.clone() };
        let place = watch::Sender::new(place);
        MasterSearch {
            guide,
            named: vec![],
            names: Names::new(resolver.clone()),
            resolver,
            looked_ns: 0,
            asking: None,
            asked_ns: 0,
            at,
            left_ns: None,
            sends_on: false,
            heard_ns,
            session: None,
            given_up: since,
            place,
            dial,
        }
    }

    /// Where the master was last.
    pub fn at(&self) -> &ConnectionAddr {
        self.at.at()
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

    /// Until when what the master tells counts, if others say who it is: see [`Proof::until`].
    ///
    /// [`Proof::until`]: super::proof::Proof::until
    pub fn proven_until(&self) -> Option<u64> {
        match &self.guide {
            Guide::Servers(_) => None,
            Guide::Sentinels(sentinels) => Some(sentinels.proven_until()),
            Guide::Cluster(follower) => Some(follower.proven_until()),
        }
    }

    /// Connects to the master: where it was last, where it may be, or where a replica says
    /// that it is.
    ///
    /// # Errors
    /// Nobody says where it is, or it is not there; or others may still read where it was.
    pub async fn connect(&mut self, told: Option<&Completions>) -> anyhow::Result<Link> {
        self.asking = None;
        self.named = match &mut self.guide {
            Guide::Cluster(follower) => vec![follower.master().await?],
            Guide::Sentinels(sentinels) => {
                vec![sentinels.master().await.context("the Sentinels")?]
            }
            Guide::Servers(servers) => servers.clone(),
        };
        self.names.forget_others(&self.named);
        let (mut next, mut failed) = (vec![], vec![]);
        for named in &self.named {
            // A node of a cluster is known by the name that the map has.
            if self.follower().is_some() {
                next.push(Server::given(named.clone()));
                continue;
            }
            match self.names.servers(named, self.dial.within).await {
                Ok(servers) => next.extend(servers),
                Err(error) => failed.push(format!("{error:#}")),
            }
        }
        // The last one is asked first.
        next.reverse();
        let follows = matches!(self.guide, Guide::Servers(_));
        match next.iter().position(|server| server.at() == self.at.at()) {
            Some(place) => {
                let last = next.remove(place);
                next.push(last);
            }
            // What no name means any more may still take itself for the master.
            None if follows && !self.has_names() => next.push(self.at.clone()),
            None => {}
        }
        let asked = ask_servers(next, follows, told, &self.dial, &self.resolver).await;
        let (server, link) = asked.map_err(|error| {
            failed.insert(0, format!("{error:#}"));
            anyhow!(failed.join("; "))
        })?;
        self.takes_over(&server, boot_ns())?;
        self.is_at(server, link.session.as_ref());
        Ok(link)
    }

    /// The master is there, and knows the store's connection as this. Another process than before
    /// has none of the connections that were made to that one, which may not have ended them: its
    /// host may have lost power. Those that were begun when the store's own was given up may be to
    /// either.
    fn is_at(&mut self, server: Server, session: Option<&Session>) {
        let before = self.session.as_ref().zip(session);
        let is_other = before.is_some_and(|(before, now)| !before.is_with_same(now));
        self.session = session.or(self.session.as_ref()).cloned();
        let given_up = self.given_up;
        self.place.send_if_modified(|place| {
            let moved = place.server.at() != server.at() || place.was_left;
            if moved {
                place.since = Instant::now();
            } else if is_other {
                place.since = place.since.max(given_up);
            }
            place.server = server.clone();
            place.was_left = false;
            moved || is_other
        });
        self.at = server;
        (self.left_ns, self.sends_on) = (None, false);
    }

    /// Whether this one may be asked anything by now. Where it is another than the last, gateways
    /// may read at that one, which tells them nothing of what is written here: so nothing is before
    /// they have ceased to.
    fn takes_over(&mut self, server: &Server, now_ns: u64) -> anyhow::Result<()> {
        let has_been_heard = self.heard_ns.load(Relaxed) > 0;
        if server.at() == self.at() || self.sends_on || !has_been_heard {
            return Ok(());
        }
        self.leave(now_ns);
        // Who passes on what it answers may have done so just now.
        let heard_ns = self.heard_ns.load(Relaxed) + HEARD_FOR.as_nanos() as u64;
        let left_ns = self.left_ns.unwrap_or(now_ns) + CUT_WITHIN.as_nanos() as u64;
        ensure!(
            now_ns >= heard_ns.max(left_ns),
            "Redis at {} is the master now: it is asked nothing while gateways may read at {}, for {HEARD_FOR:?} at most",
            server.at(),
            self.at()
        );
        Ok(())
    }

    /// The master has become a replica, as it says. In a Redis Cluster it sends on whoever asks.
    pub fn is_demoted(&mut self) {
        self.sends_on = self.follower().is_some();
    }

    /// The connection to the master was given up.
    pub fn gives_up(&mut self) {
        self.given_up = Instant::now();
    }

    /// Another Redis is the master: clients ask this one nothing any more either.
    pub fn leave(&mut self, now_ns: u64) {
        if self.left_ns.is_some() {
            return;
        }
        self.left_ns = Some(now_ns);
        self.place.send_modify(|place| {
            place.was_left = true;
            place.since = Instant::now();
        });
    }

    /// Why the master is not the one that is connected any more, as far as those who were asked
    /// meanwhile say. They are asked again; it does not wait for them.
    pub async fn moved(&mut self) -> Option<String> {
        let named = self.named.first()?;
        let moved = match &mut self.guide {
            Guide::Servers(_) => None,
            Guide::Sentinels(sentinels) => {
                sentinels.doubts();
                sentinels.moved_from(named).await
            }
            Guide::Cluster(follower) => {
                // What has been read is taken first, so that the next reading begins at once.
                let moved = follower.moved_from(named).await;
                follower.doubts();
                moved
            }
        };
        match moved {
            None => self.moved_by_name().await,
            moved => moved,
        }
    }

    fn has_names(&self) -> bool {
        self.follower().is_none() && self.named.iter().any(|named| name_of(named).is_some())
    }

    /// The same, as far as the resolver says and those whom names mean now.
    async fn moved_by_name(&mut self) -> Option<String> {
        let now_ns = boot_ns();
        if now_ns < self.looked_ns + HEARTBEAT.as_nanos() as u64 || !self.has_names() {
            return None;
        }
        self.looked_ns = now_ns;
        let known = self.named.iter().flat_map(|named| self.names.known(named));
        let mut next: Vec<Server> = known.collect();
        // The last one is asked first.
        next.reverse();
        if next.is_empty() || next.iter().any(|server| server.at() == self.at.at()) {
            self.asking = None;
            return None;
        }
        let Some(asking) = &mut self.asking else {
            if now_ns >= self.asked_ns + ASK_AGAIN.as_nanos() as u64 {
                self.asked_ns = now_ns;
                let (dial, resolver) = (self.dial.clone(), self.resolver.clone());
                self.asking = Some(tokio::spawn(async move {
                    Ok(ask_servers(next, true, None, &dial, &resolver).await?.0)
                }));
            }
            return None;
        };
        if !asking.is_finished() {
            return None;
        }
        let answer = asking.await.ok();
        self.asking = None;
        let names: Vec<String> = self.named.iter().map(|named| named.addr().to_string()).collect();
        let (names, at) = (names.join(","), self.at.at());
        match answer? {
            Ok(master) if master.at() == at => None,
            Ok(master) => Some(format!("{names} is at {} now, and no more at {at}", master.at())),
            Err(error) => Some(format!("{names} is no more at {at}: {error:#}")),
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

/// Asks servers, from the last one on, whether they are the master, and, if it `follows` that,
/// whom they name.
async fn ask_servers(
    mut next: Vec<Server>,
    follows: bool,
    told: Option<&Completions>,
    dial: &Dial,
    resolver: &Resolver,
) -> anyhow::Result<(Server, Link)> {
    let mut names = Names::new(resolver.clone());
    let (mut asked, mut failed) = (vec![], vec![]);
    while let Some(server) = next.pop() {
        if asked.len() == HOPS {
            break;
        }
        let at = server.at().clone();
        if asked.contains(&at) {
            continue;
        }
        asked.push(at.clone());
        let dial = dial.named(server.name.as_ref());
        let master = match link::open(&server.info, told, &dial).await {
            Ok(Contact::Master(link)) => return Ok((server, link)),
            Ok(Contact::ReplicaOf(master)) => master,
            Err(error) => {
                failed.push(format!("{error:#}"));
                continue;
            }
        };
        failed.push(format!("Redis at {at} is a replica of {master}"));
        // What a Sentinel or a node has said of it is older than that: they are asked again.
        if !follows {
            continue;
        }
        match names.servers(&server.info.set_addr(master), dial.within).await {
            Ok(masters) => {
                for master in masters {
                    let known = next.iter().find(|server| server.at() == master.at()).cloned();
                    next.push(known.unwrap_or(master));
                }
            }
            Err(error) => failed.push(format!("{error:#}")),
        }
    }
    Err(anyhow!(failed.join("; ")))
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use redis::Value;

    use super::*;
    use crate::backend::redis::Upstream;

    #[test]
    fn another_master_is_asked_nothing_while_gateways_may_read_where_it_was() {
        let server = |port: u16| Server::given(format!("redis://h:{port}").parse().unwrap());
        let dial = Dial::new(None, Duration::from_secs(1));
        let at = server(1).info;
        let guide = Guide::Servers(vec![at.clone()]);
        let mut search = MasterSearch::new(guide, at, dial.clone(), Resolver::default());
        let (heard_for, cut) = (HEARD_FOR.as_nanos() as u64, CUT_WITHIN.as_nanos() as u64);
        search.is_at(server(1), None);
        assert!(search.takes_over(&server(2), 100).is_ok(), "nobody has heard of any");
        let heard_ns = search.heard_ns.clone();
        heard_ns.store(100, Relaxed);
        let mut upstream = Upstream::new(search.place(), dial, None, true).anew();
        assert!(search.takes_over(&server(1), 100).is_ok(), "it is the same");
        assert!(upstream.moves().now_or_never().is_none());
        assert!(search.takes_over(&server(2), 100).is_err());
        // From then on nobody hears of it, but for what was under way.
        assert!(upstream.moves().now_or_never().is_some());
        heard_ns.store(200, Relaxed);
        assert!(search.takes_over(&server(2), 200 + heard_for - 1).is_err());
        // There is yet another by then.
        assert!(search.takes_over(&server(3), 200 + heard_for).is_ok());
        search.is_at(server(3), None);

        // It has stood still for long.
        let late_ns = 5 * heard_for;
        assert!(search.takes_over(&server(1), late_ns).is_err(), "it may go on just now");
        assert!(search.takes_over(&server(1), late_ns + cut).is_ok());
        // It is the master still, and begins anew.
        search.is_at(server(3), None);
        assert!(search.takes_over(&server(1), late_ns + 2 * cut).is_err());

        search.is_demoted();
        assert!(search.takes_over(&server(1), late_ns + 2 * cut).is_err(), "it answers as before");
    }

    #[test]
    fn another_process_at_the_same_address_is_another_master() {
        let at = Server::given("redis://127.0.0.1:1".parse().unwrap());
        let dial = Dial::new(None, Duration::from_secs(1));
        let guide = Guide::Servers(vec![at.info.clone()]);
        let mut search = MasterSearch::new(guide, at.info.clone(), dial, Resolver::default());
        let session = |run_id: &str| {
            let info = format!("run_id:{run_id}\r\n");
            Session::in_answers(&[Value::Int(7), Value::BulkString(info.into())])
        };
        let upstream = Upstream::new(search.place(), search.dial.clone(), None, true);
        // (what it says of itself, whether connections of before count no more)
        let rows = [(Some("a"), false), (Some("a"), false), (None, false), (Some("b"), true)];
        for (run_id, moves) in rows {
            let mut before = upstream.anew();
            search.gives_up();
            let mut after = upstream.anew();
            search.is_at(at.clone(), run_id.and_then(session).as_ref());
            assert_eq!(before.moves().now_or_never().is_some(), moves, "{run_id:?}");
            assert_eq!(after.moves().now_or_never(), None, "it may be to the new one");
        }
    }
}
