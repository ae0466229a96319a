//! A switch in the kernel, without interfaces, that holds items.

use std::{
    net::IpAddr,
    os::fd::{AsFd, FromRawFd, OwnedFd},
    path::{Path, PathBuf},
    process,
    sync::atomic::{AtomicU32, Ordering::Relaxed},
};

use anyhow::{Context, ensure};
use dataplane::{
    Backing, Cells, Dataplane, Home, Mode, Object, PROGRAMS_PER_DISCIPLINE, Sizes, TenantEntry,
    cells_needed,
};
use decide::Registration;
use libbpf_rs::{MapCore, MapFlags, MapHandle, libbpf_sys};
use wire::{KeyHash, Secret};

use crate::{
    items::{self, Items},
    packet,
    runs::Program,
};

/// The discipline's number in these switches.
pub const DISCIPLINE: u32 = 1;
/// Reads per window from which a key is reported.
const HOT_THRESHOLD: u32 = 128;

/// A switch with its tables; detached when dropped.
pub struct Cache {
    dataplane: Dataplane,
    /// The entry program.
    pub entry: Program,
    /// What it holds.
    pub items: Items,
}

/// Shows the entry program what a store says.
fn say(entry: &Program, store: IpAddr) -> impl Fn(&[u8]) -> anyhow::Result<()> {
    move |bytes| {
        entry.run(&packet::reply(store, bytes), 0, 1, &mut vec![])?;
        Ok(())
    }
}

/// Detaches a switch that was only half made.
struct Detach(Home);

impl Drop for Detach {
    fn drop(&mut self) {
        let _ = dataplane::detach(&self.0);
    }
}

/// The place of another switch of this process, whatever it is called: no two share their tables.
fn place(name: &str) -> anyhow::Result<Home> {
    static MADE: AtomicU32 = AtomicU32::new(0);
    let number = MADE.fetch_add(1, Relaxed);
    Ok(Home::new(&format!("{PREFIX}{}-{number}-{name}", process::id()))?)
}

/// What the names of a bench's switches begin with; the process's number follows.
const PREFIX: &str = "bench-";

/// Removes switches of processes that were killed, whose names begin with `prefix`. Else their
/// tables take memory, and a process that is given the same number finds them as its own; and
/// whoever cleaned up by hand could hit those of a run that is under way.
fn sweep(prefix: &str) {
    let is_left = |name: &String| {
        let process = name.strip_prefix(prefix)?.split('-').next()?;
        let process: u32 = process.parse().ok()?;
        Some(!Path::new("/proc").join(process.to_string()).exists())
    };
    let all = dataplane::switches().into_iter().flatten();
    for name in all.filter(|name| is_left(name) == Some(true)) {
        drop(Home::new(&name).map(Detach));
    }
}

/// Pages that so many items of that size take.
pub fn pages_for(items: usize, key_len: usize, value_len: usize) -> anyhow::Result<u32> {
    let cells = cells_needed(key_len, value_len).context("an item of this size cannot be")?;
    let mut page = Cells::new(1);
    page.set_owner(0, Some(0));
    let per_page = std::iter::from_fn(|| page.take(0, cells)).count();
    Ok(items.div_ceil(per_page) as u32)
}

impl Cache {
    /// Loads the entry program and `objects`, with one tenant and a lease of `store`.
    ///
    /// # Errors
    /// No privilege, or the kernel refuses.
    pub fn load(
        name: &str,
        objects: &[Object],
        tenant: TenantEntry,
        pages: u32,
        store: IpAddr,
    ) -> anyhow::Result<Cache> {
        sweep(PREFIX);
        let home = place(name)?;
        let detach_if_it_fails = Detach(home.clone());
        let dataplane = Dataplane::load(home.clone(), objects, Sizes { pages })?;
        let entry = Program(dataplane.program().as_fd().try_clone_to_owned()?);
        let items = Items::open(Backing::from(&home), tenant, pages, store)?;
        let cache = Cache { dataplane, entry, items };
        std::mem::forget(detach_if_it_fails); // from here on it is the cache's own Drop
        cache.items.take_lease(say(&cache.entry, store))?;
        Ok(cache)
    }

    /// As [`Items::fill`].
    ///
    /// # Errors
    /// As [`Items::fill`].
    pub fn fill(
        &mut self,
        tenant: &TenantEntry,
        hash: KeyHash,
        key: &[u8],
        value: &[u8],
    ) -> anyhow::Result<bool> {
        let say = say(&self.entry, self.items.store);
        self.items.fill(say, tenant, hash, key, value)
    }

    /// As [`items::set_tenants`].
    ///
    /// # Errors
    /// As there.
    pub fn set_tenants(&self, tenants: &[TenantEntry]) -> anyhow::Result<()> {
        items::set_tenants(&Backing::from(self.home()), tenants)
    }

    /// A counter's value.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn count(&self, name: &str) -> anyhow::Result<u64> {
        self.items.count(name)
    }

    /// Attaches the entry program to an interface of this thread's network namespace.
    ///
    /// # Errors
    /// See [`Dataplane::attach`].
    pub fn attach(&self, interface: &str, mode: Mode) -> anyhow::Result<u32> {
        Ok(self.dataplane.attach(interface, mode)?.ifindex)
    }

    /// Its tables.
    pub fn home(&self) -> &Home {
        self.dataplane.home()
    }

    fn pin(&self, name: &str) -> PathBuf {
        Path::new("/sys/fs/bpf/shortstop").join(self.home().name()).join(name)
    }

    /// The first step of the discipline of that number, as loaded.
    ///
    /// # Errors
    /// There is none.
    pub fn discipline(&self, number: u32) -> anyhow::Result<Program> {
        let map = MapHandle::from_pinned_path(self.pin("programs"))?;
        let key = (number * PROGRAMS_PER_DISCIPLINE as u32).to_ne_bytes();
        let id = map.lookup(&key, MapFlags::ANY)?;
        let id = word(&id.context("no such discipline")?)?;
        // SAFETY: asks for a descriptor by id; checked before it is owned.
        let descriptor = unsafe { libbpf_sys::bpf_prog_get_fd_by_id(id) };
        ensure!(descriptor >= 0, "no descriptor for program {id}");
        // SAFETY: a descriptor that was just made for us.
        Ok(Program(unsafe { OwnedFd::from_raw_fd(descriptor) }))
    }

    /// The kernel's ids of the entry program and of every discipline's.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn programs(&self) -> anyhow::Result<Vec<u32>> {
        let mut ids = vec![self.entry.id()?];
        let map = MapHandle::from_pinned_path(self.pin("programs"))?;
        for key in map.keys() {
            if let Some(id) = map.lookup(&key, MapFlags::ANY)? {
                ids.push(word(&id)?);
            }
        }
        Ok(ids)
    }

    /// Every map that is pinned for this switch.
    ///
    /// # Errors
    /// Its folder cannot be read.
    pub fn pinned_maps(&self) -> anyhow::Result<Vec<MapHandle>> {
        let folder = self.pin("");
        let pins =
            std::fs::read_dir(&folder).with_context(|| format!("reading {}", folder.display()))?;
        let paths = pins.flatten().map(|pin| pin.path());
        // Links and programs lie there as well.
        Ok(paths.filter_map(|path| MapHandle::from_pinned_path(path).ok()).collect())
    }
}

fn word(bytes: &[u8]) -> anyhow::Result<u32> {
    let word = bytes.first_chunk().context("a word of four bytes")?;
    Ok(u32::from_ne_bytes(*word))
}

impl Drop for Cache {
    fn drop(&mut self) {
        drop(Detach(self.dataplane.home().clone()));
    }
}

/// A tenant of that secret without a limit.
pub fn tenant(id: u32, secret: Secret) -> TenantEntry {
    TenantEntry { parameters: [HOT_THRESHOLD, 0], ..TenantEntry::new(id, secret, DISCIPLINE) }
}

/// A discipline's programs, on a switch of so many pages, under the number of the one that is
/// measured.
pub fn discipline(registration: &Registration, pages: u32) -> Object {
    Object { number: DISCIPLINE, ..Object::of(registration, Sizes { pages }) }
}

/// An object under the name of its only step.
pub fn one_step(program: &'static str, number: u32, elf: &'static [u8]) -> Object {
    Object {
        name: program,
        maps_of: program,
        number,
        elf,
        native: None,
        steps: vec![program],
        egress: None,
        maps: vec![],
        counters: "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_run_left_goes_and_nothing_else() {
        let load = |name: &str| {
            let home = Home::new(name).unwrap();
            Dataplane::load(home, &[], Sizes { pages: 1 }).unwrap();
            Detach(Home::new(name).unwrap())
        };
        // Of this test alone: another run of it may be under way on this machine.
        let prefix = format!("swept{}-", process::id());
        // The kernel gives no process a number beyond 4194304.
        let left = load(&format!("{prefix}4194305-0-left"));
        let other = load(&format!("x{prefix}4194305-0-left"));
        let own = load(&format!("{prefix}{}-0-own", process::id()));
        let places = ["own", "own"].map(|name| place(name).unwrap());
        assert_ne!(places[0].name(), places[1].name());
        sweep(&prefix);
        assert!(!left.0.exists());
        assert!(other.0.exists() && own.0.exists());
    }
}
