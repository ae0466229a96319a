//! Experiments about tenants: how they share switches, and what each notices of the others.

pub(super) mod borrowing;
pub(super) mod failover;
pub(super) mod hops;
pub(super) mod isolation;
mod measure;
pub(super) mod policies;
mod probe;
pub(super) mod users;

use super::{Experiment, Kind};

fn built_in(
    name: &str,
    kind: Kind,
    title: &str,
    discipline: &str,
    params: &str,
    quick: &str,
) -> Experiment {
    let table = |text: &str| text.parse::<toml::Table>().expect("a constant table");
    Experiment {
        name: name.into(),
        kind,
        title: title.into(),
        discipline: discipline.into(),
        params: table(params),
        quick: table(quick),
    }
}

/// A well-behaved tenant beside others that are not, compared with the same others on a rack of their own: about every
/// discipline, so it has no file.
pub fn tenant_isolation(discipline: &str) -> Experiment {
    built_in(
        "tenant-isolation",
        Kind::Isolation,
        "What a well-behaved tenant notices of greedy, guessing and restless ones",
        discipline,
        "keys = 1000\nthetas = [0.99]\n\
         [tenancy]\nquota = 10\npages = 40\nrate = 5000.0\nrounds = 21\nround_s = 0.8\nlimit = 500",
        "[tenancy]\nrounds = 5\nround_s = 0.4",
    )
}

/// Idle memory that works for others until its owner needs it; about every discipline, so it has no file.
pub fn work_conserving(discipline: &str) -> Experiment {
    built_in(
        "work-conserving",
        Kind::Borrowing,
        "Idle memory lent to another tenant, and how soon its owner has it back",
        discipline,
        "keys = 2500\nthetas = [0.9]\n\
         [tenancy]\nquota = 20\nmany_quota = 5\npages = 25\nrate = 12000.0\nsettle_s = 15.0\nrounds = 6\n\
         round_s = 3.0\nwindow_ms = 200",
        "[tenancy]\nsettle_s = 6.0\nrounds = 2\nround_s = 2.0",
    )
}

/// The leader among several controllers killed again and again; about every discipline, so it has no file.
pub fn controller_failover(discipline: &str) -> Experiment {
    built_in(
        "controller-failover",
        Kind::Failover,
        "Cache decisions and clients while the leading controller is killed again and again",
        discipline,
        "keys = 12\n[tenancy]\nquota = 16\npages = 40\nkills = 8\nround_s = 8.0\nwindow_ms = 200",
        "[tenancy]\nkills = 2\nround_s = 6.0",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_in_experiments_have_parameters_that_exist() {
        for experiment in [
            tenant_isolation("some"),
            work_conserving("some"),
            controller_failover("some"),
        ] {
            for quick in [false, true] {
                let params = experiment.params(quick).unwrap();
                let tenancy = &params.tenancy;
                assert!(tenancy.quota <= tenancy.pages, "{}", experiment.name);
            }
        }
    }
}
