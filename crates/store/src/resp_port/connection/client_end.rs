//! The client's end of a connection: what it has sent and nobody has taken yet, and what it is to
//! be sent. While there is no Redis, it is told so.

use std::time::Duration;

use bytes::{Buf, BytesMut};
use resp::{Class, Limits, RequestParser};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite},
    time::sleep,
};

use crate::ports::Outlet;

/// Bytes of commands that are taken from a client before earlier ones have been sent on.
pub(super) const INPUT_BYTES: usize = 64 << 10;
/// Bytes of answers that wait for a client; more are not read from Redis, unless a hold waits for
/// them.
const OUTPUT_BYTES: usize = 1 << 20;
/// Room for one read.
pub(super) const READ_BYTES: usize = 16 << 10;
/// From one attempt to reach Redis to the next.
const AGAIN: Duration = Duration::from_millis(100);

/// A client, as far as it is known.
pub(super) struct ClientEnd {
    pub limits: Limits,
    pub parser: RequestParser,
    /// What it has sent.
    pub input: BytesMut,
    pub output: Outlet,
    /// It sends nothing more; it still reads.
    pub is_closing: bool,
    /// It does not read any more.
    pub is_gone: bool,
}

impl ClientEnd {
    /// One that comes by TLS, or not.
    pub fn new(is_secure: bool) -> ClientEnd {
        ClientEnd {
            limits: Limits::default(),
            parser: RequestParser::default(),
            input: BytesMut::new(),
            output: Outlet::new(is_secure),
            is_closing: false,
            is_gone: false,
        }
    }

    /// Tells the client something, if it still reads.
    pub fn give(&mut self, bytes: &[u8]) {
        if !self.is_gone {
            self.output.add(bytes);
        }
    }

    /// Nobody reads answers any more, and nothing that has come is carried out.
    pub fn leave(&mut self) {
        self.is_closing = true;
        self.is_gone = true;
        self.input.clear();
        self.output.waits.clear();
    }

    /// Whether more answers may wait for it.
    pub fn has_room(&self) -> bool {
        self.output.waits.len() < OUTPUT_BYTES
    }

    /// Whether more of what it sends is of use: the command at the front may be a long one.
    pub fn may_send(&self) -> bool {
        let most = INPUT_BYTES.max(self.parser.wanted() + READ_BYTES);
        !self.is_closing && self.input.len() < most
    }

    /// For a while refuses commands, because there is no Redis for this reason, but for those that
    /// say something of the connection: they wait. False: the client has gone.
    pub async fn refuse(
        &mut self,
        reads: &mut (impl AsyncRead + Unpin),
        writes: &mut (impl AsyncWrite + Unpin),
        why: &str,
    ) -> bool {
        let again = sleep(AGAIN);
        let mut again = std::pin::pin!(again);
        let line = format!("-TRYAGAIN nothing was done: {why}\r\n");
        loop {
            self.refuse_all(&line);
            let may_take = self.input.len() < INPUT_BYTES && !self.is_closing;
            if self.is_closing && self.output.waits.is_empty() {
                return false;
            }
            tokio::select! {
                biased;
                result = self.output.send(writes), if self.output.is_due() => {
                    if result.is_err() {
                        return false;
                    }
                }
                result = reads.read_buf(&mut self.input), if may_take => match result {
                    Ok(0) => self.is_closing = true,
                    Ok(_) => {}
                    Err(_) => return false,
                },
                () = &mut again => return true,
            }
        }
    }

    /// Refuses the commands that have come, as far as there is room for the answers.
    fn refuse_all(&mut self, line: &str) {
        while self.has_room() {
            let mut skipped = 0;
            let request = match self.parser.next(&self.input, &self.limits, &mut skipped) {
                Ok(Some(request)) => request,
                Ok(None) => {
                    self.input.advance(skipped);
                    break;
                }
                // It is said when there is a Redis.
                Err(_) => break,
            };
            // What is said of the connection would be missed by what follows.
            if Class::is_of_connections(request.words.get(0).unwrap_or_default()) {
                break;
            }
            let len = skipped + request.bytes.len();
            self.output.add(line.as_bytes());
            self.input.advance(len);
        }
    }
}
