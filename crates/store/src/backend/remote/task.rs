//! The task beside the connection: one batch at a time, and what is answered, and said in the log,
//! while there is none.

use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Acquire},
    },
    time::Duration,
};

use tokio::{
    sync::oneshot,
    time::{Instant, sleep, timeout, timeout_at},
};

use super::{Attention, Health, Outcome, Protocol, queue::Queue};
use crate::{
    backend::{Completion, OutsideEvent, Refusal, outage::Outage},
    clock::boot_ns,
};

/// From one attempt to connect to the next.
const RETRY: Duration = Duration::from_millis(100);
/// The part of the time for an answer for which requests wait for a connection that was lost.
const GRACE: u32 = 5;
/// Times the time for an answer that an attempt to connect may take: it may ask several servers.
const ATTEMPT: u32 = 4;

/// The half beside the connection. A batch that takes longer than `within` has failed, and its
/// connection is given up. While there is no connection, what comes is refused.
pub(super) struct Task<P> {
    pub protocol: P,
    /// Outside writes are tracked.
    pub watched: bool,
    pub within: Duration,
    pub queue: Queue,
    pub outage: Outage,
    /// What else the store is told of it.
    pub health: Health,
    /// How closely it is watched.
    pub attention: Attention,
    /// Why there is no connection.
    pub why: String,
    /// All versions below it were forgotten.
    pub forgotten: Arc<AtomicU64>,
    /// What that was when another server may have taken the place of one before.
    pub left_at: Option<u64>,
    /// Is told when the first attempt to connect is over.
    pub tried: Option<oneshot::Sender<()>>,
}

impl<P: Protocol> Task<P> {
    /// Runs until nobody sends commands any more.
    pub async fn run(mut self) {
        while self.reaches().await && self.serves().await {}
    }

    /// Connects, and refuses what comes meanwhile; for a moment it waits, because a connection may
    /// be there again at once. False: nobody sends any more.
    async fn reaches(&mut self) -> bool {
        let mut patience = Some(Instant::now() + self.within / GRACE);
        loop {
            let Some(attempt) = self.attempt(&mut patience).await else { return false };
            if let Some(tried) = self.tried.take() {
                let _ = tried.send(());
                if attempt.is_ok() {
                    tracing::info!("backend: {} is connected", self.protocol.name());
                }
            }
            let Err(why) = attempt else {
                self.health.is_back();
                if let Some(line) = self.outage.connected(&self.protocol.name(), boot_ns()) {
                    tracing::warn!("backend: {line}");
                }
                return true;
            };
            self.lost(why);
            if !refuse_until(&mut self.queue, &self.why, sleep(RETRY)).await {
                return false;
            }
        }
    }

    /// Tries once to connect. Until `patience` is over, if there is some, what comes waits. None:
    /// nobody sends any more.
    async fn attempt(&mut self, patience: &mut Option<Instant>) -> Option<Result<(), String>> {
        let within = self.within * ATTEMPT;
        let result = {
            let attempt = timeout(within, self.protocol.connect());
            let mut attempt = std::pin::pin!(attempt);
            let early = match patience.take() {
                Some(until) => timeout_at(until, &mut attempt).await.ok(),
                None => None,
            };
            match early {
                Some(result) => result,
                None => {
                    let mut result = None;
                    let ends = async { result = Some(attempt.await) };
                    if !refuse_until(&mut self.queue, &self.why, ends).await {
                        return None;
                    }
                    result?
                }
            }
        };
        Some(match result {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(format!("{error:#}")),
            Err(_) => Err(format!("{}: no answer within {within:?}", self.protocol.name())),
        })
    }

    /// There is no connection, for this reason: says so in the log, once.
    fn lost(&mut self, why: String) {
        self.why = why;
        let now_ns = boot_ns();
        self.health.is_away(&self.why, now_ns);
        if self.outage.failed(&self.why, now_ns) {
            tracing::warn!("backend: {}; requests are refused until it answers", self.why);
        }
    }

    /// Carries commands out while there is a connection. False: nobody sends any more.
    async fn serves(&mut self) -> bool {
        loop {
            // An empty batch is a question, too: its answer shows whether the connection is still
            // there, and proves that no outside write has gone unseen.
            tokio::select! {
                biased;
                is_open = self.queue.gather() => match is_open {
                    true => self.attention.attend(boot_ns()),
                    false => return false,
                },
                () = self.attention.asks_now(boot_ns()) => {}
            }
            // What is not sent is not in doubt: the batch waits for another connection.
            if let Some(why) = self.protocol.over() {
                self.give_up(why, self.watched);
                return true;
            }
            self.refuse_compared();
            let asked = boot_ns();
            self.health.is_asked(asked);
            let commands = self.queue.batch.len();
            let carried_out = timeout(self.within, self.protocol.execute(&self.queue.batch)).await;
            self.health.has_answered();
            let name = self.protocol.name();
            let answered = match carried_out {
                Ok(Ok(outcomes)) if outcomes.len() == commands => Ok(outcomes),
                Ok(Ok(_)) => Err(format!("{name}: an answer is missing")),
                Ok(Err(error)) => Err(format!("{name}: {error:#}")),
                Err(_) => Err(format!("{name}: no answer within {:?}", self.within)),
            };
            let (outcomes, over) = match answered {
                Ok(outcomes) => (outcomes, self.protocol.over()),
                Err(why) => {
                    // Before the answers: what they grant is called back with the rest.
                    self.give_up(why, self.watched);
                    self.queue.answer(vec![Outcome::Failed; commands]);
                    return true;
                }
            };
            let is_over = over.is_some();
            match over {
                // Maybe there is another server: its values are not what copies are of.
                Some(why) => self.give_up(why, true),
                None if self.watched => {
                    if let Some(seen) = self.protocol.seen(asked).map(OutsideEvent::Seen) {
                        let _ = self.queue.completions.send(Completion::Outside(seen));
                    }
                }
                None => {}
            }
            if !self.queue.answer(outcomes) {
                return false;
            }
            if is_over {
                return true;
            }
        }
    }

    /// Refuses what was compared with a version of a server before: that says nothing of what is
    /// there now, and until the store has heard of the other server it compares with what is gone.
    fn refuse_compared(&mut self) {
        let Some(left_at) = self.left_at else { return };
        let forgotten = self.forgotten.load(Acquire);
        let is_stale = |compared: u64| forgotten <= left_at || compared < forgotten;
        self.queue.refuse(
            |command| command.compared.is_some_and(is_stale),
            &Refusal::new("TRYAGAIN another server may be there now"),
        );
    }

    /// Gives the connection up. `changes`: copies may be of other values than there are.
    fn give_up(&mut self, why: String, changes: bool) {
        if changes {
            self.left_at = Some(self.forgotten.load(Acquire));
            let everything = Completion::Outside(OutsideEvent::Everything);
            let _ = self.queue.completions.send(everything);
        }
        self.protocol.disconnect();
        self.lost(why);
    }
}

/// Refuses what comes, until something is over. False: nobody sends any more.
async fn refuse_until(queue: &mut Queue, why: &str, over: impl Future<Output = ()>) -> bool {
    let refusal = Refusal::new(&format!("TRYAGAIN {why}"));
    let mut over = std::pin::pin!(over);
    loop {
        tokio::select! {
            biased;
            () = &mut over => return true,
            is_open = queue.gather() => {
                let refused = vec![Outcome::Refused(refusal.clone()); queue.batch.len()];
                if !is_open || !queue.answer(refused) {
                    return false;
                }
            }
        }
    }
}
