//! What copies do not tell: the flags that clients give to a value, and the number (CAS) that
//! memcached gave it.
//!
//! While the gateway may serve a copy, nothing about its key changes at memcached, for whoever is
//! to change something has the copy called back first, and then the value has another version. So
//! what memcached says of a key between two moments at which the gateway could serve a copy of the
//! same version is said of that version.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, PoisonError, RwLock},
};

use client::kit::{LocalCopies, now_ns};
use futures_util::StreamExt;
use hashbrown::HashMap;
use tokio::sync::mpsc;

use super::servers::Servers;

/// Keys of which something is known, at most; then all of it is forgotten.
const KEYS: usize = 32 << 10;
/// Keys that are to be asked about, and are not yet.
const WANTED: usize = 1024;
/// Keys that are asked about at a time.
const AT_ONCE: usize = 8;
/// Longest answer to such a question.
const ANSWER_BYTES: usize = 1024;

/// What memcached has beside a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ItemFacts {
    /// What its client gave.
    pub flags: u32,
    /// memcached's number of it.
    pub cas: u64,
}

struct KnownKey {
    version: u64,
    /// None: copies of this version may not answer, for memcached would say more.
    beside: Option<ItemFacts>,
}

/// What is known of keys, by their names.
pub(super) struct KnownItems {
    keys: RwLock<HashMap<Box<[u8]>, KnownKey>>,
    wanted: mpsc::Sender<Box<[u8]>>,
    /// Those that are in the queue, or asked about.
    under_way: Mutex<HashSet<Box<[u8]>>>,
}

/// What is to be asked.
pub(super) struct Questions(mpsc::Receiver<Box<[u8]>>);

impl KnownItems {
    /// Nothing yet. Somebody has to ask: [`KnownItems::asks`].
    pub fn new() -> (KnownItems, Questions) {
        let (wanted, questions) = mpsc::channel(WANTED);
        let known = KnownItems { keys: RwLock::default(), wanted, under_way: Mutex::default() };
        (known, Questions(questions))
    }

    /// What is beside the value of this version.
    ///
    /// # Errors
    /// It is not known; whether to ask.
    pub fn beside(&self, name: &[u8], version: u64) -> Result<ItemFacts, bool> {
        let keys = self.keys.read().unwrap_or_else(PoisonError::into_inner);
        match keys.get(name).filter(|known| known.version == version) {
            Some(known) => known.beside.ok_or(false),
            None => Err(true),
        }
    }

    /// Has it asked, unless it is already, or too much is.
    pub fn want(&self, name: &[u8]) {
        let mut under_way = self.under_way.lock().unwrap_or_else(PoisonError::into_inner);
        if under_way.contains(name) {
            return;
        }
        if self.wanted.try_send(name.into()).is_ok() {
            under_way.insert(name.into());
        }
    }

    /// Asks what is wanted, for as long as it is polled.
    pub async fn asks(&self, questions: Questions, local: &LocalCopies, servers: &Arc<Servers>) {
        let names = futures_util::stream::unfold(questions.0, |mut names| async {
            let name = names.recv().await?;
            Some((name, names))
        });
        names.for_each_concurrent(AT_ONCE, |name| self.learn(name, local, servers)).await;
    }

    async fn learn(&self, name: Box<[u8]>, local: &LocalCopies, servers: &Servers) {
        let version = || {
            let hash = local.hash(&name);
            local.read(hash, &name, now_ns(), |copy| copy.version).ok()
        };
        if let Some(before) = version() {
            let question = [b"mg ", &name[..], b" f c k\r\n"].concat();
            let answer = servers.asked(servers.of(&name), &question, ANSWER_BYTES, true).await;
            if let Ok(answer) = answer
                && let Some(beside) = beside_in(&answer, &name)
                && version() == Some(before)
            {
                self.remember(&name, before, beside);
            }
        }
        let mut under_way = self.under_way.lock().unwrap_or_else(PoisonError::into_inner);
        under_way.remove(&name);
    }

    fn remember(&self, name: &[u8], version: u64, beside: Option<ItemFacts>) {
        let mut keys = self.keys.write().unwrap_or_else(PoisonError::into_inner);
        if keys.len() >= KEYS && !keys.contains_key(name) {
            keys.clear();
        }
        keys.insert(name.into(), KnownKey { version, beside });
    }
}

/// What an answer to `mg KEY f c k` says; none: it is no such answer. Where it says more, or has
/// the key's name in another form, only memcached itself can answer for this value.
fn beside_in(answer: &[u8], name: &[u8]) -> Option<Option<ItemFacts>> {
    let line = std::str::from_utf8(answer.strip_suffix(b"\r\n")?).ok()?;
    let mut words = line.split(' ');
    if words.next() != Some("HD") {
        return None;
    }
    let flags = words.next()?.strip_prefix('f')?.parse().ok()?;
    let cas = words.next()?.strip_prefix('c')?.parse().ok()?;
    let is_named = words.next()?.strip_prefix('k')?.as_bytes() == name;
    Some((is_named && words.next().is_none()).then_some(ItemFacts { flags, cas }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_memcached_says_beside_a_value() {
        let said = |answer: &str| beside_in(answer.as_bytes(), b"k");
        let beside = ItemFacts { flags: 4_294_967_295, cas: 18_446_744_073_709_551_615 };
        let longest = "HD f4294967295 c18446744073709551615 kk\r\n";
        assert_eq!(said(longest), Some(Some(beside)));
        // Stale, about to be made anew by somebody, or written under a name of any bytes.
        for more in ["HD f0 c1 kk W X\r\n", "HD f0 c1 kk Z\r\n", "HD f0 c1 kaw== b\r\n"] {
            assert_eq!(said(more), Some(None), "{more}");
        }
        for no_answer in
            ["EN\r\n", "SERVER_ERROR x\r\n", "HD f0 c1 kk", "HD f0\r\n", "HD f-1 c1 kk\r\n", ""]
        {
            assert_eq!(said(no_answer), None, "{no_answer}");
        }
    }

    #[test]
    fn what_is_known_is_known_of_one_version() {
        let (known, mut questions) = KnownItems::new();
        let beside = ItemFacts { flags: 5, cas: 7 };
        assert_eq!(known.beside(b"k", 1), Err(true));
        known.remember(b"k", 1, Some(beside));
        assert_eq!(known.beside(b"k", 1), Ok(beside));
        assert_eq!(known.beside(b"k", 2), Err(true));
        known.remember(b"k", 2, None);
        assert_eq!(known.beside(b"k", 2), Err(false));
        assert_eq!(known.beside(b"k", 1), Err(true));
        known.want(b"k");
        known.want(b"k");
        assert_eq!(questions.0.try_recv().unwrap(), b"k"[..].into());
        assert!(questions.0.try_recv().is_err());
    }

    #[test]
    fn what_is_known_has_a_bound() {
        let (known, _questions) = KnownItems::new();
        for number in 0..=KEYS {
            known.remember(number.to_string().as_bytes(), 1, None);
        }
        assert_eq!(known.keys.read().unwrap().len(), 1);
        for number in 0..2 * WANTED {
            known.want(number.to_string().as_bytes());
        }
        assert_eq!(known.under_way.lock().unwrap().len(), WANTED);
    }
}
