//! In which order a tenant's guaranteed pages fill the switches.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// How a tenant's guaranteed pages are placed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// As near to the clients as possible: the fewest hops for a hit.
    #[default]
    NearClient,
    /// As near to the stores as possible: where the paths of several clients meet.
    NearStore,
    /// Evenly over the path: no switch has all of the load.
    EvenSplit,
    /// Where a page saves most hops, by measured traffic.
    Measured,
}

const NAMES: [(Policy, &str); 4] = [
    (Policy::NearClient, "near-client"),
    (Policy::NearStore, "near-store"),
    (Policy::EvenSplit, "even-split"),
    (Policy::Measured, "measured"),
];

impl Policy {
    /// As JSON and the command line write it.
    pub fn name(self) -> &'static str {
        let name = NAMES.iter().find(|(policy, _)| *policy == self);
        name.map_or("", |(_, name)| name)
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A text that names no policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("policy {0:?}: expected near-client, near-store, even-split or measured")]
pub struct PolicyError(String);

impl FromStr for Policy {
    type Err = PolicyError;

    fn from_str(text: &str) -> Result<Policy, PolicyError> {
        let found = NAMES.iter().find(|(_, name)| *name == text);
        found.map(|(policy, _)| *policy).ok_or_else(|| PolicyError(text.chars().take(40).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for (policy, name) in NAMES {
            assert_eq!(policy.to_string(), name);
            assert_eq!(name.parse(), Ok(policy));
            assert_eq!(serde_json::to_string(&policy).unwrap(), format!("{name:?}"));
        }
        assert_eq!(
            "near".parse::<Policy>().unwrap_err().to_string(),
            "policy \"near\": expected near-client, near-store, even-split or measured"
        );
    }
}
