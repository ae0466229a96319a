//! The paper's figures, and what its authors left open: what happens when members fail, and how chains stand beside etcd.

mod asking;
mod bench;
mod distance;
mod etcd;
mod faults;
mod latency;
mod layout;
mod locks;
mod mixed;
mod scale;
mod trouble;

use experiments::{Kind, Registered};

/// All of them: the paper's figures in their order, then the others.
pub const EXPERIMENTS: &[Registered] = &[
    Registered {
        toml: include_str!("../craq-distance.toml"),
        kind: &Kind::of::<distance::Distance>("craq-distance"),
    },
    Registered {
        toml: include_str!("../craq-latency.toml"),
        kind: &Kind::of::<latency::ReadLatency>("craq-latency"),
    },
    Registered {
        toml: include_str!("../craq-mixed.toml"),
        kind: &Kind::of::<mixed::Mixed>("craq-mixed"),
    },
    Registered {
        toml: include_str!("../craq-scale.toml"),
        kind: &Kind::of::<scale::Scale>("craq-scale"),
    },
    Registered {
        toml: include_str!("../craq-faults.toml"),
        kind: &Kind::of::<faults::Faults>("craq-faults"),
    },
    Registered {
        toml: include_str!("../craq-locks.toml"),
        kind: &Kind::of::<locks::OfLocks>("craq-locks"),
    },
    Registered {
        toml: include_str!("../coord-vs-etcd.toml"),
        kind: &Kind::of::<etcd::BesideEtcd>("coord-vs-etcd"),
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
