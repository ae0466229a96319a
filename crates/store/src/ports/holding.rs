//! Holds, as a connection has them: it asks the store's loop for one, waits until it is had, and
//! says when it is over. One that is dropped is over, too.

use tokio::sync::{mpsc, oneshot};

use crate::engine::{HoldEnd, HoldId, HoldRequest};

/// What a connection says to the store's loop.
#[derive(Debug)]
pub(crate) enum HoldMessage {
    /// A command is to have keys for itself.
    Ask(HoldRequest, oneshot::Sender<Hold>, Holder),
    /// It needs them no more.
    End(HoldId, HoldEnd),
}

/// The way to the store's loop.
#[derive(Clone, Debug)]
pub(crate) struct Holder(mpsc::UnboundedSender<HoldMessage>);

impl Holder {
    /// With the other end, which the loop has.
    pub fn new() -> (Holder, mpsc::UnboundedReceiver<HoldMessage>) {
        let (sender, receiver) = mpsc::unbounded_channel();
        (Holder(sender), receiver)
    }

    /// Asks for a hold, which comes when it is had; it does not if the store ends before. Who gives
    /// up waiting gives the hold up.
    pub fn ask(&self, wanted: HoldRequest) -> oneshot::Receiver<Hold> {
        let (ready, had) = oneshot::channel();
        let _ = self.0.send(HoldMessage::Ask(wanted, ready, self.clone()));
        had
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
        let _ = self.holder.0.send(HoldMessage::End(self.id, self.end));
    }
}
