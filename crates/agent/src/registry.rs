//! What the registered disciplines are to a switch.

use dataplane::{Object, Programs, Sizes};
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
    with_programs(disciplines).map(|r| Object::of(r, sizes)).collect()
}

/// Those whose programs run here: the kernel may have refused some.
pub(super) fn that_run(
    disciplines: &'static [Registration],
    programs: &Programs,
) -> Vec<&'static Registration> {
    let refused = programs.refused();
    let runs = |r: &&Registration| refused.iter().all(|(name, _)| *name != r.name);
    with_programs(disciplines).filter(runs).collect()
}
