//! The two worlds of an experiment, and which of them a run is in.

use anyhow::bail;
use serde::{Deserialize, Serialize};

/// In which world an experiment runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum World {
    /// Namespaces of this machine and processes in them.
    Kernel,
    /// The simulator: the same code in virtual time, without privilege.
    Sim,
}

impl World {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            World::Kernel => "kernel",
            World::Sim => "sim",
        }
    }
}

/// What decides in which world an experiment runs.
pub struct Choice<'a> {
    /// The experiment's name.
    pub experiment: &'a str,
    /// The world that was asked for.
    pub asked: Option<World>,
    /// What the experiment needs and only the kernel's world has.
    pub needs: Option<&'a str>,
    /// What it takes that no machine has.
    pub too_large: Option<&'a str>,
    /// What this process lacks for the kernel's world.
    pub missing: Option<String>,
}

impl Choice<'_> {
    /// The world; beside it, where nobody asked for the simulator, the line that says why it
    /// is that.
    ///
    /// # Errors
    /// What was asked for is not possible; what to do instead.
    pub fn make(self) -> anyhow::Result<(World, Option<String>)> {
        let name = self.experiment;
        if let Some(why) = self.too_large {
            if self.asked == Some(World::Kernel) {
                bail!(
                    "experiment {name} runs in the simulator only: it takes {why}; leave --world out, or say --world sim"
                );
            }
            let told = self.asked.is_none();
            let why = told
                .then(|| format!("it takes {why}: this runs in the simulator, in virtual time"));
            return Ok((World::Sim, why));
        }
        match (self.asked, self.needs, self.missing) {
            (Some(World::Sim), Some(needs), _) => bail!(
                "experiment {name} runs in the kernel world only: it needs {needs}; leave --world out, or say --world kernel"
            ),
            (Some(World::Sim), None, _) => Ok((World::Sim, None)),
            (_, _, None) => Ok((World::Kernel, None)),
            (_, Some(needs), Some(missing)) => bail!(
                "experiment {name} runs in the kernel world only: it needs {needs}, and here {missing}: run it as root"
            ),
            (Some(World::Kernel), None, Some(missing)) => bail!(
                "experiment {name} in the kernel world: {missing}: run it as root, or with --world sim"
            ),
            (None, None, Some(missing)) => {
                let why = format!("{missing}: this runs in the simulator, in virtual time");
                Ok((World::Sim, Some(why)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(
        asked: Option<World>,
        needs: Option<&str>,
        missing: Option<&str>,
    ) -> Result<(World, Option<String>), String> {
        let choice = Choice {
            experiment: "some",
            asked,
            needs,
            too_large: None,
            missing: missing.map(String::from),
        };
        choice.make().map_err(|error| error.to_string())
    }

    #[test]
    fn what_is_too_large_for_a_machine_is_simulated() {
        let made = |asked| {
            let choice = Choice {
                experiment: "some",
                asked,
                needs: None,
                too_large: Some("a thousand servers"),
                missing: None,
            };
            choice.make().map_err(|error| error.to_string())
        };
        assert_eq!(made(Some(World::Sim)), Ok((World::Sim, None)));
        let (world, why) = made(None).unwrap();
        assert_eq!(world, World::Sim);
        assert!(why.unwrap().contains("a thousand servers"));
        let said = made(Some(World::Kernel)).unwrap_err();
        assert!(said.contains("simulator only: it takes a thousand servers"), "{said}");
    }

    #[test]
    fn who_may_runs_in_the_kernel_and_who_may_not_is_told() {
        let (kernel, sim) = (Some(World::Kernel), Some(World::Sim));
        assert_eq!(made(None, None, None), Ok((World::Kernel, None)));
        assert_eq!(made(kernel, Some("Redis"), None), Ok((World::Kernel, None)));
        assert_eq!(made(sim, None, None), Ok((World::Sim, None)));
        assert_eq!(made(sim, None, Some("x")), Ok((World::Sim, None)));
        let (world, why) = made(None, None, Some("BPF is refused")).unwrap();
        assert_eq!(world, World::Sim);
        assert!(why.unwrap().contains("BPF is refused: this runs in the simulator"));
    }

    #[test]
    fn what_is_not_possible_is_said_with_what_is() {
        let (kernel, sim) = (Some(World::Kernel), Some(World::Sim));
        // (asked, needed, missing, what is said)
        let rows = [
            (
                sim,
                Some("Redis"),
                None,
                "kernel world only: it needs Redis; leave --world out, or say --world kernel",
            ),
            (sim, Some("Redis"), Some("x"), "leave --world out"),
            (
                kernel,
                None,
                Some("x is refused"),
                "x is refused: run it as root, or with --world sim",
            ),
            (None, Some("etcd"), Some("x is refused"), "needs etcd, and here x is refused"),
        ];
        for (asked, needs, missing, expected) in rows {
            let said = made(asked, needs, missing).unwrap_err();
            assert!(said.contains(expected), "{said:?} should say {expected:?}");
        }
    }
}
