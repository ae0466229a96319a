//! How often a server is asked something where there is nothing to ask.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::{sync::Notify, time::timeout};

use super::HEARTBEAT;

/// As often while nobody reads or writes anything: a process that is woken ten times a second keeps
/// a processor from its rest.
const IDLE_HEARTBEAT: Duration = Duration::from_millis(700);
/// It counts as read and written for so long after it was.
const ATTENDED_NS: u64 = 1_000_000_000;

/// Whether anybody reads or writes. Its copies are one. Times are of CLOCK_BOOTTIME.
#[derive(Clone, Debug, Default)]
pub(super) struct Attention(Arc<Facts>);

#[derive(Debug, Default)]
struct Facts {
    until_ns: AtomicU64,
    asked: Notify,
}

impl Attention {
    /// Somebody does.
    pub fn attend(&self, now_ns: u64) {
        self.0.until_ns.store(now_ns + ATTENDED_NS, Relaxed);
    }

    /// A question is to be asked now.
    pub fn ask(&self) {
        self.0.asked.notify_one();
    }

    /// From one question to the next.
    fn interval(&self, now_ns: u64) -> Duration {
        match now_ns < self.0.until_ns.load(Relaxed) {
            true => HEARTBEAT,
            false => IDLE_HEARTBEAT,
        }
    }

    /// Waits until a question is to be asked; the last one was asked at this time.
    pub async fn asks_now(&self, now_ns: u64) {
        let _ = timeout(self.interval(now_ns), self.0.asked.notified()).await;
    }
}

#[cfg(test)]
mod tests {
    use std::{
        pin::pin,
        task::{Context, Waker},
    };

    use super::*;

    #[test]
    fn what_nobody_reads_is_asked_seldom() {
        let attention = Attention::default();
        let later_ns = 5 * ATTENDED_NS;
        assert_eq!(attention.interval(later_ns), IDLE_HEARTBEAT);
        attention.clone().attend(later_ns);
        assert_eq!(attention.interval(later_ns + ATTENDED_NS - 1), HEARTBEAT);
        assert_eq!(attention.interval(later_ns + ATTENDED_NS), IDLE_HEARTBEAT);
    }

    #[tokio::test]
    async fn a_question_that_is_wanted_is_not_waited_for() {
        let attention = Attention::default();
        let mut cx = Context::from_waker(Waker::noop());
        attention.ask();
        assert!(pin!(attention.asks_now(0)).poll(&mut cx).is_ready());
        assert!(pin!(attention.asks_now(0)).poll(&mut cx).is_pending(), "it was wanted once");
    }
}
