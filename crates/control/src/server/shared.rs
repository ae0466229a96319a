//! What the controller's tasks share: the core while this controller leads, and the streams of
//! switches.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use api::proto::{FromSwitch, ToStore, ToSwitch};
use tokio::sync::{Notify, mpsc, watch};
use tonic::Status;

use super::{
    core::Core,
    incoming::says_something,
    stores::StoreStreamId,
    switch::{CloseReason, StreamId},
};
use crate::{
    admin::{Refusal, RefusalKind},
    state::{Leader, State},
};

/// Sends messages to one switch or store.
pub type Outgoing<M> = mpsc::Sender<Result<M, Status>>;

/// One lock holds it: a message costs microseconds, a window's end some milliseconds, and nothing
/// waits while the lock is held.
#[derive(Default)]
pub struct Inner {
    /// There while this controller leads.
    pub core: Option<Box<Core>>,
    /// Where each switch's current stream takes its messages from.
    switches: HashMap<StreamId, Outgoing<ToSwitch>>,
    /// Where each store's stream takes its messages from.
    pub stores: HashMap<StoreStreamId, Outgoing<ToStore>>,
}

impl Inner {
    /// A switch's stream began; those before it are void.
    pub fn switch_came(&mut self, stream: StreamId, sender: Outgoing<ToSwitch>) {
        self.switches.retain(|other, _| other.switch != stream.switch);
        self.switches.insert(stream, sender);
    }

    /// A switch's stream ended.
    pub fn switch_went(&mut self, now: Duration, stream: StreamId) {
        self.switches.remove(&stream);
        if let Some(core) = &mut self.core {
            core.detach(now, stream);
        }
    }

    /// A store's stream ended.
    pub fn store_went(&mut self, stream: StoreStreamId) {
        self.stores.remove(&stream);
        if let Some(core) = &mut self.core {
            core.store_went(stream);
        }
    }

    /// Hands every switch and store what there is for it, as far as its stream takes it. Whether
    /// there was anything, or may be more.
    pub fn pump(&mut self, now: Duration) -> bool {
        let Some(core) = &mut self.core else { return false };
        let mut any = false;
        // A store is to know where a tenant is before the switch there asks for copies.
        for (stream, sender) in &self.stores {
            any |= hand(sender, || core.next_for_store(*stream));
        }
        for (stream, sender) in &self.switches {
            any |= hand(sender, || core.next_message(now, *stream));
        }
        any
    }
}

fn hand<M>(sender: &Outgoing<M>, mut next: impl FnMut() -> Option<M>) -> bool {
    let mut any = false;
    while let Ok(permit) = sender.try_reserve() {
        let Some(message) = next() else { return any };
        permit.send(Ok(message));
        any = true;
    }
    true
}

/// The core, where it is to be found, and what its tasks wait for.
pub struct SharedCore {
    inner: Mutex<Inner>,
    began: Instant,
    /// Who leads, and the way to the state.
    pub state: State,
    /// There may be something to write.
    pub poke: Notify,
    /// The core was told something: there may be something to send.
    pub told: Notify,
    /// The term in which this controller leads; 0: it stands by, or does not know whether it
    /// still leads.
    pub term: watch::Sender<u64>,
    /// The term that a switch has heard of which takes no notice of ours: the next lead begins
    /// above it.
    pub outrun: watch::Sender<u64>,
    /// Why the state cannot be written at the moment; none: it can, as far as is known.
    pub trouble: watch::Sender<Option<String>>,
    /// Up to which position of the journal everything is durable.
    pub durable: watch::Sender<u64>,
}

/// Why something is not durable.
enum WriteObstacle {
    /// This controller leads no longer.
    Deposed,
    /// The state cannot be written, for this reason.
    Trouble(String),
}

/// Milliseconds since 1970.
pub fn clock_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap_or_default().as_millis() as u64
}

impl SharedCore {
    /// Stands by.
    pub fn new(state: State) -> SharedCore {
        SharedCore {
            inner: Mutex::default(),
            began: Instant::now(),
            state,
            poke: Notify::new(),
            told: Notify::new(),
            term: watch::Sender::new(0),
            outrun: watch::Sender::new(0),
            trouble: watch::Sender::new(None),
            durable: watch::Sender::new(0),
        }
    }

    /// The one lock.
    pub fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Changes who is there; what that makes due is sent.
    pub fn change<R>(&self, change: impl FnOnce(&mut Inner) -> R) -> R {
        let result = change(&mut self.lock());
        self.told.notify_one();
        result
    }

    /// Time since the start.
    pub fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// This controller leads from now on.
    pub fn begin(&self, core: Core, term: u64) {
        let mut inner = self.lock();
        self.durable.send_replace(core.journal().durable());
        self.trouble.send_replace(None);
        inner.core = Some(Box::new(core));
        self.term.send_replace(term);
    }

    /// The lead in that term holds, or none does: then this controller answers as one that stands
    /// by, and its streams end, but it keeps the core. True: it holds.
    pub fn holds(&self, term: Option<u64>) -> bool {
        let now = term.unwrap_or(0);
        self.term.send_if_modified(|term| {
            let changed = *term != now;
            if changed && now == 0 {
                tracing::warn!("etcd does not answer: nothing is decided meanwhile");
            }
            *term = now;
            changed
        });
        term.is_some()
    }

    /// This controller does not lead any longer: streams end, and nothing is sent.
    pub fn end(&self) {
        let mut inner = self.lock();
        inner.core = None;
        inner.switches.clear();
        inner.stores.clear();
        self.term.send_replace(0);
    }

    /// Does something with the core, if this controller leads.
    ///
    /// # Errors
    /// Names the leader otherwise.
    pub fn leading<R>(&self, work: impl FnOnce(&mut Core) -> R) -> Result<R, Refusal> {
        let result = self.with_core(work)?;
        self.poke.notify_one();
        self.told.notify_one();
        Ok(result)
    }

    /// Takes a later message of a switch's stream, if this controller leads. What only says that
    /// the switch is there wakes nobody.
    ///
    /// # Errors
    /// Names the leader otherwise.
    pub fn hears(
        &self,
        stream: StreamId,
        message: FromSwitch,
    ) -> Result<Result<(), CloseReason>, Refusal> {
        let says_something = says_something(&message);
        let heard = |core: &mut Core| core.message(self.now(), stream, message);
        match says_something {
            true => self.leading(heard),
            false => self.with_core(heard),
        }
    }

    fn with_core<R>(&self, work: impl FnOnce(&mut Core) -> R) -> Result<R, Refusal> {
        match &mut self.lock().core {
            Some(core) if *self.term.borrow() > 0 => Ok(work(core)),
            _ => Err(self.not_leader()),
        }
    }

    /// Why a standby does not answer.
    pub fn not_leader(&self) -> Refusal {
        let leader = self.state.leader();
        // Not sent to itself: it was the last to lead, and does not know whether it still does.
        let (url, message) = match leader {
            Some(leader) if self.state.is_own(&leader) => (
                None,
                "this controller led last, and does not know whether it still does: it is ending, or its state does not answer in time; try again"
                    .into(),
            ),
            Some(Leader { url, .. }) => {
                let message = format!("this controller stands by; {url} leads");
                (Some(url), message)
            }
            None => (
                None,
                "this controller stands by, and nobody leads at the moment".into(),
            ),
        };
        Refusal::new(RefusalKind::NotLeader { url }, message)
    }

    /// Whether changes may be asked for.
    ///
    /// # Errors
    /// Not while the state cannot be written: what is made then may be lost.
    pub fn writes(&self) -> Result<(), Refusal> {
        match &*self.trouble.borrow() {
            None => Ok(()),
            Some(why) => Err(Refusal::new(
                RefusalKind::Unavailable,
                format!(
                    "nothing was changed, for the controller's state cannot be written: {why}: make room on its disk, or mend it; the controller goes on by itself then"
                ),
            )),
        }
    }

    /// Waits until a change is durable, as everything up to a position.
    ///
    /// # Errors
    /// If this controller stops leading before, or the state cannot be written: the change may be
    /// there later, or not.
    pub async fn until_durable(&self, position: u64) -> Result<(), Refusal> {
        let message = match self.until_written(position).await {
            Ok(()) => return Ok(()),
            Err(WriteObstacle::Deposed) => {
                "this controller stopped leading before the change was written: look whether it was made".into()
            }
            Err(WriteObstacle::Trouble(why)) => format!(
                "the change is not safe, for the controller's state cannot be written: {why}: make room on its disk, or mend it, and look then whether the change was made"
            ),
        };
        Err(Refusal::new(RefusalKind::OutcomeUnknown, message))
    }

    /// Waits until a secret may be shown, which is written with everything up to a position:
    /// whoever has it goes by it, and it must not be lost.
    ///
    /// # Errors
    /// If this controller stops leading before, or the state cannot be written.
    pub async fn until_shown(&self, position: u64) -> Result<(), Refusal> {
        let message = match self.until_written(position).await {
            Ok(()) => return Ok(()),
            Err(WriteObstacle::Deposed) => {
                "this controller stopped leading before the secret was written: try again".into()
            }
            Err(WriteObstacle::Trouble(why)) => format!(
                "no secret is shown that may be lost, for the controller's state cannot be written: {why}: make room on its disk, or mend it; the controller goes on by itself then"
            ),
        };
        Err(Refusal::new(RefusalKind::Unavailable, message))
    }

    async fn until_written(&self, position: u64) -> Result<(), WriteObstacle> {
        let term = *self.term.borrow();
        let mut durable = self.durable.subscribe();
        let mut leading = self.term.subscribe();
        let mut trouble = self.trouble.subscribe();
        tokio::select! {
            biased;
            _ = durable.wait_for(|durable| *durable >= position) => Ok(()),
            _ = leading.wait_for(|now| *now != term) => Err(WriteObstacle::Deposed),
            why = async { trouble.wait_for(Option::is_some).await.ok().and_then(|why| why.clone()) } => {
                Err(WriteObstacle::Trouble(why.unwrap_or_default()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::{Candidate, Location};

    #[tokio::test]
    async fn one_that_led_last_sends_nobody_to_itself() {
        let directory = tempfile::tempdir().unwrap();
        let location = Location::Directory(directory.path().into());
        let candidate = Candidate { name: "a".into(), url: "http://a.example:7118".into() };
        let state = State::open(&location, candidate).await.unwrap();
        let _lead = state.campaign().await.unwrap();
        let refusal = SharedCore::new(state).not_leader();
        assert_eq!(refusal.kind, RefusalKind::NotLeader { url: None });
        assert!(refusal.message.contains("try again"), "{refusal}");
    }
}
