//! The kinds of attack, as configurations, results and `docs/security.md` name them: the document's
//! table of what tenants share says of each row which of them fill it.

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
    /// Endless keys, each read twice at once: as often as makes a switch keep it by itself.
    ReadTwice,
    /// Reads of hot keys that all fall into one bucket of a switch.
    OneBucket,
    /// Writes of clients that are made up, each its own.
    MadeUpClients,
    /// Writes of large values, of each one part.
    HalfSent,
    /// Endless values that no packet holds, each written whole and then read in parts.
    LongValues,
    /// Few such values, again and again read with all their parts at once.
    AllParts,
    /// Reads that claim that a switch has sent them to another store than their key's; and each
    /// third time an update.
    OtherStores,
    /// Writes of keys that are lent to switches, or soon will be: in the life of their loan, and
    /// each of a client that is made up. All these keys fall into one set of records.
    Borrowed,
    /// Requests that only a discipline's half in a store would take.
    HalfRequests,
    /// Holders of copies that are made up, each its own, which do what a store asks of those that
    /// begin, fetch one grant each, and are not heard of again.
    MadeUpHolders,
}

impl Attack {
    /// Every kind, in the order in which they take turns.
    pub const ALL: [Attack; 15] = [
        Attack::MadeUpGrants,
        Attack::EndlessGrants,
        Attack::Fetches,
        Attack::TooLarge,
        Attack::JustHot,
        Attack::ReadTwice,
        Attack::OneBucket,
        Attack::MadeUpClients,
        Attack::HalfSent,
        Attack::LongValues,
        Attack::AllParts,
        Attack::OtherStores,
        Attack::Borrowed,
        Attack::HalfRequests,
        Attack::MadeUpHolders,
    ];

    /// Its name in results and configurations.
    pub fn name(self) -> &'static str {
        match self {
            Attack::MadeUpGrants => "made_up_grants",
            Attack::EndlessGrants => "endless_grants",
            Attack::Fetches => "fetches",
            Attack::TooLarge => "too_large",
            Attack::JustHot => "just_hot",
            Attack::ReadTwice => "read_twice",
            Attack::OneBucket => "one_bucket",
            Attack::MadeUpClients => "made_up_clients",
            Attack::HalfSent => "half_sent",
            Attack::LongValues => "long_values",
            Attack::AllParts => "all_parts",
            Attack::OtherStores => "other_stores",
            Attack::Borrowed => "borrowed",
            Attack::HalfRequests => "half_requests",
            Attack::MadeUpHolders => "made_up_holders",
        }
    }
}
