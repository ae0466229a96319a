//! The paper's figures: what is measured, and the parameters it is measured with.

mod skew;
mod system;

use experiments::{Kind, Registered};

/// All of them, by name.
pub const EXPERIMENTS: &[Registered] = &[Registered {
    toml: include_str!("../orbit-skew.toml"),
    kind: &Kind::of::<skew::Skew>("orbit-skew"),
}];

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
