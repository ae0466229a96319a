//! A batch on a connection to memcached: what is still to be sent of it, and how far its answers
//! have come.

use bytes::{Buf, BytesMut, buf::Chain};
use memcached::{ReplyScanner, TERMINATOR};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// Room for one read.
const READ_BYTES: usize = 16 << 10;

/// A batch that is being carried out.
pub(super) struct Exchange {
    link: TcpStream,
    request: Chain<BytesMut, &'static [u8]>,
    scanner: ReplyScanner,
    /// What has come and was not looked at.
    input: BytesMut,
    is_over: bool,
}

impl Exchange {
    /// These commands are to be carried out on a connection on which nothing goes on.
    pub fn new(link: TcpStream, commands: BytesMut) -> Exchange {
        Exchange {
            link,
            request: commands.chain(TERMINATOR),
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
    pub fn into_link(self) -> TcpStream {
        self.link
    }

    /// Sends some of the batch, or has some of its answers come, where they may. Given up half-way,
    /// it loses nothing.
    ///
    /// # Errors
    /// The connection has ended: how.
    pub async fn moves(&mut self, may_read: bool) -> Result<(), String> {
        let (mut reads, mut writes) = self.link.split();
        if may_read {
            self.input.reserve(READ_BYTES);
        }
        let moved = tokio::select! {
            biased;
            moved = reads.read_buf(&mut self.input), if may_read => moved,
            moved = writes.write_buf(&mut self.request), if self.request.has_remaining() => moved,
            else => std::future::pending().await,
        };
        match moved {
            Ok(0) => Err("has closed the connection".into()),
            Ok(_) => Ok(()),
            Err(error) => Err(format!("is gone: {error}")),
        }
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
