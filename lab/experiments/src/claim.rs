//! What an experiment's file says has to come out of it.

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::World;

/// Bounds of a number of the summary, in whichever world and however short the run unless it says
/// which: beyond them the run has failed.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    least: Option<f64>,
    most: Option<f64>,
    /// Closer ones in the simulator, where nothing but the seed decides.
    #[serde(default)]
    sim: Bounds,
    /// The world that it is about; none: both.
    world: Option<World>,
    /// Whether it is about the full run only.
    #[serde(default)]
    full: bool,
    /// Whether it is about how fast things went, which a busy machine decides too.
    #[serde(default)]
    pub speed: bool,
    /// Whether it holds with the mechanism off as well: it says that the run was sound, and not
    /// that the mechanism did anything.
    #[serde(default)]
    pub guard: bool,
    /// Whether it counts what the run itself has done, such as attacks that it sent: that it was
    /// the run that it was to be, and nothing that came of it.
    #[serde(default)]
    pub input: bool,
}

/// Of a number, both ends included.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Bounds {
    least: Option<f64>,
    most: Option<f64>,
}

impl Claim {
    /// Whether it says that the mechanism did something.
    pub fn is_effect(self) -> bool {
        !self.guard && !self.input
    }

    /// Whether it is about such a run.
    pub fn is_about(self, world: World, quick: bool) -> bool {
        self.world.is_none_or(|its| its == world) && !(self.full && quick)
    }

    /// Its bounds in this world.
    fn bounds(self, world: World) -> Bounds {
        let closer = if world == World::Sim { self.sim } else { Bounds::default() };
        Bounds { least: closer.least.or(self.least), most: closer.most.or(self.most) }
    }

    /// What is wrong with the number of this name in the summary of a run in this world, in words;
    /// none: nothing is.
    pub fn complaint(
        self,
        name: &str,
        summary: &Map<String, Value>,
        world: World,
    ) -> Option<String> {
        let Some(found) = summary.get(name).and_then(Value::as_f64) else {
            return Some(format!("{name} was not measured"));
        };
        match self.bounds(world) {
            Bounds { least: Some(least), .. } if found < least => {
                Some(format!("{name} = {found}: at least {least} was claimed"))
            }
            Bounds { most: Some(most), .. } if found > most => {
                Some(format!("{name} = {found}: at most {most} was claimed"))
            }
            _ => None,
        }
    }

    /// What is wrong with it where the mechanism is off: what the mechanism is to bring must not
    /// come out, and a guard has to hold. Of both, in words; none: nothing is.
    pub fn complaint_of_idle(
        self,
        name: &str,
        summary: &Map<String, Value>,
        world: World,
    ) -> Option<String> {
        match (self.guard, self.complaint(name, summary, world)) {
            (true, complaint) => complaint,
            (false, Some(_)) => None,
            (false, None) => {
                let found = summary.get(name).cloned().unwrap_or_default();
                Some(format!(
                    "{name} = {found} with the mechanism off: what is claimed comes out without it"
                ))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_beyond_its_bounds_is_named() {
        let summary = serde_json::json!({"ratio": 0.5, "text": "x"});
        let summary = summary.as_object().unwrap();
        let between = |least, most| Claim { least, most, ..Claim::default() };
        // (what is claimed, of what, what is said)
        let rows = [
            (between(Some(0.5), Some(0.5)), "ratio", None),
            (between(Some(0.6), None), "ratio", Some("ratio = 0.5: at least 0.6 was claimed")),
            (between(None, Some(0.4)), "ratio", Some("ratio = 0.5: at most 0.4 was claimed")),
            (between(None, None), "text", Some("text was not measured")),
            (between(None, None), "other", Some("other was not measured")),
        ];
        for (claim, name, expected) in rows {
            let said = claim.complaint(name, summary, World::Kernel);
            assert_eq!(said.as_deref(), expected);
        }
    }

    #[test]
    fn with_the_mechanism_off_guards_hold_and_nothing_else_comes_out() {
        let summary = serde_json::json!({"ratio": 0.5});
        let summary = summary.as_object().unwrap();
        // (least, whether it is a guard, whether something is wrong)
        for (least, guard, is_wrong) in
            [(0.6, false, false), (0.5, false, true), (0.6, true, true), (0.5, true, false)]
        {
            let claim = Claim { least: Some(least), guard, ..Claim::default() };
            let said = claim.complaint_of_idle("ratio", summary, World::Sim);
            assert_eq!(said.is_some(), is_wrong, "{least} {guard}: {said:?}");
        }
        let claim = Claim { least: Some(0.5), ..Claim::default() };
        assert_eq!(claim.complaint_of_idle("other", summary, World::Sim), None);
    }

    #[test]
    fn the_simulator_may_be_held_to_more() {
        let claim: Claim = toml::from_str("least = 0.4\nsim = { least = 0.6 }").unwrap();
        let summary = serde_json::json!({"ratio": 0.5});
        let said = |world| claim.complaint("ratio", summary.as_object().unwrap(), world);
        assert_eq!(said(World::Kernel), None);
        assert_eq!(said(World::Sim).unwrap(), "ratio = 0.5: at least 0.6 was claimed");
    }

    #[test]
    fn a_claim_may_be_about_one_world_and_about_full_runs_only() {
        let claim = |text: &str| -> Claim { toml::from_str(text).unwrap() };
        for (text, world, quick, expected) in [
            ("least = 1", World::Kernel, true, true),
            ("world = \"sim\"", World::Sim, true, true),
            ("world = \"sim\"", World::Kernel, true, false),
            ("full = true", World::Sim, true, false),
            ("full = true", World::Sim, false, true),
        ] {
            assert_eq!(claim(text).is_about(world, quick), expected, "{text}");
        }
    }
}
