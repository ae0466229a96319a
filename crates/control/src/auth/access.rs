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
    /// What was said last of a file that could not be read.
    unread: Option<String>,
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
            unread: None,
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
        self.take(stamp.ok(), Tokens::read(&self.path));
    }

    /// What came of reading the file, which had this stamp before.
    fn take(&mut self, stamp: Option<Stamp>, read: Result<(Tokens, Metadata), TokenError>) {
        let before = self.unread.take();
        match read {
            Ok((tokens, metadata)) => {
                (self.tokens, self.stamp) = (tokens, Stamp::of(&metadata));
                self.revision += 1;
                tracing::info!(file = %self.path.display(), "tokens read again");
            }
            // It may be without a token that was revoked: it is read as soon as it can be.
            Err(error) if error.unread => {
                let text = error.to_string();
                if before.as_ref() != Some(&text) {
                    tracing::warn!("{text}; the tokens before stay in force until it can be");
                }
                self.unread = Some(text);
            }
            Err(error) => {
                tracing::warn!("{error}; the tokens before stay in force");
                // Said once; looked at again when it changes.
                self.stamp = stamp.unwrap_or(self.stamp);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::auth::{NewToken, Role, make};

    /// As where the process has too many files open.
    #[test]
    fn a_file_that_could_not_be_read_for_a_moment_is_read_when_it_can_be() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tokens.toml");
        let write = |text: &str| {
            // Another file each time, so that its stamp is another whatever the clock says.
            let fresh = directory.path().join("fresh");
            std::fs::write(&fresh, text).unwrap();
            std::fs::set_permissions(&fresh, std::fs::Permissions::from_mode(0o600)).unwrap();
            std::fs::rename(fresh, &path).unwrap();
        };
        let [revoked, stays] = ["revoked", "stays"].map(|name| make(name, Role::Admin).unwrap());
        write(&format!("{}{}", revoked.entry, stays.entry));
        let access = Access::from_file(&path).unwrap();
        let mut watched = access.tokens.as_ref().unwrap().lock().unwrap();
        write(&stays.entry);
        let stamp = || Some(Stamp::of(&std::fs::metadata(&path).unwrap()));
        let unread = Tokens::read(&directory.path().join("none"));
        watched.take(stamp(), unread);
        let is_known =
            |watched: &WatchedTokens, token: &NewToken| watched.tokens.find(&token.token).is_some();
        assert!(is_known(&watched, &revoked), "the tokens before stay in force meanwhile");
        watched.look();
        assert!(!is_known(&watched, &revoked) && is_known(&watched, &stays));
        // What it says is wrong: that does not pass by itself.
        write("no tokens");
        watched.look();
        assert_eq!(Some(watched.stamp), stamp());
        assert!(is_known(&watched, &stays));
    }
}
