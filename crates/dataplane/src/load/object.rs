//! The object file of a discipline: what was registered of it, and whether its programs and maps
//! are as that says.

use std::borrow::Cow;

use decide::{Registration, Role};
use libbpf_rs::{Object as Loaded, ObjectBuilder, OpenObject, ProgramMut};

use super::{kernel::cpus, pinned::pinned_maps, sizes::Sizes};
use crate::{
    Error,
    layout::PROGRAMS_PER_DISCIPLINE,
    maps::{sketch::PIPES, tally::TALLIES},
};

/// What the recirculation port is called among the ports of a switch.
pub const RECIRCULATION: &str = "recirculation";
/// Ports together with recirculation ports.
pub(crate) const CLONES: &str = "clones";
/// Maps that whoever recirculates has beside his own (`RECIRCULATES` in `bpf/discipline.h`).
pub(crate) const OF_RECIRCULATION: [&str; 2] = [RECIRCULATION, CLONES];

/// The data-plane half of a discipline: programs in a BPF object (`bpf/discipline.h`). Disciplines
/// that differ in their control half only share it.
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
    /// The list of its own counters ([`Registration::counters`]).
    pub counters: &'static str,
}

impl Object {
    /// What a discipline registered, for a switch of this size.
    pub fn of(registration: &Registration, sizes: Sizes) -> Object {
        let with_role = |role| {
            let programs = registration.programs.iter();
            programs.filter(move |p| p.role == role).map(|p| p.name)
        };
        let sizes = decide::Sizes { pages: sizes.pages, cpus: cpus() };
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
            counters: registration.counters,
        }
    }
}

pub(crate) fn open(name: &str, elf: &[u8]) -> Result<OpenObject, Error> {
    open_unpacked(name, &unpack(name, elf)?)
}

/// The file as it was compiled: it may be packed by `bpf::compile`, and no ELF file begins as
/// those do.
pub(crate) fn unpack<'a>(name: &str, elf: &'a [u8]) -> Result<Cow<'a, [u8]>, Error> {
    if elf.starts_with(b"\x7fELF") {
        return Ok(elf.into());
    }
    let unpacked = miniz_oxide::inflate::decompress_to_vec_zlib(elf);
    unpacked.map(Cow::from).map_err(|e| Error::Object {
        name: name.into(),
        reason: format!("its object cannot be unpacked: {e}"),
    })
}

pub(crate) fn open_unpacked(name: &str, elf: &[u8]) -> Result<OpenObject, Error> {
    ObjectBuilder::default().open_memory(elf).map_err(Error::bpf(format!("opening program {name}")))
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

impl Object {
    pub(crate) fn wrong(&self, reason: impl Into<String>) -> Error {
        Error::Object { name: self.name.into(), reason: reason.into() }
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
    pub(crate) fn check_maps(&self, open: &OpenObject, shared: &[String]) -> Result<(), Error> {
        let maps = pinned_maps(open);
        if let Some((missing, _)) =
            self.maps.iter().find(|(name, _)| !maps.contains(&(*name).into()))
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

    pub(crate) fn program<'a>(
        &self,
        loaded: &'a Loaded,
        name: &str,
    ) -> Result<ProgramMut<'a>, Error> {
        loaded
            .progs_mut()
            .find(|program| program.name() == name)
            .ok_or_else(|| self.wrong(format!("its object has no program {name}")))
    }
}
