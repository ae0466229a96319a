//! The least that a cache in the kernel must do: look a key up in a BPF HASH and copy its value.

use anyhow::Context;
use libbpf_rs::{MapCore, MapFlags, Object, ObjectBuilder};

use crate::{
    drive::{self, Aim},
    runs::{self, Program},
};

const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/floors.bpf.o"));

/// The number that the driver's requests carry in front of the key's hash.
const REQUEST: u64 = 20_001;

/// Loads the bare programs; the tables of those that look up are empty.
///
/// # Errors
/// The kernel refuses.
pub fn bare() -> anyhow::Result<Object> {
    runs::load(OBJECT, "floors.bpf.c")
}

/// A full table, with the program that looks up there.
pub struct Floor {
    _object: Object,
    /// The program.
    pub program: Program,
}

impl Floor {
    /// One of so many entries that holds what `aim` asks for, and the keys that follow until it is
    /// full; values have the aim's length, 128 or 1024.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn of(aim: &Aim, entries: u32) -> anyhow::Result<Floor> {
        let name = format!("floor_{}", aim.value_len);
        let mut open = ObjectBuilder::default().open_memory(OBJECT)?;
        let table = open.maps_mut().find(|map| map.name() == name.as_str());
        let mut table = table.with_context(|| format!("no floor of {} bytes", aim.value_len))?;
        table.set_max_entries(entries)?;
        let object = open.load().context("loading the floor")?;
        let table = runs::map(&object, &name)?;
        for number in aim.first..aim.first + entries {
            let mut key = REQUEST.to_be_bytes().to_vec();
            key.extend(drive::hash(number, aim.salt).0);
            table.update(&key, &vec![number as u8; aim.value_len], MapFlags::ANY)?;
        }
        let program = Program::of(&object, &format!("look_up_and_copy_{}", aim.value_len))?;
        Ok(Floor { _object: object, program })
    }
}
