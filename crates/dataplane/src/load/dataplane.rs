//! Programs in the kernel, and the maps that they share with the agent.
//!
//! All maps are made when a switch begins, the programs of a discipline once a tenant has it: the
//! verifier takes some tenths of a second for each. Which of them the kernel refuses must be known
//! before anybody asks, so what it has not accepted since it was booted is loaded at once
//! ([`accepted`]).

use std::{
    collections::BTreeSet,
    fs,
    os::fd::{AsFd, AsRawFd},
};

use decide::WRITE_BACK;
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType, Object as Loaded, OpenObject, ProgramMut};

use super::{
    accepted, kernel,
    object::{self, OF_RECIRCULATION, Object, RECIRCULATION},
    pinned::{self, OF_ONE_LOADING},
    sizes::Sizes,
    verifier::{self, LoadError},
};
use crate::{
    Error, Refusal,
    attach::links,
    layout::{OF_ENTRY, PROGRAMS_PER_DISCIPLINE, RECIRCULATION_PORTS},
    maps::{bpffs::Home, group, port_bytes::devmap_value, table::Table, tenant::TenantEntry},
};

pub(crate) const ENTRY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/entry.bpf.o.zlib"));

/// A loaded data plane. Dropping it leaves programs and maps to the pins and links that hold them.
pub struct Dataplane {
    home: Home,
    sizes: Sizes,
    entry: Loaded,
    parts: Vec<Part>,
    refused: Vec<(&'static str, Refusal)>,
}

/// An object, held until links and pins hold its programs.
struct Part {
    /// The disciplines whose programs it has.
    of: Vec<Object>,
    loaded: Loaded,
    /// Whether its programs were loaded; its maps were.
    runs: bool,
}

impl Part {
    fn map(&self, name: &str) -> Option<MapHandle> {
        let map = self.loaded.maps().find(|map| map.name() == name)?;
        MapHandle::try_from(&map).ok()
    }

    /// Puts its programs into the table of programs.
    fn register(&self, entry: &Loaded) -> Result<(), Error> {
        for object in &self.of {
            if let Some(egress) = object.egress {
                object.program(&self.loaded, egress)?;
            }
            for (name, step) in object.steps.iter().zip(0u32..) {
                let place = object.number * PROGRAMS_PER_DISCIPLINE as u32 + step;
                set_step(entry, place, &object.program(&self.loaded, name)?)
                    .map_err(Error::bpf(format!("registering {name}")))?;
            }
        }
        Ok(())
    }
}

/// Which programs are loaded at once.
enum AtOnce {
    All,
    /// Those that tenants have, and those that this kernel has not accepted yet.
    Used,
}

/// Whether this key of `clones` is of one of these ports.
fn is_clone_of(key: &[u8], ports: &[u32]) -> bool {
    let port = key.first_chunk().map(|port| u32::from_ne_bytes(*port));
    port.is_some_and(|port| ports.contains(&port))
}

/// Loads an object with every map pinned, or found again where it was.
fn load(home: &Home, name: &str, open: OpenObject) -> Result<Loaded, Error> {
    verifier::load(open).map_err(|source| match source {
        LoadError::Refused(refusal) => Error::Refused(refusal),
        LoadError::Failed(source) => match source.kind() {
            libbpf_rs::ErrorKind::PermissionDenied => Error::NotPermitted("loading BPF programs"),
            libbpf_rs::ErrorKind::InvalidInput if home.exists() => {
                Error::OtherLayout { name: home.name().into(), reason: source.to_string() }
            }
            _ => Error::bpf(format!("loading program {name}"))(source),
        },
    })
}

/// Loads the entry object, without those of its programs that the kernel refuses and a switch
/// does without.
fn load_entry(
    home: &Home,
    entry: OpenObject,
    sizes: Sizes,
    refused: &mut Vec<(&'static str, Refusal)>,
) -> Result<Loaded, Error> {
    let mut next = entry;
    loop {
        let refusal = match load(home, "entry", next) {
            Err(Error::Refused(refusal)) => refusal,
            loaded => return loaded,
        };
        if !OF_ENTRY.iter().any(|(name, _)| *name == refusal.program) {
            return Err(Error::Refused(refusal));
        }
        refused.push((WRITE_BACK, refusal));
        next = object::open("entry", ENTRY)?;
        pinned::configure(home, &mut next, sizes, &[], &mut vec![])?;
        for mut program in next.progs_mut() {
            let name = program.name().to_string_lossy().into_owned();
            program.set_autoload(refused.iter().all(|(_, r)| r.program != name));
        }
    }
}

impl Dataplane {
    /// Loads the entry program and `objects`, and pins their maps in `home`. Maps that are pinned
    /// there already, from an agent that crashed or is being upgraded, are taken over as they are;
    /// its programs go on with them until [`Dataplane::attach`] has replaced them.
    ///
    /// # Errors
    /// No privilege, an old kernel or one that refuses the entry program, tables pinned in another
    /// size, an object that is not as it says: see [`Error`]. A discipline that the kernel refuses
    /// is no error: [`Dataplane::refused`].
    pub fn load(home: Home, objects: &[Object], sizes: Sizes) -> Result<Dataplane, Error> {
        Dataplane::begin(home, objects, sizes, &AtOnce::All)
    }

    /// As [`Dataplane::load`], but leaves programs that no tenant has to [`Dataplane::need`], once
    /// this kernel has accepted them.
    ///
    /// # Errors
    /// As [`Dataplane::load`].
    pub fn load_used(home: Home, objects: &[Object], sizes: Sizes) -> Result<Dataplane, Error> {
        Dataplane::begin(home, objects, sizes, &AtOnce::Used)
    }

    fn begin(
        home: Home,
        objects: &[Object],
        sizes: Sizes,
        at_once: &AtOnce,
    ) -> Result<Dataplane, Error> {
        kernel::may_load()?;
        verifier::listen();
        let was_there = home.exists();
        home.create()?;
        let loaded = Dataplane::load_into(&home, objects, sizes, at_once);
        if loaded.is_err() && !was_there {
            let _ = home.remove();
        }
        loaded
    }

    fn load_into(
        home: &Home,
        objects: &[Object],
        sizes: Sizes,
        at_once: &AtOnce,
    ) -> Result<Dataplane, Error> {
        pinned::refuse_other_layouts(home)?;
        let of_tenants = match home.map(pinned::TENANTS).exists() {
            true => TenantEntry::disciplines(home)?,
            false => Default::default(),
        };
        let used: BTreeSet<u32> = of_tenants.into_values().collect();
        let mut stale = vec![];
        let mut entry = object::open("entry", ENTRY)?;
        pinned::configure(home, &mut entry, sizes, &[], &mut stale)?;
        let shared = pinned::pinned_maps(&entry);
        let mut opened: Vec<(Vec<Object>, OpenObject)> = vec![];
        for object in objects {
            object.check()?;
            if let Some((same, _)) = opened.iter_mut().find(|(same, _)| same[0].elf == object.elf) {
                same.push(object.clone());
                continue;
            }
            let mut open = object::open(object.name, object.elf)?;
            object.check_maps(&open, &shared)?;
            pinned::configure(home, &mut open, sizes, &object.maps, &mut stale)?;
            opened.push((vec![object.clone()], open));
        }
        home.put_aside(&OF_ONE_LOADING, &links::maps_in_use(home))?;
        for path in stale {
            // Every object that has the map names it.
            let _ = fs::remove_file(path);
        }
        let mut refused = vec![];
        let entry = load_entry(home, entry, sizes, &mut refused)?;
        let mut dataplane = Dataplane { home: home.clone(), sizes, entry, parts: vec![], refused };
        for (of, mut open) in opened {
            let runs = match at_once {
                AtOnce::All => true,
                AtOnce::Used => {
                    of.iter().any(|object| used.contains(&object.number))
                        || !accepted::is_noted(&of[0], sizes)
                }
            };
            if !runs {
                open.progs_mut().for_each(|mut program| program.set_autoload(false));
            }
            let loaded = match load(home, of[0].name, open) {
                Err(Error::Refused(refusal)) => {
                    let refused = of.iter().map(|object| (object.name, refusal.clone()));
                    dataplane.refused.extend(refused);
                    continue;
                }
                loaded => loaded?,
            };
            let part = Part { of, loaded, runs };
            if runs {
                accepted::note(&part.of[0], sizes);
                part.register(&dataplane.entry)?;
            }
            dataplane.parts.push(part);
        }
        let is_there = |name: &str| dataplane.refused.iter().all(|(_, r)| r.program != name);
        for (name, place) in OF_ENTRY.into_iter().filter(|(name, _)| is_there(name)) {
            let program = find_program(&dataplane.entry, name);
            set_step(&dataplane.entry, place, &program)
                .map_err(Error::bpf(format!("registering {name}")))?;
        }
        let table = Table::open(home)?;
        table.has_this_layout();
        table.scatter(rand::random());
        table.begin_life(rand::random());
        Ok(dataplane)
    }

    /// Has the programs of these disciplines, by number, run. Those that it was found to refuse at
    /// the start are left out.
    ///
    /// # Errors
    /// The kernel refuses now what it accepted before, or cannot load it; whoever begins anew finds
    /// it among [`Dataplane::refused`].
    pub fn need(&mut self, disciplines: &BTreeSet<u32>) -> Result<(), Error> {
        for part in &mut self.parts {
            let first = &part.of[0];
            if part.runs || !part.of.iter().any(|object| disciplines.contains(&object.number)) {
                continue;
            }
            let mut open = object::open(first.name, first.elf)?;
            pinned::configure(&self.home, &mut open, self.sizes, &first.maps, &mut vec![])?;
            part.loaded = load(&self.home, first.name, open)
                .inspect_err(|_| accepted::forget_accepted(first, self.sizes))?;
            part.runs = true;
            part.register(&self.entry)?;
        }
        Ok(())
    }

    /// What this kernel refuses: disciplines by name, and [`decide::WRITE_BACK`]. Their packets are
    /// forwarded.
    pub fn refused(&self) -> &[(&'static str, Refusal)] {
        &self.refused
    }

    /// Where it is pinned.
    pub fn home(&self) -> &Home {
        &self.home
    }

    /// Whether one of the objects sends packets round.
    pub(crate) fn recirculates(&self) -> bool {
        self.map_of_objects(RECIRCULATION).is_some()
    }

    fn map_of_objects(&self, name: &str) -> Option<MapHandle> {
        self.parts.iter().find_map(|part| part.map(name))
    }

    /// Has programs send packets round by these interfaces, and send and clone to these ports. For
    /// what attaches no interface, as tests do; otherwise [`Dataplane::recirculate`] does it.
    ///
    /// # Errors
    /// None of the objects sends packets round, an interface that cannot be redirected to.
    pub fn send_round(&self, rounds: &[u32], ports: &[u32]) -> Result<(), Error> {
        let maps = OF_RECIRCULATION.map(|name| self.map_of_objects(name));
        let [Some(recirculation), Some(clones)] = maps else {
            return Err(Error::row(RECIRCULATION, "nobody here recirculates"));
        };
        group::remove_clones(&clones, clones.keys().filter(|key| !is_clone_of(key, ports)));
        if rounds.is_empty() {
            for number in recirculation.keys() {
                let _ = recirculation.delete(&number);
            }
        }
        for port in ports {
            self.map("ports")
                .update(&port.to_ne_bytes(), &devmap_value(*port, None), MapFlags::ANY)
                .map_err(Error::bpf("adding a port"))?;
        }
        for (number, round) in (0..RECIRCULATION_PORTS).zip(rounds.iter().cycle()) {
            let value = devmap_value(*round, None);
            recirculation
                .update(&number.to_ne_bytes(), &value, MapFlags::ANY)
                .map_err(Error::bpf("naming a recirculation port"))?;
        }
        group::set_clones(&clones, ports, rounds)
    }

    /// The entry program, for attaching and for test runs.
    pub fn program(&self) -> ProgramMut<'_> {
        find_program(&self.entry, "entry")
    }

    /// The program at the far end of the recirculation port.
    pub fn comes_back(&self) -> ProgramMut<'_> {
        find_program(&self.entry, "comes_back")
    }

    /// Makes `ports`, by index and at most 64, the group of that index in a map of groups. No
    /// packet sees a part of a change. Without ports there is no such group.
    ///
    /// # Errors
    /// No object has such a map, its programs are not there yet, an index beyond its size, too many
    /// ports, an interface that cannot be redirected to.
    pub fn set_group(&self, map: &str, index: u32, ports: &[u32]) -> Result<(), Error> {
        let found = self.parts.iter().find_map(|part| Some((part, part.map(map)?)));
        let (part, groups) =
            found.ok_or_else(|| Error::row(map, "no discipline here has such a map"))?;
        if !part.runs && !ports.is_empty() {
            return Err(Error::row(map, "no tenant here has its discipline"));
        }
        let egress = part.of[0].egress.filter(|_| part.runs);
        let egress = egress.map(|name| find_program(&part.loaded, name).as_fd().as_raw_fd());
        group::set(&groups, map, index, ports, egress)
    }

    /// The maps of groups that the objects have, with how many each can hold.
    pub fn groups(&self) -> Vec<(String, u32)> {
        let maps = self.parts.iter().flat_map(|part| part.loaded.maps());
        let groups = maps.filter(|map| map.map_type() == MapType::ArrayOfMaps);
        let name = |map: libbpf_rs::Map<'_>| {
            let name = map.name().to_string_lossy().into_owned();
            (name, map.max_entries())
        };
        groups.map(name).collect()
    }

    pub(crate) fn map(&self, name: &str) -> libbpf_rs::Map<'_> {
        find_map(&self.entry, name)
    }
}

fn find_map<'a>(object: &'a Loaded, name: &str) -> libbpf_rs::Map<'a> {
    object.maps().find(|map| map.name() == name).expect("maps.h defines it")
}

/// Puts a program into its place in the table of programs.
fn set_step(entry: &Loaded, place: u32, program: &ProgramMut<'_>) -> libbpf_rs::Result<()> {
    let program = program.as_fd().as_raw_fd();
    find_map(entry, "programs").update(&place.to_ne_bytes(), &program.to_ne_bytes(), MapFlags::ANY)
}

fn find_program<'a>(object: &'a Loaded, name: &str) -> ProgramMut<'a> {
    object.progs_mut().find(|program| program.name() == name).expect("checked when loaded")
}
