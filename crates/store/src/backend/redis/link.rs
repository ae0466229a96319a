//! One connection to a Redis that is a master: how it is made, and what is asked on it now and
//! then.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use anyhow::{Context, anyhow};
use redis::{
    AsyncConnectionConfig, ConnectionAddr, ConnectionInfo, ErrorKind, ProtocolVersion, PushInfo,
    PushKind, RedisError, RedisResult, Value, aio::MultiplexedConnection,
};
use tokio::task::JoinSet;

use super::{
    answers::{is_of_server, words_of},
    dial::Dial,
    notices::tell,
    role::{Role, role_of},
    sessions::Session,
};
use crate::{
    backend::remote::{Completions, HEARTBEAT},
    clock::boot_ns,
};

/// A Redis that cannot track outside writes is asked again so often whether it can.
const TRACK_AGAIN: Duration = Duration::from_secs(10);

/// A server that was connected to.
pub(super) enum Contact {
    Master(Link),
    /// Not for us: its master is there.
    ReplicaOf(ConnectionAddr),
}

/// A connection to a master.
pub(super) struct Link {
    pub connection: MultiplexedConnection,
    /// What Redis knows it as, if it says so.
    pub session: Option<Session>,
    /// Why it does not tell of outside writes, if it was to.
    pub untracked: Option<String>,
    /// It could tell, as far as the connection goes.
    tells: bool,
    /// The other end has closed it.
    gone: Arc<AtomicBool>,
    /// When it was asked last for its role, and to track.
    asked_ns: u64,
    tried_ns: u64,
    /// Carries what is said by TLS; it ends with the link.
    _carries: JoinSet<()>,
}

impl Link {
    /// Whether the other end is known to have closed it: nothing is to be sent on it.
    pub fn is_gone(&self) -> bool {
        self.gone.load(Relaxed)
    }

    /// Whether it is to be asked for its role.
    pub fn is_due(&self, now_ns: u64) -> bool {
        now_ns >= self.asked_ns + HEARTBEAT.as_nanos() as u64
    }

    /// It was.
    pub fn asked(&mut self, now_ns: u64) {
        self.asked_ns = now_ns;
    }

    /// Whether it does not track outside writes, and may have learnt to.
    pub fn may_track_now(&self, now_ns: u64) -> bool {
        let again_ns = self.tried_ns + TRACK_AGAIN.as_nanos() as u64;
        self.tells && self.untracked.is_some() && now_ns >= again_ns
    }

    /// Has it tell of outside writes from now on; whether it does.
    ///
    /// # Errors
    /// It did not answer, or says that it can answer nothing now.
    pub async fn track(&mut self) -> anyhow::Result<bool> {
        self.tried_ns = boot_ns();
        let mut asked = redis::pipe();
        asked.ignore_errors();
        asked.cmd("CLIENT").arg("TRACKING").arg("ON").arg("OPTIN");
        asked.cmd("CLIENT").arg("CACHING").arg("YES");
        // That was about the command behind it: no key's.
        asked.cmd("PING");
        let answers: Vec<RedisResult<Value>> = asked
            .query_async(&mut self.connection)
            .await
            .map_err(|error| anyhow!("CLIENT TRACKING: {}", words_of(&error)))?;
        self.untracked = None;
        for error in answers.into_iter().take(2).filter_map(Result::err) {
            let why = format!("CLIENT TRACKING: {}", words_of(&error));
            // What it may not do, or does not know, it cannot. The rest passes.
            if is_of_server(&error) && error.code() != Some("NOPERM") {
                return Err(anyhow!(why));
            }
            self.untracked.get_or_insert(why);
        }
        Ok(self.untracked.is_none())
    }
}

/// Connects to a server, and asks what it is. It has `within` for each answer.
///
/// # Errors
/// Nobody answers there, or not as a Redis with data does.
pub(super) async fn open(
    info: &ConnectionInfo,
    told: Option<&Completions>,
    dial: &Dial,
) -> anyhow::Result<Contact> {
    let at = info.addr();
    let failed = |error: RedisError| {
        // The error's text holds its cause already.
        let hint = match error.code() {
            Some("NOAUTH") => ": it wants a password (--backend-password-file)",
            Some("WRONGPASS") => ": the password is wrong, or the user is unknown",
            _ => "",
        };
        anyhow!("cannot connect to Redis at {at}{hint}: {}", words_of(&error))
    };
    // A batch begins before its commands, and so ends no later; this is for what is said before
    // there are any.
    let plain = dial.times();
    let gone = Arc::new(AtomicBool::new(false));
    let mut untracked = None;
    let mut made = None;
    if let Some(told) = told.cloned() {
        let gone = gone.clone();
        let config = plain.clone().set_push_sender(move |message: PushInfo| {
            gone.fetch_or(message.kind == PushKind::Disconnection, Relaxed);
            tell(message, &told)
        });
        match connect(dial, info, ProtocolVersion::RESP3, &config).await {
            Ok(connection) => made = Some(connection),
            Err(error) if may_know_less(&error) => untracked = Some(error),
            Err(error) => return Err(failed(error)),
        }
    }
    let tells = made.is_some();
    let (mut connection, carries) = match made {
        Some(made) => made,
        None => connect(dial, info, ProtocolVersion::RESP2, &plain).await.map_err(failed)?,
    };
    match (role_of(&mut connection).await.map_err(failed)?, &untracked) {
        (Role::Replica(host, port), _) => {
            return Ok(Contact::ReplicaOf(ConnectionAddr::Tcp(host, port)));
        }
        (Role::Sentinel, _) => {
            return Err(anyhow!(
                "at {at} is a Sentinel: expected --backend redis+sentinel://{at}/NAME, with the master's name"
            ));
        }
        // A Redis does not hang up on who says HELLO: it was about to go, or to come.
        (Role::Master, Some(error)) if error.is_connection_dropped() => {
            return Err(anyhow!("Redis at {at} has closed the connection"));
        }
        (Role::Master | Role::Unsaid, _) => {}
    }
    let untracked = untracked.map(|error| format!("HELLO 3: {}", words_of(&error)));
    let asked_ns = boot_ns();
    let mut link = Link {
        connection,
        session: None,
        untracked,
        tells,
        gone,
        asked_ns,
        tried_ns: asked_ns,
        _carries: carries,
    };
    if tells {
        link.track().await.with_context(|| format!("Redis at {at}"))?;
        // A proxy may pass what is asked on by any of its connections: those do not get so far.
        let session = Session::of(&mut link.connection).await;
        link.session = session.with_context(|| format!("Redis at {at}"))?;
    }
    Ok(Contact::Master(link))
}

/// Whether this answer to HELLO 3 may be that of a server which is too old to tell of anything, or
/// of a proxy.
fn may_know_less(error: &RedisError) -> bool {
    let is_answer = error.code().is_some() && !is_of_server(error);
    let is_refused = error.is_connection_refusal();
    error.kind() == ErrorKind::RESP3NotSupported
        || is_answer
        || error.is_connection_dropped() && !is_refused
}

async fn connect(
    dial: &Dial,
    info: &ConnectionInfo,
    protocol: ProtocolVersion,
    config: &AsyncConnectionConfig,
) -> RedisResult<(MultiplexedConnection, JoinSet<()>)> {
    let mut settings = info.redis_settings().clone().set_protocol(protocol);
    if protocol == ProtocolVersion::RESP2 {
        // Answers to this are not looked at, and what a server says that closes the connection at
        // once would be taken for one.
        settings = settings.set_skip_set_lib_name();
    }
    dial.connection_with(info.clone().set_redis_settings(settings), config).await
}
