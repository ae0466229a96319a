//! The tokens in force: of a file that is read again when it changes, or none.

use std::{
    fs::Metadata,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use super::{Pass, TokenError, Tokens};

/// How often the file is looked at, at most.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Who gets in. A token file that changes is in force about a second later; while it cannot be
/// used, the last good one stays. Connections end on which a token was shown that is not in it any
/// more, or allows something else.
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
    /// Looks are whole seconds after it.
    began: Instant,
    /// How often the file was read.
    revision: u64,
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
            began: Instant::now(),
            revision: 0,
        };
        Ok(Access { tokens: Some(Mutex::new(watched)) })
    }

    /// There are no tokens.
    pub fn is_open(&self) -> bool {
        self.tokens.is_none()
    }

    /// Whose token this is.
    pub fn find(&self, token: &str) -> Option<Pass> {
        self.watched()?.tokens.find(token)
    }

    /// Whether whoever showed this one's token may still be here.
    pub fn admits(&self, pass: &Pass) -> bool {
        self.watched().is_none_or(|watched| watched.tokens.admit(pass))
    }

    /// When who waits for other tokens is to look, the same time for all who wait, so that they
    /// wake this process once; none: there are no tokens, and none come.
    pub fn next_look(&self) -> Option<Instant> {
        let began = self.watched()?.began;
        let looks = began.elapsed().as_secs() / LOOK_EVERY.as_secs() + 1;
        Some(began + LOOK_EVERY * looks as u32)
    }

    /// Another number once the tokens may be others.
    pub fn revision(&self) -> u64 {
        self.watched().map_or(0, |watched| watched.revision)
    }

    /// The tokens, as of a second ago or later; none: there are no tokens.
    fn watched(&self) -> Option<MutexGuard<'_, WatchedTokens>> {
        let watched = self.tokens.as_ref()?.lock();
        let mut watched = watched.unwrap_or_else(PoisonError::into_inner);
        if watched.looked.elapsed() >= LOOK_EVERY {
            watched.look();
        }
        Some(watched)
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
                self.revision += 1;
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
