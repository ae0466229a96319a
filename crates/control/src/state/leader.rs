//! Which controller leads, by an election in etcd.
//!
//! The leader's record is the key `leader`; it writes `alive` some times a second (see
//! [`super::heartbeat`]). Standbys look at both ten times a second. One that has seen neither a
//! heartbeat nor a write for [`Pace::silence`], while etcd answered it, writes `leader` anew, in a
//! transaction that compares all that it saw: a leader that gave a sign in the meantime stays. In
//! the same transaction the term rises, and from then on every transaction of the one before
//! is refused.
//!
//! The leader counts from the moment at which it sent a sign that etcd took, by its own monotonic
//! clock, and sends nothing any more a little before others may take its place: it stops before
//! another begins, if clocks run at the same speed. If they do not, or if its process stood still,
//! the term keeps what it sends and writes from having an effect.
//!
//! No lease of etcd's: the shortest that it gives is one and a half times its election timeout, two
//! seconds by default, and it looks for those that ran out twice a second.

use std::time::{Duration, Instant};

use etcd_client::{Client, Compare, CompareOp, Txn, TxnOp, TxnOpResponse, TxnResponse};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use super::{
    FORMAT, StateError,
    etcd::{Backoff, Etcd, Fault, REQUEST_WITHIN, WRITE_WITHIN},
    tenure::{Fence, Pace, Tenure},
};

/// From one look of a standby at the leader to the next.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// A controller that wants to lead.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// As people call it.
    pub name: String,
    /// Where its API is, for those who ask a standby.
    pub url: String,
}

/// A controller that leads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Leader {
    /// As people call it.
    pub name: String,
    /// Where its API is.
    pub url: String,
    /// Its term.
    pub term: u64,
}

impl Leader {
    pub(super) fn of(candidate: &Candidate, term: u64) -> Leader {
        Leader { name: candidate.name.clone(), url: candidate.url.clone(), term }
    }
}

/// Waits until this candidate leads; tells `seen` who leads meanwhile.
pub(super) async fn campaign(
    etcd: &Etcd,
    candidate: &Candidate,
    pace: Pace,
    seen: &watch::Sender<Option<Leader>>,
) -> Result<Tenure, StateError> {
    let (mut backoff, mut silence) = (Backoff::new(), Silence::default());
    let mut told = false;
    loop {
        let reason = match stand(etcd, candidate, pace, seen, &mut silence).await {
            Ok(Some(tenure)) => return Ok(tenure),
            Ok(None) => {
                if std::mem::take(&mut told) {
                    tracing::info!(etcd = %etcd.place(), "etcd answers again");
                }
                backoff = Backoff::new();
                continue;
            }
            Err(Stop::For(error)) => return Err(error),
            Err(Stop::Fault(Fault::Lasting(reason))) => return Err(etcd.refused(reason)),
            Err(Stop::Fault(fault)) => fault,
        };
        // An etcd that does not answer tells nothing about the leader.
        silence = Silence::default();
        if !std::mem::replace(&mut told, true) {
            tracing::warn!(etcd = %etcd.place(), "no leader can be elected, tried again until it works: {reason}");
        }
        backoff.wait().await;
    }
}

enum Stop {
    Fault(Fault),
    For(StateError),
}

impl From<Fault> for Stop {
    fn from(fault: Fault) -> Stop {
        Stop::Fault(fault)
    }
}

/// How long a standby has seen the same signs of life, while etcd answered.
#[derive(Default)]
struct Silence(Option<(Signs, Instant)>);

impl Silence {
    /// These are to be seen now; when they will have been for too long.
    fn over_at(&mut self, signs: Signs, pace: Pace, now: Instant) -> Instant {
        let same = self.0.filter(|(before, _)| *before == signs);
        let (_, since) = *self.0.insert(same.unwrap_or((signs, now)));
        since + pace.silence
    }
}

/// When a standby looks again that has just looked, and will have seen the same signs for too long
/// at `over_at`.
fn next_look(over_at: Instant, now: Instant) -> Instant {
    over_at.min(now + LOOK_EVERY)
}

/// One try: looks at the leader that is there, or tries to be it if there is none.
async fn stand(
    etcd: &Etcd,
    candidate: &Candidate,
    pace: Pace,
    seen: &watch::Sender<Option<Leader>>,
    silence: &mut Silence,
) -> Result<Option<Tenure>, Stop> {
    let view = look(etcd).await?;
    if let Some(found) = view.format
        && found != FORMAT.to_string()
    {
        let place = etcd.place().to_string();
        return Err(Stop::For(StateError::Format { place, found }));
    }
    seen.send_if_modified(|seen| {
        let changed = *seen != view.leader;
        seen.clone_from(&view.leader);
        changed
    });
    let now = Instant::now();
    let over_at = silence.over_at(view.signs, pace, now);
    if view.signs.leader > 0 && now < over_at {
        tokio::time::sleep_until(next_look(over_at, now).into()).await;
        return Ok(None);
    }
    let tenure = elect(etcd, candidate, pace, view.term, view.signs).await?;
    if let Some(tenure) = &tenure {
        seen.send_replace(Some(Leader::of(candidate, tenure.term)));
    }
    Ok(tenure)
}

/// The revisions in which the election's keys were written last; 0: they are not there. As long as
/// they are the same the leader gave no sign of life.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Signs {
    leader: i64,
    alive: i64,
    written: i64,
    term: i64,
}

/// What etcd says about the election.
#[derive(Default)]
struct View {
    signs: Signs,
    /// Who leads, if the record can be read.
    leader: Option<Leader>,
    /// The last term.
    term: u64,
    format: Option<String>,
}

async fn look(etcd: &Etcd) -> Result<View, Fault> {
    let names = ["leader", "alive", "written", "term", "format"];
    let txn = Txn::new().and_then(names.map(|name| TxnOp::get(etcd.key(name), None)));
    let get = |mut client: Client| async move { client.txn(txn).await };
    let answer = etcd.ask(REQUEST_WITHIN, get).await?;
    let mut view = View::default();
    for (name, got) in names.iter().zip(answer.op_responses()) {
        let TxnOpResponse::Get(got) = got else { continue };
        let Some(row) = got.kvs().first() else { continue };
        let text = String::from_utf8_lossy(row.value());
        let revision = row.mod_revision();
        match *name {
            "leader" => {
                view.signs.leader = revision;
                view.leader = serde_json::from_str(&text).ok();
            }
            "alive" => view.signs.alive = revision,
            "written" => view.signs.written = revision,
            "term" => {
                view.signs.term = revision;
                let wrong = || Fault::Lasting(format!("{} is no number", etcd.key("term")));
                view.term = text.parse().map_err(|_| wrong())?;
            }
            _ => view.format = Some(text.into()),
        }
    }
    Ok(view)
}

fn revision_of(answer: &TxnResponse) -> Result<i64, Fault> {
    let header = answer.header();
    header
        .map(|header| header.revision())
        .ok_or_else(|| Fault::Passing("an answer without revision".into()))
}

/// Tries to be the leader after the one of `last_term`; `None` if another was faster, or the leader
/// gave a sign of life.
async fn elect(
    etcd: &Etcd,
    candidate: &Candidate,
    pace: Pace,
    last_term: u64,
    signs: Signs,
) -> Result<Option<Tenure>, Fault> {
    let asked = Instant::now();
    let term = last_term + 1;
    let leader = Leader::of(candidate, term);
    let record = serde_json::to_vec(&leader).expect("plain data is always valid JSON");
    let as_seen = [
        ("leader", signs.leader),
        ("alive", signs.alive),
        ("written", signs.written),
        ("term", signs.term),
    ];
    let txn = Txn::new()
        .when(as_seen.map(|(name, revision)| {
            Compare::mod_revision(etcd.key(name), CompareOp::Equal, revision)
        }))
        .and_then([
            TxnOp::put(etcd.key("leader"), record, None),
            TxnOp::put(etcd.key("term"), term.to_string(), None),
            TxnOp::put(etcd.key("written"), "0", None),
            TxnOp::put(etcd.key("format"), FORMAT.to_string(), None),
        ]);
    let elect = |mut client: Client| async move { client.txn(txn).await };
    // If there is no answer we may have been elected, and do not know since when: we are silent
    // then, and replaced.
    let answer = etcd.ask(WRITE_WITHIN, elect).await?;
    if !answer.succeeded() {
        return Ok(None);
    }
    let fence = Fence { leader_since: revision_of(&answer)?, heard: asked };
    Ok(Some(Tenure::limited(term, pace, fence)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A standby that looks in no time: when it would be elected, after a leader whose last signs
    /// it sees first at its first look.
    fn elected_after(signs_at: impl Fn(Duration) -> i64) -> Duration {
        let (began, pace, mut silence) = (Instant::now(), Pace::DEFAULT, Silence::default());
        let mut now = began;
        loop {
            let signs = Signs { leader: 1, alive: signs_at(now - began), ..Signs::default() };
            let over_at = silence.over_at(signs, pace, now);
            if now >= over_at {
                return now - began;
            }
            let next = next_look(over_at, now);
            assert!(next > now && next - now <= LOOK_EVERY);
            now = next;
        }
    }

    #[test]
    fn a_silent_leader_is_replaced_no_later_than_a_look_after_its_time() {
        let silence = Pace::DEFAULT.silence;
        assert_eq!(elected_after(|_| 7), silence);
        // The last sign came just after a look: the next one sees it.
        let ms = |time: Duration| time.as_millis() as i64;
        let last = Duration::from_millis(501);
        let after = elected_after(|at| ms(at.min(last)));
        assert!((last + silence..=last + silence + LOOK_EVERY).contains(&after));
    }
}
