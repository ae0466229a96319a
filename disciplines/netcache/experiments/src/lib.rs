//! The paper's figures: what is measured, and the parameters it is measured with.

#![deny(unsafe_code)]

mod churn;
mod saturation;

use experiments::{Definition, Kind, Paper};

/// What a rack carries, over whatever the file says.
const SATURATION: Kind = Kind::sweep::<saturation::Saturation>();

/// What is measured of the discipline.
pub const PAPER: Paper = Paper {
    discipline: "netcache",
    experiments: EXPERIMENTS,
    programs: &[],
    pipeline: Some(netcache::pipeline),
    published: netcache::PUBLISHED,
    neighbour: None,
};

/// All of them, by name.
const EXPERIMENTS: &[Definition] = &[
    Definition {
        toml: include_str!("../netcache-churn.toml"),
        kind: &Kind::of::<churn::ThroughputUnderChurn>("churn"),
    },
    Definition { toml: include_str!("../netcache-skew.toml"), kind: &SATURATION },
    Definition { toml: include_str!("../netcache-writes.toml"), kind: &SATURATION },
];

#[cfg(test)]
mod tests {
    use experiments::Experiment;

    use super::*;

    #[test]
    fn a_parameter_of_another_kind_is_refused_by_name() {
        let ratios = "write_ratio = [0.0, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0]";
        let theta = "[params]\ntheta = 0.99";
        let reads = "[params]\npopularity = \"zipf_0.99\"";
        for (number, from, to, expected) in [
            (0, theta, "[params]\nwrite_ratios = [0.5]", "write_ratios"),
            (1, "[params.rack]", "[params.rack]\nkees = 5", "kees"),
            (1, "keys = 1000000", "keys = 20", "items = 10000"),
            (2, reads, "[params]\nchurn_load = 0.5", "churn_load"),
            (2, ratios, "write_ratio = [2.0]", "write_ratio"),
            (2, ratios, "", "axes.write_ratio"),
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
