//! The registry: every discipline that this build knows, one line each in `ALL`.
//!
//! The `shortstop` program hands entries of it to the controller, the switch agent and the store,
//! the `shortstop-lab` program also to the lab; none of those knows a discipline by name. The
//! former has the commands that disciplines bring from here, too. Their experiments are listed in
//! `experiments/`, which only the latter links.

#![deny(unsafe_code)]

use commands::DisciplineCommand;
use decide::Registration;

static ALL: &[Registration] = &[
    // One line each. The first is for tenants that name none.
    netcache::REGISTRATION,
    madinc::REGISTRATION,
    orbitcache::REGISTRATION,
    kvswitch::REGISTRATION,
    chain::NETCRAQ,
    chain::NETCHAIN,
];

/// The commands of `shortstop` that disciplines bring.
pub const COMMANDS: &[DisciplineCommand] = &[chain_commands::COORD];

/// Every discipline; the first is the default.
pub fn all() -> &'static [Registration] {
    ALL
}

/// The discipline of that name.
pub fn find(name: &str) -> Option<&'static Registration> {
    all().iter().find(|r| r.name == name)
}

/// The discipline of tenants that name none.
pub fn default() -> &'static Registration {
    &ALL[0]
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fmt::Debug};

    use dataplane::Counters;
    use decide::{NO_DISCIPLINE, PROGRAMS_MAX, Role};

    use super::*;

    fn unique<T: Ord + Debug>(all: impl Iterator<Item = T>) {
        let mut seen = BTreeSet::new();
        for one in all {
            assert!(!seen.contains(&one), "{one:?} twice");
            seen.insert(one);
        }
    }

    #[test]
    fn numbers_and_names_are_one_disciplines_only() {
        unique(all().iter().map(|r| r.number));
        unique(all().iter().map(|r| r.name));
        assert!(all().iter().all(|r| r.number < NO_DISCIPLINE));
        assert!(all().iter().all(|r| r.name != decide::NONE.name));
        assert!(all().iter().all(|r| find(r.name).unwrap().number == r.number));
    }

    /// They are in the pinned tables of running switches.
    #[test]
    fn numbers_stay_as_they_are() {
        let number = |name| find(name).map(|r| r.number);
        let names = ["netcache", "madinc", "orbitcache", "kvswitch", "netcraq", "netchain"];
        assert_eq!(names.map(number), [0, 1, 2, 3, 4, 5].map(Some));
    }

    #[test]
    fn an_operation_reaches_one_store_half() {
        let stores = all().iter().filter_map(|r| r.store);
        unique(stores.flat_map(|store| store.operations).map(|op| *op as u8));
    }

    #[test]
    fn a_counter_has_a_number_and_a_name_of_its_own() {
        let counters = Counters::list(all().iter().map(|r| r.counters));
        unique(counters.iter().map(|counter| counter.number));
        unique(counters.iter().map(|counter| counter.name));
        assert!(counters.iter().all(|counter| counter.number < Counters::MOST));
        // A row that shares its line with another is in the C alone.
        for registration in all() {
            let read = Counters::list([registration.counters]).len() - Counters::list([]).len();
            assert_eq!(read, registration.counters.matches("X(").count(), "{}", registration.name);
        }
    }

    #[test]
    fn programs_fit_and_names_are_unique() {
        for registration in all() {
            let of = |role| registration.programs.iter().filter(move |p| p.role == role);
            assert!((1..=PROGRAMS_MAX).contains(&of(Role::Step).count()));
            assert!(of(Role::Egress).count() <= 1);
            unique(registration.programs.iter().map(|p| p.name));
        }
    }

    #[test]
    fn maps_are_named_after_their_discipline() {
        for registration in all() {
            let maps = registration.maps.iter();
            let prefix = format!("{}_", registration.maps_of);
            maps.for_each(|map| assert!(map.name.starts_with(&prefix)));
            // Who has the same maps has the same object.
            let sharing = |r: &&Registration| r.maps_of == registration.maps_of;
            let sharing = all().iter().filter(sharing);
            sharing.for_each(|r| assert!(r.object == registration.object, "{}", r.name));
        }
    }
}
