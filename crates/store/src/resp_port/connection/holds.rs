//! The holds of a connection: commands that wait for one, and holds that are had until what was
//! sent under them has been answered, or can take place no more.

use std::collections::VecDeque;

use bytes::BytesMut;
use redis::ConnectionAddr;

use crate::{
    backend::redis::{Session, Upstream},
    engine::HoldRequest,
    ports::{Had, Hold, HoldWait, Holder},
};

/// Commands and bytes that share a hold.
const COMMANDS: usize = 256;
const BYTES: usize = 256 << 10;

/// A connection on which a command may still take place.
pub(super) type Doubt = (Option<Session>, ConnectionAddr);

/// Commands that are to have one hold together.
#[derive(Default)]
pub(super) struct HoldBatch {
    wanted: HoldRequest,
    bytes: BytesMut,
    count: usize,
}

impl HoldBatch {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// One more, which needs no hold but comes behind one that does.
    pub fn add(&mut self, command: &[u8]) {
        self.bytes.extend_from_slice(command);
        self.count += 1;
    }

    /// One more, which needs this.
    pub fn add_held(&mut self, command: &[u8], mut wanted: HoldRequest) {
        self.wanted.everything |= wanted.everything;
        self.wanted.names.append(&mut wanted.names);
        self.add(command);
    }

    /// Whether no other may join them.
    pub fn is_full(&self) -> bool {
        self.wanted.everything || self.count >= COMMANDS || self.bytes.len() >= BYTES
    }

    /// Asks for their hold.
    pub fn ask(self, holder: &Holder) -> HeldCommands {
        let had = holder.ask(self.wanted);
        HeldCommands { bytes: self.bytes, count: self.count, had }
    }
}

/// Commands that wait for their hold.
pub(super) struct HeldCommands {
    pub bytes: BytesMut,
    pub count: usize,
    had: HoldWait,
}

/// The hold that commands wait for, when it is had or refused; `None` if neither ever is.
pub(super) async fn had(waits: &mut Option<HeldCommands>) -> Option<Had> {
    match waits {
        Some(waits) => (&mut waits.had).await.ok(),
        None => std::future::pending().await,
    }
}

/// A hold that is had, and what has to be ended before others may have its keys.
struct OpenHold {
    hold: Hold,
    doubts: Vec<Doubt>,
}

/// Holds of commands that are sent and not answered, in order.
#[derive(Default)]
pub(super) struct HoldQueue(VecDeque<OpenHold>);

impl HoldQueue {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// One more is had, and its commands are about to be sent.
    pub fn begin(&mut self, mut hold: Hold) {
        hold.sent();
        self.0.push_back(OpenHold { hold, doubts: vec![] });
    }

    /// A command under the first of them may still take place there.
    pub fn doubt(&mut self, doubt: Doubt) {
        if let Some(first) = self.0.front_mut() {
            first.doubts.push(doubt);
        }
    }

    /// The first of them has all its answers.
    pub fn end_first(&mut self, upstream: &Upstream) {
        let Some(OpenHold { hold, doubts }) = self.0.pop_front() else { return };
        if doubts.is_empty() {
            return hold.over();
        }
        let upstream = upstream.clone();
        tokio::spawn(async move {
            if end_doubts(&upstream, doubts).await {
                hold.over();
            }
        });
    }

    /// Ends all, once nothing of what was sent under them can take place any more: these
    /// connections are in doubt, too. `forgets`: it does not look whether it can.
    pub async fn end_all(self, upstream: &Upstream, mut doubts: Vec<Doubt>, forgets: bool) {
        let mut had = vec![];
        for open in self.0 {
            doubts.extend(open.doubts);
            had.push(open.hold);
        }
        if forgets || end_doubts(upstream, doubts).await {
            had.into_iter().for_each(Hold::over);
        }
    }
}

/// Has connections ended. False: of one nobody says.
async fn end_doubts(upstream: &Upstream, doubts: Vec<Doubt>) -> bool {
    let mut all = true;
    for (session, at) in doubts {
        all &= upstream.end(session, &at).await;
    }
    all
}
