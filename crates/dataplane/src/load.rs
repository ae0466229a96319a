use std::{
    borrow::Cow,
    fs,
    os::fd::{AsFd, AsRawFd},
    path::PathBuf,
    sync::atomic::Ordering::Relaxed,
};

use decide::{Registration, Role};
use libbpf_rs::{
    MapCore, MapFlags, MapHandle, MapType, Object as Loaded, ObjectBuilder, OpenMapMut, OpenObject,
    Program, ProgramMut,
};

use crate::{
    Attached, Error, Home, Loops, Mode, Refusal, Table, attach,
    layout::{
        BUCKET_SLOTS, Config, LAYOUT, OF_ENTRY, PAGE_START_CELLS, PROGRAMS_PER_DISCIPLINE,
        RECIRCULATION_PORTS,
    },
    mapped::Mapped,
    preemption, recirculation, refusal,
};

pub(crate) const ENTRY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/entry.bpf.o.zlib"));
/// What the recirculation port is called among the ports of a switch.
pub const RECIRCULATION: &str = "recirculation";
/// Ports together with recirculation ports.
pub(crate) const CLONES: &str = "clones";
/// What a switch cannot do where the programs of loans are refused.
pub const WRITE_BACK: &str = "write-back";
/// Maps that whoever recirculates has beside his own (`RECIRCULATES` in `bpf/discipline.h`).
const OF_RECIRCULATION: [&str; 2] = [RECIRCULATION, CLONES];

/// The map that those objects share which count keys in pipes.
pub(crate) const PIPES: &str = "pipes";
/// That of those which count for their control half (`bpf/tally.h`).
pub(crate) const TALLIES: &str = "tallies";

/// Maps that belong to one loading, as this build and the ones before it call them. Programs of different loadings do not
/// meet there: what is loaded already keeps its own until the last link runs what is loaded now.
const OF_ONE_LOADING: [&str; 5] = [
    "work_area",
    "programs",
    "known_tenants",
    "works",
    "disciplines",
];
const TENANTS: &str = "tenants";
/// Maps that only count: made anew where their layout changed.
const STATISTICS: [&str; 5] = ["counters", "hits", "sketches", PIPES, TALLIES];

/// The data-plane half of a discipline: programs in a BPF object (`bpf/discipline.h`). Disciplines that differ in their
/// control half only share it.
#[derive(Clone, Debug)]
pub struct Object {
    /// The discipline's name.
    pub name: &'static str,
    /// What the names of its own maps begin with, before an underscore.
    pub maps_of: &'static str,
    /// Its number, by which tenants refer to it; below [`crate::NO_DISCIPLINE`].
    pub number: u32,
    /// The ELF object, packed or not.
    pub elf: &'static [u8],
    /// The C functions that are its steps, in order; one to eight.
    pub steps: Vec<&'static str>,
    /// The C function that runs on each copy of a fan-out as it leaves.
    pub egress: Option<&'static str>,
    /// The same programs as native code, if there is one.
    pub native: Option<decide::Native>,
    /// Entries of maps of its own; the others have the size that the C says.
    pub maps: Vec<(&'static str, u32)>,
}

impl Object {
    /// What a discipline registered, for a switch of this size.
    pub fn of(registration: &Registration, sizes: Sizes) -> Object {
        let with_role = |role| {
            let programs = registration.programs.iter();
            programs.filter(move |p| p.role == role).map(|p| p.name)
        };
        let sizes = decide::Sizes {
            pages: sizes.pages,
            cpus: cpus(),
        };
        let maps = registration.maps.iter();
        Object {
            name: registration.name,
            maps_of: registration.maps_of,
            number: registration.number,
            elf: registration.object,
            native: registration.native,
            steps: with_role(Role::Step).collect(),
            egress: with_role(Role::Egress).next(),
            maps: maps.map(|map| (map.name, (map.entries)(sizes))).collect(),
        }
    }
}

/// How large a switch's tables are. Fixed from the first load until the switch is detached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Pages of cache memory; each holds 128 items of a 16-byte key and a 128-byte value.
    pub pages: u32,
}

impl Sizes {
    /// Buckets of the lookup table: a power of two, at least 2.5 slots per smallest item, so that
    /// a bucket of eight overflows for about one key in two thousand.
    pub fn buckets(&self) -> u32 {
        let items = self.pages as usize * PAGE_START_CELLS / 3;
        (items * 5 / 2 / BUCKET_SLOTS).next_power_of_two().max(64) as u32
    }

    /// Entries of a shared table whose size depends on the switch.
    fn of(&self, table: &str) -> Option<u32> {
        self.on(table, cpus())
    }

    /// Likewise where programs run on so many CPUs.
    pub(crate) fn on(&self, table: &str, cpus: u32) -> Option<u32> {
        match table {
            "buckets" => Some(self.buckets()),
            "pages" => Some(self.pages),
            "hits" => Some(self.pages * cpus),
            "sketches" | "known_tenants" | PIPES => Some(cpus),
            _ => None,
        }
    }
}

/// A loaded data plane. Dropping it leaves programs and maps to the pins and links that hold them.
pub struct Dataplane {
    home: Home,
    entry: Loaded,
    /// Held until links and pins hold their programs; with the name of the egress program.
    objects: Vec<(Loaded, Option<&'static str>)>,
    refused: Vec<(&'static str, Refusal)>,
}

/// Whether this key of `clones` is of one of these ports.
fn is_clone_of(key: &[u8], ports: &[u32]) -> bool {
    let port = key.first_chunk().map(|port| u32::from_ne_bytes(*port));
    port.is_some_and(|port| ports.contains(&port))
}

/// CPUs that may run the programs.
pub fn cpus() -> u32 {
    libbpf_rs::num_possible_cpus().unwrap_or(1) as u32
}

/// Whether this process may load programs into this kernel at all.
pub(crate) fn may_load() -> Result<(), Error> {
    check_kernel()?;
    if !nix::unistd::geteuid().is_root() {
        return Err(Error::NotPermitted("loading BPF programs"));
    }
    refusal::listen();
    Ok(())
}

fn check_kernel() -> Result<(), Error> {
    let release = refusal::kernel();
    let mut numbers = release
        .split(['.', '-'])
        .map(|part| part.parse::<u32>().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if version < (6, 1) {
        Err(Error::OldKernel {
            found: release.into(),
        })
    } else {
        preemption::check(version)
    }
}

pub(crate) fn open(name: &str, elf: &[u8]) -> Result<OpenObject, Error> {
    // As compiled, or packed by `bpf::compile`: no ELF file begins as those do.
    let elf = match elf.starts_with(b"\x7fELF") {
        true => Cow::Borrowed(elf),
        false => miniz_oxide::inflate::decompress_to_vec_zlib(elf)
            .map_err(|e| Error::Object {
                name: name.into(),
                reason: format!("its object cannot be unpacked: {e}"),
            })?
            .into(),
    };
    ObjectBuilder::default()
        .open_memory(&elf)
        .map_err(Error::bpf(format!("opening program {name}")))
}

/// A map as an object's C declares it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapLayout {
    /// Its name.
    pub name: String,
    /// Bytes of a key.
    pub key_bytes: u32,
    /// Bytes of a value.
    pub value_bytes: u32,
    /// Entries, unless they are set when loading.
    pub entries: u32,
}

/// The maps that an object declares; needs no privilege.
///
/// # Errors
/// What is no BPF object.
pub fn maps_of(object: &[u8]) -> Result<Vec<MapLayout>, Error> {
    let open = open("to read its maps", object)?;
    let layout = |map: libbpf_rs::OpenMap<'_>| MapLayout {
        name: map.name().to_string_lossy().into_owned(),
        key_bytes: map.key_size(),
        value_bytes: map.value_size(),
        entries: map.max_entries(),
    };
    Ok(open.maps().map(layout).collect())
}

/// The names of an object's maps that are pinned; sections of constants are not.
fn pinned_maps(open: &OpenObject) -> Vec<String> {
    let names = open
        .maps()
        .map(|map| map.name().to_string_lossy().into_owned());
    names.filter(|name| !name.contains('.')).collect()
}

/// Gives a map its entries, or the constants of a switch of this size their values.
pub(crate) fn size(
    map: &mut OpenMapMut<'_>,
    sizes: Sizes,
    own: &[(&str, u32)],
) -> Result<(), Error> {
    let name = map.name().to_string_lossy().into_owned();
    if name.contains(".rodata.switch") {
        // `struct switch_sizes`
        let words = [sizes.buckets() - 1, sizes.pages].map(u32::to_ne_bytes);
        map.set_initial_value(words.as_flattened())
            .map_err(Error::bpf("telling the programs the tables' sizes"))?;
    }
    if name.contains('.') {
        return Ok(());
    }
    let by_name = own.iter().find(|(own, _)| *own == name);
    if let Some(entries) = by_name.map_or_else(|| sizes.of(&name), |(_, n)| Some(*n)) {
        map.set_max_entries(entries)
            .map_err(Error::bpf(format!("sizing map {name}")))?;
    }
    Ok(())
}

/// Sizes an object's maps and says where they are pinned. Nothing in the kernel changes. Pins that must go before it is
/// loaded are added to `stale`.
fn configure(
    home: &Home,
    open: &mut OpenObject,
    sizes: Sizes,
    own: &[(&str, u32)],
    stale: &mut Vec<PathBuf>,
) -> Result<(), Error> {
    for mut map in open.maps_mut() {
        size(&mut map, sizes, own)?;
        let name = map.name().to_string_lossy().into_owned();
        if name.contains('.') {
            continue;
        }
        map.set_pin_path(home.map(&name))
            .map_err(Error::bpf(format!("pinning map {name}")))?;
        if name == TENANTS {
            keep_flags(home, &mut map)?;
        }
        if !layout_is_ours(home, &name, &map)? {
            stale.push(home.map(&name));
        }
    }
    Ok(())
}

/// Earlier builds took memory for all tenants that there may be; their map goes on.
fn keep_flags(home: &Home, map: &mut OpenMapMut<'_>) -> Result<(), Error> {
    let path = home.map(TENANTS);
    if !path.exists() {
        return Ok(());
    }
    let wrong = || Error::bpf(format!("opening map {TENANTS}"));
    let pinned = MapHandle::from_pinned_path(&path).map_err(wrong())?;
    let info = pinned.info().map_err(wrong())?;
    map.set_map_flags(info.info.map_flags).map_err(wrong())
}

/// Whether a map is as this build has it, if it is pinned already: only one that counts may be otherwise.
fn layout_is_ours(home: &Home, name: &str, map: &OpenMapMut<'_>) -> Result<bool, Error> {
    let path = home.map(name);
    if !path.exists() || OF_ONE_LOADING.contains(&name) {
        return Ok(true);
    }
    let pinned =
        MapHandle::from_pinned_path(&path).map_err(Error::bpf(format!("opening map {name}")))?;
    let found = (
        pinned.map_type(),
        pinned.key_size(),
        pinned.value_size(),
        pinned.max_entries(),
    );
    let wanted = (
        map.map_type(),
        map.key_size(),
        map.value_size(),
        map.max_entries(),
    );
    if found == wanted || STATISTICS.contains(&name) {
        return Ok(found == wanted);
    }
    let words = |(kind, key, value, entries)| {
        format!("{kind:?} of {entries} entries, keys of {key} and values of {value} bytes")
    };
    Err(Error::OtherLayout {
        name: home.name().into(),
        reason: format!("{name}: {}, expected {}", words(found), words(wanted)),
    })
}

/// A layout may have changed under its name and size: the number in the configuration, which an agent has written, tells.
fn refuse_other_layouts(home: &Home) -> Result<(), Error> {
    if !home.map("config").exists() {
        return Ok(());
    }
    let config: Mapped<Config> = Mapped::open(home, "config")?;
    let config = config.at(0);
    match (config.switch_id.load(Relaxed), config.layout.load(Relaxed)) {
        (0, _) | (_, LAYOUT) => Ok(()),
        _ => Err(Error::OtherLayout {
            name: home.name().into(),
            reason: "another build wrote them".into(),
        }),
    }
}

/// Loads an object with every map pinned, or found again where it was.
fn load(home: &Home, name: &str, open: OpenObject) -> Result<Loaded, Error> {
    refusal::refused();
    open.load().map_err(|source| {
        if let Some(refusal) = refusal::refused() {
            return Error::Refused(refusal);
        }
        match source.kind() {
            libbpf_rs::ErrorKind::PermissionDenied => Error::NotPermitted("loading BPF programs"),
            libbpf_rs::ErrorKind::InvalidInput if home.exists() => Error::OtherLayout {
                name: home.name().into(),
                reason: source.to_string(),
            },
            _ => Error::bpf(format!("loading program {name}"))(source),
        }
    })
}

/// Loads the entry object, without those of its programs that the kernel refuses and a switch does without.
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
        next = open("entry", ENTRY)?;
        configure(home, &mut next, sizes, &[], &mut vec![])?;
        for mut program in next.progs_mut() {
            let name = program.name().to_string_lossy().into_owned();
            program.set_autoload(refused.iter().all(|(_, r)| r.program != name));
        }
    }
}

impl Object {
    pub(crate) fn wrong(&self, reason: impl Into<String>) -> Error {
        Error::Object {
            name: self.name.into(),
            reason: reason.into(),
        }
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.number >= crate::NO_DISCIPLINE {
            return Err(self.wrong(format!(
                "its number is {}, expected one below {}",
                self.number,
                crate::NO_DISCIPLINE
            )));
        }
        if !(1..=PROGRAMS_PER_DISCIPLINE).contains(&self.steps.len()) {
            return Err(self.wrong(format!(
                "it has {} steps, expected 1 to {PROGRAMS_PER_DISCIPLINE}",
                self.steps.len()
            )));
        }
        Ok(())
    }

    /// Its own maps are those that `shared` does not name.
    fn check_maps(&self, open: &OpenObject, shared: &[String]) -> Result<(), Error> {
        let maps = pinned_maps(open);
        if let Some((missing, _)) = self
            .maps
            .iter()
            .find(|(name, _)| !maps.contains(&(*name).into()))
        {
            return Err(self.wrong(format!("it has no map {missing}")));
        }
        let prefix = format!("{}_", self.maps_of);
        let is_of_some =
            |name: &str| OF_RECIRCULATION.contains(&name) || [PIPES, TALLIES].contains(&name);
        let own = |name: &&String| !shared.contains(name) && !is_of_some(name);
        match maps.iter().filter(own).find(|name| !name.starts_with(&prefix)) {
            Some(name) => Err(self.wrong(format!(
                "its map {name} must be named {prefix}...: all maps of a switch are pinned in one directory"
            ))),
            None => Ok(()),
        }
    }

    fn program<'a>(&self, loaded: &'a Loaded, name: &str) -> Result<ProgramMut<'a>, Error> {
        loaded
            .progs_mut()
            .find(|program| program.name() == name)
            .ok_or_else(|| self.wrong(format!("its object has no program {name}")))
    }

    fn register(&self, entry: &Loaded, loaded: &Loaded) -> Result<(), Error> {
        if let Some(egress) = self.egress {
            self.program(loaded, egress)?;
        }
        for (name, step) in self.steps.iter().zip(0u32..) {
            let place = self.number * PROGRAMS_PER_DISCIPLINE as u32 + step;
            set_step(entry, place, &self.program(loaded, name)?)
                .map_err(Error::bpf(format!("registering {name}")))?;
        }
        Ok(())
    }
}

impl Dataplane {
    /// Loads the entry program and `objects`, and pins their maps in `home`. Maps that are pinned there already, from an
    /// agent that crashed or is being upgraded, are taken over as they are; its programs go on with them until
    /// [`Dataplane::attach`] has replaced them.
    ///
    /// # Errors
    /// No privilege, an old kernel or one that refuses the entry program, tables pinned in another size, an object that is not as it
    /// says: see [`Error`]. A discipline that the kernel refuses is no error: [`Dataplane::refused`].
    pub fn load(home: Home, objects: &[Object], sizes: Sizes) -> Result<Dataplane, Error> {
        may_load()?;
        let was_there = home.exists();
        home.create()?;
        let loaded = Dataplane::load_into(&home, objects, sizes);
        if loaded.is_err() && !was_there {
            let _ = home.remove();
        }
        loaded
    }

    fn load_into(home: &Home, objects: &[Object], sizes: Sizes) -> Result<Dataplane, Error> {
        refuse_other_layouts(home)?;
        let mut stale = vec![];
        let mut entry = open("entry", ENTRY)?;
        configure(home, &mut entry, sizes, &[], &mut stale)?;
        let shared = pinned_maps(&entry);
        let mut opened: Vec<(&Object, OpenObject)> = vec![];
        for object in objects {
            object.check()?;
            if opened.iter().any(|(first, _)| first.elf == object.elf) {
                continue;
            }
            let mut open = open(object.name, object.elf)?;
            object.check_maps(&open, &shared)?;
            configure(home, &mut open, sizes, &object.maps, &mut stale)?;
            opened.push((object, open));
        }
        home.put_aside(&OF_ONE_LOADING)?;
        for path in stale {
            // Every object that has the map names it.
            let _ = fs::remove_file(path);
        }
        let mut refused = vec![];
        let entry = load_entry(home, entry, sizes, &mut refused)?;
        let mut dataplane = Dataplane {
            home: home.clone(),
            entry,
            objects: vec![],
            refused,
        };
        for (first, open) in opened {
            let same = objects.iter().filter(|object| object.elf == first.elf);
            let loaded = match load(home, first.name, open) {
                Err(Error::Refused(refusal)) => {
                    let refused = same.map(|object| (object.name, refusal.clone()));
                    dataplane.refused.extend(refused);
                    continue;
                }
                loaded => loaded?,
            };
            for object in same {
                object.register(&dataplane.entry, &loaded)?;
            }
            dataplane.objects.push((loaded, first.egress));
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

    /// What this kernel refuses: disciplines by name, and [`WRITE_BACK`]. Their packets are forwarded.
    pub fn refused(&self) -> &[(&'static str, Refusal)] {
        &self.refused
    }

    /// Where it is pinned.
    pub fn home(&self) -> &Home {
        &self.home
    }

    /// Attaches the entry program to an interface, or replaces the one of an earlier agent in place,
    /// and admits the interface as a port. When the last interface of the switch runs it, what only earlier programs used
    /// is removed.
    pub(crate) fn attach_one(
        &self,
        interface: &str,
        generic: bool,
        why: &str,
    ) -> Result<Attached, Error> {
        let attached = attach::attach(&self.home, &self.program(), interface, generic, why)?;
        let wrong = || Error::bpf("adding a port");
        let key = attached.ifindex.to_ne_bytes();
        self.map("ports")
            .update(&key, &devmap_value(attached.ifindex, None), MapFlags::ANY)
            .map_err(wrong())?;
        self.name_port(attached.ifindex, interface)?;
        self.note_address(attached.ifindex)?;
        self.let_go()?;
        Ok(attached)
    }

    /// Notes the hardware addresses that the switch's interfaces have now: frames for others are not its affair.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn note_addresses(&self) -> Result<(), Error> {
        let mut ports = attach::attached(&self.home).into_iter();
        ports.try_for_each(|(_, ifindex)| self.note_address(ifindex))
    }

    fn note_address(&self, ifindex: u32) -> Result<(), Error> {
        let addresses = self.map("port_addresses");
        let place = (ifindex % addresses.max_entries()).to_ne_bytes();
        let address = port_address(ifindex, attach::mac_of(ifindex));
        addresses
            .update(&place, &address, MapFlags::ANY)
            .map_err(Error::bpf(format!(
                "noting the address of interface {ifindex}"
            )))
    }

    /// Makes the recirculation ports if one of the objects asks for them, and removes them if none does. Comes after all
    /// interfaces were attached: in the driver if they all are. Says whether there are any.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn recirculate(&self, attached: &[Attached], loops: &Loops) -> Result<bool, Error> {
        if !self.recirculates() {
            recirculation::close(&self.home)?;
            self.let_go()?;
            return Ok(false);
        }
        let generic = attached.iter().any(|port| port.mode == Mode::Generic);
        let rounds = match recirculation::open(&self.home, &self.comes_back(), generic, loops) {
            Ok(rounds) => rounds,
            Err(error) => {
                // Nothing is sent where nobody is.
                self.send_round(&[], &[])?;
                return Err(error);
            }
        };
        let ports: Vec<u32> = attached.iter().map(|port| port.ifindex).collect();
        self.send_round(&rounds, &ports)?;
        self.name_port(rounds[0], RECIRCULATION)?;
        self.let_go()?;
        Ok(true)
    }

    /// Whether one of the objects sends packets round.
    fn recirculates(&self) -> bool {
        self.map_of_objects(RECIRCULATION).is_some()
    }

    fn map_of_objects(&self, name: &str) -> Option<MapHandle> {
        let found = |(object, _): &'_ (Loaded, _)| {
            let map = object.maps().find(|map| map.name() == name)?;
            MapHandle::try_from(&map).ok()
        };
        self.objects.iter().find_map(found)
    }

    /// Has programs send packets round by these interfaces, and send and clone to these ports. For what attaches no interface, as
    /// tests do; otherwise [`Dataplane::recirculate`] does it.
    ///
    /// # Errors
    /// None of the objects sends packets round, an interface that cannot be redirected to.
    pub fn send_round(&self, rounds: &[u32], ports: &[u32]) -> Result<(), Error> {
        let maps = OF_RECIRCULATION.map(|name| self.map_of_objects(name));
        let [Some(recirculation), Some(clones)] = maps else {
            return Err(Error::row(RECIRCULATION, "nobody here recirculates"));
        };
        for stale in clones.keys().filter(|key| !is_clone_of(key, ports)) {
            let _ = clones.delete(&stale);
        }
        if rounds.is_empty() {
            for number in recirculation.keys() {
                let _ = recirculation.delete(&number);
            }
        }
        for port in ports {
            self.map("ports")
                .update(
                    &port.to_ne_bytes(),
                    &devmap_value(*port, None),
                    MapFlags::ANY,
                )
                .map_err(Error::bpf("adding a port"))?;
        }
        for (number, round) in (0..RECIRCULATION_PORTS).zip(rounds.iter().cycle()) {
            let value = devmap_value(*round, None);
            recirculation
                .update(&number.to_ne_bytes(), &value, MapFlags::ANY)
                .map_err(Error::bpf("naming a recirculation port"))?;
            for port in ports {
                crate::group::set_clone(&clones, *port, number, *round)?;
            }
        }
        Ok(())
    }

    /// The entry program, for attaching and for test runs.
    pub fn program(&self) -> ProgramMut<'_> {
        find_program(&self.entry, "entry")
    }

    /// The program at the far end of the recirculation port.
    pub fn comes_back(&self) -> ProgramMut<'_> {
        find_program(&self.entry, "comes_back")
    }

    /// The index of a port by its name, that of the recirculation port included.
    pub fn port(&self, name: &str) -> Option<u32> {
        let names = self.map("port_names");
        let is_named = |key: &Vec<u8>| {
            let value = names.lookup(key, MapFlags::ANY).ok().flatten();
            value.is_some_and(|value| value == port_name(name))
        };
        let key = names.keys().find(is_named)?;
        Some(u32::from_ne_bytes(*key.first_chunk()?))
    }

    /// Makes `ports`, by index and at most 64, the group of that index in a map of groups. No packet sees a part of a
    /// change. Without ports there is no such group.
    ///
    /// # Errors
    /// No object has such a map, an index beyond its size, too many ports, an interface that cannot be redirected to.
    pub fn set_group(&self, map: &str, index: u32, ports: &[u32]) -> Result<(), Error> {
        let of = |(object, egress): &'_ (Loaded, Option<&'static str>)| {
            let found = object.maps().find(|found| found.name() == map)?;
            Some((
                MapHandle::try_from(&found).ok()?,
                egress.map(|name| find_program(object, name).as_fd().as_raw_fd()),
            ))
        };
        let found = self.objects.iter().find_map(of);
        let (groups, egress) =
            found.ok_or_else(|| Error::row(map, "no discipline here has such a map"))?;
        crate::group::set(&groups, map, index, ports, egress)
    }

    /// The maps of groups that the objects have, with how many each can hold.
    pub fn groups(&self) -> Vec<(String, u32)> {
        let maps = self.objects.iter().flat_map(|(object, _)| object.maps());
        let groups = maps.filter(|map| map.map_type() == MapType::ArrayOfMaps);
        let name = |map: libbpf_rs::Map<'_>| {
            let name = map.name().to_string_lossy().into_owned();
            (name, map.max_entries())
        };
        groups.map(name).collect()
    }

    fn name_port(&self, ifindex: u32, name: &str) -> Result<(), Error> {
        let names = self.map("port_names");
        while let Some(before) = self.port(name).filter(|before| *before != ifindex) {
            // An interface of this name that has gone.
            let removed = names.delete(&before.to_ne_bytes());
            removed.map_err(Error::bpf("naming a port"))?;
        }
        names
            .update(&ifindex.to_ne_bytes(), &port_name(name), MapFlags::ANY)
            .map_err(Error::bpf("naming a port"))
    }

    /// Removes what only programs of earlier loadings use, once none of them runs.
    fn let_go(&self) -> Result<(), Error> {
        let id = |program: ProgramMut<'_>| Program::id_from_fd(program.as_fd());
        let ours = [id(self.program()), id(self.comes_back())];
        let ours: Vec<u32> = ours.into_iter().flatten().collect();
        if attach::all_run(&self.home, &ours) {
            self.home.remove_aside()?;
        }
        Ok(())
    }

    fn map(&self, name: &str) -> libbpf_rs::Map<'_> {
        find_map(&self.entry, name)
    }
}

/// `struct bpf_devmap_val`: where to, and a program to run on what goes there.
pub(crate) fn devmap_value(ifindex: u32, program: Option<i32>) -> [u8; 8] {
    let mut value = [0; 8];
    value[..4].copy_from_slice(&ifindex.to_ne_bytes());
    value[4..].copy_from_slice(&program.unwrap_or(0).to_ne_bytes());
    value
}

/// `struct port_address`; of an interface without an address: nobody's place.
fn port_address(ifindex: u32, mac: Option<[u8; 6]>) -> [u8; 16] {
    let mut value = [0; 16];
    if let Some(mac) = mac {
        let mut word = [0; 8];
        word[..6].copy_from_slice(&mac);
        value[..8].copy_from_slice(&u64::from_le_bytes(word).to_ne_bytes());
        value[8..12].copy_from_slice(&ifindex.to_ne_bytes());
    }
    value
}

/// `struct port_name`.
pub(crate) fn port_name(name: &str) -> [u8; 16] {
    let mut value = [0; 16];
    for (to, from) in value.iter_mut().zip(name.bytes().take(15)) {
        *to = from;
    }
    value
}

fn find_map<'a>(object: &'a Loaded, name: &str) -> libbpf_rs::Map<'a> {
    object
        .maps()
        .find(|map| map.name() == name)
        .expect("maps.h defines it")
}

/// Puts a program into its place in the table of programs.
fn set_step(entry: &Loaded, place: u32, program: &ProgramMut<'_>) -> libbpf_rs::Result<()> {
    let program = program.as_fd().as_raw_fd();
    find_map(entry, "programs").update(&place.to_ne_bytes(), &program.to_ne_bytes(), MapFlags::ANY)
}

fn find_program<'a>(object: &'a Loaded, name: &str) -> ProgramMut<'a> {
    object
        .progs_mut()
        .find(|program| program.name() == name)
        .expect("checked when loaded")
}
