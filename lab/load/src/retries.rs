//! When a request without an answer is sent again. The source asks for what is due, each time that
//! it may send.

use crate::window::Window;

/// What is sent again, and when: each request that is still open, after so long, and then after
/// twice as long each time, as clients do, until it is lost.
///
/// Requests are open in the order in which they were sent, so for the first, the second and each
/// further time one place among them is remembered: nothing is searched.
pub(super) struct Retries {
    first_ns: u64,
    /// For each time, the first request that it has not come for.
    from: Vec<u64>,
}

impl Retries {
    /// As often as there is time for before a request is lost.
    pub fn new(first_ms: Option<u64>, timeout_ms: u64) -> Retries {
        const MS: u64 = 1_000_000;
        let first_ns = first_ms.unwrap_or(timeout_ms).max(1).saturating_mul(MS);
        let end_ns = timeout_ms.saturating_mul(MS);
        let times = after_ns(first_ns).take_while(|after_ns| *after_ns < end_ns);
        Retries { first_ns, from: vec![0; times.count()] }
    }

    /// Whether anything is ever sent again.
    pub fn any(&self) -> bool {
        !self.from.is_empty()
    }

    /// Adds the ids of requests that are to be sent again now.
    pub fn due(&mut self, window: &Window, now_ns: u64, out: &mut Vec<u64>) {
        for (after_ns, from) in after_ns(self.first_ns).zip(&mut self.from) {
            let Some(until_ns) = now_ns.checked_sub(after_ns) else { continue };
            out.extend(std::iter::from_fn(|| window.overdue(from, until_ns)));
        }
    }

    /// When there is something to send again next; `u64::MAX`: nothing is open.
    pub fn next_ns(&self, window: &Window) -> u64 {
        let times = after_ns(self.first_ns).zip(&self.from);
        let all = times.filter_map(|(after_ns, from)| Some(window.sent_ns(*from)? + after_ns));
        all.min().unwrap_or(u64::MAX)
    }
}

/// How long after the first time each further one comes.
fn after_ns(first_ns: u64) -> impl Iterator<Item = u64> {
    (1..u64::BITS).map(move |time| first_ns.saturating_mul((1 << time) - 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::window::SentRequest;

    #[test]
    fn a_request_is_sent_again_until_it_is_answered() {
        let mut retries = Retries::new(Some(10), 35);
        let mut window = Window::new(8);
        let ids = [0, 5]
            .map(|ms| window.push(SentRequest { at_ns: ms * 1_000_000, ..SentRequest::default() }));
        let mut at = |window: &Window, ms: u64| {
            let mut out = vec![];
            retries.due(window, ms * 1_000_000, &mut out);
            (out, retries.next_ns(window).wrapping_div(1_000_000))
        };
        assert_eq!(at(&window, 9), (vec![], 10));
        assert_eq!(at(&window, 10), (vec![ids[0]], 15));
        assert_eq!(at(&window, 21), (vec![ids[1]], 30));
        window.take(ids[0]);
        assert_eq!(at(&window, 30), (vec![], 35));
        assert_eq!(at(&window, 80), (vec![ids[1]], u64::MAX / 1_000_000));
    }

    #[test]
    fn nothing_is_sent_again_unless_that_is_asked_for() {
        assert!(!Retries::new(None, 200).any());
        assert!(Retries::new(Some(50), 200).any());
    }
}
