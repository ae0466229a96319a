//! What goes out.

use std::{io, os::fd::AsFd};

use crate::{datagram::Datagram, slots::Slots};

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
}

impl Sender {
    /// Sends each datagram, in this order, and returns how many of them were given up. `refused` is
    /// asked about each error of the system's; interrupted calls go on by themselves.
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
            let mut batch = self.slots.outgoing(&mut datagrams);
            if batch.is_empty() {
                return Ok(lost);
            }
            while !batch.is_empty() {
                match batch.send(socket.as_fd()) {
                    Ok(()) => {}
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => match refused(error)? {
                        Refusal::Again => {}
                        Refusal::Skip => {
                            batch.skip();
                            lost += 1;
                        }
                    },
                }
            }
        }
    }
}
