//! As whom a command asks: the switches remember each client's last writes, and that takes room of
//! the tenant's. So a command goes on under the id that an earlier one of the same user had, which
//! is kept in a file that one command at a time has locked.
//!
//! Numbers of requests only rise. They go by the clock, in microseconds, which no command outruns;
//! and what a file says is above all that were used under its id, should the clock go back. What is
//! lost with a file is room for one more client until the switches forget the last one.

use std::{
    fs::{DirBuilder, File, OpenOptions},
    io::{self, Read, Seek, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    time::SystemTime,
};

use anyhow::Context;
use chain_client::Identity;

/// Commands of one user and tenant that go on as another one at the same time; more are new ones.
const MOST: usize = 64;
/// Numbers that a command may use beside those that the clock gives it.
const RESERVED: u64 = 1 << 20;

/// An identity that no other command has while this is there.
pub struct LockedIdentity {
    /// As whom to ask.
    pub identity: Identity,
    _locked: File,
}

/// Goes on as an earlier command did. Where no directory is named it is one that does not outlive
/// the machine's power; without any there is no identity.
///
/// # Errors
/// A directory that was asked for cannot be used.
pub fn take(dir: Option<&Path>, tenant: u32) -> anyhow::Result<Option<LockedIdentity>> {
    match dir {
        Some(dir) => take_in(dir, tenant).with_context(|| {
            format!("--state-dir {}: expected a directory of this user's own", dir.display())
        }),
        None => Ok(take_in(&usual_dir(), tenant).unwrap_or(None)),
    }
}

fn user() -> u32 {
    // SAFETY: always succeeds.
    unsafe { libc::geteuid() }
}

fn usual_dir() -> PathBuf {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    match (runtime.filter(|dir| dir.is_absolute()), user()) {
        (Some(dir), _) => dir.join("shortstop-coord"),
        (None, 0) => "/run/shortstop-coord".into(),
        (None, user) => std::env::temp_dir().join(format!("shortstop-coord-{user}")),
    }
}

fn take_in(dir: &Path, tenant: u32) -> io::Result<Option<LockedIdentity>> {
    match DirBuilder::new().mode(0o700).create(dir) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    // Who may write there says whom others are taken for.
    let found = dir.symlink_metadata()?;
    if !found.is_dir() || found.uid() != user() || found.mode() & 0o022 != 0 {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    for place in 0..MOST {
        let path = dir.join(format!("{tenant}-{place}"));
        let mut open = OpenOptions::new();
        open.read(true).write(true).create(true).truncate(false).mode(0o600);
        let mut file = open.custom_flags(libc::O_NOFOLLOW).open(path)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(std::fs::TryLockError::WouldBlock) => continue,
            Err(std::fs::TryLockError::Error(error)) => return Err(error),
        }
        let identity = go_on(&mut file)?;
        return Ok(Some(LockedIdentity { identity, _locked: file }));
    }
    Ok(None)
}

/// Reads whose id it is, and writes which numbers are used from now on before any is.
fn go_on(file: &mut File) -> io::Result<Identity> {
    let mut text = String::new();
    // What is not text is as good as nothing.
    let _ = file.read_to_string(&mut text);
    let before = parse(&text);
    let clock = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let now = clock.map_or(0, |since| since.as_micros() as u64).max(1);
    let on = before.map(|it| Identity { first: it.first.max(now), ..it });
    let on = on.filter(|it| it.first < Identity::NUMBERS - RESERVED);
    let identity = on.unwrap_or_else(|| Identity { first: now, ..Identity::random() });
    file.rewind()?;
    file.set_len(0)?;
    let line = format!("{:016x} {:020}\n", identity.client, identity.first + RESERVED);
    file.write_all(line.as_bytes())?;
    Ok(identity)
}

fn parse(text: &str) -> Option<Identity> {
    let (client, first) = text.trim_end().split_once(' ')?;
    Some(Identity { client: u64::from_str_radix(client, 16).ok()?, first: first.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dir(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("coord-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        dir
    }

    fn known(dir: &Path) -> LockedIdentity {
        take(Some(dir), 7).expect("a directory").expect("a place")
    }

    #[test]
    fn one_goes_on_as_the_one_before_and_beside_another_it_is_another() {
        let dir = dir("known");
        let first = known(&dir).identity;
        let second = known(&dir);
        assert_eq!(second.identity.client, first.client);
        assert!(second.identity.first >= first.first + RESERVED);
        let beside = known(&dir);
        assert_ne!(beside.identity.client, first.client);
        let other = take(Some(&dir), 8).expect("a directory").expect("a place");
        assert_ne!(other.identity.client, first.client, "another tenant's");
        drop((second, beside, other));
        let third = known(&dir);
        assert_eq!(third.identity.client, first.client);
        std::fs::remove_dir_all(dir).expect("it is there");
    }

    #[test]
    fn numbers_rise_though_the_clock_went_back_and_what_nobody_wrote_is_not_believed() {
        let dir = dir("numbers");
        drop(known(&dir));
        let file = dir.join("7-0");
        let later = 1 << 57;
        std::fs::write(&file, format!("{:016x} {later:020}\n", 5)).expect("it is there");
        assert_eq!(known(&dir).identity, Identity { client: 5, first: later });
        assert_eq!(known(&dir).identity, Identity { client: 5, first: later + RESERVED });
        for text in ["", "5", "x y\n", "5 99999999999999999999\n", "5 288230376151711743\n"] {
            std::fs::write(&file, text).expect("it is there");
            assert_ne!(known(&dir).identity.client, 5, "{text:?}");
        }
        std::fs::remove_dir_all(dir).expect("it is there");
    }

    #[test]
    fn what_others_may_write_is_refused_where_it_was_asked_for() {
        use std::os::unix::fs::PermissionsExt;
        let dir = dir("others");
        drop(known(&dir));
        let open = std::fs::Permissions::from_mode(0o777);
        std::fs::set_permissions(&dir, open).expect("it is ours");
        assert!(take(Some(&dir), 7).is_err());
        assert!(take(Some(&dir.join("a").join("b")), 7).is_err());
        std::fs::remove_dir_all(dir).expect("it is there");
    }
}
