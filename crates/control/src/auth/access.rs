//! The tokens in force: of a file that is read again when it changes, or none.

use std::{
    fs::Metadata,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard},
    time::{Duration, Instant},
};

use super::{Caller, TokenError, Tokens};

/// How often the file is looked at, at most.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Who gets in. A token file that changes is in force about a second later; while it cannot be
/// used, the last good one stays. Streams that are open go on.
#[derive(Debug)]
pub struct Access {
    tokens: Option<Mutex<WatchedTokens>>,
}

#[derive(Debug)]
struct WatchedTokens {
    path: PathBuf,
    tokens: Tokens,
    stamp: Stamp,
    looked: Instant,
}

/// What changes when a file does: inode, length, time of the last change.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Stamp(u64, u64, i64, i64);

impl Stamp {
    fn of(file: &Metadata) -> Stamp {
        Stamp(file.ino(), file.size(), file.ctime(), file.ctime_nsec())
    }
}

impl Access {
    /// Everybody may do everything.
    pub fn open() -> Access {
        Access { tokens: None }
    }

    /// Who has a token of this file.
    ///
    /// # Errors
    /// [`TokenError`] says what is wrong with the file.
    pub fn from_file(path: &Path) -> Result<Access, TokenError> {
        let (tokens, metadata) = Tokens::read(path)?;
        let watched = WatchedTokens {
            path: path.into(),
            tokens,
            stamp: Stamp::of(&metadata),
            looked: Instant::now(),
        };
        Ok(Access { tokens: Some(Mutex::new(watched)) })
    }

    /// There are no tokens.
    pub fn is_open(&self) -> bool {
        self.tokens.is_none()
    }

    /// Whose token this is.
    pub fn find(&self, token: &str) -> Option<Caller> {
        let mut watched: MutexGuard<'_, WatchedTokens> =
            self.tokens.as_ref()?.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if watched.looked.elapsed() >= LOOK_EVERY {
            watched.look();
        }
        watched.tokens.find(token)
    }
}

impl WatchedTokens {
    fn look(&mut self) {
        self.looked = Instant::now();
        let stamp = std::fs::metadata(&self.path).map(|file| Stamp::of(&file));
        if stamp.as_ref().is_ok_and(|stamp| *stamp == self.stamp) {
            return;
        }
        match Tokens::read(&self.path) {
            Ok((tokens, metadata)) => {
                (self.tokens, self.stamp) = (tokens, Stamp::of(&metadata));
                tracing::info!(file = %self.path.display(), "tokens read again");
            }
            Err(error) => {
                tracing::warn!("{error}; the tokens before stay in force");
                // Said once; looked at again when it changes.
                if let Ok(stamp) = stamp {
                    self.stamp = stamp;
                }
            }
        }
    }
}
