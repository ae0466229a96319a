//! What applications keep near today, one cache for all connections of a host: values that live for
//! a short time, and values that Redis says are not valid any more (client tracking). Values are
//! kept as the numbers that they say.

use std::{
    collections::HashMap,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use anyhow::{Context, ensure};

use super::values::key_in;
use crate::resp::write_command;

/// How often whoever listens for invalidations looks whether it is to end.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// What is kept of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CachedKey {
    /// It is being read: what comes is kept unless it was invalidated meanwhile.
    Asked(u64),
    /// This value, until a time.
    Value { number: u64, until_ns: u64 },
}

/// A cache of one host.
#[derive(Default)]
pub(crate) struct NearCache {
    kept: Mutex<HashMap<u32, CachedKey>>,
}

impl NearCache {
    fn locked(&self) -> MutexGuard<'_, HashMap<u32, CachedKey>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is kept of a key at this time. None: it is read as `ask`, a number that nobody else
    /// asks under.
    pub fn read(&self, key: u32, ask: u64, now_ns: u64) -> Option<u64> {
        let mut kept = self.locked();
        match kept.get(&key) {
            Some(CachedKey::Value { number, until_ns }) if now_ns < *until_ns => Some(*number),
            _ => {
                kept.insert(key, CachedKey::Asked(ask));
                None
            }
        }
    }

    /// A value has come that was read as `ask`: it is kept until a time, unless somebody else asked
    /// for it since, or the key was invalidated.
    pub fn put(&self, key: u32, ask: u64, number: u64, until_ns: u64) {
        let mut kept = self.locked();
        if kept.get(&key) == Some(&CachedKey::Asked(ask)) {
            kept.insert(key, CachedKey::Value { number, until_ns });
        }
    }

    /// A key is not what it was.
    pub fn forget(&self, key: u32) {
        self.locked().remove(&key);
    }

    fn forget_all(&self) {
        self.locked().clear();
    }
}

/// A connection over which a Redis says what is not valid any more.
pub(crate) struct Invalidations {
    stream: BufReader<TcpStream>,
    /// What other connections name it by.
    pub id: String,
}

impl Invalidations {
    pub fn of(server: SocketAddr) -> anyhow::Result<Invalidations> {
        let stream = TcpStream::connect(server).with_context(|| format!("to {server}"))?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        let mut stream = BufReader::new(stream);
        let mut asked = vec![];
        write_command(&mut asked, &[b"HELLO", b"3"])?;
        write_command(&mut asked, &[b"CLIENT", b"ID"])?;
        stream.get_mut().write_all(&asked)?;
        // The map that HELLO answers has no number by itself on a line but as `:`, and the one of
        // CLIENT ID is the last.
        let mut id = String::new();
        skip(&mut stream)?;
        stream.read_line(&mut id)?;
        let id = id.trim().strip_prefix(':').map(String::from);
        let id = id.with_context(|| format!("{server}: CLIENT ID"))?;
        Ok(Invalidations { stream, id })
    }

    /// Takes what it says out of a cache until `stop`.
    pub fn listen(mut self, cache: &Arc<NearCache>, stop: &AtomicBool) -> anyhow::Result<()> {
        self.stream.get_ref().set_read_timeout(Some(LOOK_EVERY))?;
        while !stop.load(Ordering::Relaxed) {
            match self.stream.fill_buf() {
                Ok([]) => anyhow::bail!("the connection of invalidations has ended"),
                Ok(_) => {}
                Err(_) => continue,
            }
            // Something is there, and the rest of it is on its way.
            self.stream.get_ref().set_read_timeout(Some(Duration::from_secs(5)))?;
            self.take(cache)?;
            self.stream.get_ref().set_read_timeout(Some(LOOK_EVERY))?;
        }
        Ok(())
    }

    /// `>2`, `invalidate`, and the keys; none: all of them.
    fn take(&mut self, cache: &NearCache) -> anyhow::Result<()> {
        let said = line(&mut self.stream)?;
        ensure!(said == ">2", "{said}: an invalidation is expected");
        skip(&mut self.stream)?;
        let keys = line(&mut self.stream)?;
        let Some(count) = keys.strip_prefix('*') else {
            cache.forget_all();
            return Ok(());
        };
        for _ in 0..count.parse::<usize>()? {
            let len = line(&mut self.stream)?;
            let len: usize = len.strip_prefix('$').context("the length of a key")?.parse()?;
            let mut key = vec![0; len + 2];
            self.stream.read_exact(&mut key)?;
            if let Some(key) = key_in(&key[..len]) {
                cache.forget(key);
            }
        }
        Ok(())
    }
}

fn line(stream: &mut impl BufRead) -> anyhow::Result<String> {
    let mut line = String::new();
    stream.read_line(&mut line)?;
    ensure!(line.ends_with('\n'), "the connection has ended");
    Ok(line.trim_end().to_owned())
}

/// Reads one value of whatever kind.
fn skip(stream: &mut impl BufRead) -> anyhow::Result<()> {
    let mut left = 1usize;
    while left > 0 {
        left -= 1;
        let said = line(stream)?;
        let (kind, rest) = said.split_at_checked(1).context("an empty line")?;
        match kind {
            "$" | "=" if rest != "-1" => {
                let mut bytes = vec![0; rest.parse::<usize>()? + 2];
                stream.read_exact(&mut bytes)?;
            }
            "*" | ">" | "~" if rest != "-1" => left += rest.parse::<usize>()?,
            "%" => left += 2 * rest.parse::<usize>()?,
            "-" => anyhow::bail!("{said}"),
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_invalidated_while_it_was_read_is_not_kept() {
        let cache = NearCache::default();
        assert_eq!(cache.read(1, 10, 0), None);
        cache.put(1, 10, 77, 100);
        assert_eq!((cache.read(1, 11, 99), cache.read(1, 12, 100)), (Some(77), None));
        cache.forget(1);
        cache.put(1, 12, 78, 200);
        assert_eq!(cache.read(1, 13, 0), None);
        // Another asks meanwhile: what the first is answered may be older than what it read.
        assert_eq!(cache.read(1, 14, 0), None);
        cache.put(1, 13, 79, 200);
        assert_eq!(cache.read(1, 15, 0), None);
    }

    #[test]
    fn whatever_redis_says_is_skipped() {
        let mut said: &[u8] = b"%2\r\n$1\r\na\r\n*2\r\n:1\r\n$-1\r\n+b\r\n_\r\n:7\r\n";
        skip(&mut said).unwrap();
        assert_eq!(said, b":7\r\n");
        assert!(skip(&mut &b"-ERR no\r\n"[..]).is_err());
    }
}
