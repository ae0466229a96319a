//! The leader's sign of life in etcd.
//!
//! It comes from a thread of its own with connections of its own, before everything else that the
//! machine has to do: a leader that is busy is not to be taken for one that is gone. Beats do not
//! wait for one another, so a disk of etcd's that takes half a second costs nothing.

use std::{
    convert::Infallible,
    sync::Arc,
    time::{Duration, Instant},
};

use etcd_client::{Client, Compare, CompareOp, Txn, TxnOp};
use tokio::{sync::oneshot, task::JoinSet};

use super::{
    etcd::{Etcd, Fault, REQUEST_WITHIN},
    tenure::{Fence, Pace, Tenure},
    url::Servers,
};

/// From one beat to the next: some may be lost.
const BEAT_EVERY: Duration = Duration::from_millis(140);
const _: () = assert!(Pace::DEFAULT.silence.as_millis() >= 5 * BEAT_EVERY.as_millis());
/// Beats that may wait for their answers; beyond them none is sent.
const WAITING_MAX: usize = 8;
/// Of a thread that does next to nothing, but must do it in time.
const NICE: i32 = -15;

/// Beats until its tenure is over, then gives the lead back. If it is dropped before, it stops as
/// if it had been killed.
pub(super) struct Heartbeat {
    _held: oneshot::Sender<Infallible>,
    done: oneshot::Receiver<Infallible>,
}

impl Heartbeat {
    /// Begins, with connections of its own to these servers.
    pub(super) fn start(servers: Servers, tenure: Arc<Tenure>) -> Heartbeat {
        let (held, dropped) = oneshot::channel();
        let (ended, done) = oneshot::channel();
        let beat = move || {
            // Without the right to it, it beats as well as it can.
            let _ = rustix::process::setpriority_process(None, NICE);
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            match runtime {
                Ok(runtime) => runtime.block_on(run(&servers, &tenure, dropped)),
                Err(e) => tenure.end(&format!("no heartbeat: {e}")),
            }
            drop(ended);
        };
        let thread = std::thread::Builder::new().name("heartbeat".into());
        thread.spawn(beat).expect("the system has a thread for it");
        Heartbeat { _held: held, done }
    }

    /// Waits until it has given the lead back, or failed to.
    pub(super) async fn ended(self) {
        let _ = self.done.await;
    }
}

async fn run(servers: &Servers, tenure: &Tenure, dropped: oneshot::Receiver<Infallible>) {
    let Some(fence) = tenure.fence() else { return };
    let etcd = match Etcd::new(servers).await {
        Ok(etcd) => Arc::new(etcd),
        Err(e) => return tenure.end(&e.to_string()),
    };
    tokio::select! {
        biased;
        () = tenure.lost() => {}
        why = beat(&etcd, tenure) => tenure.end(&why),
        _ = dropped => return,
    }
    give_back(&etcd, fence).await;
}

/// Beats as long as it may; why it no longer may.
async fn beat(etcd: &Arc<Etcd>, tenure: &Tenure) -> String {
    let mut every = tokio::time::interval(BEAT_EVERY);
    every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut waiting = JoinSet::new();
    let mut last = "no answer".to_string();
    loop {
        let Some(fence) = tenure.fence() else { return "it was never elected".into() };
        if fence.is_out_of_reach(tenure.pace, Instant::now()) {
            return format!("{}: out of reach: {last}", etcd.place());
        }
        tokio::select! {
            _ = every.tick() => if waiting.len() < WAITING_MAX {
                waiting.spawn(one(etcd.clone(), fence));
            },
            Some(Ok((sent, answer))) = waiting.join_next() => match answer {
                Ok(true) => tenure.heard(sent),
                Ok(false) => return "etcd has another leader".into(),
                Err(Fault::Lasting(reason)) => return format!("{}: etcd refused: {reason}", etcd.place()),
                Err(fault) => last = fault.to_string(),
            },
        }
    }
}

/// One beat: when it was sent, and whether we lead.
async fn one(etcd: Arc<Etcd>, fence: Fence) -> (Instant, Result<bool, Fault>) {
    let sent = Instant::now();
    let txn =
        Txn::new().when([leads(&etcd, fence)]).and_then([TxnOp::put(etcd.key("alive"), "", None)]);
    let put = |mut client: Client| async move { client.txn(txn).await };
    let answer = etcd.ask(REQUEST_WITHIN, put).await;
    (sent, answer.map(|answer| answer.succeeded()))
}

fn leads(etcd: &Etcd, fence: Fence) -> Compare {
    Compare::mod_revision(etcd.key("leader"), CompareOp::Equal, fence.leader_since)
}

/// Takes our name off, so that others need not wait. If it cannot, they do.
async fn give_back(etcd: &Etcd, fence: Fence) {
    for _ in 0..2 {
        let txn = Txn::new()
            .when([leads(etcd, fence)])
            .and_then([TxnOp::delete(etcd.key("leader"), None)]);
        let delete = |mut client: Client| async move { client.txn(txn).await };
        match etcd.ask(REQUEST_WITHIN, delete).await {
            Err(Fault::Passing(_)) => {}
            _ => return,
        }
    }
}
