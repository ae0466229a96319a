//! Holds, as a connection has them: it asks the store's loop for one, waits until it is had, and
//! says when it is over. One that is dropped is over, too.

use tokio::sync::{mpsc, oneshot};

use crate::engine::{HoldEnd, HoldId, HoldRequest};

/// A hold that is had; or a key because of which nobody has it, for it is another store's.
pub(crate) type Had = Result<Hold, Vec<u8>>;

/// What is asked of the store's loop.
#[derive(Debug)]
pub(crate) struct HoldQuestion {
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
pub(crate) struct Holder(mpsc::UnboundedSender<HoldMessage>);

impl Holder {
    /// With the other end, which the loop has.
    pub fn new() -> (Holder, mpsc::UnboundedReceiver<HoldMessage>) {
        let (sender, receiver) = mpsc::unbounded_channel();
        (Holder(sender), receiver)
    }

    /// Asks for a hold, which comes when it is had; it does not if the store ends before. Who gives
    /// up waiting gives the hold up.
    pub fn ask(&self, wanted: HoldRequest) -> oneshot::Receiver<Had> {
        self.question(wanted, false)
    }

    /// Likewise, of keys that are all this store's: else it is refused.
    pub fn ask_at_home(&self, wanted: HoldRequest) -> oneshot::Receiver<Had> {
        self.question(wanted, true)
    }

    fn question(&self, wanted: HoldRequest, at_home: bool) -> oneshot::Receiver<Had> {
        let (ready, had) = oneshot::channel();
        let question = HoldQuestion { wanted, at_home, ready, holder: self.clone() };
        let _ = self.0.send(HoldMessage::Ask(question));
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
