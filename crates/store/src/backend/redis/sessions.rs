//! Connections that were given up: what a Redis has received on them it may still carry out, at any
//! time, over writes that were acknowledged since.
//!
//! So before anything else is asked of that Redis it is told to end them (CLIENT KILL, by the
//! number that it gave the connection and never gives again). When that is answered, no write whose
//! own answer was lost can take place any more, and nobody has to wait for a lease.
//!
//! Another process of Redis, told by its `run_id`, has never seen them: it is a server that was
//! started anew, or one that became the master, which takes nothing from the one before.

use redis::{ConnectionAddr, Pipeline, RedisResult, Value, aio::MultiplexedConnection};

use super::answers::{is_of_server, lost};

/// Sessions that are remembered: of more processes of Redis than come and go within a lease.
const MOST: usize = 64;

/// A connection, as the Redis at its other end knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Session {
    /// The process.
    run_id: String,
    id: i64,
}

impl Session {
    /// Of this connection. None: Redis does not say, or its user may not ask.
    ///
    /// # Errors
    /// It did not answer, or can answer nothing now.
    pub async fn of(connection: &mut MultiplexedConnection) -> anyhow::Result<Option<Session>> {
        let mut asked = redis::pipe();
        asked.cmd("CLIENT").arg("ID");
        asked.cmd("INFO").arg("server");
        let Some(answers) = answers(&mut asked, connection).await? else { return Ok(None) };
        Ok(Session::in_answers(&answers))
    }

    /// Whether another is one with the same process.
    pub fn is_with_same(&self, other: &Session) -> bool {
        self.run_id == other.run_id
    }

    /// By what it answered to CLIENT ID and INFO server.
    pub fn in_answers(answers: &[Value]) -> Option<Session> {
        let [Value::Int(id), info] = answers else { return None };
        let info: String = redis::from_redis_value(info.clone()).ok()?;
        let run_id = info.lines().find_map(|line| line.trim().strip_prefix("run_id:"))?;
        Some(Session { run_id: run_id.into(), id: *id })
    }
}

/// The connections that were given up, as far as they may still be carried out.
#[derive(Default)]
pub(super) struct FormerSessions {
    sessions: Vec<(ConnectionAddr, Session)>,
    /// Some cannot be named, so nothing can be said of all.
    unnamed: bool,
    /// Some are new since all were said to have ended.
    fresh: bool,
}

impl FormerSessions {
    /// One more, with a server there.
    pub fn add(&mut self, at: &ConnectionAddr, session: Option<Session>) {
        self.fresh = true;
        match session {
            Some(session) => {
                if self.sessions.len() == MOST {
                    self.sessions.remove(0);
                    // What it was asked may take place still, and nobody could say that it has not.
                    self.unnamed = true;
                }
                self.sessions.push((at.clone(), session));
            }
            None => self.unnamed = true,
        }
    }

    /// Has the Redis at the other end of a new connection end those that are its own. With that
    /// those are over that another process had which was there before. False: it does not say.
    ///
    /// # Errors
    /// It did not answer, or can answer nothing now.
    pub async fn end(
        &mut self,
        connection: &mut MultiplexedConnection,
        at: &ConnectionAddr,
        now: Option<&Session>,
    ) -> anyhow::Result<bool> {
        let Some(now) = now else { return Ok(false) };
        let mut asked = redis::pipe();
        for (_, session) in self.sessions.iter().filter(|(_, own)| own.run_id == now.run_id) {
            asked.cmd("CLIENT").arg("KILL").arg("ID").arg(session.id);
        }
        if !asked.is_empty() && answers(&mut asked, connection).await?.is_none() {
            return Ok(false);
        }
        self.sessions.retain(|(there, own)| own.run_id != now.run_id && there != at);
        Ok(true)
    }

    /// True: nothing that was asked on any of them can still take place, and something may have
    /// been since this was asked last. `counts`: a server whose data counts is there.
    pub fn are_over(&mut self, counts: impl Fn(&ConnectionAddr) -> bool) -> bool {
        let may = self.unnamed || self.sessions.iter().any(|(at, _)| counts(at));
        !may && std::mem::take(&mut self.fresh)
    }
}

/// What was answered; none if some of it was refused for good.
async fn answers(
    asked: &mut Pipeline,
    connection: &mut MultiplexedConnection,
) -> anyhow::Result<Option<Vec<Value>>> {
    asked.ignore_errors();
    let answers: Vec<RedisResult<Value>> = asked.query_async(connection).await.map_err(lost)?;
    let mut said = vec![];
    for answer in answers {
        match answer {
            Ok(value) => said.push(value),
            // What it may not do, or does not know, it will not do later. The rest passes.
            Err(error) if is_of_server(&error) && error.code() != Some("NOPERM") => {
                return Err(lost(error));
            }
            Err(_) => return Ok(None),
        }
    }
    Ok(Some(said))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_is_forgotten_is_never_said_to_be_over() {
        let at = |port| ConnectionAddr::Tcp("h".into(), port);
        let session = |id| Some(Session { run_id: "4e5f".into(), id });
        let mut former = FormerSessions::default();
        (0..=MOST as i64).for_each(|id| former.add(&at(if id == 0 { 1 } else { 2 }), session(id)));
        assert!(!former.are_over(|counts| *counts == at(1)));
    }

    #[test]
    fn a_session_is_a_number_in_a_process() {
        let info = |text: &str| Value::BulkString(text.into());
        let server = "# Server\r\nredis_version:8.0.2\r\nrun_id:4e5f\r\ntcp_port:6379\r\n";
        let session = Session { run_id: "4e5f".into(), id: 7 };
        assert_eq!(Session::in_answers(&[Value::Int(7), info(server)]), Some(session));
        for answers in [
            vec![Value::Int(7), info("# Server\r\n")],
            vec![Value::Okay, info(server)],
            vec![Value::Int(7)],
        ] {
            assert_eq!(Session::in_answers(&answers), None, "{answers:?}");
        }
    }
}
