//! A batch on a connection to memcached: what is still to be sent of it, and how far its answers
//! have come.

use std::{
    future::poll_fn,
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::{Buf, BytesMut, buf::Chain};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};

use crate::{ReplyScanner, TERMINATOR};

/// Room for one read.
const READ_BYTES: usize = 16 << 10;

/// A batch that is being carried out on a connection of the kind `L`, which somebody has opened.
#[derive(Debug)]
pub struct Exchange<L> {
    link: L,
    request: Chain<BytesMut, &'static [u8]>,
    /// By TLS, what was written may not have left.
    lags: bool,
    scanner: ReplyScanner,
    /// What has come and was not looked at.
    input: BytesMut,
    is_over: bool,
}

impl<L: AsyncRead + AsyncWrite + Unpin> Exchange<L> {
    /// These commands are to be carried out on a connection on which nothing goes on.
    pub fn new(link: L, commands: BytesMut) -> Exchange<L> {
        Exchange {
            link,
            request: commands.chain(TERMINATOR),
            lags: false,
            scanner: ReplyScanner::default(),
            input: BytesMut::new(),
            is_over: false,
        }
    }

    /// Whether everything has been answered.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// Whether an answer has been passed on of which the end has not come.
    pub fn is_within_answer(&self) -> bool {
        self.scanner.is_within()
    }

    /// The connection, when everything has been answered.
    pub fn into_link(self) -> L {
        self.link
    }

    /// Sends some of the batch, or has some of its answers come, where they may. Given up half-way,
    /// it loses nothing.
    ///
    /// # Errors
    /// The connection has ended: how.
    pub async fn moves(&mut self, may_read: bool) -> Result<(), String> {
        if may_read {
            self.input.reserve(READ_BYTES);
        }
        let moved = poll_fn(|context| {
            if may_read && let Poll::Ready(read) = self.poll_read(context) {
                return Poll::Ready(read);
            }
            self.poll_write(context)
        });
        match moved.await {
            Ok(true) => Ok(()),
            Ok(false) => Err("has closed the connection".into()),
            Err(error) => Err(format!("is gone: {error}")),
        }
    }

    /// False: nothing comes any more.
    fn poll_read(&mut self, context: &mut Context<'_>) -> Poll<io::Result<bool>> {
        let before = self.input.len();
        let mut read = std::pin::pin!(self.link.read_buf(&mut self.input));
        ready!(read.as_mut().poll(context))?;
        Poll::Ready(Ok(self.input.len() > before))
    }

    /// False: nothing is taken any more. Pending, too, if there is nothing to be sent.
    fn poll_write(&mut self, context: &mut Context<'_>) -> Poll<io::Result<bool>> {
        let link = Pin::new(&mut self.link);
        if self.request.has_remaining() {
            let written = ready!(link.poll_write(context, self.request.chunk()))?;
            self.request.advance(written);
            self.lags = true;
            return Poll::Ready(Ok(written > 0));
        }
        if !self.lags {
            return Poll::Pending;
        }
        ready!(link.poll_flush(context))?;
        self.lags = false;
        Poll::Ready(Ok(true))
    }

    /// Looks at what has come: `give` gets the answers in it.
    ///
    /// # Errors
    /// Nobody can tell where answers end: why.
    pub fn take(&mut self, give: impl FnOnce(&[u8])) -> Result<(), String> {
        let wrong = |what: &str| format!("sends what is no answer: {what}");
        let found = self.scanner.scan(&self.input).map_err(|error| wrong(&error.to_string()))?;
        give(&self.input[..found.answers]);
        self.input.advance(found.taken);
        self.is_over = found.is_over;
        let is_in_step = self.input.is_empty() && !self.request.has_remaining();
        match self.is_over && !is_in_step {
            true => Err(wrong("more than it was asked")),
            false => Ok(()),
        }
    }

    /// Has everything answered, which nobody wants to know any more, however long that takes.
    /// False: the connection has ended before.
    pub async fn ends(&mut self) -> bool {
        while !self.is_over {
            if self.moves(true).await.is_err() || self.take(|_| {}).is_err() {
                return false;
            }
        }
        true
    }
}
