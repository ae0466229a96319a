//! Recipes whose calls end as a test says, one after the other.

use std::{
    cell::RefCell,
    collections::VecDeque,
    pin::pin,
    rc::Rc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use client::kit::Request;
use wire::{Header, Op, Status};

use super::*;

/// The first number that is drawn.
const NONCE: u64 = 7;
const LEASE_MS: u32 = 10_000;

/// How a call ends.
enum End {
    /// A read finds this version and value.
    Found(u64, Vec<u8>),
    Absent,
    ReadTimeout,
    /// A write took place, and made this version.
    Written(u64),
    Mismatch,
    Unknown,
}

struct State {
    ends: VecDeque<End>,
    now_ns: u64,
    nonce: u64,
}

/// Ends calls as it says, and lets time pass only while somebody waits.
#[derive(Clone)]
struct Script(Rc<RefCell<State>>);

impl Script {
    fn new(ends: impl IntoIterator<Item = End>) -> Script {
        let ends = ends.into_iter().collect();
        Script(Rc::new(RefCell::new(State { ends, now_ns: 0, nonce: NONCE })))
    }

    /// What comes of the work, which uses the whole script.
    fn run<T>(&self, work: impl Future<Output = T>) -> T {
        let mut context = Context::from_waker(Waker::noop());
        let Poll::Ready(done) = pin!(work).poll(&mut context) else {
            panic!("everything is there at once");
        };
        assert!(self.0.borrow().ends.is_empty(), "it ended before the script");
        done
    }
}

fn answer(op: Op, status: Status, version: u64, value: Vec<u8>) -> Result<Answer, Error> {
    let is_write = op == Op::ChainWriteReply;
    let request = Request { tenant: 7, value_len: 0, is_write };
    let header = Header { status, version, ..Header::new(op) };
    Ok(Answer::new(store(), request, header, value.into()))
}

fn store() -> std::net::SocketAddr {
    ([10, 0, 0, 1], wire::PORT).into()
}

fn unknown() -> Error {
    Error::OutcomeUnknown {
        store: store(),
        after_ms: 5000,
        tries: 9,
        no_room: false,
        try_again: false,
        each_put_off: false,
        denied: None,
        short_path: false,
    }
}

fn timeout() -> Error {
    Error::Timeout {
        store: store(),
        after_ms: 5000,
        tries: 9,
        changes: 0,
        try_again: false,
        denied: None,
        short_path: false,
    }
}

impl Asks for Script {
    async fn call(&self, operation: Operation<'_>) -> Result<Answer, Error> {
        let end = self.0.borrow_mut().ends.pop_front().expect("one call more than expected");
        let is_read = matches!(operation, Operation::Get { .. });
        let (is_for_read, ended) = match end {
            End::Found(version, value) => {
                (true, answer(Op::ChainReadReply, Status::Ok, version, value))
            }
            End::Absent => (true, answer(Op::ChainReadReply, Status::NotFound, 0, vec![])),
            End::ReadTimeout => (true, Err(timeout())),
            End::Written(version) => {
                (false, answer(Op::ChainWriteReply, Status::Ok, version, vec![]))
            }
            End::Mismatch => (false, answer(Op::ChainWriteReply, Status::Mismatch, 1, vec![])),
            End::Unknown => (false, Err(unknown())),
        };
        assert_eq!(is_read, is_for_read, "a read, or a write");
        ended
    }

    async fn watch(
        &self,
        _key: &[u8],
        _tell: impl FnMut(KeyState) -> bool,
        until_ns: u64,
    ) -> Result<(), Error> {
        self.until(until_ns).await;
        Ok(())
    }

    fn now_ns(&self) -> u64 {
        self.0.borrow().now_ns
    }

    async fn until(&self, at_ns: u64) {
        let mut state = self.0.borrow_mut();
        state.now_ns = state.now_ns.max(at_ns);
    }

    fn nonce(&self) -> u64 {
        let mut state = self.0.borrow_mut();
        state.nonce += 1;
        state.nonce - 1
    }
}

/// A counter's value, as the one under test wrote it, or another.
fn number(version: u64, count: i64, by: u64) -> End {
    End::Found(version, format!("{count} {by:016x}").into_bytes())
}

const OTHER: u64 = 0xabc;

/// Adds, with all the time that there is.
fn add(ends: impl IntoIterator<Item = End>) -> Result<i64, Error> {
    add_until(u64::MAX, ends)
}

fn add_until(until_ns: u64, ends: impl IntoIterator<Item = End>) -> Result<i64, Error> {
    let script = Script::new(ends);
    script.run(Counter::new(script.clone(), b"counter").add(1, until_ns))
}

/// The first attempt takes place after it was looked for, and refuses the second.
fn late(then: End) -> [End; 5] {
    [number(1, 5, OTHER), End::Unknown, number(1, 5, OTHER), End::Mismatch, then]
}

#[test]
fn an_addition_that_took_place_late_is_not_made_again() {
    assert_eq!(add(late(number(2, 6, NONCE))).ok(), Some(6));
    let hidden = add(late(number(3, 9, OTHER)));
    assert!(matches!(hidden, Err(Error::OutcomeUnknown { .. })), "{hidden:?}");
    let known = [number(1, 5, OTHER), End::Mismatch, number(2, 6, OTHER), End::Written(3)];
    assert_eq!(add(known).ok(), Some(7), "nothing was unknown");
}

#[test]
fn an_addition_that_may_have_taken_place_is_told_as_no_failed_read() {
    let failed = add([number(1, 5, OTHER), End::Unknown, End::ReadTimeout]);
    assert!(matches!(failed, Err(Error::OutcomeUnknown { .. })), "{failed:?}");
    let failed = add([number(1, 5, OTHER), End::Unknown, End::Found(2, b"rubbish".into())]);
    assert!(matches!(failed, Err(Error::OutcomeUnknown { .. })), "{failed:?}");
    let failed = add([End::ReadTimeout]);
    assert!(matches!(failed, Err(Error::Timeout { .. })), "{failed:?}");
}

#[test]
fn an_addition_ends_when_its_time_has_come_and_says_whether_it_is_in_doubt() {
    let doubt = add_until(0, [number(1, 5, OTHER), End::Unknown, number(1, 5, OTHER)]);
    assert!(matches!(doubt, Err(Error::OutcomeUnknown { .. })), "{doubt:?}");
    let refused = add_until(0, [number(1, 5, OTHER), End::Mismatch, number(2, 6, OTHER)]);
    assert!(matches!(refused, Err(Error::Mismatch { current: 2 })), "{refused:?}");
    let added = add_until(0, [number(1, 5, OTHER), End::Unknown, number(2, 6, NONCE)]);
    assert_eq!(added.ok(), Some(6), "it took place");
    assert_eq!(add_until(0, [number(1, 5, OTHER), End::Written(2)]).ok(), Some(6), "one try");
}

#[test]
fn a_party_whose_first_attempt_took_place_late_counts_once() {
    let late = [
        number(1, 0, OTHER),
        End::Unknown,
        number(1, 0, OTHER),
        End::Mismatch,
        number(2, 1, NONCE),
    ];
    let script = Script::new(late);
    let barrier = Barrier::new(script.clone(), b"barrier", 2);
    assert_eq!(script.run(barrier.enter(1)).ok(), Some(false));
}

/// A lock's value, as whoever drew this number wrote it.
fn lock_value(version: u64, nonce: u64) -> End {
    End::Found(version, [&nonce.to_be_bytes()[..], &LEASE_MS.to_be_bytes()].concat())
}

/// Tries to take a lock; its token, and when it was taken.
fn acquire(ends: impl IntoIterator<Item = End>) -> Result<Option<(u64, u64)>, Error> {
    let script = Script::new(ends);
    let lease = Duration::from_millis(LEASE_MS.into());
    let lock = Lock::new(script.clone(), b"lock", LockOptions { lease, ..LockOptions::default() });
    let held = script.run(lock.acquire());
    held.map(|held| held.map(|held| (held.token(), script.now_ns())))
}

#[test]
fn a_lock_that_may_have_been_taken_is_told_as_no_failed_read() {
    for ends in [
        vec![End::Absent, End::Unknown, End::ReadTimeout],
        vec![End::Absent, End::Unknown, End::Absent, End::ReadTimeout],
        vec![End::Absent, End::Unknown, End::Absent, End::Absent, End::Mismatch, End::ReadTimeout],
    ] {
        let failed = acquire(ends);
        assert!(matches!(failed, Err(Error::OutcomeUnknown { .. })), "{failed:?}");
    }
    let failed = acquire([End::ReadTimeout]);
    assert!(matches!(failed, Err(Error::Timeout { .. })), "{failed:?}");
}

/// Nobody but others has to wait for the lease.
#[test]
fn a_lock_that_was_taken_late_is_taken_again_at_once() {
    let late = [End::Absent, End::Unknown, End::Absent];
    let late = late.into_iter().chain([lock_value(1, NONCE), End::Written(2)]);
    assert_eq!(acquire(late).ok(), Some(Some((2, 0))));
    let refused = [End::Absent, End::Unknown, End::Absent, End::Absent, End::Mismatch];
    let refused = refused.into_iter().chain([lock_value(1, NONCE), End::Written(2)]);
    assert_eq!(acquire(refused).ok(), Some(Some((2, 0))));
    let others = [lock_value(1, OTHER), End::Written(2)];
    let waited_ns = u64::from(LEASE_MS) * 1_000_000 / 16 * 17;
    assert_eq!(acquire(others).ok(), Some(Some((2, waited_ns))));
}
