//! Holds, as a connection has them: it asks the store's loop for one, waits until it is had, and
//! says when it is over. One that is dropped is over, too.

use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
};

use tokio::sync::{mpsc, oneshot};

use crate::engine::{HoldEnd, HoldId, HoldRequest};

/// A hold that is had, or why nobody has it.
pub(crate) type Had = Result<Hold, NoHold>;

/// Why a hold is not had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NoHold {
    /// This key is another store's.
    Elsewhere(Vec<u8>),
    /// What it waited for does not end.
    Late,
}

/// What a client is told whose command has no hold because that was late.
pub(crate) const LATE: &str = "it would have to wait for keys that are lent to switches, or for others' commands, and these do not end";

/// What is asked of the store's loop.
#[derive(Debug)]
pub(crate) struct HoldQuestion {
    /// What the hold is called.
    pub id: HoldId,
    /// What a command is to have for itself.
    pub wanted: HoldRequest,
    /// All of it has to be this store's.
    pub at_home: bool,
    /// Where the hold goes when it is had.
    pub ready: oneshot::Sender<Had>,
    /// Whoever has it ends it by this way.
    pub holder: Holder,
}

/// What a connection says to the store's loop.
#[derive(Debug)]
pub(crate) enum HoldMessage {
    /// A command is to have keys for itself.
    Ask(HoldQuestion),
    /// It needs them no more.
    End(HoldId, HoldEnd),
}

/// The way to the store's loop.
#[derive(Clone, Debug)]
pub(crate) struct Holder {
    messages: mpsc::UnboundedSender<HoldMessage>,
    /// How many holds were asked for.
    asked: Arc<AtomicU64>,
}

impl Holder {
    /// With the other end, which the loop has.
    pub fn new() -> (Holder, mpsc::UnboundedReceiver<HoldMessage>) {
        let (messages, receiver) = mpsc::unbounded_channel();
        (Holder { messages, asked: Arc::default() }, receiver)
    }

    /// Asks for a hold, which comes when it is had, or is refused; it does not if the store ends
    /// before. Who gives up waiting gives the hold up.
    pub fn ask(&self, wanted: HoldRequest) -> HoldWait {
        self.question(wanted, false)
    }

    /// Likewise, of keys that are all this store's: else it is refused.
    pub fn ask_at_home(&self, wanted: HoldRequest) -> HoldWait {
        self.question(wanted, true)
    }

    fn question(&self, wanted: HoldRequest, at_home: bool) -> HoldWait {
        let id = self.asked.fetch_add(1, Ordering::Relaxed) + 1;
        let (ready, had) = oneshot::channel();
        let question = HoldQuestion { id, wanted, at_home, ready, holder: self.clone() };
        let _ = self.messages.send(HoldMessage::Ask(question));
        HoldWait { had, id, holder: Some(self.clone()) }
    }

    /// The hold of this number, which is had.
    pub fn had(self, id: HoldId) -> Hold {
        Hold { id, end: HoldEnd::Over, holder: self }
    }
}

/// A hold that is had, until it is dropped.
#[derive(Debug)]
pub(crate) struct Hold {
    id: HoldId,
    end: HoldEnd,
    holder: Holder,
}

impl Hold {
    /// Its command is about to be sent: dropped from now on it may take place still.
    pub fn sent(&mut self) {
        self.end = HoldEnd::Unknown;
    }

    /// Its command has been answered, or can take place no more.
    pub fn over(mut self) {
        self.end = HoldEnd::Over;
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let _ = self.holder.messages.send(HoldMessage::End(self.id, self.end));
    }
}

/// The wait for a hold. Dropped before it is over it ends the hold: what waits behind one of
/// everything would otherwise wait for a hold that nobody wants.
#[derive(Debug)]
pub(crate) struct HoldWait {
    had: oneshot::Receiver<Had>,
    id: HoldId,
    /// None: the wait is over.
    holder: Option<Holder>,
}

impl Future for HoldWait {
    type Output = Result<Had, oneshot::error::RecvError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let answer = std::task::ready!(Pin::new(&mut self.had).poll(context));
        self.holder = None;
        Poll::Ready(answer)
    }
}

impl Drop for HoldWait {
    fn drop(&mut self) {
        if let Some(holder) = self.holder.take() {
            let _ = holder.messages.send(HoldMessage::End(self.id, HoldEnd::Over));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_gives_up_waiting_for_a_hold_ends_it() {
        let (holder, mut messages) = Holder::new();
        let mut asked = || match messages.try_recv() {
            Ok(HoldMessage::Ask(question)) => question,
            other => panic!("{other:?}"),
        };
        let wait = holder.ask(HoldRequest { names: vec![], everything: true });
        let HoldQuestion { id, .. } = asked();
        drop(wait);
        match messages.try_recv() {
            Ok(HoldMessage::End(ended, HoldEnd::Over)) => assert_eq!(ended, id),
            other => panic!("{other:?}"),
        }
        assert!(messages.try_recv().is_err());
    }
}
