//! What is known of a server beside its answers: what it takes, and what is wrong with it. Written
//! beside the connection, read in the server loop.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use crate::backend::{Trouble, TroubleKind};

/// A batch that is answered within this time is not worth a word, in nanoseconds.
const SLOW_NS: u64 = 100_000_000;

/// What is known of a server; its copies are one.
#[derive(Clone, Debug)]
pub(in crate::backend) struct Health(Arc<Facts>);

#[derive(Debug)]
struct Facts {
    /// Bytes of a name and its value that it takes.
    takes: AtomicUsize,
    /// Keys that one command can mark as read.
    marks: AtomicUsize,
    troubles: Mutex<Troubles>,
}

/// Times are nanoseconds of CLOCK_BOOTTIME.
#[derive(Debug, Default)]
struct Troubles {
    /// There is no connection, since then and for this reason.
    away: Option<(u64, String)>,
    /// It refuses requests because of how it is.
    refuses: Option<(u64, String)>,
    /// It was asked then, and has not answered.
    asked_ns: Option<u64>,
}

impl Health {
    /// Of a server of which nothing is known.
    pub fn new() -> Health {
        Health(Arc::new(Facts {
            takes: usize::MAX.into(),
            marks: 0.into(),
            troubles: Mutex::default(),
        }))
    }

    /// It takes no more bytes than this of a name and its value.
    pub fn takes_up_to(&self, bytes: usize) {
        self.0.takes.store(bytes, Relaxed);
    }

    /// Bytes of a name and its value that it takes.
    pub fn takes(&self) -> usize {
        self.0.takes.load(Relaxed)
    }

    /// It evicts what is not read, and one command can mark so many keys as read; 0: it does not.
    pub fn can_mark(&self, keys: usize) {
        self.0.marks.store(keys, Relaxed);
    }

    /// Keys that one command can mark as read.
    pub fn marks(&self) -> usize {
        self.0.marks.load(Relaxed)
    }

    /// There is no connection, for this reason.
    pub fn is_away(&self, why: &str, now_ns: u64) {
        self.with(|troubles| {
            goes_on(&mut troubles.away, why, now_ns);
            troubles.asked_ns = None;
        });
    }

    /// There is one.
    pub fn is_back(&self) {
        self.with(|troubles| troubles.away = None);
    }

    /// It refuses requests, in these words, because of how it is.
    pub fn refuses(&self, words: &str, now_ns: u64) {
        self.with(|troubles| goes_on(&mut troubles.refuses, words, now_ns));
    }

    /// It refuses none any more.
    pub fn refuses_nothing(&self) {
        self.with(|troubles| troubles.refuses = None);
    }

    /// It is asked something.
    pub fn is_asked(&self, now_ns: u64) {
        self.with(|troubles| troubles.asked_ns = Some(now_ns));
    }

    /// It has answered.
    pub fn has_answered(&self) {
        self.with(|troubles| troubles.asked_ns = None);
    }

    /// What is wrong with it, if something is: the worst of it.
    pub fn trouble(&self, now_ns: u64) -> Option<Trouble> {
        self.with(|troubles| {
            let trouble = |kind, (since_ns, words): &(u64, String)| Trouble {
                kind,
                for_ns: now_ns.saturating_sub(*since_ns),
                words: words.clone(),
            };
            let late = troubles.asked_ns.filter(|asked_ns| now_ns > asked_ns + SLOW_NS);
            let away = troubles.away.as_ref().map(|of| trouble(TroubleKind::Away, of));
            let slow = || {
                let words = "what it was asked is not answered yet".to_owned();
                late.map(|asked_ns| trouble(TroubleKind::Slow, &(asked_ns, words)))
            };
            let refuses = || troubles.refuses.as_ref().map(|of| trouble(TroubleKind::Refuses, of));
            away.or_else(slow).or_else(refuses)
        })
    }

    fn with<T>(&self, look: impl FnOnce(&mut Troubles) -> T) -> T {
        look(&mut self.0.troubles.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A trouble that goes on has begun when it did, and its last reason.
fn goes_on(trouble: &mut Option<(u64, String)>, why: &str, now_ns: u64) {
    let (_, words) = trouble.get_or_insert_with(|| (now_ns, String::new()));
    if words != why {
        why.clone_into(words);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn seen(health: &Health, now_ms: u64) -> Option<(TroubleKind, u64, String)> {
        let trouble = health.trouble(now_ms * MS);
        trouble.map(|trouble| (trouble.kind, trouble.for_ns / MS, trouble.words))
    }

    #[test]
    fn a_trouble_has_begun_once_and_its_last_words() {
        let health = Health::new();
        assert_eq!(seen(&health, 0), None);
        health.refuses("OOM no room", 5 * MS);
        health.refuses("MISCONF no disk", 7 * MS);
        let refuses = |ms| Some((TroubleKind::Refuses, ms, "MISCONF no disk".to_owned()));
        assert_eq!(seen(&health, 10), refuses(5));
        health.is_away("cannot connect", 20 * MS);
        assert_eq!(seen(&health, 21), Some((TroubleKind::Away, 1, "cannot connect".into())));
        health.is_back();
        assert_eq!(seen(&health, 30), refuses(25));
        health.refuses_nothing();
        assert_eq!(seen(&health, 31), None);
    }

    #[test]
    fn who_takes_long_to_answer_is_slow_until_he_has() {
        let health = Health::new();
        health.is_asked(0);
        assert_eq!(seen(&health, 100), None);
        assert_eq!(seen(&health, 101).map(|(kind, ..)| kind), Some(TroubleKind::Slow));
        health.has_answered();
        assert_eq!(seen(&health, 500), None);
        health.is_asked(500 * MS);
        health.is_away("no answer", 600 * MS);
        health.is_back();
        assert_eq!(seen(&health, 900), None, "nobody waits for what was given up");
    }
}
