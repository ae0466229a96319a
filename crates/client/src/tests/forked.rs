//! A client in a process that was forked from its own.

use futures_util::FutureExt;
use nix::{
    sys::wait::{WaitStatus, waitpid},
    unistd::{ForkResult, alarm, fork},
};

use crate::{Client, Error, Options, copies::CopiesThread};

use super::fake::{FakeStore, Faults, patient};

/// Runs something in a child of this process, which ends afterwards; whether it came to its end and
/// was true.
#[expect(unsafe_code, reason = "there is no other way to fork")]
fn is_true_in_a_child(what: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child goes on with one thread of a process that had several. It takes no lock but
    // that of malloc, which the C library leaves free in a child, and ends without handlers.
    match unsafe { fork() }.unwrap() {
        ForkResult::Child => {
            // Where a lock is held after all, by a thread that is not here.
            alarm::set(10);
            let is_true = what();
            // SAFETY: it ends this process.
            unsafe { libc::_exit(if is_true { 7 } else { 1 }) }
        }
        ForkResult::Parent { child } => {
            waitpid(child, None).unwrap() == WaitStatus::Exited(child, 7)
        }
    }
}

#[tokio::test]
async fn a_child_gives_no_request_the_number_of_another_of_its_parent() {
    let store = FakeStore::start(Faults::default()).await;
    let client = Client::connect(&store.cluster(), 0, patient()).await.unwrap();
    client.set("k", "v", None).await.unwrap();
    assert!(is_true_in_a_child(|| {
        let read = client.get("k").now_or_never();
        let written = client.set("k", "w", None).now_or_never();
        matches!((read, written), (Some(Err(Error::Forked)), Some(Err(Error::Forked))))
    }));
    assert_eq!(client.get("k").await.unwrap().unwrap().bytes, "v", "the parent goes on");
    assert_eq!(store.state().applied, 1);
}

/// Its thread is not there to be waited for.
#[tokio::test]
async fn a_child_can_drop_a_client_that_keeps_copies() {
    let store = FakeStore::start(Faults::default()).await;
    let options = Options { cache: 1 << 20, ..patient() };
    let client = Client::connect(&store.cluster(), 0, options).await.unwrap();
    let mut thread = Some(CopiesThread::start(&store.cluster(), 0, 1 << 20, |_| {}).unwrap());
    assert!(is_true_in_a_child(|| {
        thread = None;
        matches!(client.get("k").now_or_never(), Some(Err(Error::Forked)))
    }));
}
