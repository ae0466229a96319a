//! The same rack of servers behind one system or another: each learns the same load, and is then
//! measured alike. Which systems there are says the file of the experiment; nothing here knows what
//! any of them does.

mod climb;
mod latency;
mod workload;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use climb::Climb;
pub use latency::LatencyPoint;
pub use workload::WorkloadPoint;

use crate::servers::Rack;

/// What stands before the servers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct System {
    /// As rows and plots have it.
    pub name: String,
    /// What the switch does; none: the discipline that has the system's name.
    #[serde(default)]
    pub discipline: Option<String>,
    /// Settings of disciplines, beside the rack's, by `DISCIPLINE.NAME`.
    #[serde(default)]
    pub settings: BTreeMap<String, u32>,
}

impl System {
    /// A rack with this system before its servers.
    pub fn rack(&self, rack: &Rack) -> Rack {
        let mut rack = rack.clone();
        rack.discipline = Some(self.discipline.as_ref().unwrap_or(&self.name).clone());
        rack.settings.extend(self.settings.clone());
        rack
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_system_is_a_discipline_with_settings_of_its_own() {
        let system = |text: &str| toml::from_str::<System>(text).unwrap();
        let rack =
            Rack { settings: [("a.x".into(), 1), ("a.y".into(), 2)].into(), ..Rack::default() };
        let alone = system("name = \"a\"").rack(&rack);
        assert_eq!(alone.discipline.as_deref(), Some("a"));
        assert_eq!(alone.settings, rack.settings);
        let other =
            system("name = \"both\"\ndiscipline = \"a\"\nsettings = { \"a.x\" = 3 }").rack(&rack);
        assert_eq!(other.discipline.as_deref(), Some("a"));
        assert_eq!(other.settings, [("a.x".into(), 3), ("a.y".into(), 2)].into());
    }
}
