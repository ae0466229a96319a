//! The thesis' figures: what is measured, and the parameters it is measured with.

#![deny(unsafe_code)]

mod hops;
mod policies;
mod users;

use experiments::{Definition, Kind, Paper};

/// What is measured of the discipline.
pub const PAPER: Paper = Paper {
    discipline: "madinc",
    experiments: EXPERIMENTS,
    programs: &[],
    pipeline: Some(madinc::pipeline),
    published: &[],
    neighbour: None,
};

/// All of them, by name.
const EXPERIMENTS: &[Definition] = &[
    Definition { toml: include_str!("../madinc-hops.toml"), kind: &Kind::sweep::<hops::Hops>() },
    Definition {
        toml: include_str!("../madinc-policies.toml"),
        kind: &Kind::sweep::<policies::Policies>(),
    },
    Definition {
        toml: include_str!("../madinc-users.toml"),
        kind: &Kind::of::<users::Users>("users"),
    },
];

#[cfg(test)]
mod tests {
    use experiments::Experiment;

    use super::*;

    #[test]
    fn a_parameter_of_another_kind_is_refused_by_name() {
        for (number, from, to, expected) in [
            (0, "[params]", "[params]\nusers = [1]", "users"),
            (0, "quota =", "qota =", "qota"),
            (1, "[params]", "[params]\ndelay_ms = 1.0", "delay_ms"),
            (2, "rounds = 7", "rounds = 0", "rounds = 0"),
            (2, "users = [1, 2, 3]", "users = [0]", "users = [0]"),
            (2, "rounds = 7\n", "", "rounds"),
        ] {
            let Definition { toml, kind } = EXPERIMENTS[number];
            assert!(toml.contains(from), "{from}");
            let toml = toml.replacen(from, to, 1).leak();
            let error = Experiment::of(&Definition { toml, kind }, "some");
            let error = format!("{:#}", error.map(|_| ()).unwrap_err());
            assert!(error.contains(expected), "{error:?} should name {expected:?}");
        }
    }
}
