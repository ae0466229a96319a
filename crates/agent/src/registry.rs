//! What the registered disciplines are to a switch.

use dataplane::{Object, Sizes};
use decide::Registration;

/// Those that have a switch half.
fn with_programs(disciplines: &[Registration]) -> impl Iterator<Item = &Registration> {
    disciplines.iter().filter(|r| !r.object.is_empty())
}

/// The names of the disciplines that have programs.
pub(super) fn names(disciplines: &[Registration]) -> Vec<String> {
    with_programs(disciplines).map(|r| r.name.into()).collect()
}

/// The disciplines' programs, for a switch of that size.
pub fn objects(disciplines: &[Registration], sizes: Sizes) -> Vec<Object> {
    with_programs(disciplines)
        .map(|r| Object::of(r, sizes))
        .collect()
}

/// The discipline of that name, if it has programs here.
pub(super) fn find(
    disciplines: &'static [Registration],
    name: &str,
) -> Option<&'static Registration> {
    with_programs(disciplines).find(|r| r.name == name)
}
