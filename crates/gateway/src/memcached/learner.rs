//! What copies do not tell: the flags that clients give to a value, and the number (CAS) that
//! memcached gave it.
//!
//! While the gateway may serve a copy, nothing about its key changes at memcached, for whoever is
//! to change something has the copy called back first, and then the value has another version. So
//! what memcached says of a key between two moments at which the gateway could serve a copy of the
//! same version is said of that version, and is noted of the copy.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use client::kit::{CopyNote, LocalCopies, now_ns};
use futures_util::StreamExt;
use tokio::{sync::mpsc, time::timeout};

use super::servers::Servers;

/// Keys that are to be asked about, and are not yet.
const WANTED: usize = 1024;
/// Keys that are asked about at a time.
const AT_ONCE: usize = 8;
/// How long the answer to a question may take: a server that stands still does not keep others
/// from being asked.
const WITHIN: Duration = Duration::from_secs(1);
/// Longest answer.
const ANSWER_BYTES: usize = 1024;
/// The note of a copy of which memcached would say more than anybody here.
const UNTOLD: CopyNote = [u64::MAX; 2];

/// What memcached has beside a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ItemFacts {
    /// What its client gave.
    pub flags: u32,
    /// memcached's number of it.
    pub cas: u64,
}

/// What is known of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Knowledge {
    /// Nothing yet.
    None,
    /// It may not answer: memcached would say more.
    NotHere,
    Facts(ItemFacts),
}

impl From<Option<CopyNote>> for Knowledge {
    fn from(note: Option<CopyNote>) -> Knowledge {
        match note {
            None => Knowledge::None,
            Some(UNTOLD) => Knowledge::NotHere,
            Some([flags, cas]) => Knowledge::Facts(ItemFacts { flags: flags as u32, cas }),
        }
    }
}

/// What is asked about keys, by their names.
pub(super) struct Learner {
    wanted: mpsc::Sender<Box<[u8]>>,
    /// Those that are in the queue, or asked about.
    under_way: Mutex<HashSet<Box<[u8]>>>,
}

/// What is to be asked.
pub(super) struct Questions(mpsc::Receiver<Box<[u8]>>);

impl Learner {
    /// Somebody has to ask: [`Learner::asks`].
    pub fn new() -> (Learner, Questions) {
        let (wanted, questions) = mpsc::channel(WANTED);
        (Learner { wanted, under_way: Mutex::default() }, Questions(questions))
    }

    /// Has it asked about a key, unless it is already, or too much is.
    pub fn want(&self, name: &[u8]) {
        let mut under_way = self.under_way.lock().unwrap_or_else(PoisonError::into_inner);
        if !under_way.contains(name) && self.wanted.try_send(name.into()).is_ok() {
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
        let hash = local.hash(&name);
        if let Some(version) = local.version(hash, &name, now_ns()) {
            let question = [b"mg ", &name[..], b" f c k\r\n"].concat();
            let asked = servers.asked_once(servers.of(&name), &question, ANSWER_BYTES);
            if let Ok(Ok(answer)) = timeout(WITHIN, asked).await
                && let Some(note) = note_in(&answer, &name)
            {
                local.note(hash, &name, now_ns(), (version, note));
            }
        }
        let mut under_way = self.under_way.lock().unwrap_or_else(PoisonError::into_inner);
        under_way.remove(&name);
    }
}

/// What is noted of an answer to `mg KEY f c k`; none: it is no such answer. Where it says more, or
/// has the key's name in another form, only memcached itself can answer for this value.
fn note_in(answer: &[u8], name: &[u8]) -> Option<CopyNote> {
    let line = std::str::from_utf8(answer.strip_suffix(b"\r\n")?).ok()?;
    let mut words = line.split(' ');
    if words.next() != Some("HD") {
        return None;
    }
    let flags: u32 = words.next()?.strip_prefix('f')?.parse().ok()?;
    let cas = words.next()?.strip_prefix('c')?.parse().ok()?;
    let is_named = words.next()?.strip_prefix('k')?.as_bytes() == name;
    Some(if is_named && words.next().is_none() { [flags.into(), cas] } else { UNTOLD })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_memcached_says_beside_a_value() {
        let said = |answer: &str| note_in(answer.as_bytes(), b"k");
        let longest = "HD f4294967295 c18446744073709551615 kk\r\n";
        let facts = ItemFacts { flags: u32::MAX, cas: u64::MAX };
        assert_eq!(Knowledge::from(said(longest)), Knowledge::Facts(facts));
        // Stale, about to be made anew by somebody, or written under a name of any bytes.
        for more in ["HD f0 c1 kk W X\r\n", "HD f0 c1 kk Z\r\n", "HD f0 c1 kaw== b\r\n"] {
            assert_eq!(Knowledge::from(said(more)), Knowledge::NotHere, "{more}");
        }
        for no_answer in
            ["EN\r\n", "SERVER_ERROR x\r\n", "HD f0 c1 kk", "HD f0\r\n", "HD f-1 c1 kk\r\n", ""]
        {
            assert_eq!(said(no_answer), None, "{no_answer}");
        }
    }

    #[test]
    fn a_key_is_asked_about_once_and_not_too_many_are() {
        let (learner, mut questions) = Learner::new();
        (0..3).for_each(|_| learner.want(b"k"));
        assert_eq!(questions.0.try_recv().unwrap(), b"k"[..].into());
        assert!(questions.0.try_recv().is_err());
        (0..2 * WANTED).for_each(|number| learner.want(number.to_string().as_bytes()));
        assert_eq!(learner.under_way.lock().unwrap().len(), 1 + WANTED);
    }
}
