//! The thesis' figures: what is measured, and the parameters it is measured with.

mod hops;
mod policies;
mod users;

use experiments::{Kind, Registered};

/// All of them, by name.
pub const EXPERIMENTS: &[Registered] = &[
    Registered {
        toml: include_str!("../madinc-hops.toml"),
        kind: &Kind::of::<hops::Hops>("hops"),
    },
    Registered {
        toml: include_str!("../madinc-policies.toml"),
        kind: &Kind::of::<policies::Policies>("policies"),
    },
    Registered {
        toml: include_str!("../madinc-users.toml"),
        kind: &Kind::of::<users::Users>("users"),
    },
];

#[cfg(test)]
mod tests {
    use experiments::Experiment;

    use super::*;

    #[test]
    fn experiments_have_parameters_that_exist() {
        for registered in EXPERIMENTS {
            Experiment::of(registered, "some").unwrap();
        }
    }

    #[test]
    fn a_parameter_of_another_kind_is_refused_by_name() {
        for (kind, line, expected) in [
            (0, "users = [1]", "users"),
            (0, "[params.tenancy]\nqota = 1", "qota"),
            (1, "delay_ms = 1.0", "delay_ms"),
            (2, "rounds = 0", "rounds = 0"),
            (2, "users = [0]", "users = [0]"),
        ] {
            let names = ["hops", "policies", "users"];
            let text = format!(
                "name = \"x\"\nkind = {:?}\ntitle = \"t\"\n[params]\n{line}",
                names[kind]
            );
            let registered = Registered {
                toml: text.leak(),
                kind: EXPERIMENTS[kind].kind,
            };
            let error = Experiment::of(&registered, "some").map(|_| ()).unwrap_err();
            assert!(format!("{error:#}").contains(expected), "{error:#}");
        }
    }
}
