//! Programs that one test's switch leaves to the next: the kernel takes half a second and more to
//! verify them, which is longer than most rows take.
//!
//! A switch that begins anew has programs that are loaded already, and tables with what they held
//! after that: who looks at packets and tables cannot tell. What a test has replaced, taken away or
//! mapped into its memory is not handed on.

use std::{
    fs, io,
    os::fd::{AsFd, AsRawFd},
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, Once, PoisonError},
};

use dataplane::{Dataplane, Events, Home, Object, Sizes};
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType, libbpf_sys};
use nix::libc;

/// Programs in the kernel, detached and gone when this is dropped.
pub(crate) struct LoadedPrograms {
    pub dataplane: Dataplane,
    /// What was loaded.
    of: String,
    tables: Vec<Table>,
}

/// A table, with what it holds after loading.
struct Table {
    name: String,
    map: MapHandle,
    /// Of an array, all of them, one after the other.
    keys: Vec<u8>,
    then: Contents,
}

#[derive(PartialEq)]
enum Contents {
    /// All elements, one after the other.
    Elements(Vec<u8>),
    /// Of each element, the values of all CPUs, each filled up to whole words.
    OfCpus(Vec<u8>),
    Rows(Vec<(Vec<u8>, Vec<u8>)>),
    /// Nothing, and no value that could be put back.
    Empty,
    /// What was read from it is gone.
    Ring,
    /// The programs that call one another.
    Programs,
}

/// Those that no switch has now.
static IDLE: Mutex<Vec<LoadedPrograms>> = Mutex::new(vec![]);

/// Nothing of them stays pinned when the process ends.
extern "C" fn forget_all() {
    idle().clear();
}

fn idle() -> MutexGuard<'static, Vec<LoadedPrograms>> {
    IDLE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl LoadedPrograms {
    /// Programs of these objects in the kernel; `home` is a name for them if none are left
    /// from before.
    pub fn of(objects: &[Object], sizes: Sizes, home: impl FnOnce() -> Home) -> LoadedPrograms {
        let of = identity(objects, sizes);
        if let Some(loaded) = take(&of) {
            let home = loaded.dataplane.home();
            loaded.tables.iter().for_each(|table| table.restore(home));
            return loaded;
        }
        let home = home();
        let detach_if_it_fails = Detach(home.clone());
        let dataplane = Dataplane::load(home.clone(), objects, sizes).expect("loading");
        std::mem::forget(detach_if_it_fails); // from here on it is the programs' own Drop
        let mut loaded = LoadedPrograms { dataplane, of, tables: vec![] };
        loaded.tables = tables(&home);
        loaded
    }

    /// Leaves them to the next switch, on no interface; they go if the test has taken them away.
    pub fn leave(self) {
        if dataplane::free_interfaces(self.dataplane.home()).is_err() {
            return;
        }
        static AT_EXIT: Once = Once::new();
        // SAFETY: the handler may be called whenever the process ends.
        AT_EXIT.call_once(|| assert_eq!(unsafe { libc::atexit(forget_all) }, 0));
        idle().push(self);
    }
}

fn take(of: &str) -> Option<LoadedPrograms> {
    let mut idle = idle();
    let at = idle.iter().position(|loaded| loaded.of == of)?;
    Some(idle.swap_remove(at))
}

impl Drop for LoadedPrograms {
    fn drop(&mut self) {
        drop(Detach(self.dataplane.home().clone()));
    }
}

struct Detach(Home);

impl Drop for Detach {
    fn drop(&mut self) {
        let _ = dataplane::detach(&self.0);
    }
}

/// What tells objects apart.
fn identity(objects: &[Object], sizes: Sizes) -> String {
    let of = |object: &Object| {
        format!(
            "{} {} {} {:p} {} {:?} {:?} {:?};",
            object.name,
            object.maps_of,
            object.number,
            object.elf,
            object.elf.len(),
            object.steps,
            object.egress,
            object.maps
        )
    };
    let objects: String = objects.iter().map(of).collect();
    format!("{} {objects}", sizes.pages)
}

/// Where what is loaded is pinned.
pub(crate) fn pins(home: &Home) -> PathBuf {
    Path::new("/sys/fs/bpf/shortstop").join(home.name())
}

/// Everything that is pinned there and is a map.
fn tables(home: &Home) -> Vec<Table> {
    let pins = fs::read_dir(pins(home)).expect("it is loaded").flatten();
    let files = pins.filter(|pin| pin.file_type().is_ok_and(|kind| kind.is_file()));
    files
        .filter_map(|pin| {
            let map = MapHandle::from_pinned_path(pin.path()).ok()?;
            Some(Table::of(pin.file_name().to_string_lossy().into(), map))
        })
        .collect()
}

impl Table {
    fn of(name: String, map: MapHandle) -> Table {
        let value = |key: &[u8]| map.lookup(key, MapFlags::ANY).expect("readable");
        let then = match map.map_type() {
            MapType::Array => Contents::Elements(all_elements(&map)),
            MapType::PercpuArray => Contents::OfCpus(all_elements(&map)),
            MapType::Hash | MapType::LruHash => {
                let rows = map.keys().filter_map(|key| value(&key).map(|value| (key, value)));
                Contents::Rows(rows.collect())
            }
            MapType::Devmap | MapType::DevmapHash | MapType::ArrayOfMaps | MapType::HashOfMaps => {
                Contents::Empty
            }
            MapType::RingBuf => Contents::Ring,
            MapType::ProgArray => Contents::Programs,
            other => panic!("{name}: a {other:?}: say here how it is emptied"),
        };
        let keys = match then {
            Contents::Elements(_) | Contents::OfCpus(_) => indices(&map).flatten().collect(),
            _ => vec![],
        };
        Table { name, map, keys, then }
    }

    /// Holds again what it held after loading.
    fn restore(&self, home: &Home) {
        let failed = |error: libbpf_rs::Error| panic!("restoring {}: {error}", self.name);
        match &self.then {
            Contents::Elements(values) => {
                let count = self.map.max_entries();
                self.map
                    .update_batch(&self.keys, values, count, MapFlags::ANY, MapFlags::ANY)
                    .unwrap_or_else(failed);
            }
            Contents::OfCpus(values) => {
                let mut count = self.map.max_entries();
                let opts = libbpf_sys::bpf_map_batch_opts {
                    sz: size_of::<libbpf_sys::bpf_map_batch_opts>() as u64,
                    ..Default::default()
                };
                // SAFETY: a valid descriptor; there are as many keys as values, and `tables` has
                // laid these out as the kernel does.
                let code = unsafe {
                    libbpf_sys::bpf_map_update_batch(
                        self.map.as_fd().as_raw_fd(),
                        self.keys.as_ptr().cast(),
                        values.as_ptr().cast(),
                        &mut count,
                        &opts,
                    )
                };
                assert_eq!(code, 0, "restoring {}: {}", self.name, io::Error::last_os_error());
            }
            Contents::Rows(rows) => {
                self.clear();
                for (key, value) in rows {
                    self.map.update(key, value, MapFlags::ANY).unwrap_or_else(failed);
                }
            }
            Contents::Empty => self.clear(),
            Contents::Ring => {
                let events = Events::open(home).expect("events");
                events.drain().expect("events").for_each(drop);
            }
            Contents::Programs => {}
        }
    }

    fn clear(&self) {
        let keys: Vec<Vec<u8>> = self.map.keys().collect();
        // All at once: the kernel waits for its programs after each call.
        if self.map.map_type() == MapType::HashOfMaps && !keys.is_empty() {
            let (count, any) = (keys.len() as u32, MapFlags::ANY);
            let cleared = self.map.delete_batch(&keys.concat(), count, any, any);
            return cleared.expect("what is there can go");
        }
        // Arrays have all keys, and an element that is not set cannot be removed.
        for key in keys {
            let _ = self.map.delete(&key);
        }
    }
}

/// What an array holds, all elements by one call: one for each would take longer than many a test.
pub(crate) fn all_elements(map: &MapHandle) -> Vec<u8> {
    dataplane::first_elements(map, map.max_entries()).expect("readable")
}

/// The keys of an array.
fn indices(map: &MapHandle) -> impl Iterator<Item = [u8; 4]> {
    (0..map.max_entries()).map(u32::to_ne_bytes)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use dataplane::{Loops, Mode, NO_DISCIPLINE, RecirculationPorts, Rows};
    use wire::Op;

    use super::*;
    use crate::{
        Message, World,
        namespace::{in_namespace, ip},
        switch::tenant,
        trial,
    };

    const TENANT: u32 = 7;

    /// What the tables of the switch of that name hold.
    fn contents(name: &str) -> BTreeMap<String, Contents> {
        let tables = tables(&Home::new(name).expect("a fine name"));
        let content = |table: Table| (table.name, table.then);
        tables.into_iter().map(content).collect()
    }

    #[test]
    fn a_switch_that_begins_anew_has_the_tables_of_one_just_loaded() {
        in_namespace(|| {
            let mut used = World::new(
                &[trial(9)],
                &[tenant(TENANT, 9), tenant(wire::TENANT_SYSTEM, NO_DISCIPLINE)],
            );
            used.lease(1);
            used.switch.send_round();
            used.given(TENANT, b"c", &[0; 8], 8);
            let backing = used.switch.backing();
            let notes = Rows::open(&backing, "trial", "trial_notes").expect("a map of its own");
            notes.write(&[1; 8], &[1; 24]).expect("room");
            for key in [b"c", b"n", b"m", b"x", b"f", b"r"] {
                used.send(Message::read(TENANT, key));
                used.send(Message::from_client(Op::WriteRequest, TENANT, key));
            }
            let name = backing.name().to_owned();
            let left = contents(&name);
            ip("link add v0 type veth peer name v1");
            let dataplane = used.switch.dataplane();
            let port = dataplane.attach("v0", Mode::Generic).expect("attached");
            assert!(dataplane.recirculate(&[port], &Loops::default()).expect("a port"));
            drop(used);

            let again = LoadedPrograms::of(&[trial(9)], Sizes { pages: 4 }, || {
                panic!("its programs are not handed on")
            });
            let home = again.dataplane.home();
            assert_eq!(home.name(), name);
            assert_eq!(dataplane::attached(home), []);
            assert!(RecirculationPorts::of(home).ports.is_empty());
            let found = contents(&name);
            for table in &again.tables {
                assert!(found[&table.name] == table.then, "{}", table.name);
                let is_left = table.map.map_type() == MapType::HashOfMaps;
                assert!(!is_left || table.map.keys().next().is_none(), "{}", table.name);
            }
            let changed: Vec<&String> = left
                .iter()
                .filter(|(name, then)| found[*name] != **then)
                .map(|(name, _)| name)
                .collect();
            assert!(changed.len() >= 8, "what was used differed: {changed:?}");
        });
    }
}
