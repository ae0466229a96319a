//! Which objects this kernel has accepted, noted in bpffs. What is there ends with the kernel that
//! said so: after a reboot each object is tried anew.

use std::{
    fs::{self, DirBuilder},
    hash::{DefaultHasher, Hash, Hasher},
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

use super::{object::Object, sizes::Sizes};
use crate::maps::mount::ROOT;

/// Directory of empty ones, each named after an object that this kernel has accepted: what is in
/// bpffs ends with the kernel that said so.
const ACCEPTED: &str = "shortstop-accepted";

/// Notes that this kernel takes an object's programs in a switch of this size.
pub(crate) fn note(object: &Object, sizes: Sizes) {
    // Without a note they are loaded at once the next time as well.
    let _ = DirBuilder::new().recursive(true).mode(0o700).create(place(object, sizes));
}

/// Whether this kernel took an object's programs before.
pub(crate) fn is_noted(object: &Object, sizes: Sizes) -> bool {
    place(object, sizes).exists()
}

/// Takes the note away that this kernel took an object's programs.
pub fn forget_accepted(object: &Object, sizes: Sizes) {
    let _ = fs::remove_dir(place(object, sizes));
}

/// Where it is noted that an object is accepted. What the verifier looks at depends on the
/// sizes too.
fn place(object: &Object, sizes: Sizes) -> PathBuf {
    let mut hasher = DefaultHasher::new();
    (object.elf, &object.maps, sizes.pages).hash(&mut hasher);
    let name = format!("{:016x}", hasher.finish());
    Path::new(ROOT).join(ACCEPTED).join(name)
}
