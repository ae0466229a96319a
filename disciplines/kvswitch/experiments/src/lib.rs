//! The paper's figures: what is measured, and the parameters it is measured with.

mod accuracy;
mod axis;
mod bench;
pub mod cost;
mod failures;
mod hybrid;
mod scale;
mod skew;
mod threshold;
mod value_size;
mod writes;

use experiments::{Kind, Registered};

/// An experiment's file, with what it has in common with the others.
macro_rules! on_the_rack {
    ($file:literal) => {
        concat!(include_str!($file), include_str!("../rack.toml"))
    };
}

/// All of them, in the order of the paper's figures.
pub const EXPERIMENTS: &[Registered] = &[
    Registered {
        toml: on_the_rack!("../kv-skew.toml"),
        kind: &Kind::of::<skew::Skew>("kv-skew"),
    },
    Registered {
        toml: on_the_rack!("../kv-accuracy.toml"),
        kind: &Kind::of::<accuracy::OfPrediction>("kv-accuracy"),
    },
    Registered {
        toml: on_the_rack!("../kv-threshold.toml"),
        kind: &Kind::of::<threshold::OverKeys>("kv-threshold"),
    },
    Registered {
        toml: on_the_rack!("../kv-valuesize.toml"),
        kind: &Kind::of::<value_size::ValueSize>("kv-valuesize"),
    },
    Registered {
        toml: on_the_rack!("../kv-writes.toml"),
        kind: &Kind::of::<writes::Writes>("kv-writes"),
    },
    Registered {
        toml: include_str!("../kv-scale.toml"),
        kind: &Kind::of::<scale::Scale>("kv-scale"),
    },
    Registered {
        toml: on_the_rack!("../kv-failures.toml"),
        kind: &Kind::of::<failures::Failures>("kv-failures"),
    },
    Registered {
        toml: on_the_rack!("../hybrid.toml"),
        kind: &Kind::of::<hybrid::Hybrid>("hybrid"),
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
}
