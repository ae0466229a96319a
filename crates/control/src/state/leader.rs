//! Which controller leads, by an election in etcd.
//!
//! A candidate takes a lease of [`Fence::LEASE`] and makes the key `leader` under it, if it is not there. In the same
//! transaction the term rises. The leader renews the lease three times in its length; if it does not for any
//! reason, etcd removes the key, and the candidates that watch it try at once.
//!
//! The leader counts the lease from before it asked for it or for its renewal, by its own monotonic clock, and gives
//! up [`MARGIN`] before etcd can have ended it. So it stops before another begins, if clocks run at the same speed
//! within that margin; if they do not, the term keeps what it sends and writes from having an effect.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use etcd_client::{
    Client, Compare, CompareOp, EventType, PutOptions, Txn, TxnOp, TxnOpResponse, TxnResponse,
    WatchOptions,
};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use super::{
    FORMAT, StateError,
    etcd::{Backoff, Etcd, Fault, REQUEST_WITHIN, WRITE_WITHIN},
    tenure::{Fence, MARGIN, Tenure},
};

/// A standby looks again after this time even if its watch told nothing: its connection may hang.
const LOOK_AGAIN: Duration = Duration::from_secs(3);

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
        Leader {
            name: candidate.name.clone(),
            url: candidate.url.clone(),
            term,
        }
    }
}

/// Renews the lease of a tenure until it ends, then gives the lease back.
pub(super) async fn keep(etcd: Arc<Etcd>, tenure: Arc<Tenure>) {
    let Some(Fence { lease, .. }) = tenure.fence() else {
        return;
    };
    tokio::select! {
        why = renew(&etcd, &tenure, lease) => tenure.end(&why),
        () = tenure.lost() => {}
    }
    revoke(&etcd, lease).await;
}

/// Renews as long as it can; why it no longer can.
async fn renew(etcd: &Etcd, tenure: &Tenure, lease: i64) -> String {
    let mut backoff = Backoff::new();
    let mut last = "it was not renewed in time".to_string();
    while let Some(fence) = tenure.fence() {
        let sent = Instant::now();
        if sent >= fence.ends {
            break;
        }
        let request = async {
            let renew = |mut client: Client| async move { client.lease_keep_alive(lease).await };
            etcd.ask(REQUEST_WITHIN, renew).await
        };
        match tokio::time::timeout_at(fence.ends.into(), request).await {
            Ok(Ok(_)) => {
                tenure.renewed(sent);
                backoff = Backoff::new();
                tokio::time::sleep_until((sent + fence.length / 3).into()).await;
            }
            Ok(Err(Fault::NoLease)) => return "etcd says that its lease ran out".into(),
            Ok(Err(fault)) => {
                last = fault.to_string();
                let wait = tokio::time::timeout_at(fence.ends.into(), backoff.wait());
                // Its end is seen at the loop's begin.
                let _ = wait.await;
            }
            Err(_) => break,
        }
    }
    format!("its lease runs out: {last}")
}

/// Gives a lease back, so that others need not wait for its end. If it cannot, they do.
async fn revoke(etcd: &Etcd, lease: i64) {
    for _ in 0..2 {
        let revoke = |mut client: Client| async move { client.lease_revoke(lease).await };
        match etcd.ask(REQUEST_WITHIN, revoke).await {
            Err(Fault::Passing(_)) => {}
            _ => return,
        }
    }
}

/// Waits until this candidate leads; tells `seen` who leads meanwhile.
pub(super) async fn campaign(
    etcd: &Etcd,
    candidate: &Candidate,
    seen: &watch::Sender<Option<Leader>>,
) -> Result<Tenure, StateError> {
    let mut backoff = Backoff::new();
    let mut told = false;
    loop {
        let reason = match stand(etcd, candidate, seen).await {
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

/// One try: waits until the leader that is there is gone, or tries to be it if there is none.
async fn stand(
    etcd: &Etcd,
    candidate: &Candidate,
    seen: &watch::Sender<Option<Leader>>,
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
    if view.led {
        until_gone(etcd, view.revision + 1).await?;
        return Ok(None);
    }
    let tenure = elect(etcd, candidate, view.term, view.term_revision).await?;
    if let Some(tenure) = &tenure {
        seen.send_replace(Some(Leader::of(candidate, tenure.term)));
    }
    Ok(tenure)
}

/// What etcd says about the election.
#[derive(Default)]
struct View {
    revision: i64,
    /// Whether there is a leader.
    led: bool,
    /// It, if its record can be read.
    leader: Option<Leader>,
    /// The last term.
    term: u64,
    /// The revision in which it was written.
    term_revision: i64,
    format: Option<String>,
}

async fn look(etcd: &Etcd) -> Result<View, Fault> {
    let names = ["leader", "term", "format"];
    let txn = Txn::new().and_then(names.map(|name| TxnOp::get(etcd.key(name), None)));
    let get = |mut client: Client| async move { client.txn(txn).await };
    let answer = etcd.ask(REQUEST_WITHIN, get).await?;
    let mut view = View {
        revision: revision_of(&answer)?,
        ..View::default()
    };
    for (name, got) in names.iter().zip(answer.op_responses()) {
        let TxnOpResponse::Get(got) = got else {
            continue;
        };
        let Some(row) = got.kvs().first() else {
            continue;
        };
        let text = String::from_utf8_lossy(row.value());
        match *name {
            "leader" => {
                view.led = true;
                view.leader = serde_json::from_str(&text).ok();
            }
            "term" => {
                view.term_revision = row.mod_revision();
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

/// Done when the leader's key is removed, or may have been.
async fn until_gone(etcd: &Etcd, from_revision: i64) -> Result<(), Fault> {
    let key = etcd.key("leader");
    let options = WatchOptions::new().with_start_revision(from_revision);
    let watch = |mut client: Client| async move { client.watch(key, Some(options)).await };
    let mut stream = etcd.ask(REQUEST_WITHIN, watch).await?;
    let gone = async {
        while let Some(message) = stream.message().await? {
            let removed = |e: &etcd_client::Event| e.event_type() == EventType::Delete;
            if message.events().iter().any(removed) {
                return Ok(());
            }
            if message.canceled() {
                return Err(Fault::Passing(format!(
                    "watch ended: {}",
                    message.cancel_reason()
                )));
            }
        }
        Err(Fault::Passing("watch ended".into()))
    };
    tokio::time::timeout(LOOK_AGAIN, gone)
        .await
        .unwrap_or(Ok(()))
}

/// Tries to be the leader after the one of `last_term`; `None` if another was faster.
async fn elect(
    etcd: &Etcd,
    candidate: &Candidate,
    last_term: u64,
    term_revision: i64,
) -> Result<Option<Tenure>, Fault> {
    let asked = Instant::now();
    let seconds = Fence::LEASE.as_secs() as i64;
    let grant = |mut client: Client| async move { client.lease_grant(seconds, None).await };
    let granted = etcd.ask(WRITE_WITHIN, grant).await?;
    let lease = granted.id();
    let length = Duration::from_secs(granted.ttl().max(1) as u64);

    let term = last_term + 1;
    let leader = Leader::of(candidate, term);
    let record = serde_json::to_vec(&leader).expect("plain data is always valid JSON");
    let txn = Txn::new()
        .when([
            Compare::create_revision(etcd.key("leader"), CompareOp::Equal, 0),
            Compare::mod_revision(etcd.key("term"), CompareOp::Equal, term_revision),
        ])
        .and_then([
            TxnOp::put(
                etcd.key("leader"),
                record,
                Some(PutOptions::new().with_lease(lease)),
            ),
            TxnOp::put(etcd.key("term"), term.to_string(), None),
            TxnOp::put(etcd.key("written"), "0", None),
            TxnOp::put(etcd.key("format"), FORMAT.to_string(), None),
        ]);
    let elect = |mut client: Client| async move { client.txn(txn).await };
    let elected = etcd.ask(WRITE_WITHIN, elect).await;
    if let Ok(answer) = &elected
        && answer.succeeded()
    {
        let fence = Fence {
            leader_since: revision_of(answer)?,
            lease,
            length,
            ends: asked + length - MARGIN,
        };
        return Ok(Some(Tenure::limited(term, fence)));
    }
    // Also if there was no answer: we may have been elected, but do not know since when.
    revoke(etcd, lease).await;
    elected.map(|_| None)
}
