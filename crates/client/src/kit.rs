//! What a discipline's own client library is made of beside [`Operation`](crate::Operation),
//! [`Answer`](crate::Answer) and [`Error`](crate::Error): the same clock, sockets, waits, seals and
//! bounds as [`Client`](crate::Client)'s.

pub use holder::{CopyNote, Miss};

pub use crate::{
    answer::Request,
    clock::{now_ns, timer},
    copies::{CopiesThread, LocalCopies},
    envelope::{Envelope, Name},
    operation::check_key,
    payload::{max_payload, short_payload},
    port::open_socket,
    process::Process,
    timing::Backoff,
};
