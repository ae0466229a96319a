//! Redis's end of a connection: where it is, what it is to be sent, and what has come of its
//! answers.

use bytes::BytesMut;
use redis::{ConnectionAddr, Value};
use resp::ReplyScanner;

use crate::{backend::redis::Session, ports::Outlet};

/// A connection to Redis.
pub(super) struct MasterEnd {
    /// Where it is.
    pub at: ConnectionAddr,
    pub output: Outlet,
    /// What it has sent.
    pub input: BytesMut,
    pub scanner: ReplyScanner,
    /// The reply that is being read, as far as it is looked into.
    pub reply: Vec<u8>,
    /// The error that is being read, if the master is a node of a Redis Cluster.
    pub error: Vec<u8>,
    /// What Redis answered of this connection.
    own: Vec<Value>,
    /// What Redis knows it as, where that was asked otherwise.
    session: Option<Session>,
}

impl MasterEnd {
    /// To the Redis there, by TLS or not, on which nothing has been said.
    pub fn new(at: ConnectionAddr, is_secure: bool) -> MasterEnd {
        MasterEnd {
            at,
            output: Outlet::new(is_secure),
            input: BytesMut::new(),
            scanner: ReplyScanner::default(),
            reply: Vec::new(),
            error: Vec::new(),
            own: Vec::new(),
            session: None,
        }
    }

    /// The connection is one to another node from now on, which knows it so, and has answered
    /// nothing yet of what it is sent.
    pub fn move_to(&mut self, at: ConnectionAddr, session: Option<Session>) {
        self.at = at;
        self.session = session;
        self.input.clear();
        self.scanner = ReplyScanner::default();
        self.output.waits.clear();
    }

    /// The reply that was read answers a question of the port's own. An error answers none: it may
    /// be all that Redis says before it closes a connection for which it has no room. However often
    /// it is asked, no more is kept than what names it.
    pub fn note_own(&mut self) {
        if self.named().is_some() {
            return;
        }
        let value = redis::parse_redis_value(&self.reply).ok();
        self.own.extend(value.filter(|value| !matches!(value, Value::ServerError(_))));
        let old = self.own.len().saturating_sub(2);
        self.own.drain(..old);
    }

    /// Whether it has answered any of those.
    pub fn has_answered(&self) -> bool {
        !self.own.is_empty()
    }

    /// What Redis knows this connection as, if it has said so.
    pub fn named(&self) -> Option<Session> {
        if let Some(session) = &self.session {
            return Some(session.clone());
        }
        self.own.windows(2).rev().find_map(Session::in_answers)
    }
}
