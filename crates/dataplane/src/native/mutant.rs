//! Ways to break a rule of the data plane, read from `bpf/mutants.h`. Tests choose one and must
//! then fail; only builds with debug assertions can be broken.

#[cfg(debug_assertions)]
use std::cell::Cell;
use std::sync::LazyLock;

/// A way to break a rule of `docs/coherence.md` in the C: `bpf/mutants.h` is the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mutant {
    /// As in the list, for example `serves_invalid`.
    pub name: String,
    /// The rule that it breaks.
    pub rule: u8,
    /// What happens.
    pub breaks: String,
    /// Its place in the list, from 1 on.
    #[cfg_attr(not(debug_assertions), allow(dead_code))]
    number: u32,
}

static LIST: LazyLock<Vec<Mutant>> = LazyLock::new(|| {
    let source = include_str!("../../../../bpf/mutants.h");
    let entry = |line: &str| {
        let mut parts = line.trim().strip_prefix("X(")?.splitn(3, ", ");
        let name = parts.next()?.into();
        let rule = parts.next()?.parse().ok()?;
        let breaks = parts.next()?.strip_prefix('"')?.rsplit_once("\")")?.0.into();
        Some((name, rule, breaks))
    };
    let entries = source.lines().filter_map(entry).zip(1..);
    entries.map(|((name, rule, breaks), number)| Mutant { name, rule, breaks, number }).collect()
});

/// Those that only cost time, as `docs/coherence.md` says of the parts that they break: the store
/// asks the switch itself.
const SAFE: [&str; 2] = ["write_takes_no_epoch", "write_carries_nothing"];
/// Beginning of the names of those that only show where values go round.
const OF_ROUNDS: &str = "round_";
/// Likewise where keys are lent.
const OF_LOANS: &str = "lent_";
/// Likewise where keys are kept in chains: the rules are those of `docs/coordination.md`.
const OF_ORDER: &str = "order_";

impl Mutant {
    /// All of them, in the order of the rules.
    pub fn list() -> &'static [Mutant] {
        &LIST
    }

    /// Those that let a client see what it must not, whatever discipline of copies has the key,
    /// which is lent to nobody.
    pub fn harmful() -> impl Iterator<Item = &'static Mutant> {
        let harms =
            |mutant: &&Mutant| !mutant.is_safe() && !mutant.is_of_rounds() && !mutant.is_of_loans();
        LIST.iter().filter(harms).filter(|mutant| !mutant.is_of_order())
    }

    /// Whether it lets a client see what it must not, but only where values go round.
    pub fn is_of_rounds(&self) -> bool {
        self.name.starts_with(OF_ROUNDS)
    }

    /// Whether it lets a client see what it must not, but only where keys are lent.
    pub fn is_of_loans(&self) -> bool {
        self.name.starts_with(OF_LOANS)
    }

    /// Whether it lets a client see what it must not, but only where keys are kept in chains.
    pub fn is_of_order(&self) -> bool {
        self.name.starts_with(OF_ORDER)
    }

    /// Those that only cost a write its round trip.
    pub fn safe() -> impl Iterator<Item = &'static Mutant> {
        LIST.iter().filter(|mutant| mutant.is_safe())
    }

    fn is_safe(&self) -> bool {
        SAFE.contains(&self.name.as_str())
    }

    /// What a switch that is to be broken so is told.
    #[cfg(debug_assertions)]
    pub(super) fn number(&self) -> u32 {
        self.number
    }

    /// The one of that name.
    pub fn find(name: &str) -> Option<&'static Mutant> {
        LIST.iter().find(|mutant| mutant.name == name)
    }
}

#[cfg(debug_assertions)]
thread_local! {
    static CHOSEN: Cell<u32> = const { Cell::new(0) };
}

/// Breaks a rule in the switches that this thread makes from now on, or none.
#[cfg(debug_assertions)]
pub fn choose(mutant: Option<&Mutant>) {
    CHOSEN.set(mutant.map_or(0, Mutant::number));
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
        let mutant = Mutant::find("serves_invalid").expect("listed");
        assert_eq!(mutant.rule, 6);
        assert_eq!(mutant.breaks, "an entry is served that is not valid");
    }
}
