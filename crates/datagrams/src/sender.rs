//! What goes out.

use std::{io, os::fd::AsFd};

use smallvec::SmallVec;

use crate::{BATCH, datagram::Datagram, slots::Slots};

/// What becomes of a datagram that the system refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It is given up, and the next one is sent: one peer that cannot be reached must not hold up
    /// the others.
    Skip,
    /// It is handed to the system once more: the error was an earlier datagram's, which the system
    /// reports late.
    Again,
}

/// Sends batches; it keeps what the system call reads from one call to the next.
#[derive(Default)]
pub struct Sender {
    slots: Slots,
    /// Datagrams that are longer than this go as messages of their own.
    longest_coalesced: usize,
}

impl Sender {
    /// One that hands datagrams in a row that go to the same place and are of one length (the last
    /// may be shorter) to the system as one message, to be divided on its way out (`UDP_SEGMENT`):
    /// they cost a way through the stack between them. Where the system does not do that it sends
    /// them one by one, as every sender does with all others. For sockets of UDP only.
    pub fn coalescing() -> Sender {
        Sender { slots: Slots::default(), longest_coalesced: usize::from(u16::MAX) }
    }

    /// Sends each datagram, in this order, and returns how many of them were given up. `refused` is
    /// asked about each error of the system's; interrupted calls go on by themselves. What the
    /// system has as one message it refuses as one.
    ///
    /// # Errors
    /// The first that `refused` returns; that datagram and those after it are not sent then.
    pub fn send<'a, E>(
        &mut self,
        socket: &impl AsFd,
        datagrams: impl IntoIterator<Item = Datagram<'a>>,
        mut refused: impl FnMut(io::Error) -> Result<Refusal, E>,
    ) -> Result<u64, E> {
        let mut datagrams = datagrams.into_iter();
        let mut lost = 0;
        loop {
            let batch: SmallVec<[Datagram<'_>; BATCH]> = datagrams.by_ref().take(BATCH).collect();
            if batch.is_empty() {
                return Ok(lost);
            }
            let mut left = &batch[..];
            while !left.is_empty() {
                let mut call = self.slots.outgoing(left, self.longest_coalesced);
                let (first, segment) = call.first();
                match call.send(socket.as_fd()) {
                    Ok(sent) => left = &left[sent..],
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) if first > 1 && is_of_coalescing(&error) => {
                        let is_too_long = error.raw_os_error() != Some(libc::EIO);
                        self.longest_coalesced = if is_too_long { segment - 1 } else { 0 };
                    }
                    Err(error) => match refused(error)? {
                        Refusal::Again => {}
                        Refusal::Skip => {
                            left = &left[first..];
                            lost += first as u64;
                        }
                    },
                }
            }
        }
    }
}

/// Whether several datagrams were refused because they were one message: the way out computes no
/// checksums (EIO, before Linux 6.11), or what a segment comes to is longer than it carries.
fn is_of_coalescing(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EIO | libc::EINVAL | libc::EMSGSIZE))
}
