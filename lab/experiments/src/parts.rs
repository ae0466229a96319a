//! What an experiment's file says that it runs beside the rig.

use anyhow::ensure;

use crate::World;

/// In the place of a name: whatever this build knows.
const ANY: &str = "*";

/// Disciplines and programs by name, for one run. The figures of an experiment are measured again
/// when one of these changes, so a rig runs no other.
#[derive(Clone, Debug, Default)]
pub(crate) struct Parts {
    named: Vec<String>,
    /// A discipline, and what runs in its place.
    instead: Option<[String; 2]>,
}

impl Parts {
    /// Those of a run in this world, about this discipline: another one than the file's is of
    /// whoever asked for it.
    pub fn of(runs: &[String], in_kernel: &[String], world: World, about: &str) -> Parts {
        let in_kernel = in_kernel.iter().filter(|_| world == World::Kernel);
        let named = runs.iter().chain(in_kernel).cloned();
        let named = named.chain([about.to_owned()]).collect();
        Parts { named, instead: None }
    }

    /// The same, where `by` runs in the place of a discipline.
    pub fn instead(self, of: &str, by: &str) -> Parts {
        Parts { instead: Some([of.into(), by.into()]), ..self }
    }

    /// Says that a part is about to run; returns what runs in its place, most often itself.
    ///
    /// # Errors
    /// The file names neither.
    pub fn begin<'p>(&'p self, part: &'p str) -> anyhow::Result<&'p str> {
        let part = match &self.instead {
            Some([of, by]) if of == part => by,
            _ => part,
        };
        let is_it = |name: &String| name == part || name == ANY;
        let is_named = part == decide::NONE.name || self.named.iter().any(is_it);
        ensure!(
            is_named,
            "{part} is about to run, and the experiment's file says nothing of it: name it there in `runs`, or in \
             `runs_in_kernel` if no simulated run has it"
        );
        Ok(part)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_file_names_does_not_run() {
        let (runs, in_kernel) = (["a".to_owned()], ["b".to_owned()]);
        let of = |world| Parts::of(&runs, &in_kernel, world, "asked");
        for (part, in_kernel, in_sim) in [
            ("a", true, true),
            ("b", true, false),
            ("asked", true, true),
            (decide::NONE.name, true, true),
            ("c", false, false),
        ] {
            assert_eq!(of(World::Kernel).begin(part).is_ok(), in_kernel, "{part}");
            assert_eq!(of(World::Sim).begin(part).is_ok(), in_sim, "{part}");
        }
        let idle = of(World::Sim).instead("a", "none");
        assert_eq!(idle.begin("a").unwrap(), "none");
        assert_eq!(idle.begin("asked").unwrap(), "asked");
        assert!(of(World::Sim).instead("a", "c").begin("a").is_err());
        let any = Parts::of(&[ANY.to_owned()], &[], World::Sim, "asked");
        assert!(any.begin("c").is_ok());
        let error = of(World::Sim).begin("c").unwrap_err().to_string();
        assert!(error.starts_with("c is about to run"), "{error}");
    }
}
