//! Which commands are measured.

use crate::command::Command;

/// What was asked for.
#[derive(Default)]
pub struct Choice {
    /// Texts of which one has to be in a command; one that is all of a command, with or without
    /// `shortstop-lab run`, means that one alone.
    pub only: Vec<String>,
    /// Whole runs too, not the quick ones and the bench alone.
    pub full: bool,
}

impl Choice {
    /// Those of these that were asked for.
    pub fn of<'a>(&self, all: impl Iterator<Item = &'a Command> + Clone) -> Vec<&'a Command> {
        if self.only.is_empty() {
            let is_short = |c: &&Command| self.full || c.is_quick() || c.experiment().is_none();
            return all.filter(is_short).collect();
        }
        let is_asked = |command: &&Command| {
            self.only.iter().any(|text| {
                let is_it = |c: &Command| c.text() == *text || c.name() == *text;
                match all.clone().any(is_it) {
                    true => is_it(command),
                    false => command.text().contains(text),
                }
            })
        };
        all.clone().filter(is_asked).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(only: &[&str], full: bool) -> Vec<String> {
        let all = ["run a", "run a --quick", "run ab --quick --world sim", "bench"];
        let all = all.map(|words| Command::parse(&format!("shortstop-lab {words}")).unwrap());
        let only = only.iter().map(|text| text.to_string()).collect();
        let chosen = Choice { only, full }.of(all.iter());
        chosen.iter().map(|command| command.name()).collect()
    }

    #[test]
    fn whole_runs_are_asked_for() {
        assert_eq!(chosen(&[], false), ["a --quick", "ab --quick --world sim", "bench"]);
        assert_eq!(chosen(&[], true).len(), 4);
    }

    #[test]
    fn a_name_means_that_one_and_a_part_of_it_all_that_have_it() {
        assert_eq!(chosen(&["a"], false), ["a"]);
        assert_eq!(chosen(&["shortstop-lab run a"], false), ["a"]);
        assert_eq!(chosen(&["run a"], false).len(), 3);
        assert_eq!(chosen(&["sim", "bench"], false), ["ab --quick --world sim", "bench"]);
        assert!(chosen(&["nothing"], true).is_empty());
    }
}
