//! The programs of an object as native code, as `bpf::compile` linked them, and the memory that the
//! tables of several objects have together.

use std::{
    ffi::{CStr, CString},
    ptr::NonNull,
};

use crate::{Error, ffi};

/// An object's native half.
pub(super) struct Unit(pub(super) &'static ffi::Unit);

impl Unit {
    /// # Safety
    /// The function is one that `bpf::compile` made.
    pub(super) unsafe fn of(function: decide::Native) -> Unit {
        // SAFETY: a constant of the program.
        Unit(unsafe { &*function().cast::<ffi::Unit>() })
    }

    /// The one of every switch.
    pub(super) fn entry() -> Unit {
        // SAFETY: a constant of the program.
        Unit(unsafe { &*ffi::entry_unit() })
    }

    fn maps(&self) -> &'static [ffi::Map] {
        // SAFETY: as many as it says.
        unsafe { std::slice::from_raw_parts(self.0.maps, self.0.map_count as usize) }
    }

    fn programs(&self) -> &'static [ffi::Program] {
        if self.0.program_count == 0 {
            return &[];
        }
        // SAFETY: as many as it says.
        unsafe { std::slice::from_raw_parts(self.0.programs, self.0.program_count as usize) }
    }

    /// A program by its name in the C.
    pub(super) fn program(&self, name: &str) -> Option<ffi::Run> {
        let found = self.programs().iter().find(|p| text(p.name) == name);
        found.map(|p| p.run)
    }

    /// The names of its maps, each with its kind.
    pub(super) fn map_names(&self) -> impl Iterator<Item = (&'static str, u32)> + use<> {
        self.maps().iter().map(|map| (text(map.name), map.kind))
    }
}

fn text(name: *const std::ffi::c_char) -> &'static str {
    // SAFETY: a string constant of the program.
    unsafe { CStr::from_ptr(name) }.to_str().unwrap_or_default()
}

/// Makes the tables of these objects, with as many entries as said by name.
pub(super) fn raw_switch(
    units: &[*const ffi::Unit],
    entries: &[(String, u32)],
    cpus: u32,
) -> Result<NonNull<ffi::Switch>, Error> {
    let names: Vec<CString> = entries
        .iter()
        .map(|(name, _)| CString::new(name.as_str()).expect("names have no NUL"))
        .collect();
    let sizes: Vec<ffi::Size> = names
        .iter()
        .zip(entries)
        .map(|(name, (_, entries))| ffi::Size { name: name.as_ptr(), entries: *entries })
        .collect();
    // SAFETY: all of it outlives the call.
    let raw = unsafe {
        ffi::user_switch_new(
            units.as_ptr(),
            units.len() as u32,
            sizes.as_ptr(),
            sizes.len() as u32,
            cpus,
        )
    };
    NonNull::new(raw).ok_or(Error::System {
        what: "making the tables of a switch in this process",
        source: std::io::ErrorKind::OutOfMemory.into(),
    })
}

/// The names of the tables that any of these objects has.
pub(super) fn table_names(units: &[*const ffi::Unit]) -> Vec<String> {
    let mut names: Vec<String> = units
        .iter()
        // SAFETY: constants of the program.
        .flat_map(|unit| Unit(unsafe { &**unit }).map_names())
        .map(|(name, _)| name.to_owned())
        .collect();
    names.sort();
    names.dedup();
    names
}
