//! The paper's figures: what is measured, and the parameters it is measured with.

mod churn;
mod skew;
mod writes;

use experiments::{Kind, Registered};

/// All of them, by name.
pub const EXPERIMENTS: &[Registered] = &[
    Registered {
        toml: include_str!("../netcache-churn.toml"),
        kind: &Kind::of::<churn::Churning>("churn"),
    },
    Registered {
        toml: include_str!("../netcache-skew.toml"),
        kind: &Kind::of::<skew::Skew>("skew"),
    },
    Registered {
        toml: include_str!("../netcache-writes.toml"),
        kind: &Kind::of::<writes::Writes>("writes"),
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
            (0, "write_ratios = [0.5]", "write_ratios"),
            (1, "write_ratios = [0.5]", "write_ratios"),
            (1, "[params.rack]\nkees = 5", "kees"),
            (2, "write_ratios = [2.0]", "write_ratios"),
            (2, "[params.rack]\nkeys = 10\nitems = 20", "items = 20"),
        ] {
            let names = ["churn", "skew", "writes"];
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
