//! What comes in.

use std::{io, net::SocketAddr, os::fd::AsFd};

use crate::slots::Slots;

/// Receives batches; it keeps what the system says of each datagram until the next call.
#[derive(Default)]
pub struct Receiver {
    slots: Slots,
    asks_sources: bool,
}

impl Receiver {
    /// One that also asks where datagrams came from, which costs the system a copy for each.
    pub fn with_sources() -> Receiver {
        Receiver { slots: Slots::default(), asks_sources: true }
    }

    /// Takes what has come, at most as many datagrams as there are buffers, and
    /// [`BATCH`](crate::BATCH); returns how many. A socket that may block waits for the first of
    /// them. The bytes of a datagram fill the first part of its buffer, then the second, which may
    /// be empty; what does not fit is cut off.
    ///
    /// # Errors
    /// Those of the system: [`WouldBlock`](io::ErrorKind::WouldBlock) where nothing has come (in
    /// time), and what an earlier datagram met that was sent by the same socket.
    pub fn receive<'a>(
        &mut self,
        socket: &impl AsFd,
        buffers: impl IntoIterator<Item = [&'a mut [u8]; 2]>,
    ) -> io::Result<usize> {
        let call = self.slots.incoming(self.asks_sources, buffers);
        call.receive(socket.as_fd())
    }

    /// Bytes of datagram `at` of those last received.
    ///
    /// # Panics
    /// If `at` is not below [`BATCH`](crate::BATCH).
    #[inline]
    pub fn len(&self, at: usize) -> usize {
        self.slots.len(at)
    }

    /// Where datagram `at` of those last received came from; `None`: from no address of IP, or
    /// nobody asked.
    ///
    /// # Panics
    /// If `at` is not below [`BATCH`](crate::BATCH).
    #[inline]
    pub fn source(&self, at: usize) -> Option<SocketAddr> {
        self.slots.source(at)
    }
}
