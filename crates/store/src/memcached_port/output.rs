//! What a client is to be told.

use tokio::io::{AsyncWrite, AsyncWriteExt};

use crate::ports::Outlet;

/// Bytes of answers that wait for a client; more are not read from memcached, unless a hold waits
/// for them.
const OUTPUT_BYTES: usize = 1 << 20;
/// More than that a hold does not wait for: the client is sent away.
const HELD_OUTPUT_BYTES: usize = 64 << 20;

/// The way to a client, as long as it reads.
pub(super) struct Output {
    outlet: Outlet,
    is_gone: bool,
}

impl Output {
    /// To a client that comes by TLS, or not.
    pub fn new(is_secure: bool) -> Output {
        Output { outlet: Outlet::new(is_secure), is_gone: false }
    }

    /// Tells the client something, if it still reads.
    pub fn give(&mut self, bytes: &[u8]) {
        if !self.is_gone {
            self.outlet.add(bytes);
        }
    }

    /// Whether the client does not read any more.
    pub fn is_gone(&self) -> bool {
        self.is_gone
    }

    /// Whether more answers may wait for it.
    pub fn has_room(&self) -> bool {
        self.outlet.waits.len() < OUTPUT_BYTES
    }

    /// Whether there is something to be sent.
    pub fn is_due(&self) -> bool {
        self.outlet.is_due() && !self.is_gone
    }

    /// A hold waits for answers, whether the client reads them or not: one that leaves too many
    /// unread is sent away.
    pub fn sends_deaf_away(&mut self) {
        if self.outlet.waits.len() > HELD_OUTPUT_BYTES {
            self.leaves();
        }
    }

    /// The client does not read any more.
    pub fn leaves(&mut self) {
        self.is_gone = true;
        self.outlet.waits.clear();
    }

    /// Sends some of what waits. Given up half-way, it loses nothing.
    pub async fn send(&mut self, writes: &mut (impl AsyncWrite + Unpin)) {
        if self.outlet.send(writes).await.is_err() {
            self.leaves();
        }
    }

    /// Sends what waits while something else goes on.
    pub async fn while_sending<T>(
        &mut self,
        writes: &mut (impl AsyncWrite + Unpin),
        what: impl Future<Output = T>,
    ) -> T {
        let mut what = std::pin::pin!(what);
        loop {
            tokio::select! {
                biased;
                done = &mut what => return done,
                () = self.send(writes), if self.is_due() => {}
            }
        }
    }

    /// Sends all of it, and says that nothing follows.
    pub async fn ends(&mut self, writes: &mut (impl AsyncWrite + Unpin)) {
        while self.is_due() {
            self.send(writes).await;
        }
        let _ = writes.shutdown().await;
    }
}
