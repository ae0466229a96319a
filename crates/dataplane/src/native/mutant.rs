//! Ways to break a rule of the data plane, read from the lists that the C has: `bpf/mutants.h`, and
//! `mutants.h` in the folders of disciplines. Tests choose one and must then fail; only builds with
//! debug assertions can be broken.

#[cfg(debug_assertions)]
use std::cell::Cell;
use std::sync::LazyLock;

/// A way to break a rule of `docs/coherence.md` in the C, or of another page that a discipline's
/// list names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mutant {
    /// What a switch that is to be broken so is told; from 1 on.
    pub number: u32,
    /// As in the list, for example `serves_invalid`.
    pub name: String,
    /// The rule that it breaks.
    pub rule: u8,
    /// What happens.
    pub breaks: String,
}

static LIST: LazyLock<Vec<Mutant>> =
    LazyLock::new(|| Mutant::own(include_str!("../../../../bpf/mutants.h")));

/// Those that only cost time, as `docs/coherence.md` says of the parts that they break: the store
/// asks the switch itself.
const SAFE: [&str; 2] = ["write_takes_no_epoch", "write_carries_nothing"];
/// Beginning of the names of those that only show where keys are lent.
const OF_LOANS: &str = "lent_";

impl Mutant {
    /// Those of the shared code, in the order of the rules.
    pub fn list() -> &'static [Mutant] {
        &LIST
    }

    /// Those of a list: of a discipline's own, `mutants.h` in its folder. Lines that are no rows of
    /// it are left out.
    pub fn own(list: &str) -> Vec<Mutant> {
        let row = |line: &str| {
            let mut parts = line.trim().strip_prefix("X(")?.splitn(4, ", ");
            let number = parts.next()?.parse().ok()?;
            let name = parts.next()?.into();
            let rule = parts.next()?.parse().ok()?;
            let breaks = parts.next()?.strip_prefix('"')?.rsplit_once("\")")?.0.into();
            Some(Mutant { number, name, rule, breaks })
        };
        list.lines().filter_map(row).collect()
    }

    /// Those that let a client see what it must not, whatever discipline of copies has the key,
    /// which is lent to nobody.
    pub fn harmful() -> impl Iterator<Item = &'static Mutant> {
        LIST.iter().filter(|mutant| !mutant.is_safe() && !mutant.is_of_loans())
    }

    /// Whether it lets a client see what it must not, but only where keys are lent.
    pub fn is_of_loans(&self) -> bool {
        self.name.starts_with(OF_LOANS)
    }

    /// Those that only cost a write its round trip.
    pub fn safe() -> impl Iterator<Item = &'static Mutant> {
        LIST.iter().filter(|mutant| mutant.is_safe())
    }

    fn is_safe(&self) -> bool {
        SAFE.contains(&self.name.as_str())
    }
}

#[cfg(debug_assertions)]
thread_local! {
    static CHOSEN: Cell<u32> = const { Cell::new(0) };
}

/// Breaks a rule in the switches that this thread makes from now on, or none.
#[cfg(debug_assertions)]
pub fn choose(mutant: Option<&Mutant>) {
    CHOSEN.set(mutant.map_or(0, |mutant| mutant.number));
}

/// What a switch that is made now is to break.
#[cfg(debug_assertions)]
pub(super) fn chosen() -> u32 {
    CHOSEN.get()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_read_from_the_header_whole() {
        let lines = include_str!("../../../../bpf/mutants.h").matches("\tX(").count();
        assert_eq!(Mutant::list().len(), lines);
        let mutant = Mutant::list().iter().find(|mutant| mutant.name == "serves_invalid");
        let mutant = mutant.expect("listed");
        assert_eq!((mutant.number, mutant.rule), (15, 6));
        assert_eq!(mutant.breaks, "an entry is served that is not valid");
    }
}
