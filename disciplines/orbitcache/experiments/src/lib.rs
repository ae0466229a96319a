//! The paper's figures: what is measured, and the parameters it is measured with.

mod axis;
mod cache_size;
mod churn;
mod latency;
mod production;
mod scale;
mod skew;
mod system;
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
        toml: on_the_rack!("../orbit-skew.toml"),
        kind: &Kind::of::<skew::Skew>("orbit-skew"),
    },
    Registered {
        toml: on_the_rack!("../orbit-latency.toml"),
        kind: &Kind::of::<latency::LatencyOverLoad>("orbit-latency"),
    },
    Registered {
        toml: on_the_rack!("../orbit-writes.toml"),
        kind: &Kind::of::<writes::Writes>("orbit-writes"),
    },
    Registered {
        toml: on_the_rack!("../orbit-servers.toml"),
        kind: &Kind::of::<scale::Scale>("orbit-servers"),
    },
    Registered {
        toml: on_the_rack!("../orbit-production.toml"),
        kind: &Kind::of::<production::Production>("orbit-production"),
    },
    Registered {
        toml: on_the_rack!("../orbit-cachesize.toml"),
        kind: &Kind::of::<cache_size::CacheSize>("orbit-cachesize"),
    },
    Registered {
        toml: on_the_rack!("../orbit-sizes.toml"),
        kind: &Kind::of::<value_size::ValueSize>("orbit-sizes"),
    },
    Registered {
        toml: include_str!("../orbit-churn.toml"),
        kind: &Kind::of::<churn::Churning>("orbit-churn"),
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
