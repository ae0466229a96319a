//! What a store that ended in order leaves to the next one, so that the next need not wait: its
//! life goes on (docs/coherence.md, "Leaving").
//!
//! A file in the state directory. It says that no copy is left anywhere, that no write is under
//! way, and what each client's last writes were answered. It holds once: whoever starts removes it
//! before anything else. One that was not left by the last life, as far as that can be seen, is not
//! believed: of another boot of the machine, of another file, older than a restart takes, or for
//! another place among the stores.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::Path,
};

use anyhow::Context;
use serde::{Deserialize, Serialize};

use crate::{Config, clock::boot_ns, coherence::Nanos, journal::checksum};

/// The file's name in the state directory.
const FILE: &str = "ended";
/// A restart takes less.
const BELIEVED_NS: Nanos = 60_000_000_000;

/// A life that ended in order, and goes on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Handover {
    /// Its name, which clients know.
    pub life: u16,
    /// Its last version.
    pub newest_version: u64,
    /// What clients' last writes were answered.
    pub clients: Vec<ClientRecord>,
}

/// A client's last writes (rule 7).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientRecord {
    /// Its tenant, and the number that it drew.
    pub id: (u32, u64),
    /// When it wrote last, in nanoseconds of the life.
    pub used_ns: Nanos,
    /// The newest request of which nothing is known any more.
    pub forgotten: Option<u64>,
    /// Requests in their order, each with the status and the version that it was answered.
    pub writes: Vec<(u64, u8, u64)>,
}

/// The file's contents.
#[derive(Serialize, Deserialize)]
struct Record {
    /// The boot of the machine, whose clock the times are of.
    boot: String,
    /// The file itself: a copy of it, from a backup, is another one.
    inode: u64,
    /// Which store this is.
    place: u64,
    /// When the life began, and ended.
    began_ns: Nanos,
    ended_ns: Nanos,
    handover: Handover,
}

fn boot() -> io::Result<String> {
    Ok(fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().into())
}

/// What must not change between two lives of which the second goes on with the first.
fn place(config: &Config) -> u64 {
    let cluster = &config.cluster;
    // A number of it: an address may hold a password.
    let text = format!(
        "{:?} {:?} {} {} {:?} {:?} {:?}",
        config.identity,
        config.backend,
        cluster.partitions,
        config.lease_ns(),
        config.longest_lease_ns(),
        cluster.stores,
        cluster.places()
    );
    checksum(text.as_bytes())
}

/// Writes what the store leaves that began at `began_ns` of this boot. It must answer nobody any
/// more.
///
/// # Errors
/// What the system refused; the message names the file.
pub fn leave(
    directory: &Path,
    config: &Config,
    began_ns: Nanos,
    handover: Handover,
) -> anyhow::Result<()> {
    let (path, fresh) = (directory.join(FILE), directory.join(format!("{FILE}.new")));
    let write = || -> io::Result<()> {
        // Clients' numbers are nobody else's affair.
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&fresh)?;
        let record = Record {
            boot: boot()?,
            inode: file.metadata()?.ino(),
            place: place(config),
            began_ns,
            ended_ns: boot_ns(),
            handover,
        };
        file.write_all(&serde_json::to_vec(&record)?)?;
        file.sync_all()?;
        fs::rename(&fresh, &path)?;
        File::open(directory)?.sync_all()
    };
    write().with_context(|| format!("{}", path.display()))
}

/// Takes what the last life left, and when it began; none: it did not end in order, or nobody can
/// tell. It is not there any more then, for certain.
///
/// # Errors
/// It can be neither removed nor emptied. The life that would begin now could crash, and the one
/// after it would go on with the last: writes and copies of the one between would be forgotten.
pub fn take(directory: &Path, config: &Config) -> anyhow::Result<Option<(Nanos, Handover)>> {
    let path = directory.join(FILE);
    // What cannot be read now may be later, when it is not the last life's any more.
    let read = fs::read(&path).and_then(|bytes| Ok((bytes, fs::metadata(&path)?.ino())));
    if read.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
        return Ok(None);
    }
    let removed = fs::remove_file(&path).and_then(|()| File::open(directory)?.sync_all());
    if let Err(error) = removed {
        empty(&path).map_err(|_| error).with_context(|| {
            let path = path.display();
            format!("{path}: it is to be removed before the store starts, and cannot be")
        })?;
        tracing::warn!(
            "{}: emptied, not removed: the store waits as after a crash",
            path.display()
        );
        return Ok(None);
    }
    Ok(read.ok().and_then(|(bytes, inode)| believed(&bytes, inode, config)))
}

/// Nobody believes an empty one.
fn empty(path: &Path) -> io::Result<()> {
    OpenOptions::new().write(true).truncate(true).open(path)?.sync_all()
}

/// What a file says, if it is the last life's.
fn believed(bytes: &[u8], inode: u64, config: &Config) -> Option<(Nanos, Handover)> {
    let record: Record = serde_json::from_slice(bytes).ok()?;
    let now_ns = boot_ns();
    let is_fresh = record.ended_ns <= now_ns && now_ns - record.ended_ns < BELIEVED_NS;
    let is_believed = boot().is_ok_and(|boot| boot == record.boot)
        && inode == record.inode
        && record.place == place(config)
        && record.began_ns <= record.ended_ns
        && is_fresh;
    is_believed.then_some((record.began_ns, record.handover))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handover() -> Handover {
        let client = ClientRecord {
            id: (7, 1),
            used_ns: 5,
            forgotten: Some(3),
            writes: vec![(4, 0, 9), (6, 2, 8)],
        };
        Handover { life: 5, newest_version: 9, clients: vec![client] }
    }

    #[test]
    fn what_a_life_leaves_is_taken_once_and_by_the_same_store_only() {
        let home = tempfile::tempdir().unwrap();
        let config = Config::new("127.0.0.1:7117".parse().unwrap());
        let path = home.path().join(FILE);
        let leave = || leave(home.path(), &config, 1, handover()).unwrap();
        let take = |config: &Config| take(home.path(), config).unwrap();
        leave();
        assert_eq!(take(&config), Some((1, handover())));
        assert_eq!(take(&config), None, "once");
        // A copy that is put back, as from a backup.
        leave();
        let copy = home.path().join("copy");
        fs::copy(&path, &copy).unwrap();
        assert!(take(&config).is_some());
        fs::rename(&copy, &path).unwrap();
        assert_eq!(take(&config), None, "another file");
        assert!(!path.exists());
        // Other partitions are this store's now.
        leave();
        let mut other = config.clone();
        other.cluster.partitions = 2;
        assert_eq!(take(&other), None);
        // Of another boot, from the future, long ago, or torn.
        for change in [
            |record: &mut Record| record.boot = "another".into(),
            |record: &mut Record| record.ended_ns = u64::MAX,
            |record: &mut Record| record.ended_ns = record.ended_ns.saturating_sub(BELIEVED_NS),
        ] {
            leave();
            let mut record: Record = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
            change(&mut record);
            fs::write(&path, serde_json::to_vec(&record).unwrap()).unwrap();
            assert_eq!(take(&config), None);
        }
        leave();
        fs::write(&path, "{").unwrap();
        assert_eq!(take(&config), None);
        // One that cannot be read is not there for the life after this one either.
        std::os::unix::fs::symlink(FILE, &path).unwrap();
        assert_eq!(take(&config), None);
        assert!(fs::symlink_metadata(&path).is_err());
    }

    #[test]
    fn what_cannot_be_removed_is_emptied_or_no_life_begins() {
        let home = tempfile::tempdir().unwrap();
        let config = Config::new("127.0.0.1:7117".parse().unwrap());
        let path = home.path().join(FILE);
        leave(home.path(), &config, 1, handover()).unwrap();
        empty(&path).unwrap();
        assert_eq!(take(home.path(), &config).unwrap(), None);
        // Nobody can remove a directory as a file, nor empty it.
        fs::create_dir(&path).unwrap();
        let error = take(home.path(), &config).unwrap_err();
        assert!(error.to_string().contains("cannot be"), "{error:#}");
    }
}
