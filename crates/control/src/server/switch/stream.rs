//! A switch's stream, from its hello to its end.

use std::{collections::BTreeMap, time::Duration};

use decide::{ItemKey, SwitchId};

use super::{HELD_MAX, Switch};

/// A switch heard from within this time is alive, and another that claims its id is refused.
const ALIVE_FOR: Duration = Duration::from_secs(5);

/// A stream of a switch; a newer one of the same switch makes it void.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StreamId {
    /// The switch.
    pub switch: SwitchId,
    /// Above that of every stream before.
    pub generation: u64,
}

/// Why a switch's stream is closed.
#[derive(Debug, PartialEq, thiserror::Error)]
pub enum CloseReason {
    /// The first message was no hello, or a later one was.
    #[error("{0}")]
    Protocol(&'static str),
    /// An id out of range, or too many keys or switches.
    #[error("{0}")]
    Invalid(String),
    /// Another switch uses the id now.
    #[error("switch id {id} is in use by {name:?}: start this switch with another --id")]
    Taken {
        /// The id.
        id: SwitchId,
        /// Who has it.
        name: String,
    },
    /// It has heard of this term or a later one from a controller whose state ours does not go on:
    /// it would take no notice of what we say.
    #[error(
        "switch {id} has heard a controller of term {heard}, and this one leads in term {term}, with a new or an older state: it begins a term above both; try again"
    )]
    Outrun {
        /// The switch.
        id: SwitchId,
        /// What it has heard of.
        heard: u64,
        /// Ours.
        term: u64,
    },
    /// The stream was replaced by a newer one of the same switch.
    #[error("a newer stream of this switch replaced this one")]
    Replaced,
}

/// A switch whose stream is up.
pub(super) struct Stream {
    generation: u64,
    heard: Duration,
    /// Keys of a list that the switch is telling, until the last of them came.
    telling: Option<Vec<ItemKey>>,
    /// Until the first list is told, nothing is sent.
    pub greeted: bool,
    /// It must tell what it holds: the digests differ.
    list_wanted: bool,
    /// Version of the setup that was sent; and its tenants with their disciplines.
    pub setup_sent: Option<u64>,
    pub told_of: BTreeMap<u32, String>,
    /// Version of the page table that was sent, and when; and of the one that it said is in force.
    pub table_sent: Option<(u64, Duration)>,
    pub table_applied: Option<u64>,
    /// Version of the routes that were sent, and when.
    pub routes_sent: Option<(u64, Duration)>,
    /// Number of the last message that was sent to halves in its agent.
    pub mail_sent: u64,
}

impl Stream {
    /// Asks for a list, unless one is being told.
    pub fn want_list(&mut self) -> bool {
        self.list_wanted |= self.telling.is_none();
        self.telling.is_none()
    }

    /// Whether a list is to be asked for now; it is being told from then on.
    pub fn take_list_wanted(&mut self) -> bool {
        let wanted = std::mem::take(&mut self.list_wanted);
        if wanted {
            self.telling = Some(Vec::new());
        }
        wanted
    }

    /// Keys of a list; with the last of them all of it.
    pub fn take_told(
        &mut self,
        mut keys: Vec<ItemKey>,
        last: bool,
    ) -> Result<Option<Vec<ItemKey>>, CloseReason> {
        let Some(mut all) = self.telling.take() else {
            return Err(CloseReason::Protocol("held keys that nobody asked for"));
        };
        all.append(&mut keys);
        if all.len() > HELD_MAX {
            return Err(CloseReason::Invalid(format!(
                "the switch holds more than {HELD_MAX} keys"
            )));
        }
        if last {
            return Ok(Some(all));
        }
        self.telling = Some(all);
        Ok(None)
    }
}

impl Switch {
    /// Whether another switch than that of this name uses it now.
    ///
    /// # Errors
    /// Names who does.
    pub fn check_free(&self, id: SwitchId, name: &str, now: Duration) -> Result<(), CloseReason> {
        let is_alive = |s: &Stream| now < s.heard + ALIVE_FOR;
        if self.known.name != name && self.stream.as_ref().is_some_and(is_alive) {
            let name = self.known.name.clone();
            return Err(CloseReason::Taken { id, name });
        }
        Ok(())
    }

    /// A stream began.
    pub fn begin(&mut self, generation: u64, now: Duration) {
        self.routes_applied = None;
        self.stream = Some(Stream {
            generation,
            heard: now,
            telling: Some(Vec::new()),
            greeted: false,
            list_wanted: false,
            setup_sent: None,
            told_of: BTreeMap::new(),
            table_sent: None,
            table_applied: None,
            routes_sent: None,
            mail_sent: 0,
        });
    }

    /// Whether this is its stream.
    pub fn is_on(&self, generation: u64) -> bool {
        let stream = self.stream.as_ref();
        stream.is_some_and(|s| s.generation == generation)
    }

    /// It said something.
    pub fn heard(&mut self, now: Duration) {
        if let Some(stream) = &mut self.stream {
            stream.heard = now;
        }
    }

    /// Its stream ended.
    pub fn end(&mut self) {
        self.stream = None;
    }
}
