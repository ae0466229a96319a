//! Connections to the master that are not the store's own: those of clients of its RESP port, what
//! commands the master has, and the end of a connection that was given up.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, anyhow, bail};
use redis::{ConnectionAddr, ConnectionInfo, Value, aio::MultiplexedConnection};
use resp::CommandTable;
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{sleep, timeout},
};

use super::{
    address::node_at,
    dial::{Dial, Reader, Writer},
    masters::Masters,
    names::Server,
    role::{Role, role_of},
    sessions::{FormerSessions, Session},
};
use crate::{clock::boot_ns, slot_map::NodeAddress};

/// How long it may take until a node that others name is on the map of the cluster, which is read
/// every second.
const KNOWN_WITHIN: Duration = Duration::from_secs(3);
/// From one attempt to have a connection ended to the next.
const RETRY: Duration = Duration::from_millis(100);

/// Where the master is, as the store knows.
#[derive(Clone)]
pub(super) struct MasterPlace {
    pub server: Server,
    /// Another one is the master by now, and is being looked for: nothing is to be asked here.
    pub was_left: bool,
    /// Connections that were begun before then are none to it.
    pub since: Instant,
    /// When clients of the RESP port heard of it last, or of one before.
    pub heard_ns: Arc<AtomicU64>,
}

/// Where the master is.
#[derive(Clone)]
pub(crate) struct Upstream {
    master: watch::Receiver<MasterPlace>,
    heard_ns: Arc<AtomicU64>,
    /// When a connection to it was begun: see [`Upstream::anew`].
    begun: Instant,
    dial: Dial,
    /// How long it has for an answer.
    within: Duration,
    /// Where all masters are, if it is a node of a Redis Cluster.
    masters: Option<watch::Receiver<Masters>>,
    is_tracked: bool,
}

impl Upstream {
    pub(super) fn new(
        master: watch::Receiver<MasterPlace>,
        dial: Dial,
        masters: Option<watch::Receiver<Masters>>,
        is_tracked: bool,
    ) -> Upstream {
        let within = dial.within;
        let heard_ns = master.borrow().heard_ns.clone();
        Upstream { master, heard_ns, begun: Instant::now(), dial, within, masters, is_tracked }
    }

    /// One node of a Redis Cluster, by itself.
    #[cfg(test)]
    pub fn of_node(at: &NodeAddress) -> Upstream {
        let info = format!("redis://{at}").parse().expect("an address");
        let place = MasterPlace {
            server: Server::given(info),
            was_left: false,
            since: Instant::now(),
            heard_ns: Arc::default(),
        };
        let dial = Dial::new(None, Duration::from_secs(90));
        let masters = watch::channel(Masters::default()).1;
        Upstream::new(watch::channel(place).1, dial, Some(masters), true)
    }

    /// Whether the store is told of what is written in it under keys that nobody has held.
    pub fn is_tracked(&self) -> bool {
        self.is_tracked
    }

    /// Whether it is a node of a Redis Cluster, which names others that have a key.
    pub fn is_cluster(&self) -> bool {
        self.masters.is_some()
    }

    /// Whether a master is there, as far as that is known; for a while one that is on no map yet.
    fn may_be_master(&self, at: &ConnectionAddr, since: Instant) -> bool {
        let Some(masters) = self.masters.as_ref().map(watch::Receiver::borrow) else { return true };
        let may_come = since.elapsed() < KNOWN_WITHIN;
        node_at(at).is_none_or(|at| !masters.had(&at) && (masters.know(&at) || may_come))
    }

    /// Whether it is reached by TLS: what was written waits until it is flushed.
    pub fn is_secure(&self) -> bool {
        self.dial.connector.is_some()
    }

    /// Waits until a node of the Redis Cluster is none of its masters. One that has just come may
    /// be named before it is on the map.
    pub async fn ceases(&self, at: &NodeAddress) {
        let Some(mut masters) = self.masters.clone() else { return std::future::pending().await };
        let is_known = masters.wait_for(|masters| masters.know(at));
        if timeout(KNOWN_WITHIN, is_known).await.is_err() {
            return;
        }
        if masters.wait_for(|masters| masters.had(at)).await.is_err() {
            std::future::pending().await
        }
    }

    /// How long it has for an answer.
    pub fn within(&self) -> Duration {
        self.within
    }

    /// Where it is now.
    pub fn address(&self) -> ConnectionAddr {
        self.master.borrow().server.at().clone()
    }

    fn info(&self) -> ConnectionInfo {
        self.master.borrow().server.info.clone()
    }

    /// How the server there is reached.
    fn dial(&self, at: &ConnectionAddr) -> Dial {
        let place = self.master.borrow();
        self.dial.named(place.server.name.as_ref().filter(|_| place.server.at() == at))
    }

    /// The same, for a connection that is begun now.
    pub fn anew(&self) -> Upstream {
        Upstream { begun: Instant::now(), ..self.clone() }
    }

    /// A client hears something of it now, by which it may know who is the master.
    pub fn is_heard(&self) {
        self.heard_ns.store(boot_ns(), Relaxed);
    }

    /// Waits until the master is another than when the connection was begun.
    pub async fn moves(&mut self) {
        let begun = self.begun;
        if self.master.wait_for(|place| begun <= place.since).await.is_err() {
            std::future::pending().await
        }
    }

    /// The database that has the store's data.
    pub fn database(&self) -> i64 {
        self.info().redis_settings().db()
    }

    /// A connection on which nothing has been said, to the server there.
    ///
    /// # Errors
    /// Nobody answers there, or nobody who is believed; or it is the master no more.
    pub async fn open(&self, at: &ConnectionAddr) -> anyhow::Result<(Reader, Writer)> {
        if self.master.borrow().was_left && *at == self.address() {
            bail!("another Redis than that at {at} is the master now");
        }
        let opened = self.dial(at).halves(at).await;
        opened.map_err(|error| anyhow!("cannot connect to Redis at {at}: {error}"))
    }

    /// The commands that it has.
    ///
    /// # Errors
    /// It does not answer, or does not say.
    pub async fn commands(&self) -> anyhow::Result<CommandTable> {
        let ask = async {
            let (mut connection, _carries) = self.connect(self.info()).await?;
            let answer: Value = redis::cmd("COMMAND").query_async(&mut connection).await?;
            Ok(CommandTable::of(&answer)?)
        };
        timeout(self.within, ask).await.context("COMMAND: no answer")?
    }

    /// Whether it knows a command by this name, whatever COMMAND calls it.
    ///
    /// # Errors
    /// It does not answer.
    pub async fn knows_command(&self, name: &[u8]) -> anyhow::Result<bool> {
        let ask = async {
            let (mut connection, _carries) = self.connect(self.info()).await?;
            let mut info = redis::cmd("COMMAND");
            info.arg("INFO").arg(name);
            let answer: Vec<Value> = info.query_async(&mut connection).await?;
            Ok(answer.iter().any(|row| *row != Value::Nil))
        };
        timeout(self.within, ask).await.context("COMMAND INFO: no answer")?
    }

    /// Has a connection to the server there ended on which something was asked that has not been
    /// answered, however long that takes. True: it can take place no more. False: Redis does not
    /// say.
    pub async fn end(&self, session: Option<Session>, at: &ConnectionAddr) -> bool {
        let mut former = FormerSessions::default();
        if session.is_none() {
            return false;
        }
        former.add(at, session);
        let since = Instant::now();
        loop {
            // Another master has its data by now.
            if !self.may_be_master(at, since) {
                return true;
            }
            let end = async {
                let info = self.info_of(at);
                let at = info.addr().clone();
                let (mut connection, _carries) = self.connect(info).await?;
                let now = Session::of(&mut connection).await?;
                former.end(&mut connection, &at, now.as_ref()).await
            };
            match timeout(self.within, end).await {
                Ok(Ok(is_over)) => return is_over,
                Ok(Err(error)) => tracing::debug!("a connection is to be ended: {error:#}"),
                Err(_) => {}
            }
            sleep(RETRY).await;
        }
    }

    /// Whether a connection that has been closed was one with the process that is the master there
    /// now: a command has ended it then, or a limit of Redis's. False: it was not, or that is not
    /// said.
    pub async fn has_closed(&self, session: &Session, at: &ConnectionAddr) -> bool {
        let ask = async {
            let (mut connection, _carries) = self.connect(self.info_of(at)).await?;
            let now = Session::of(&mut connection).await?;
            let is_same = now.is_some_and(|now| now.is_with_same(session));
            anyhow::Ok(is_same && role_of(&mut connection).await? == Role::Master)
        };
        matches!(timeout(self.within, ask).await, Ok(Ok(true)))
    }

    /// Whether the server there answers somebody else, so that it is in the midst of no command,
    /// as of a script. False: it does not, or says that it is.
    pub async fn answers(&self, at: &ConnectionAddr) -> bool {
        let ask = async {
            let (mut connection, _carries) = self.connect(self.info_of(at)).await?;
            Session::of(&mut connection).await
        };
        matches!(timeout(self.within, ask).await, Ok(Ok(_)))
    }

    /// What is said to the server there: to that of a cluster what is said to each. There is but
    /// one otherwise.
    fn info_of(&self, at: &ConnectionAddr) -> ConnectionInfo {
        match self.is_cluster() {
            true => self.info().set_addr(at.clone()),
            false => self.info(),
        }
    }

    async fn connect(
        &self,
        info: ConnectionInfo,
    ) -> redis::RedisResult<(MultiplexedConnection, JoinSet<()>)> {
        let dial = self.dial(info.addr());
        dial.connection(info).await
    }
}
