//! The kinds of attack, as configurations and results name them.

use serde::{Deserialize, Serialize};

/// A kind of attack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Attack {
    /// A read that claims to come by a switch that wants the value, then a write that has to wait
    /// for that switch.
    MadeUpGrants,
    /// Such reads of endless keys, every other one of them absent.
    EndlessGrants,
    /// Fetches, which only agents send.
    Fetches,
    /// Values too large for a switch, many at once, all of them hot.
    TooLarge,
    /// Endless keys, each just about hot; every other one under a hash that is not its own.
    JustHot,
    /// Writes of clients that are made up, each its own.
    MadeUpClients,
    /// Writes of large values, of each one part.
    HalfSent,
}

impl Attack {
    /// Every kind, in the order in which they take turns.
    pub const ALL: [Attack; 7] = [
        Attack::MadeUpGrants,
        Attack::EndlessGrants,
        Attack::Fetches,
        Attack::TooLarge,
        Attack::JustHot,
        Attack::MadeUpClients,
        Attack::HalfSent,
    ];

    /// Its name in results and configurations.
    pub fn name(self) -> &'static str {
        match self {
            Attack::MadeUpGrants => "made_up_grants",
            Attack::EndlessGrants => "endless_grants",
            Attack::Fetches => "fetches",
            Attack::TooLarge => "too_large",
            Attack::JustHot => "just_hot",
            Attack::MadeUpClients => "made_up_clients",
            Attack::HalfSent => "half_sent",
        }
    }
}
