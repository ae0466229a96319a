//! Where the tables of a switch are, in the kernel or in this process: whatever gives typed access
//! to a table opens it here, and does not ask which of the two it is.

use std::sync::Arc;

use libbpf_rs::MapHandle;

use super::{
    bpffs::Home, clock::Clock, grace::Grace, local::LocalMaps, map::Map, mapped::SharedArray,
};
use crate::Error;

/// Where a switch's tables are.
#[derive(Clone)]
pub enum Backing {
    /// Pinned, shared with programs in the kernel.
    Pinned(Home),
    /// In this process.
    Native(Arc<LocalMaps>),
}

impl Backing {
    /// The switch's name.
    pub fn name(&self) -> &str {
        match self {
            Backing::Pinned(home) => home.name(),
            Backing::Native(maps) => maps.name(),
        }
    }

    /// What shows the time to its programs.
    pub fn clock(&self) -> Clock {
        match self {
            Backing::Pinned(_) => Clock::Boot,
            Backing::Native(maps) => maps.clock().clone(),
        }
    }

    /// [`Error::NoSwitch`] unless the switch is there.
    pub(crate) fn must_exist(&self) -> Result<(), Error> {
        match self {
            Backing::Pinned(home) => home.must_exist(),
            Backing::Native(_) => Ok(()),
        }
    }

    /// An array that this process shares with the programs, whole.
    pub(crate) fn mapped<T>(&self, name: &str) -> Result<SharedArray<T>, Error> {
        match self {
            Backing::Pinned(home) => SharedArray::open(home, name),
            Backing::Native(maps) => SharedArray::native(maps, name),
        }
    }

    /// A table that is reached row by row.
    pub(crate) fn map(&self, name: &str) -> Result<Map, Error> {
        match self {
            Backing::Pinned(home) => MapHandle::from_pinned_path(home.map(name))
                .map(Map::Kernel)
                .map_err(Error::bpf(format!("opening map {name} of switch {}", home.name()))),
            Backing::Native(maps) => maps
                .table(name)
                .map(Map::Native)
                .ok_or_else(|| Error::row(name, "this switch has no such table")),
        }
    }

    /// Whether it has a table of that name.
    pub(crate) fn has_map(&self, name: &str) -> bool {
        match self {
            Backing::Pinned(home) => home.map(name).exists(),
            Backing::Native(maps) => maps.table(name).is_some(),
        }
    }

    /// The names of the maps that a discipline of that name has of its own.
    pub(crate) fn maps_of(&self, discipline: &str) -> Result<Vec<String>, Error> {
        match self {
            Backing::Pinned(home) => home.maps_of(discipline),
            Backing::Native(maps) => Ok(maps.tables_of(discipline)),
        }
    }

    /// Elements that an array has.
    ///
    /// # Errors
    /// There is no such table.
    pub fn elements(&self, array: &str) -> Result<u32, Error> {
        Ok(self.map(array)?.max_entries())
    }

    /// An element of an array as bytes, as its struct in `bpf/` has them; for whoever looks into
    /// a switch.
    ///
    /// # Errors
    /// There is no such table or element.
    pub fn element(&self, array: &str, index: u32) -> Result<Vec<u8>, Error> {
        self.array(array)?.element(index)
    }

    /// Overwrites an element of an array; for tests, which play time and other CPUs.
    ///
    /// # Errors
    /// There is no such table or element.
    pub fn set_element(&self, array: &str, index: u32, bytes: &[u8]) -> Result<(), Error> {
        self.array(array)?.set_element(index, bytes)
    }

    /// An array, opened once for whoever asks for elements often.
    ///
    /// # Errors
    /// There is no such table.
    pub fn array(&self, name: &str) -> Result<Elements, Error> {
        Ok(Elements { name: name.into(), map: self.map(name)? })
    }

    pub(crate) fn grace(&self) -> Result<Grace, Error> {
        match self {
            Backing::Pinned(_) => Grace::new(),
            Backing::Native(maps) => Ok(Grace::native(maps.clone())),
        }
    }
}

/// An array whose elements are read and written as bytes.
pub struct Elements {
    name: String,
    map: Map,
}

impl Elements {
    /// As [`Backing::element`].
    ///
    /// # Errors
    /// There is no such element.
    pub fn element(&self, index: u32) -> Result<Vec<u8>, Error> {
        let found = self.map.lookup(&index.to_ne_bytes());
        let found = found.map_err(Error::bpf(format!("reading {}", self.name)))?;
        found.ok_or_else(|| Error::row(&self.name, format!("there is no element {index}")))
    }

    /// As [`Backing::set_element`].
    ///
    /// # Errors
    /// There is no such element.
    pub fn set_element(&self, index: u32, bytes: &[u8]) -> Result<(), Error> {
        let written = self.map.update(&index.to_ne_bytes(), bytes);
        written.map_err(Error::bpf(format!("writing {}", self.name)))
    }
}

impl From<&Home> for Backing {
    fn from(home: &Home) -> Backing {
        Backing::Pinned(home.clone())
    }
}

impl From<&Backing> for Backing {
    fn from(backing: &Backing) -> Backing {
        backing.clone()
    }
}
