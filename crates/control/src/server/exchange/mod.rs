//! Between disciplines and those whom they decide for: what switches and stores report goes to the
//! tenant's discipline, and what that asks for goes to switches' outboxes, configurations
//! and stores.

mod reports;

use std::{collections::BTreeMap, time::Duration};

use api::proto::{
    Configurations as Message, Hello, Route, Setup, StoreHello, ToStore, ToSwitch, to_switch::Body,
};
use bytes::Bytes;
use decide::{Action, Answer, Change, Discipline, ItemKey, Outcome, Room, SwitchId};

use super::{
    config::CoreConfig,
    configurations::{Configurations, Place},
    disciplines::Disciplines,
    journal::Journal,
    kept::KeptValues,
    memories::{Memories, MemoryOwner},
    memory::{Memory, TenantRooms},
    stores::{StoreStreamId, Stores},
    switch::{CloseReason, ItemsReport, StreamId, Switch},
    switches::{AttachedSwitch, Switches},
};

/// What was asked for and there was no room for.
#[derive(Default)]
struct RefusedActions {
    /// Changes of items, in the outbox of a switch.
    changes: Vec<(SwitchId, ItemKey, Change)>,
    /// What was to be kept of keys, each with a line that says why it is not.
    kept: Vec<(ItemKey, String)>,
}

/// Disciplines, and everything that carries out what they ask for.
pub struct Exchange {
    disciplines: Disciplines,
    switches: Switches,
    configurations: Configurations,
    stores: Stores,
    memories: Memories,
    kept: KeptValues,
    /// The number of the next command, configuration or message to a store.
    next_number: u64,
    /// The time of the last event.
    now: Duration,
}

impl Exchange {
    /// Numbers begin with `first_number`, which must be above all that earlier runs used.
    pub fn new(
        disciplines: Disciplines,
        switches: Switches,
        configurations: Configurations,
        stores: Stores,
        (memories, kept): (Memories, KeptValues),
        first_number: u64,
    ) -> Exchange {
        Exchange {
            disciplines,
            switches,
            next_number: first_number.max(configurations.highest_version() + 1),
            configurations,
            stores,
            memories,
            kept,
            now: Duration::ZERO,
        }
    }

    /// Something happens at this time.
    pub fn at(&mut self, now: Duration) {
        self.now = self.now.max(now);
    }

    /// The time of the last event.
    pub fn now(&self) -> Duration {
        self.now
    }

    /// The disciplines.
    pub fn disciplines(&self) -> &Disciplines {
        &self.disciplines
    }

    /// The switches.
    pub fn switches(&self) -> &Switches {
        &self.switches
    }

    /// The switches, to write down what they hold.
    pub fn switches_mut(&mut self) -> &mut Switches {
        &mut self.switches
    }

    /// Notes which discipline a tenant chose; none: the default. One that did not have it before
    /// learns what is remembered.
    pub fn choose(&mut self, tenant: u32, discipline: Option<&str>, journal: &mut Journal) {
        let before = self.disciplines.of(tenant).map(|r| r.name);
        self.disciplines.choose(tenant, discipline);
        if self.disciplines.of(tenant).map(|r| r.name) != before {
            let bytes = self.memories.of(&self.whose(tenant));
            self.tell(tenant, journal, |to, now, out| to.remembered(now, tenant, &bytes, out));
            let kept = self.kept.of(&self.whose(tenant));
            if !kept.is_empty() {
                self.tell(tenant, journal, |to, now, out| to.kept(now, tenant, &kept, out));
            }
        }
    }

    /// A tenant's discipline learns its options.
    pub fn tell_options(
        &mut self,
        tenant: u32,
        given: &BTreeMap<String, u32>,
        journal: &mut Journal,
    ) {
        if let Some(discipline) = self.disciplines.of(tenant) {
            let options = discipline.tenant_options(given);
            self.tell(tenant, journal, |to, now, out| to.options(now, tenant, options, out));
        }
    }

    fn whose(&self, tenant: u32) -> MemoryOwner {
        MemoryOwner { tenant, family: self.disciplines.family_of(tenant).into() }
    }

    /// A tenant is gone, or is to have another discipline: the one that it has learns that, and
    /// nothing of its configurations counts.
    pub fn forget(&mut self, tenant: u32, journal: &mut Journal) {
        self.tell(tenant, journal, |to, now, out| to.gone(now, tenant, out));
        self.configurations.forget(tenant, journal);
    }

    // ---- switches

    /// A stream began with this hello; also says whether the switch was never here before.
    ///
    /// # Errors
    /// If the switch cannot be taken.
    pub fn attach(
        &mut self,
        hello: &Hello,
        config: &CoreConfig,
        journal: &mut Journal,
    ) -> Result<(StreamId, bool), CloseReason> {
        let AttachedSwitch { stream, is_new, known } =
            self.switches.attach(self.now, hello, config)?;
        if let Some(known) = known {
            journal.put(format!("switch/{}", stream.switch), &known);
        }
        self.configurations.attached(stream.switch);
        Ok((stream, is_new))
    }

    /// A stream brings a message.
    ///
    /// # Errors
    /// A newer one made it void.
    pub fn heard(&mut self, stream: StreamId) -> Result<&mut Switch, CloseReason> {
        let now = self.now;
        let switch = self.switches.on(stream).ok_or(CloseReason::Replaced)?;
        switch.heard(now);
        Ok(switch)
    }

    /// A stream ended.
    pub fn detach(&mut self, stream: StreamId, journal: &mut Journal) {
        if let Some(switch) = self.switches.on(stream) {
            switch.end();
            let switch = stream.switch;
            self.tell_all(journal, |to, now, out| to.detached(now, switch, out));
        }
    }

    /// A switch is gone for good, and with it what it held.
    pub fn forget_switch(&mut self, id: SwitchId, journal: &mut Journal) {
        let lost = self.switches.get_mut(id).map(|switch| switch.held.replace(vec![]).1);
        let told = ItemsReport { greeting: false, held: vec![], lost: lost.unwrap_or_default() };
        self.holds(id, told, journal);
        self.configurations.forget_switch(id, journal);
        self.switches.remove(id);
        journal.delete(format!("switch/{id}"));
    }

    /// The next message for a stream, if there is one now. Everything in it was safe to send when
    /// `durable` was.
    pub fn next_message(
        &mut self,
        now: Duration,
        stream: StreamId,
        durable: u64,
        memory: &Memory,
        term: u64,
    ) -> Option<ToSwitch> {
        let id = stream.switch;
        let switch = self.switches.on(stream).filter(|s| s.is_ready())?;
        if let Some(body) = switch.next_list() {
            return Some(ToSwitch { body: Some(body) });
        }
        if let Some((setup, came)) = switch.next_setup(durable) {
            for tenant in came {
                self.configurations.came(Place { switch: id, tenant });
            }
            return Some(ToSwitch { body: Some(setup) });
        }
        let configurations = &mut self.configurations;
        let tenants = configurations.next(now, id, durable, |tenant| switch.told_of(tenant));
        let table = memory.ledger().version(id);
        let body = if !tenants.is_empty() {
            Body::Configurations(Message { term, tenants })
        } else if switch.next_table(now, durable, table) {
            Body::Pages(memory.table(id, term))
        } else {
            let next_number = &mut self.next_number;
            // What was asked for after something was remembered, or is kept no longer, waits until
            // that is safe.
            let safe_after = self.memories.safe_after().max(self.kept.safe_after());
            let is_safe = durable >= safe_after;
            let routes = switch.next_routes(now);
            match routes {
                Some(routes) => routes,
                None if !is_safe => return None,
                None => match switch.next_mail() {
                    Some(mail) => mail,
                    None => switch.next_commands(now, table, next_number)?,
                },
            }
        };
        Some(ToSwitch { body: Some(body) })
    }

    /// Sets the setup that a switch is to have, with the journal's position after which it is safe
    /// to send.
    pub fn want_setup(&mut self, id: SwitchId, setup: Setup, safe_after: u64) {
        if let Some(switch) = self.switches.get_mut(id) {
            switch.want_setup(setup, safe_after);
        }
    }

    /// A switch's page table changed; from that position of the journal on it is safe to send.
    pub fn table_changed(&mut self, id: SwitchId, safe_after: u64) {
        if let Some(switch) = self.switches.get_mut(id) {
            switch.table_changed(safe_after);
        }
    }

    /// Sets the routes that switches are to have; those that are not named keep theirs.
    pub fn want_routes(&mut self, term: u64, all: BTreeMap<SwitchId, Vec<Route>>) {
        for (id, routes) in all {
            if let Some(switch) = self.switches.get_mut(id) {
                switch.want_routes(term, routes);
            }
        }
    }

    // ---- stores

    /// A store's stream began with this hello.
    pub fn store_came(&mut self, hello: &StoreHello, journal: &mut Journal) -> StoreStreamId {
        let stream = self.stores.begin(hello);
        if let Some(store) = self.stores.on(stream) {
            self.tell_all(journal, |to, now, out| to.store_attached(now, store, out));
        }
        stream
    }

    /// A store's stream ended.
    pub fn store_went(&mut self, stream: StoreStreamId, journal: &mut Journal) {
        let store = self.stores.on(stream);
        self.stores.end(stream);
        if let Some(store) = store {
            self.tell_all(journal, |to, now, out| to.store_detached(now, store, out));
        }
    }

    /// The next message for a store's stream: the cluster of this version if it is newer, where
    /// tenants are placed if that changed, else what disciplines have to tell.
    pub fn next_for_store(
        &mut self,
        stream: StoreStreamId,
        cluster: Option<(u64, &api::proto::Cluster)>,
        memory: &Memory,
    ) -> Option<ToStore> {
        self.stores.next(stream, cluster, memory.rooms())
    }

    /// The switches and stores that were not sent what is valid now, that cluster among it.
    pub fn not_told(&self, cluster: u64) -> Vec<String> {
        let behind = self.switches.iter().filter(|(_, switch)| !switch.has_newest_setup());
        let switches = behind.map(|(id, switch)| match &*switch.known().name {
            "" => format!("switch {id}"),
            name => format!("switch {id} ({name})"),
        });
        let stores = self.stores.behind(cluster).map(|store| format!("store {store}"));
        switches.chain(stores).collect()
    }

    // ---- disciplines

    /// Time passed.
    pub fn tick(&mut self, journal: &mut Journal) {
        let now = self.now;
        self.switches.iter_mut().for_each(|(_, s)| s.tick(now));
        self.tell_all(journal, |to, now, out| to.tick(now, out));
    }

    /// The controller is to stop. False: a discipline waits for something that it wants to keep.
    pub fn ending(&mut self, journal: &mut Journal) -> bool {
        let actions = self.disciplines.tell_all(self.now, |to, now, out| to.ending(now, out));
        let ready = !actions.contains(&Action::NotYet);
        self.carry_out_and_answer(actions, journal);
        ready
    }

    /// A tenant's memory is where these rooms are.
    pub fn tell_rooms(&mut self, tenant: u32, rooms: &TenantRooms, journal: &mut Journal) {
        let room = |&(switch, portion): &(SwitchId, crate::pages::share::Portion)| Room {
            switch,
            pages: portion.own + portion.lent,
            lent: portion.lent,
            parameters: self.configurations.parameters(Place { switch, tenant }),
        };
        let rooms: Vec<Room> = rooms.iter().map(room).collect();
        self.tell(tenant, journal, |to, now, out| to.room(now, tenant, &rooms, out));
    }

    /// Tells a tenant's discipline what happened, and carries out what it wants.
    pub fn tell(
        &mut self,
        tenant: u32,
        journal: &mut Journal,
        event: impl FnOnce(&mut dyn Discipline, Duration, &mut Vec<Action>),
    ) {
        let actions = self.disciplines.tell(self.now, tenant, event);
        self.carry_out_and_answer(actions, journal);
    }

    /// Tells all disciplines what happened to no tenant alone, and carries out what they want.
    pub fn tell_all(
        &mut self,
        journal: &mut Journal,
        event: impl Fn(&mut dyn Discipline, Duration, &mut Vec<Action>),
    ) {
        let actions = self.disciplines.tell_all(self.now, event);
        self.carry_out_and_answer(actions, journal);
    }

    /// Carries actions out; those that there is no room for are answered at once.
    fn carry_out_and_answer(&mut self, actions: Vec<Action>, journal: &mut Journal) {
        let RefusedActions { changes, kept } = self.carry_out(actions, journal);
        if let Some((item, line)) = kept.first() {
            tracing::warn!(tenant = item.tenant, keys = kept.len(), "not kept: {line}");
        }
        for (item, _) in kept {
            self.disciplines.tell(self.now, item.tenant, |to, now, _| {
                to.not_kept(now, item.tenant, &item.key);
            });
        }
        for (switch, key, change) in changes {
            let answer = Answer {
                switch,
                tenant: key.tenant,
                key: &key.key,
                change: &change,
                outcome: Outcome::NotSent,
            };
            let more = self.disciplines.tell(self.now, key.tenant, |to, now, out| {
                to.answered(now, answer, out);
            });
            debug_assert!(more.is_empty(), "nothing may be asked for in answer to NotSent");
        }
    }

    /// Carries actions out, but for those that there is no room for.
    fn carry_out(&mut self, actions: Vec<Action>, journal: &mut Journal) -> RefusedActions {
        let mut refused = RefusedActions::default();
        for action in actions {
            match action {
                Action::Change { switch: id, tenant, key, change } => {
                    let key = ItemKey { tenant, key };
                    if let Some(switch) = self.switches.get_mut(id)
                        && !switch.command(change.clone(), key.clone())
                    {
                        refused.changes.push((id, key, change));
                    }
                }
                Action::Configure { switch, tenant, configuration } => {
                    if self.switches.get(switch).is_none() {
                        continue;
                    }
                    let (place, next) = (Place { switch, tenant }, &mut self.next_number);
                    let asked = self.configurations.ask(place, configuration, next, journal);
                    if let Err(line) = asked {
                        tracing::warn!(switch, tenant, "refused: {line}");
                    }
                }
                Action::Tell { store, tenant, message } => {
                    let discipline = self.disciplines.name_of(tenant);
                    let next = &mut self.next_number;
                    let told = self.stores.tell(store, discipline, tenant, message, next);
                    if let Err(line) = told {
                        tracing::warn!(tenant, "a message was refused: {line}");
                    }
                }
                Action::TellSwitch { switch, tenant, message } => {
                    self.tell_switch(switch, tenant, message)
                }
                Action::Remember { tenant, bytes } => {
                    let whose = self.whose(tenant);
                    let remembered = self.memories.remember(whose, bytes, journal);
                    if let Err(line) = remembered {
                        tracing::error!(tenant, "refused: {line}");
                    }
                }
                Action::Keep { tenant, key, bytes } => {
                    let whose = self.whose(tenant);
                    if let Err(line) = self.kept.keep(whose, key.clone(), bytes, journal) {
                        refused.kept.push((ItemKey { tenant, key }, line));
                    }
                }
                Action::NotYet => {}
            }
        }
        refused
    }

    fn tell_switch(&mut self, id: SwitchId, tenant: u32, message: Bytes) {
        let discipline = self.disciplines.name_of(tenant);
        let Some(switch) = self.switches.get_mut(id) else { return };
        let told = switch.mail().tell(discipline, tenant, message, &mut self.next_number);
        if let Err(line) = told {
            tracing::warn!(switch = id, tenant, "a message was refused: {line}");
        }
    }
}
