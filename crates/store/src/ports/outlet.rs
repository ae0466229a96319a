//! What is sent to one end of a connection: bytes that wait, and bytes that were written and may
//! not have left.

use std::io;

use bytes::BytesMut;
use tokio::io::{AsyncWrite, AsyncWriteExt};

/// A buffer that has grown beyond this is not kept.
const KEEP_BYTES: usize = 64 << 10;

/// The way out to a client, or to the server behind the store.
pub(crate) struct Outlet {
    /// Bytes that wait.
    pub waits: BytesMut,
    /// By TLS what is written leaves in records, for which the socket may have no room; whoever
    /// writes nothing more has to ask for it.
    is_secure: bool,
    /// What was written may not have left.
    lags: bool,
}

impl Outlet {
    /// By TLS, or not.
    pub fn new(is_secure: bool) -> Outlet {
        Outlet { waits: BytesMut::new(), is_secure, lags: false }
    }

    /// Whether there is something to be sent.
    pub fn is_due(&self) -> bool {
        !self.waits.is_empty() || self.lags
    }

    /// These bytes wait, too.
    pub fn add(&mut self, bytes: &[u8]) {
        self.waits.extend_from_slice(bytes);
    }

    /// Writes what waits, or has what was written leave. Given up half-way, it loses nothing.
    ///
    /// # Errors
    /// The other end has gone.
    pub async fn send(&mut self, to: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
        if self.waits.is_empty() {
            to.flush().await?;
            self.lags = false;
            return Ok(());
        }
        if to.write_buf(&mut self.waits).await? == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        self.lags = self.is_secure;
        shrink(&mut self.waits);
        Ok(())
    }
}

/// Gives back the memory of a buffer that was large and is empty.
pub(crate) fn shrink(buffer: &mut BytesMut) {
    if buffer.is_empty() && buffer.capacity() > KEEP_BYTES {
        *buffer = BytesMut::new();
    }
}
