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

/// All of them, in the order of the paper's figures.
pub const EXPERIMENTS: &[Registered] = &[
    Registered {
        toml: include_str!("../orbit-skew.toml"),
        kind: &Kind::of::<skew::Skew>("orbit-skew"),
    },
    Registered {
        toml: include_str!("../orbit-latency.toml"),
        kind: &Kind::of::<latency::LatencyOverLoad>("orbit-latency"),
    },
    Registered {
        toml: include_str!("../orbit-writes.toml"),
        kind: &Kind::of::<writes::Writes>("orbit-writes"),
    },
    Registered {
        toml: include_str!("../orbit-servers.toml"),
        kind: &Kind::of::<scale::Scale>("orbit-servers"),
    },
    Registered {
        toml: include_str!("../orbit-production.toml"),
        kind: &Kind::of::<production::Production>("orbit-production"),
    },
    Registered {
        toml: include_str!("../orbit-cachesize.toml"),
        kind: &Kind::of::<cache_size::CacheSize>("orbit-cachesize"),
    },
    Registered {
        toml: include_str!("../orbit-sizes.toml"),
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
