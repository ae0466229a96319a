//! The state in etcd, and how its servers are reached.
//!
//! Under the prefix: `rows/KEY` the rows, `leader` who leads, `alive` its heartbeat, `term` the
//! last term, `format`. Every write is a transaction that compares the revision in which `leader`
//! was written: once another leads, it writes nothing. It also compares and sets `written`, the
//! number of the leader's last transaction, so that each is carried out once and in order, however
//! often it is sent.
//!
//! One server is asked at a time, and the next one after it failed or did not answer in time.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use etcd_client::{
    Certificate, Client, Compare, CompareOp, ConnectOptions, Error, GetOptions, Identity,
    TlsOptions, Txn, TxnOp, TxnOpResponse, TxnResponse,
};
use tonic::Code;

use super::{
    Batch, LoadedState, StateError,
    batch::Transaction,
    tenure::{Fence, Pace, Tenure, Writes},
    url::{Servers, TlsFiles},
};

/// How long one request may take.
pub(super) const REQUEST_WITHIN: Duration = Duration::from_millis(800);
/// How long one that waits for the disks of etcd may take.
pub(super) const WRITE_WITHIN: Duration = Duration::from_millis(1500);
/// Rows of one page; fewer if they are long.
const PAGE: i64 = 2000;
const BACKOFF_FIRST: Duration = Duration::from_millis(50);
const BACKOFF_MAX: Duration = Duration::from_secs(1);

/// Why etcd did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub(super) enum Fault {
    /// It cannot be reached or cannot do it now. It may have been done all the same.
    #[error("{0}")]
    Passing(String),
    /// It will not do it.
    #[error("{0}")]
    Lasting(String),
    /// The answer is too long.
    #[error("the answer is too long")]
    TooLong,
}

impl From<Error> for Fault {
    fn from(error: Error) -> Fault {
        use Code::*;
        let status = match error {
            Error::GRpcStatus(status) => status,
            other => return Fault::Passing(other.to_string()),
        };
        let reason = reason(&status);
        match status.code() {
            OutOfRange => Fault::TooLong,
            InvalidArgument | PermissionDenied | Unauthenticated | FailedPrecondition
            | Unimplemented => Fault::Lasting(reason),
            _ => Fault::Passing(reason),
        }
    }
}

/// What a status says, and what is below it: "transport error" alone helps nobody.
fn reason(status: &tonic::Status) -> String {
    let first: Option<&dyn std::error::Error> = std::error::Error::source(status);
    match std::iter::successors(first, |e| e.source()).last() {
        Some(cause) => format!("{}: {cause}", status.message()),
        None => status.message().to_string(),
    }
}

/// Waits longer from one failure to the next, never two controllers in step.
pub(super) struct Backoff(Duration);

impl Backoff {
    pub(super) fn new() -> Backoff {
        Backoff(BACKOFF_FIRST)
    }

    pub(super) async fn wait(&mut self) {
        tokio::time::sleep(self.0.mul_f64(rand::random_range(0.5..1.0))).await;
        self.0 = (2 * self.0).min(BACKOFF_MAX);
    }
}

/// The servers of a cluster.
pub(super) struct Etcd {
    place: Servers,
    clients: Vec<Mutex<Client>>,
    /// The server that is asked next; counts on beyond their number.
    turn: AtomicUsize,
}

impl Etcd {
    /// Connects when it is first used.
    pub(super) async fn new(place: &Servers) -> Result<Etcd, StateError> {
        let mut clients = Vec::new();
        for server in &place.servers {
            clients.push(Mutex::new(connect(place, server).await?));
        }
        Ok(Etcd { place: place.clone(), clients, turn: AtomicUsize::new(0) })
    }

    /// The servers and the prefix, for messages.
    pub(super) fn place(&self) -> &Servers {
        &self.place
    }

    /// Our key of this name.
    pub(super) fn key(&self, name: &str) -> String {
        format!("{}/{name}", self.place.prefix)
    }

    /// One request to one server.
    pub(super) async fn ask<T, F>(
        &self,
        within: Duration,
        request: impl FnOnce(Client) -> F,
    ) -> Result<T, Fault>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let turn = self.turn.load(Ordering::Relaxed);
        let place = turn % self.clients.len();
        let client = self.lock(place).clone();
        let fault = match tokio::time::timeout(within, request(client)).await {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(e)) => Fault::from(e),
            Err(_) => Fault::Passing(format!("no answer within {} ms", within.as_millis())),
        };
        match fault {
            Fault::Passing(mut reason) => {
                // Its connection may hang, for a quarter of an hour as TCP goes; or it was refused,
                // because the certificates are others by now. A new one is begun with what the
                // files say.
                match connect(&self.place, &self.place.servers[place]).await {
                    Ok(fresh) => *self.lock(place) = fresh,
                    Err(e) => reason += &format!("; {e}"),
                }
                // Of several requests that fail together one moves on.
                let _ = self.turn.compare_exchange(
                    turn,
                    turn.wrapping_add(1),
                    Ordering::Relaxed,
                    Ordering::Relaxed,
                );
                let server = &self.place.servers[place];
                Err(Fault::Passing(format!("{server}: {reason}")))
            }
            other => Err(other),
        }
    }

    fn lock(&self, place: usize) -> std::sync::MutexGuard<'_, Client> {
        self.clients[place].lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    pub(super) fn refused(&self, reason: String) -> StateError {
        StateError::Refused { place: self.place.to_string(), reason }
    }

    /// Reads all rows, and tries again as long as this controller may lead.
    pub(super) async fn load(&self, tenure: &Tenure) -> Result<LoadedState, StateError> {
        let mut backoff = Backoff::new();
        loop {
            match self.snapshot(tenure.pace).await {
                Ok((rows, _)) => return Ok(rows),
                Err(Fault::Lasting(reason)) => return Err(self.refused(reason)),
                Err(fault) => {
                    tracing::debug!("rows not read: {fault}");
                    backoff.wait().await;
                }
            }
            if tenure.is_over() {
                return Err(StateError::Deposed);
            }
        }
    }

    /// All rows as they were in one revision, which it returns.
    pub(super) async fn snapshot(&self, pace: Pace) -> Result<(LoadedState, i64), Fault> {
        let rows = self.key("rows/");
        let mut memory = LoadedState::default();
        // The byte after the slash ends the range of all that begin with the prefix.
        let end = self.key("rows0");
        let mut from = rows.clone().into_bytes();
        let (mut page, mut revision) = (PAGE, 0);
        loop {
            let options =
                GetOptions::new().with_range(end.as_str()).with_limit(page).with_revision(revision);
            let start = from.clone();
            let get = |mut client: Client| async move { client.get(start, Some(options)).await };
            let mut answer = match self.ask(pace.page_within, get).await {
                Err(Fault::TooLong) if page > 1 => {
                    page /= 2;
                    continue;
                }
                answer => answer?,
            };
            if revision == 0 {
                revision = answer.header().map_or(0, |header| header.revision());
            }
            let more = answer.more();
            for row in answer.take_kvs() {
                let (key, value) = row.into_key_value();
                from.clone_from(&key);
                from.push(0);
                // Ours are all UTF-8; what another put there is none of our rows.
                if let Ok(key) = String::from_utf8(key) {
                    memory.rows.insert(key[rows.len()..].into(), value);
                }
            }
            if !more {
                return Ok((memory, revision));
            }
        }
    }

    /// Writes the transactions of a batch, one after the other.
    pub(super) async fn write(&self, tenure: &Tenure, batch: &Batch) -> Result<(), StateError> {
        batch.check()?;
        let mut writes = tenure.writes.lock().await;
        for transaction in batch.transactions() {
            tokio::select! {
                written = self.commit(tenure, &mut writes, self.operations(&transaction)) => written?,
                () = tenure.lost() => return Err(StateError::Deposed),
            }
        }
        Ok(())
    }

    /// Has the next term begin above `floor`.
    pub(super) async fn begin_above(&self, tenure: &Tenure, floor: u64) -> Result<(), StateError> {
        let mut writes = tenure.writes.lock().await;
        let floor = floor.max(tenure.term).to_string();
        let raise = vec![TxnOp::put(self.key("term"), floor, None)];
        tokio::select! {
            written = self.commit(tenure, &mut writes, raise) => written,
            () = tenure.lost() => Err(StateError::Deposed),
        }
    }

    /// Carries one out, and tries again as long as this controller leads and is within reach of
    /// etcd.
    async fn commit(
        &self,
        tenure: &Tenure,
        writes: &mut Writes,
        mut operations: Vec<TxnOp>,
    ) -> Result<(), StateError> {
        let Some(fence) = tenure.fence() else { return Err(StateError::Deposed) };
        writes.used += 1;
        let number = writes.used;
        operations.push(TxnOp::put(self.key("written"), number.to_string(), None));
        let began = Instant::now();
        let mut backoff = Backoff::new();
        while !tenure.is_over() {
            let sent = Instant::now();
            let txn = self.fenced(fence, writes.last, operations.clone());
            let write = |mut client: Client| async move { client.txn(txn).await };
            match self.ask(WRITE_WITHIN, write).await {
                Ok(answer) if answer.succeeded() => {
                    writes.last = number;
                    tenure.heard(sent);
                    return Ok(());
                }
                Ok(answer) => match self.written(fence, &answer) {
                    // An earlier try was carried out, and its answer was lost.
                    Some(last) if last == number => {
                        writes.last = number;
                        return Ok(());
                    }
                    // So was one of a write that was given up: this one comes after it.
                    Some(last) if last > writes.last => writes.last = last,
                    _ => {
                        tenure.end("etcd has another leader");
                        break;
                    }
                },
                Err(Fault::Lasting(reason)) => return Err(self.refused(reason)),
                Err(fault) if began.elapsed() > tenure.pace.out_of_reach => {
                    tenure.end(&format!("{}: cannot be written: {fault}", self.place));
                    break;
                }
                Err(fault) => {
                    tracing::debug!("state not written, tried again: {fault}");
                    backoff.wait().await;
                }
            }
        }
        Err(StateError::Deposed)
    }

    /// These operations if we lead and `last` was written last; else who leads, and what was.
    fn fenced(&self, fence: Fence, last: u64, operations: Vec<TxnOp>) -> Txn {
        let (leader, written) = (self.key("leader"), self.key("written"));
        Txn::new()
            .when([
                Compare::mod_revision(leader.as_str(), CompareOp::Equal, fence.leader_since),
                Compare::value(written.as_str(), CompareOp::Equal, last.to_string()),
            ])
            .and_then(operations)
            .or_else([TxnOp::get(leader, None), TxnOp::get(written, None)])
    }

    /// The number that was written last, of the answer to a refused transaction; `None` if we do
    /// not lead.
    fn written(&self, fence: Fence, answer: &TxnResponse) -> Option<u64> {
        let got = answer.op_responses();
        let [TxnOpResponse::Get(leader), TxnOpResponse::Get(written)] = got.as_slice() else {
            return None;
        };
        let leads = leader.kvs().first()?.mod_revision() == fence.leader_since;
        let last = written.kvs().first()?.value_str().ok()?.parse().ok()?;
        leads.then_some(last)
    }

    fn operations(&self, transaction: &Transaction<'_>) -> Vec<TxnOp> {
        let key = |key: &str| self.key(&format!("rows/{key}"));
        transaction
            .rows()
            .map(|(row, value)| match value {
                Some(value) => TxnOp::put(key(row), value, None),
                None => TxnOp::delete(key(row), None),
            })
            .collect()
    }
}

/// Connects when it is first used, with the certificates that the files have now.
async fn connect(place: &Servers, server: &str) -> Result<Client, StateError> {
    let mut options = ConnectOptions::new()
        .with_connect_timeout(REQUEST_WITHIN)
        // A member without a leader says so.
        .with_require_leader(true);
    let mut scheme = "http";
    if let Some(files) = &place.tls {
        options = options.with_tls(read_tls(files).await?);
        scheme = "https";
    }
    let client = Client::connect([format!("{scheme}://{server}")], Some(options)).await;
    client.map_err(|e| StateError::Refused { place: place.to_string(), reason: e.to_string() })
}

async fn read_tls(files: &TlsFiles) -> Result<TlsOptions, StateError> {
    let read = async |path: &std::path::Path| {
        tokio::fs::read(path)
            .await
            .map_err(|e| StateError::Io { path: path.into(), reason: e.to_string() })
    };
    let mut tls = TlsOptions::new().ca_certificate(Certificate::from_pem(read(&files.ca).await?));
    if let Some((cert, key)) = &files.own {
        tls = tls.identity(Identity::from_pem(read(cert).await?, read(key).await?));
    }
    Ok(tls)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::Location;

    #[tokio::test]
    async fn a_server_that_is_not_there_is_named_with_the_reason() {
        let Ok(Location::Etcd(servers)) = "etcd://127.0.0.1:1,127.0.0.1:2".parse() else {
            panic!("no location");
        };
        let etcd = Etcd::new(&servers).await.unwrap();
        for server in ["127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:1"] {
            let get = |mut client: Client| async move { client.get("a", None).await };
            let fault = etcd.ask(REQUEST_WITHIN, get).await.unwrap_err();
            let text = fault.to_string();
            assert!(matches!(fault, Fault::Passing(_)), "{text}");
            assert!(text.contains(server) && text.contains("refused"), "{text}");
        }
    }
}
