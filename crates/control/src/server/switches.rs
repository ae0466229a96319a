//! The switches that ever attached, and their streams.

use std::{collections::BTreeMap, time::Duration};

use api::proto::Hello;
use decide::{ItemKey, SwitchId};

use super::{
    config::CoreConfig,
    switch::{BelievedItems, CloseReason, StreamId, Switch, SwitchRecord},
};

/// Switches that are remembered.
const SWITCHES_MAX: usize = 4096;
/// A term that no controller comes near: one that a switch has heard of, and that is not below
/// ours, is below this one.
const TERM_END: u64 = 1 << 62;
/// Longest name, in characters.
const NAME_MAX: usize = 256;

/// All switches of a controller.
#[derive(Default)]
pub struct Switches {
    by_id: BTreeMap<SwitchId, Switch>,
    generation: u64,
    /// The tables of each switch that attached in this lead: what they heard of it, they heard
    /// from us.
    here: BTreeMap<SwitchId, u64>,
    /// Items of switches that were forgotten, to be taken with the next ones.
    forgotten: Vec<(SwitchId, ItemKey, bool)>,
}

/// A switch that attached.
#[must_use]
pub struct AttachedSwitch {
    /// Its stream from now on.
    pub stream: StreamId,
    /// It was never here before.
    pub is_new: bool,
    /// What is to be remembered of it, if that changed.
    pub known: Option<SwitchRecord>,
}

impl Switches {
    /// One that is remembered.
    pub fn restore(
        &mut self,
        id: SwitchId,
        known: SwitchRecord,
        held: BelievedItems,
        config: &CoreConfig,
    ) {
        let switch = Switch::new(known, held, config, Duration::ZERO);
        self.by_id.insert(id, switch);
    }

    /// A stream began with this hello.
    ///
    /// # Errors
    /// If the switch cannot be taken.
    pub fn attach(
        &mut self,
        now: Duration,
        hello: &Hello,
        config: &CoreConfig,
    ) -> Result<AttachedSwitch, CloseReason> {
        let id = SwitchId::try_from(hello.switch_id).ok();
        let id = id.filter(|id| (1..=wire::SWITCH_MOST).contains(id));
        let id = id.ok_or_else(|| {
            let (id, most) = (hello.switch_id, wire::SWITCH_MOST);
            CloseReason::Invalid(format!("switch id {id}: expected 1 to {most}"))
        })?;
        let is_new = !self.by_id.contains_key(&id);
        if is_new && self.by_id.len() >= SWITCHES_MAX {
            return Err(CloseReason::Invalid(format!("more than {SWITCHES_MAX} switches")));
        }
        if let Some(switch) = self.by_id.get(&id) {
            switch.check_free(id, &hello.name, now)?;
        }
        self.check_term(id, hello, config.term)?;
        self.here.insert(id, hello.life);
        let switch = self.by_id.entry(id).or_insert_with(|| {
            Switch::new(SwitchRecord::default(), BelievedItems::default(), config, now)
        });
        let known =
            SwitchRecord { name: hello.name.chars().take(NAME_MAX).collect(), pages: hello.pages };
        let changed = switch.learn(known.clone());
        switch.says(hello, &config.cluster);
        self.generation += 1;
        switch.begin(self.generation, now);
        Ok(AttachedSwitch {
            stream: StreamId { switch: id, generation: self.generation },
            is_new,
            known: changed.then_some(known),
        })
    }

    /// Whether it would listen to a controller of this term. One that attached in this lead may
    /// have heard of its term; any other that has heard it from somebody else, who led before with
    /// a state that ours does not go on.
    fn check_term(&self, id: SwitchId, hello: &Hello, term: u64) -> Result<(), CloseReason> {
        let heard = hello.term;
        let is_ours = heard == term && self.here.get(&id) == Some(&hello.life);
        if heard < term || is_ours {
            return Ok(());
        }
        match heard < TERM_END {
            true => Err(CloseReason::Outrun { id, heard, term }),
            false => Err(CloseReason::Invalid(format!(
                "switch {id} says that it has heard of term {heard}, which no controller reaches: restart its agent"
            ))),
        }
    }

    /// Forgets one.
    pub fn remove(&mut self, id: SwitchId) {
        if let Some(mut switch) = self.by_id.remove(&id) {
            let changed = switch.held.take_changed().into_iter();
            let gone = changed.map(|(key, held)| (id, key, held));
            self.forgotten.extend(gone);
        }
    }

    /// The switch of this stream, unless a newer one made it void.
    pub fn on(&mut self, stream: StreamId) -> Option<&mut Switch> {
        let switch = self.by_id.get_mut(&stream.switch)?;
        switch.is_on(stream.generation).then_some(switch)
    }

    /// One of them.
    pub fn get(&self, id: SwitchId) -> Option<&Switch> {
        self.by_id.get(&id)
    }

    /// One of them.
    pub fn get_mut(&mut self, id: SwitchId) -> Option<&mut Switch> {
        self.by_id.get_mut(&id)
    }

    /// All, by number.
    pub fn iter(&self) -> impl Iterator<Item = (SwitchId, &Switch)> {
        self.by_id.iter().map(|(id, switch)| (*id, switch))
    }

    /// All, by number.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (SwitchId, &mut Switch)> {
        self.by_id.iter_mut().map(|(id, switch)| (*id, switch))
    }

    /// Their numbers.
    pub fn ids(&self) -> impl Iterator<Item = SwitchId> {
        self.by_id.keys().copied()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Items that came or went since the last call.
    pub fn take_items(&mut self) -> Vec<(SwitchId, ItemKey, bool)> {
        let of = |(id, switch): (SwitchId, &mut Switch)| {
            let changed = switch.held.take_changed();
            changed.into_iter().map(move |(key, held)| (id, key, held))
        };
        let mut items = std::mem::take(&mut self.forgotten);
        items.extend(self.iter_mut().flat_map(of));
        items
    }

    /// Items could not be written: they belong to the next ones.
    pub fn put_items_back(&mut self, items: Vec<(SwitchId, ItemKey, bool)>) {
        for (id, key, _) in items {
            match self.get_mut(id) {
                Some(switch) => switch.held.put_back(key),
                // Who was forgotten meanwhile holds nothing.
                None => self.forgotten.push((id, key, false)),
            }
        }
    }
}
