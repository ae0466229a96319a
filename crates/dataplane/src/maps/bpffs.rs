//! The directory of a switch in bpffs, with the names of all that is pinned there. The kernel
//! forgets it when the machine stops.

use std::{
    collections::BTreeSet,
    fs::{self, DirBuilder},
    io::ErrorKind,
    os::unix::fs::{DirBuilderExt, MetadataExt},
    path::{Path, PathBuf},
};

use libbpf_rs::{MapCore, MapHandle};

use super::mount::{self, ROOT};
use crate::Error;

/// Directories of what programs of earlier loadings still use.
const ASIDE: &str = "aside-";
/// Where a switch's maps and links are pinned: `/sys/fs/bpf/shortstop/NAME`.
#[derive(Clone, Debug, PartialEq)]
pub struct Home {
    name: String,
    path: PathBuf,
}

impl Home {
    /// The home of a switch of this name; nothing is created.
    ///
    /// # Errors
    /// [`Error::BadName`] for a name that cannot be a directory.
    pub fn new(name: &str) -> Result<Home, Error> {
        // bpffs takes no dots.
        let fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        let usable = (1..=64).contains(&name.len()) && name.chars().all(fine);
        if !usable {
            return Err(Error::BadName(name.into()));
        }
        mount::reach();
        let path = Path::new(ROOT).join("shortstop").join(name);
        Ok(Home { name: name.into(), path })
    }

    /// The switch's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether anything of this switch is pinned.
    pub fn exists(&self) -> bool {
        self.map("config").exists()
    }

    /// [`Error::NoSwitch`] unless the switch is there; [`Error::NotSeen`] if nobody may look.
    pub(crate) fn must_exist(&self) -> Result<(), Error> {
        match self.map("config").try_exists() {
            Ok(true) => Ok(()),
            Err(e) if e.kind() == ErrorKind::PermissionDenied => {
                Err(Error::NotSeen(self.path.clone()))
            }
            _ => Err(Error::NoSwitch(self.name.clone())),
        }
    }

    pub(crate) fn map(&self, map: &str) -> PathBuf {
        self.path.join(map)
    }

    /// The names of the maps that a discipline of that name has of its own.
    pub(crate) fn maps_of(&self, discipline: &str) -> Result<Vec<String>, Error> {
        let prefix = format!("{discipline}_");
        let pins = fs::read_dir(&self.path).map_err(Error::file("reading", &self.path))?;
        let names = pins.flatten().filter_map(|pin| pin.file_name().into_string().ok());
        Ok(names.filter(|name| name.starts_with(&prefix)).collect())
    }

    pub(crate) fn links(&self) -> PathBuf {
        self.path.join("links")
    }

    /// Directory that says that a feature of an interface was turned off.
    pub(crate) fn offload(&self, feature: &str, interface: &str, ifindex: u32) -> PathBuf {
        let interface = without_dots(interface);
        self.path.join(format!("off-{feature}-{interface}-{ifindex}"))
    }

    /// Where the link at the far end of the recirculation port of that number is pinned.
    pub(crate) fn recirculation(&self, number: u32) -> PathBuf {
        match number {
            0 => self.path.join("recirculation_link"),
            _ => self.path.join(format!("recirculation_link_{number}")),
        }
    }

    /// Takes pins out of the way of new ones. What they hold is let go of, unless it is one of the
    /// `used` maps, by id.
    pub(crate) fn put_aside(&self, maps: &[&str], used: &BTreeSet<u32>) -> Result<(), Error> {
        let there: Vec<_> = maps.iter().filter(|map| self.map(map).exists()).collect();
        if there.is_empty() {
            return Ok(());
        }
        let mut free = (0..).map(|n| self.path.join(format!("{ASIDE}{n}")));
        let aside = free.find(|path| !path.exists()).expect("endless");
        fs::create_dir(&aside).map_err(Error::file("creating", &aside))?;
        for map in there {
            let path = self.map(map);
            fs::rename(&path, aside.join(map)).map_err(Error::file("moving", path))?;
        }
        self.remove_aside(used)
    }

    /// Lets go of what was put aside of each loading that has none of the `used` maps.
    pub(crate) fn remove_aside(&self, used: &BTreeSet<u32>) -> Result<(), Error> {
        let pins = fs::read_dir(&self.path).map_err(Error::file("reading", &self.path))?;
        for pin in pins.flatten() {
            let is_aside = pin.file_name().to_string_lossy().starts_with(ASIDE);
            if is_aside && !has_one_of(&pin.path(), used) {
                fs::remove_dir_all(pin.path()).map_err(Error::file("removing", pin.path()))?;
            }
        }
        Ok(())
    }

    /// Mounts bpffs if it is not, and makes the directories.
    pub(crate) fn create(&self) -> Result<(), Error> {
        let root = Path::new(ROOT);
        mount::make_sure()?;
        // Where everybody may make directories somebody else's could be in the way, and what is
        // pinned there his.
        for path in [&root.join("shortstop"), &self.path, &self.links()] {
            match DirBuilder::new().mode(0o700).create(path) {
                Err(e) if e.kind() != ErrorKind::AlreadyExists => {
                    return Err(Error::file("creating", path)(e));
                }
                _ => must_be_ours(path)?,
            }
        }
        Ok(())
    }

    /// Lets go of what is noted of interfaces, also of those that went by themselves.
    pub(crate) fn forget_interfaces(&self) -> Result<(), Error> {
        let within = |path: PathBuf| fs::read_dir(&path).map_err(Error::file("reading", path));
        for link in within(self.links())?.flatten() {
            fs::remove_file(link.path()).map_err(Error::file("removing", link.path()))?;
        }
        for pin in within(self.path.clone())?.flatten() {
            if pin.file_name().to_string_lossy().starts_with("off-") {
                fs::remove_dir(pin.path()).map_err(Error::file("removing", pin.path()))?;
            }
        }
        Ok(())
    }

    /// Removes every pin; what nobody else holds open is gone with it. The one that says that the
    /// switch is there goes last: what is left if this ends half-way is found the next time.
    pub(crate) fn remove(&self) -> Result<(), Error> {
        let config = self.map("config");
        let pins = fs::read_dir(&self.path).map_err(Error::file("reading", &self.path))?;
        for path in pins.flatten().map(|pin| pin.path()).filter(|path| *path != config) {
            let removed =
                if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
            removed.map_err(Error::file("removing", path))?;
        }
        fs::remove_dir_all(&self.path).map_err(Error::file("removing", &self.path))
    }
}

/// Whether a map is pinned in a directory that is one of these, or cannot be looked at.
fn has_one_of(directory: &Path, maps: &BTreeSet<u32>) -> bool {
    let is_one = |pin: fs::DirEntry| {
        let map = MapHandle::from_pinned_path(pin.path());
        map.and_then(|map| map.info()).map_or(true, |map| maps.contains(&map.info.id))
    };
    fs::read_dir(directory).into_iter().flatten().flatten().any(is_one)
}

/// The name of an interface as bpffs takes it: without dots, and no interface has a colon in
/// its name.
pub(crate) fn without_dots(interface: &str) -> String {
    interface.replace('.', ":")
}

/// An error if anybody else could put something into this directory.
fn must_be_ours(path: &Path) -> Result<(), Error> {
    let found = fs::symlink_metadata(path).map_err(Error::file("looking at", path))?;
    let ours = found.uid() == nix::unistd::geteuid().as_raw();
    if found.is_dir() && ours && found.mode() & 0o022 == 0 {
        return Ok(());
    }
    Err(Error::NotOurs { path: path.to_owned(), uid: found.uid(), mode: found.mode() & 0o7777 })
}

/// The names of all switches that have something pinned on this machine, sorted.
///
/// # Errors
/// [`Error::NotSeen`] if they may not be looked at.
pub fn switches() -> Result<Vec<String>, Error> {
    mount::reach();
    let path = Path::new(ROOT).join("shortstop");
    let entries = match fs::read_dir(&path) {
        Err(e) if e.kind() == ErrorKind::PermissionDenied => return Err(Error::NotSeen(path)),
        entries => entries.into_iter().flatten().flatten(),
    };
    let mut names: Vec<String> =
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.retain(|name| Home::new(name).is_ok_and(|home| home.exists()));
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use nix::{
        mount::MsFlags,
        sched::{CloneFlags, unshare},
    };

    use super::*;

    /// On a bpffs that everybody may write to, as one is that was mounted without a mode.
    #[test]
    fn a_directory_that_others_may_write_to_is_refused() {
        assert!(nix::unistd::geteuid().is_root(), "bpffs needs root");
        let home = Home::new(&format!("test-mode-{}", std::process::id())).unwrap();
        home.create().unwrap();
        let mode = |mode| {
            let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
            fs::set_permissions(&home.path, mode).unwrap();
        };
        assert_eq!(fs::metadata(&home.path).unwrap().mode() & 0o7777, 0o700);
        home.create().unwrap();
        for open in [0o770, 0o702, 0o1777] {
            mode(open);
            assert!(matches!(home.create(), Err(Error::NotOurs { .. })));
        }
        mode(0o700);
        std::os::unix::fs::chown(&home.path, Some(65_534), None).unwrap();
        assert!(matches!(home.create(), Err(Error::NotOurs { .. })));
        home.remove().unwrap();
    }

    /// As of one that is killed half-way: here the kernel refuses to remove what something is
    /// mounted on. In which order it lists what is there is its affair.
    #[test]
    fn what_a_removal_leaves_is_found_the_next_time() {
        let with_mounts_of_its_own = || {
            unshare(CloneFlags::CLONE_FS | CloneFlags::CLONE_NEWNS).unwrap();
            let mount = |what: &str, on: &Path, flags| {
                nix::mount::mount(Some(what), on, Some(what), flags, None::<&str>).unwrap();
            };
            mount("none", Path::new("/"), MsFlags::MS_REC | MsFlags::MS_PRIVATE);
            let home = Home::new(&format!("test-rest-{}", std::process::id())).unwrap();
            for order in [["config", "stuck"], ["stuck", "config"]] {
                home.create().unwrap();
                order.iter().for_each(|name| fs::create_dir(home.map(name)).unwrap());
                mount("tmpfs", &home.map("stuck"), MsFlags::empty());
                let removed = home.remove();
                let is_found = home.exists();
                nix::mount::umount(&home.map("stuck")).unwrap();
                home.remove().unwrap();
                assert!(removed.is_err() && is_found && !home.path.exists());
            }
        };
        std::thread::spawn(with_mounts_of_its_own).join().unwrap();
    }
}
