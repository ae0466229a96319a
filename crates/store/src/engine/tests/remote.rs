//! A backend elsewhere, which answers when the test does.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use wire::KeyHash;

use crate::{
    backend::{Answer, Backend, Change, Item, Key, Put, Ticket},
    coherence::Watch,
};

/// What a backend was asked, or told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackendCall {
    Read(Ticket),
    /// With the version that the key is to have.
    Write(Ticket, u64),
    /// A tenant, the version that its key had, and the one that it has.
    Raise(u32, u64, u64),
    Settle(u64),
    /// A command that marks so many keys as read.
    Marks(usize),
    /// One of its keys, with its reads.
    Mark(KeyHash, u32),
}

/// Keys that one command marks.
pub const MARKS_AT_ONCE: usize = 4;

#[derive(Default)]
struct Calls {
    /// In order.
    all: Vec<BackendCall>,
    /// The version of every key, if the test has one.
    present: Option<u64>,
}

/// The backend, and the test's end of it.
#[derive(Clone)]
pub struct RemoteBackend {
    calls: Arc<Mutex<Calls>>,
    watch: Watch,
}

impl RemoteBackend {
    pub fn new(watch: Watch) -> RemoteBackend {
        RemoteBackend { calls: Arc::default(), watch }
    }

    fn calls(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn later<T>(&self, call: BackendCall) -> Answer<T> {
        self.calls().all.push(call);
        Answer::Later
    }

    /// Every key has this version from now on.
    pub fn has_versions(&self, present: u64) {
        self.calls().present = Some(present);
    }

    /// What it was asked since the last time.
    pub fn asked(&self) -> Vec<BackendCall> {
        std::mem::take(&mut self.calls().all)
    }

    /// How often something of this kind was asked and not taken out.
    pub fn count(&self, is_it: impl Fn(&BackendCall) -> bool) -> usize {
        self.calls().all.iter().filter(|call| is_it(call)).count()
    }

    /// Takes out the ticket of the first read.
    pub fn take_read(&self) -> Ticket {
        self.take(|call| match call {
            BackendCall::Read(ticket) => Some(ticket),
            _ => None,
        })
    }

    /// Takes out the ticket of the first write.
    pub fn take_write(&self) -> Ticket {
        self.take(|call| match call {
            BackendCall::Write(ticket, _) => Some(ticket),
            _ => None,
        })
    }

    fn take(&self, ticket_of: impl Fn(BackendCall) -> Option<Ticket>) -> Ticket {
        let all = &mut self.calls().all;
        let found = all.iter().enumerate().find_map(|(at, call)| Some((at, ticket_of(*call)?)));
        let (at, ticket) = found.expect("it was asked");
        all.remove(at);
        ticket
    }
}

impl Backend for RemoteBackend {
    fn get(&mut self, _: Key<'_>, _: u64, ticket: Ticket) -> Answer<Option<Item<&[u8]>>> {
        self.later(BackendCall::Read(ticket))
    }

    fn put(&mut self, _: Key<'_>, put: Put<'_>, _: u64, ticket: Ticket) -> Answer<Change> {
        self.later(BackendCall::Write(ticket, put.version))
    }

    fn raise(&mut self, tenant: u32, _: KeyHash, from: u64, to: u64) -> bool {
        let mut calls = self.calls();
        let applies = calls.present.is_none_or(|present| present == from);
        if applies {
            calls.all.push(BackendCall::Raise(tenant, from, to));
        }
        applies
    }

    fn marks_at_once(&self) -> usize {
        MARKS_AT_ONCE
    }

    fn mark_read(&mut self, keys: &[(Key<'_>, u32)]) {
        let all = &mut self.calls().all;
        all.push(BackendCall::Marks(keys.len()));
        all.extend(keys.iter().map(|(key, reads)| BackendCall::Mark(key.hash, *reads)));
    }

    fn settle(&mut self, _: u32, _: KeyHash, version: u64) {
        self.calls().all.push(BackendCall::Settle(version));
    }

    fn watch(&self) -> Watch {
        self.watch
    }
}
