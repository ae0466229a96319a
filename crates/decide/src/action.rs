//! What a control half asks for.

use std::net::SocketAddr;

use bytes::Bytes;

use crate::{Configuration, Key, SwitchId};

/// What a switch keeps behind a key, in the key's cells.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Record {
    /// The key's value, which the switch fetches from the key's store and serves under that store's
    /// lease (`docs/coherence.md`). Only for [`crate::Items::Copies`].
    Fetched,
    /// These bytes, at most 1744 of them, valid at once; only the discipline's programs know what
    /// they mean. For [`crate::Items::Truth`] they are what a new item starts with: an item that is
    /// there already stays as it is.
    Given(Bytes),
}

/// What happens to an item at a switch.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Change {
    /// It is there from now on, with this record.
    Put(Record),
    /// It is there no longer.
    Remove,
    /// It is there no longer, if its given record begins with these bytes:
    /// [`crate::Outcome::Changed`] if it does not. No program changes it between the comparison and
    /// its end.
    RemoveIf(Bytes),
}

/// What the controller should do. Carried out in order, at a bounded rate.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Change a tenant's item on a switch. Answered by [`crate::Discipline::answered`] exactly
    /// once.
    Change {
        /// The switch.
        switch: SwitchId,
        /// The tenant that has the item.
        tenant: u32,
        /// Its key.
        key: Key,
        /// What to do with it.
        change: Change,
    },
    /// Make this a tenant's configuration on a switch, in the place of any before. Repeated until
    /// it is in force, over restarts of the switch's agent too, and then told by
    /// [`crate::Discipline::configured`].
    Configure {
        /// The switch.
        switch: SwitchId,
        /// The tenant whose packets find it.
        tenant: u32,
        /// The whole configuration.
        configuration: Configuration,
    },
    /// Give a message to the discipline's half in a store. Repeated until the store has it, then
    /// told by [`crate::Discipline::told`]; it arrives at least once, and in the order of these
    /// actions.
    Tell {
        /// The store, named by its address in the cluster file.
        store: SocketAddr,
        /// The tenant that the message is about.
        tenant: u32,
        /// What [`crate::StoreHalf::told`] brings; at most 64 KiB.
        message: Bytes,
    },
    /// Give a message to the discipline's half in a switch's agent ([`crate::AgentHalf`]). Repeated
    /// until the agent has it; it arrives at least once, and in the order of these actions, but not
    /// if the agent starts anew in between: then it may have forgotten it.
    TellSwitch {
        /// The switch.
        switch: SwitchId,
        /// The tenant that the message is about.
        tenant: u32,
        /// What [`crate::AgentHalf::told`] brings; at most [`crate::MESSAGE_MAX`] bytes.
        message: Bytes,
    },
    /// Remember these bytes of a tenant, in the place of those before. They are durable before any
    /// action that follows is seen by a switch, and come back with
    /// [`crate::Discipline::remembered`] after a change of the controller. They outlive the tenant:
    /// its number may be given to another, and what is numbered must not repeat.
    Remember {
        /// The tenant.
        tenant: u32,
        /// All that is to be known of it; at most [`REMEMBERED_MAX`] bytes.
        bytes: Bytes,
    },
    /// Keep these bytes of one of a tenant's keys, in the place of those before. They are durable
    /// some time later, and come back with [`crate::Discipline::kept`] after a change of the
    /// controller. That nothing is kept any longer is durable before any [`Action::Change`] of this
    /// batch or a later one. Like what is remembered they outlive the tenant. Where there is no
    /// room for them the answer is [`crate::Discipline::not_kept`].
    Keep {
        /// The tenant.
        tenant: u32,
        /// The key; of [`KEPT_MOST`] keys of a tenant at most something is kept.
        key: Key,
        /// The bytes, at most [`KEPT_MAX`]; none: nothing is kept of the key any longer.
        bytes: Option<Bytes>,
    },
    /// Answers [`crate::Discipline::ending`]: something is still awaited that is to be kept.
    NotYet,
}

/// Most bytes that are remembered of one tenant.
pub const REMEMBERED_MAX: usize = 256 << 10;
/// Most bytes that are kept of one key.
pub const KEPT_MAX: usize = 2048;
/// Most keys of one tenant of which something is kept.
pub const KEPT_MOST: usize = 1 << 16;
