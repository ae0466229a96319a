//! Whether this kernel takes every program, each tried by itself; nothing is pinned or attached.

use std::{
    os::fd::{AsFd, AsRawFd, BorrowedFd},
    ptr,
    time::{Duration, Instant},
};

use libbpf_rs::{AsRawLibbpf, OpenObject};

use super::{
    dataplane::ENTRY,
    kernel,
    object::{self, Object},
    sizes::{self, Sizes},
    verifier::{self, LoadError},
};
use crate::{Error, Refusal};

/// What this kernel says of one program.
#[derive(Clone, Debug)]
pub struct ProgramCheck {
    /// The disciplines whose program it is; of none: every switch has it.
    pub disciplines: Vec<&'static str>,
    /// The program, as the C calls it.
    pub program: String,
    /// The instructions that the verifier went through, or why it is refused.
    pub verdict: Result<u32, Refusal>,
    /// How long that took.
    pub took: Duration,
}

/// Loads each program of a switch of this size and lets it go again.
///
/// # Errors
/// No privilege, an old kernel, what is no refusal of a program.
pub fn check(objects: &[Object], sizes: Sizes) -> Result<Vec<ProgramCheck>, Error> {
    kernel::may_load()?;
    verifier::listen();
    let mut all = of_object(&[], "entry", ENTRY, &[], sizes)?;
    for (number, object) in objects.iter().enumerate() {
        let has_same = |other: &&Object| other.elf == object.elf;
        if objects[..number].iter().any(|other| has_same(&other)) {
            continue;
        }
        let disciplines: Vec<_> = objects.iter().filter(has_same).map(|o| o.name).collect();
        all.extend(of_object(&disciplines, object.name, object.elf, &object.maps, sizes)?);
    }
    Ok(all)
}

fn of_object(
    disciplines: &[&'static str],
    name: &str,
    elf: &[u8],
    own: &[(&str, u32)],
    sizes: Sizes,
) -> Result<Vec<ProgramCheck>, Error> {
    let elf = object::unpack(name, elf)?;
    let open = object::open_unpacked(name, &elf)?;
    let names = open.progs().map(|p| p.name().to_string_lossy().into_owned());
    let one = |program: String| {
        let mut open = object::open_unpacked(name, &elf)?;
        prepare(&mut open, own, sizes)?;
        for mut other in open.progs_mut() {
            let is_it = other.name() == program.as_str();
            other.set_autoload(is_it);
        }
        let began = Instant::now();
        let verdict = load_one(open, &program)?;
        Ok(ProgramCheck {
            disciplines: disciplines.to_vec(),
            program,
            verdict,
            took: began.elapsed(),
        })
    };
    names.map(one).collect()
}

/// Gives the maps their sizes, and no place in the file system.
fn prepare(open: &mut OpenObject, own: &[(&str, u32)], sizes: Sizes) -> Result<(), Error> {
    for mut map in open.maps_mut() {
        sizes::give(&mut map, sizes, own)?;
        // SAFETY: the map is this object's, and null is "nowhere".
        unsafe {
            libbpf_rs::libbpf_sys::bpf_map__set_pin_path(
                map.as_libbpf_object().as_ptr(),
                ptr::null(),
            )
        };
    }
    Ok(())
}

fn load_one(open: OpenObject, program: &str) -> Result<Result<u32, Refusal>, Error> {
    match verifier::load(open) {
        Ok(loaded) => {
            let found = loaded.progs_mut().find(|p| p.name() == program);
            Ok(Ok(found.map_or(0, |p| steps(p.as_fd()))))
        }
        Err(LoadError::Refused(refusal)) => Ok(Err(refusal)),
        Err(LoadError::Failed(source)) => {
            Err(Error::bpf(format!("loading program {program}"))(source))
        }
    }
}

/// How many instructions the verifier went through; 0: the kernel does not say.
fn steps(program: BorrowedFd<'_>) -> u32 {
    let mut info = libbpf_rs::libbpf_sys::bpf_prog_info::default();
    let mut len = size_of_val(&info) as u32;
    // SAFETY: `info` has `len` bytes.
    let failed = unsafe {
        libbpf_rs::libbpf_sys::bpf_obj_get_info_by_fd(
            program.as_raw_fd(),
            (&raw mut info).cast(),
            &mut len,
        )
    };
    if failed == 0 { info.verified_insns } else { 0 }
}
