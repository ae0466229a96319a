//! The controller without its sockets: messages of switches, stores and people in, messages to switches and stores out.
//!
//! It decides nothing by itself. It hands what comes in to the value that it concerns ([`Memory`], [`Network`], [`Tenants`], a
//! [`Switch`](super::switch::Switch)) and carries on what that returns: rows to the journal, events to disciplines, their actions to
//! switches, configurations and stores.

use std::{collections::BTreeSet, time::Duration};

use api::{
    proto::{
        Acks, Cluster, Configurations as ConfigurationsMessage, Configured, Counters, Dropped,
        FromStore, FromSwitch, Hello, HotReports, Interfaces, PagesApplied, StoreHello, ToStore,
        ToSwitch, from_store, from_switch, to_switch,
    },
    text::one_line,
    types::{PageId, TopologySpec},
};
use decide::{Action, Change as ItemChange, Event, ItemKey, Outcome, Room, SwitchId};

use super::{
    around::Around,
    audit::{Audit, Entry},
    changes::{self, Asked, Change, Leaving},
    configurations::{Configurations, Place},
    disciplines::Disciplines,
    incoming,
    journal::Journal,
    memory::{Memory, Moved},
    network::{Network, Rewired},
    plan::Plan,
    remember::Remembered,
    setup,
    stores::{self, StoreStreamId, Stores},
    switch::{Closed, Held, StreamId, Told},
    switches::{Attached, Switches},
    tenants::{Tenant, TenantChanged, Tenants},
    views::View,
};
use crate::{
    admin::Refusal,
    pages::ledger::Kind,
    state::{Batch, Loaded, StateError},
};

/// The cluster as stores are to have it, from when everything before `safe_after` is durable.
#[derive(Default)]
struct Published {
    version: u64,
    cluster: Cluster,
    safe_after: u64,
}

/// What became of a change that somebody asked for.
#[derive(Debug)]
pub struct Made {
    /// The tenant that was changed.
    pub id: u32,
    /// As it is now; none: it is gone.
    pub tenant: Option<Tenant>,
    /// Guaranteed pages that it got at once.
    pub given: Vec<PageId>,
    /// Pages that leave it.
    pub left: Vec<PageId>,
}

/// A controller that leads.
pub struct Core {
    plan: Plan,
    disciplines: Disciplines,
    tenants: Tenants,
    memory: Memory,
    network: Network,
    switches: Switches,
    configurations: Configurations,
    stores: Stores,
    cluster: Published,
    journal: Journal,
    audit: Audit,
    /// The time of the last event, and the wall clock's at the last tick in milliseconds since 1970.
    now: Duration,
    clock_ms: u64,
    /// Of the next command, configuration or message to a store.
    next_number: u64,
}

impl Core {
    /// Starts from what is remembered. What is numbered begins with `first_number`, which must be above all
    /// numbers that earlier runs used.
    ///
    /// # Errors
    /// A remembered row that makes no sense, by name.
    pub fn new(
        plan: Plan,
        disciplines: Disciplines,
        mut loaded: Loaded,
        first_number: u64,
    ) -> Result<Core, StateError> {
        let remembered = Remembered::read(&loaded)?;
        let retired = remembered.retired.iter().map(|(id, _)| *id);
        let (tenants, changed) = Tenants::new(remembered.tenants, retired, &plan.cluster);
        let (network, rewired) = Network::new(remembered.topology, remembered.routes_managed);
        let configurations = Configurations::restore(remembered.configurations)?;
        let mut switches = Switches::default();
        for (id, known) in remembered.switches {
            let held = Held::new(loaded.items.remove(&id).unwrap_or_default());
            switches.restore(id, known, held, &plan);
        }
        let mut core = Core {
            disciplines,
            memory: Memory::new(remembered.tables, remembered.pages),
            network,
            switches,
            next_number: first_number.max(configurations.highest_version() + 1),
            configurations,
            stores: Stores::new(plan.cluster.stores.iter().map(|store| store.address)),
            cluster: Published::default(),
            journal: Journal::default(),
            audit: Audit::new(remembered.audit),
            now: Duration::ZERO,
            clock_ms: 0,
            tenants,
            plan,
        };
        for tenant in core.tenants.iter() {
            let discipline = tenant.discipline.as_deref();
            core.disciplines.choose(tenant.id, discipline);
        }
        changed.into_iter().for_each(|id| core.note_tenant(id));
        core.publish();
        core.rewired(rewired);
        Ok(core)
    }

    // ---- switches

    /// A stream began with this hello.
    ///
    /// # Errors
    /// If the switch cannot be taken.
    pub fn attach(&mut self, now: Duration, hello: &Hello) -> Result<StreamId, Closed> {
        self.now = self.now.max(now);
        let attached = self.switches.attach(now, hello, &self.plan)?;
        let Attached {
            stream,
            is_new,
            known,
        } = attached;
        let id = stream.switch;
        if let Some(known) = known {
            self.journal.put(format!("switch/{id}"), &known);
        }
        self.configurations.attached(id);
        let moved = self.memory.attached(id, hello.pages);
        self.moved(moved);
        // Whose traffic is measured depends on how many switches there are.
        let others: Vec<SwitchId> = self.switches.ids().filter(|_| is_new).collect();
        self.make_setups(others.into_iter().chain([id]));
        Ok(stream)
    }

    /// A later message of a stream.
    ///
    /// # Errors
    /// If the stream must be closed.
    pub fn message(
        &mut self,
        now: Duration,
        stream: StreamId,
        message: FromSwitch,
    ) -> Result<(), Closed> {
        use from_switch::Body;
        self.now = self.now.max(now);
        let switch = self.switches.on(stream).ok_or(Closed::Replaced)?;
        switch.heard(now);
        let id = stream.switch;
        match message.body {
            Some(Body::Held(held)) => {
                let told = switch.tells(incoming::items(&held.keys), held.last)?;
                if let Some(told) = told {
                    self.holds(id, told);
                }
            }
            _ if !switch.is_ready() => {
                let expected = "expected more of the keys that the switch holds";
                return Err(Closed::Protocol(expected));
            }
            Some(Body::Hello(_)) => return Err(Closed::Protocol("a second hello")),
            Some(Body::Acks(acks)) => self.acks(id, &acks),
            Some(Body::Hot(hot)) => self.hot(id, &hot),
            Some(Body::Counters(counters)) => self.counters(id, &counters),
            Some(Body::Dropped(dropped)) => self.dropped(id, &dropped),
            Some(Body::Pages(applied)) => self.pages_applied(id, applied),
            Some(Body::Configured(configured)) => self.configured(id, configured),
            Some(Body::Interfaces(interfaces)) => self.interfaces(id, &interfaces),
            Some(Body::Routes(applied)) => switch.routes_applied(id, applied),
            Some(Body::Traffic(traffic)) => {
                let tenants = &self.tenants;
                let is_known = |tenant| tenants.get(tenant).is_some();
                self.network.count(id, &traffic, is_known);
            }
            None => {} // Of a later version: not for us.
        }
        Ok(())
    }

    /// A stream ended.
    pub fn detach(&mut self, now: Duration, stream: StreamId) {
        self.now = self.now.max(now);
        if let Some(switch) = self.switches.on(stream) {
            switch.end();
            let switch = stream.switch;
            self.tell(Event::Detached { switch });
        }
    }

    /// The next message for a stream, if there is one now.
    pub fn next_message(&mut self, now: Duration, stream: StreamId) -> Option<ToSwitch> {
        let id = stream.switch;
        let switch = self.switches.on(stream)?;
        if !switch.is_ready() {
            return None;
        }
        let durable = self.journal.durable();
        if let Some(body) = switch.next_list() {
            return Some(ToSwitch { body: Some(body) });
        }
        if let Some((setup, came)) = switch.next_setup(durable) {
            for tenant in came {
                self.configurations.came(Place { switch: id, tenant });
            }
            return Some(ToSwitch { body: Some(setup) });
        }
        let tenants = self
            .configurations
            .next(now, id, durable, |tenant| switch.told_of(tenant));
        let table = self.memory.ledger().version(id);
        let body = if !tenants.is_empty() {
            let term = self.plan.term;
            let message = ConfigurationsMessage { term, tenants };
            to_switch::Body::Configurations(message)
        } else if switch.next_table(now, durable, table) {
            to_switch::Body::Pages(self.memory.table(id, self.plan.term))
        } else {
            let next_number = &mut self.next_number;
            switch
                .next_routes(now)
                .or_else(|| switch.next_commands(now, table, next_number))?
        };
        Some(ToSwitch { body: Some(body) })
    }

    /// A switch told all that it holds.
    fn holds(&mut self, id: SwitchId, told: Told) {
        if told.greeting {
            self.route();
            self.allocate();
            self.tell(Event::Attached { switch: id });
        }
        let held = incoming::by_tenant(told.held);
        let lost = incoming::by_tenant(told.lost);
        let users = self.switches.get(id).map_or(vec![], |s| s.users());
        let all: BTreeSet<u32> = held.keys().chain(lost.keys()).copied().collect();
        for tenant in users.into_iter().chain(all).collect::<BTreeSet<u32>>() {
            self.tell(Event::Holds {
                switch: id,
                tenant,
                held: held.get(&tenant).map_or(&[], Vec::as_slice),
                lost: lost.get(&tenant).map_or(&[], Vec::as_slice),
            });
        }
    }

    fn acks(&mut self, id: SwitchId, acks: &Acks) {
        for ack in &acks.acks {
            let outcome = incoming::outcome(ack.outcome);
            let switch = self.switches.get_mut(id);
            let answered = switch.and_then(|switch| switch.acknowledged(ack.seq, outcome));
            let Some((key, asked)) = answered else {
                continue;
            };
            for change in asked.replaced.iter().chain([&asked.change]) {
                self.answer(id, &key, change, outcome);
            }
        }
    }

    fn answer(&mut self, switch: SwitchId, key: &ItemKey, change: &ItemChange, outcome: Outcome) {
        self.tell(Event::Answered {
            switch,
            tenant: key.tenant,
            key: &key.key,
            change,
            outcome,
        });
    }

    fn hot(&mut self, id: SwitchId, hot: &HotReports) {
        let (counts, malformed) = self.counts(&hot.keys);
        if let Some(switch) = self.switches.get_mut(id) {
            let keys = counts.values().map(|keys| keys.len() as u64).sum();
            switch.reported(keys, malformed);
        }
        for (tenant, keys) in counts.iter().filter(|(_, keys)| !keys.is_empty()) {
            self.tell(Event::Hot {
                switch: id,
                tenant: *tenant,
                window: hot.window,
                keys,
            });
        }
    }

    fn counters(&mut self, id: SwitchId, counters: &Counters) {
        let (items, malformed) = self.counts(&counters.items);
        let mut users = vec![];
        if let Some(switch) = self.switches.get_mut(id) {
            switch.reported(0, malformed);
            if switch.compare(counters) {
                let line = "holds other items than believed: asking for a list";
                tracing::info!(switch = id, "{line}");
            }
            users = switch.users();
        }
        self.memory.counted(id, counters);
        self.network.age_traffic(id);
        for tenant in users {
            self.tell(Event::WindowEnd {
                switch: id,
                tenant,
                window: counters.window,
                items: items.get(&tenant).map_or(&[], Vec::as_slice),
            });
        }
    }

    fn counts(&self, groups: &[api::proto::TenantCounts]) -> (incoming::Counts, u64) {
        incoming::counts(groups, |tenant| self.tenants.get(tenant).is_some())
    }

    fn dropped(&mut self, id: SwitchId, dropped: &Dropped) {
        let items = incoming::items(&dropped.keys);
        if let Some(switch) = self.switches.get_mut(id) {
            switch.dropped(&items);
        }
        for (tenant, keys) in &incoming::by_tenant(items) {
            self.tell(Event::Dropped {
                switch: id,
                tenant: *tenant,
                keys,
            });
        }
    }

    fn pages_applied(&mut self, id: SwitchId, applied: PagesApplied) {
        if applied.term != self.plan.term {
            return;
        }
        if let Some(switch) = self.switches.get_mut(id) {
            switch.table_applied(applied.version);
        }
        let (freed, moved) = self.memory.applied(id, applied.version);
        self.moved(moved);
        if freed {
            self.allocate();
        }
    }

    fn configured(&mut self, switch: SwitchId, configured: Configured) {
        for said in configured.tenants {
            let tenant = said.tenant;
            if !self
                .configurations
                .confirmed(Place { switch, tenant }, said.version)
            {
                continue;
            }
            if !said.trouble.is_empty() {
                let trouble = one_line(&said.trouble);
                tracing::warn!(switch, tenant, "not all of the configuration: {trouble}");
            }
            self.tell(Event::Configured { switch, tenant });
        }
    }

    fn interfaces(&mut self, id: SwitchId, told: &Interfaces) {
        let name = self.switches.get(id).map_or("", |s| &s.known().name);
        if let Some(rewired) = self.network.learn(id, name, told) {
            tracing::info!(switch = id, "interfaces changed");
            self.rewired(rewired);
        }
    }

    // ---- stores

    /// A store's stream began with this hello.
    pub fn store_came(&mut self, hello: &StoreHello) -> StoreStreamId {
        self.stores.begin(hello)
    }

    /// A later message of a store's stream.
    pub fn store_said(&mut self, now: Duration, stream: StoreStreamId, message: FromStore) {
        self.now = self.now.max(now);
        let Some(store) = self.stores.on(stream) else {
            return;
        };
        match message.body {
            Some(from_store::Body::Ack(ack)) => {
                for tenant in self.stores.acknowledged(stream, ack.seq) {
                    self.tell(Event::Told { store, tenant });
                }
            }
            Some(from_store::Body::Report(said)) => {
                let (tenant, report) = (said.tenant, &said.report[..]);
                let is_its = self.disciplines.name_of(tenant) == said.discipline;
                if is_its && report.len() <= stores::MESSAGE_MAX {
                    self.tell(Event::Reported {
                        store,
                        tenant,
                        report,
                    });
                }
            }
            Some(from_store::Body::Hello(_)) | None => {}
        }
    }

    /// A store's stream ended.
    pub fn store_went(&mut self, stream: StoreStreamId) {
        self.stores.end(stream);
    }

    /// The next message for a store's stream, if there is one now.
    pub fn next_for_store(&mut self, stream: StoreStreamId) -> Option<ToStore> {
        let is_safe = self.journal.durable() >= self.cluster.safe_after;
        let cluster = is_safe.then_some((self.cluster.version, &self.cluster.cluster));
        self.stores.next(stream, cluster)
    }

    // ---- time and people

    /// Time passed; `clock_ms` is in milliseconds since 1970.
    pub fn tick(&mut self, now: Duration, clock_ms: u64) {
        (self.now, self.clock_ms) = (self.now.max(now), clock_ms);
        self.switches.iter_mut().for_each(|(_, s)| s.tick(now));
        self.tell(Event::Tick);
        self.lapse(clock_ms / 1000);
        self.allocate();
    }

    /// Parts of quotas end whose time is over, at this second since 1970.
    fn lapse(&mut self, clock_s: u64) {
        for change in changes::lapse(&self.view(), clock_s) {
            let asked = Asked {
                who: "controller",
                at_ms: clock_s * 1000,
            };
            self.make(asked, change);
        }
    }

    /// Makes a change of a tenant, if `plan` finds it possible.
    ///
    /// # Errors
    /// Those of `plan`; then nothing was changed.
    pub fn change(
        &mut self,
        asked: Asked<'_>,
        plan: impl FnOnce(&View<'_>) -> Result<Change, Refusal>,
    ) -> Result<Made, Refusal> {
        let change = plan(&self.view())?;
        let (id, tenant) = (change.id, change.tenant.clone());
        let before = self.own_pages(id);
        let left = self.make(asked, change);
        self.allocate();
        let given = &self.own_pages(id) - &before;
        Ok(Made {
            id,
            tenant,
            given: given.into_iter().collect(),
            left,
        })
    }

    fn own_pages(&self, tenant: u32) -> BTreeSet<PageId> {
        let held = self.memory.ledger().held(tenant);
        let own = held.filter(|(_, hold)| hold.kind == Kind::Own);
        own.map(|(page, _)| page).collect()
    }

    /// Replaces what is declared of the topology.
    ///
    /// # Errors
    /// Names the entry that makes no sense.
    pub fn declare_topology(
        &mut self,
        asked: Asked<'_>,
        spec: TopologySpec,
    ) -> Result<(), Refusal> {
        let (switches, links) = (spec.switches.len(), spec.links.len());
        let rewired = self.network.declare(spec)?;
        self.journal.put("topology".into(), self.network.declared());
        let detail = format!("{switches} switches, {links} links");
        self.rewired(rewired);
        self.note(asked, "topology.declare", detail);
        self.allocate();
        Ok(())
    }

    /// Keeps routes, or takes away those that were installed.
    pub fn manage_routes(&mut self, asked: Asked<'_>, managed: bool) {
        self.network.manage(managed);
        self.journal.put("routing".into(), &managed);
        self.route();
        let what = if managed { "kept" } else { "left alone" };
        self.note(asked, "routes.manage", format!("routes are {what}"));
    }

    /// All of it, to be looked at.
    pub fn view(&self) -> View<'_> {
        View {
            around: self.around(),
            memory: &self.memory,
            audit: &self.audit,
        }
    }

    // ---- what is to be remembered

    /// Where everything that was changed so far ends in the journal.
    pub fn position(&self) -> u64 {
        self.journal.position()
    }

    /// Up to where everything is durable.
    pub fn durable(&self) -> u64 {
        self.journal.durable()
    }

    /// Whether something waits to be written.
    pub fn is_pending(&self) -> bool {
        self.journal.is_pending()
    }

    /// What is to be written, with the position after it. One batch at a time.
    pub fn take_batch(&mut self, with_items: bool) -> (Batch, u64) {
        let (mut batch, position) = self.journal.take();
        if with_items {
            batch.items = self.switches.take_items();
        }
        (batch, position)
    }

    /// The batch up to this position is durable.
    pub fn written(&mut self, position: u64) {
        self.journal.written(position);
    }

    /// The batch that was taken last could not be written: it comes first again.
    pub fn put_back(&mut self, mut batch: Batch) {
        let items = std::mem::take(&mut batch.items);
        self.switches.put_items_back(items);
        self.journal.put_back(batch);
    }

    // ---- what follows from what

    fn around(&self) -> Around<'_> {
        Around {
            plan: &self.plan,
            tenants: &self.tenants,
            disciplines: &self.disciplines,
            network: &self.network,
            switches: &self.switches,
            now: self.now,
            clock_s: self.clock_ms / 1000,
        }
    }

    /// Does something with memory that goes by what is around it; what moved is carried on.
    fn with_memory<R>(&mut self, work: impl FnOnce(&mut Memory, &Around<'_>) -> (R, Moved)) -> R {
        let mut memory = std::mem::take(&mut self.memory);
        let (result, moved) = work(&mut memory, &self.around());
        self.memory = memory;
        self.moved(moved);
        result
    }

    /// Brings placement and shares of pages up to date.
    fn allocate(&mut self) {
        self.with_memory(|memory, around| ((), memory.update(around)));
    }

    /// Makes a change that was checked; returns the pages that leave.
    fn make(&mut self, asked: Asked<'_>, change: Change) -> Vec<PageId> {
        let id = change.id;
        let guaranteed = change.guaranteed;
        let left = self.with_memory(|memory, around| match change.leaving {
            Leaving::Nothing => (vec![], Moved::default()),
            Leaving::All => (vec![], memory.release(id)),
            Leaving::These(pages) => match memory.take(id, &pages) {
                Ok(moved) => (pages, moved),
                Err(_) => (vec![], Moved::default()), // It was checked.
            },
            Leaving::Excess => {
                memory.take_what_is_over(id, guaranteed.as_deref().unwrap_or_default(), around)
            }
        });
        if let Some(guaranteed) = guaranteed {
            self.memory.guarantee(id, guaranteed);
        }
        if change.forgotten {
            self.configurations.forget(id, &mut self.journal);
        }
        let changed = match change.tenant {
            Some(tenant) => {
                let discipline = tenant.discipline.as_deref();
                self.disciplines.choose(id, discipline);
                Some(self.tenants.put(tenant))
            }
            None => self.tenants.remove(id),
        };
        if let Some(changed) = changed {
            self.tenant_changed(changed);
        }
        if let Some((what, detail)) = change.entry {
            self.note(asked, what, detail);
        }
        left
    }

    /// Adds to the audit log.
    fn note(&mut self, asked: Asked<'_>, what: &str, detail: String) {
        let entry = Entry {
            at_ms: asked.at_ms,
            who: asked.who.into(),
            what: what.into(),
            detail,
        };
        self.audit.add(&mut self.journal, entry);
    }

    /// Stores learn of the tenant, and the switches where it is or was.
    fn tenant_changed(&mut self, changed: TenantChanged) {
        let TenantChanged(id) = changed;
        self.note_tenant(changed);
        self.publish();
        let (tenant, around) = (self.tenants.get(id), self.around());
        let is_here = |at| tenant.is_some_and(|t| setup::is_here(t, at, &around, &self.memory));
        let switches = self.switches.iter();
        let here = switches.filter(|(at, switch)| switch.lists(id) || is_here(*at));
        let here: Vec<SwitchId> = here.map(|(at, _)| at).collect();
        self.make_setups(here);
    }

    fn note_tenant(&mut self, TenantChanged(id): TenantChanged) {
        match self.tenants.get(id) {
            Some(tenant) => self.journal.put(format!("tenant/{id}"), tenant),
            None => {
                self.journal.delete(format!("tenant/{id}"));
                self.configurations.forget(id, &mut self.journal);
                self.memory.guarantee(id, vec![]);
                let moved = self.memory.release(id);
                self.moved(moved);
            }
        }
        match self.tenants.is_retired(id) {
            true => self.journal.put(format!("retired/{id}"), &true),
            false => self.journal.delete(format!("retired/{id}")),
        }
    }

    /// Stores are to have the cluster as it is now.
    fn publish(&mut self) {
        let cluster = self.tenants.cluster(&self.plan.cluster, |_| true);
        self.cluster = Published {
            version: self.cluster.version + 1,
            cluster: (&cluster).into(),
            safe_after: self.journal.position(),
        };
    }

    /// Pages moved: that is remembered, and then switches and disciplines learn it.
    fn moved(&mut self, moved: Moved) {
        let mut touched = BTreeSet::new();
        for (id, row) in &moved.rows.switches {
            self.journal.put(format!("table/{id}"), row);
            touched.insert(*id);
        }
        for (page, row) in &moved.rows.pages {
            match row {
                Some(row) => self.journal.put(format!("page/{page}"), row),
                None => self.journal.delete(format!("page/{page}")),
            }
            touched.insert(page.switch);
        }
        for id in touched {
            if let Some(switch) = self.switches.get_mut(id) {
                switch.table_changed(self.journal.position());
            }
        }
        self.make_setups(moved.setups);
        for (tenant, rooms) in moved.rooms {
            let room = |&(switch, portion): &(SwitchId, crate::pages::share::Portion)| Room {
                switch,
                pages: portion.own + portion.lent,
                lent: portion.lent,
                parameters: self.configurations.parameters(Place { switch, tenant }),
            };
            let rooms: Vec<Room> = rooms.iter().map(room).collect();
            self.tell(Event::Room {
                tenant,
                rooms: &rooms,
            });
        }
    }

    /// Makes switches' setups anew; those that did not change are not sent again.
    fn make_setups(&mut self, switches: impl IntoIterator<Item = SwitchId>) {
        for id in switches {
            let setup = setup::of(id, &self.around(), &self.memory);
            if let Some(switch) = self.switches.get_mut(id) {
                switch.want_setup(setup, self.journal.position());
            }
        }
    }

    /// The topology changed: disciplines learn of links, pages and routes follow.
    fn rewired(&mut self, rewired: Rewired) {
        for (ends, up) in rewired.links {
            self.tell(Event::Link { ends, up });
        }
        self.memory.place_again();
        self.route();
    }

    /// Works the routes out anew, where the controller keeps them.
    fn route(&mut self) {
        let Some(mut all) = self.network.routes() else {
            return;
        };
        for (id, switch) in self.switches.iter_mut() {
            switch.want_routes(self.plan.term, all.remove(&id).unwrap_or_default());
        }
    }

    /// Tells disciplines, and carries out what they want.
    fn tell(&mut self, event: Event<'_>) {
        let mut actions = Vec::new();
        self.disciplines.tell(self.now, event, &mut actions);
        for (switch, key, change) in self.carry_out(actions) {
            let event = Event::Answered {
                switch,
                tenant: key.tenant,
                key: &key.key,
                change: &change,
                outcome: Outcome::NotSent,
            };
            let mut more = Vec::new();
            self.disciplines.tell(self.now, event, &mut more);
            debug_assert!(
                more.is_empty(),
                "nothing may be asked for in answer to NotSent"
            );
        }
    }

    /// Carries actions out, but for changes of items that there is no room for in an outbox.
    fn carry_out(&mut self, actions: Vec<Action>) -> Vec<(SwitchId, ItemKey, ItemChange)> {
        let mut not_sent = vec![];
        for action in actions {
            match action {
                Action::Change {
                    switch: id,
                    tenant,
                    key,
                    change,
                } => {
                    let key = ItemKey { tenant, key };
                    if let Some(switch) = self.switches.get_mut(id)
                        && !switch.command(change.clone(), key.clone())
                    {
                        not_sent.push((id, key, change));
                    }
                }
                Action::Configure {
                    switch,
                    tenant,
                    configuration,
                } => {
                    let place = Place { switch, tenant };
                    let (next, journal) = (&mut self.next_number, &mut self.journal);
                    if self.switches.get(switch).is_some()
                        && let Err(line) =
                            self.configurations.ask(place, configuration, next, journal)
                    {
                        tracing::warn!(switch, tenant, "refused: {line}");
                    }
                }
                Action::Tell {
                    store,
                    tenant,
                    message,
                } => {
                    let discipline = self.disciplines.name_of(tenant);
                    let next = &mut self.next_number;
                    let told = self.stores.tell(store, discipline, tenant, message, next);
                    if let Err(line) = told {
                        tracing::warn!(tenant, "a message was refused: {line}");
                    }
                }
            }
        }
        not_sent
    }
}

#[cfg(test)]
#[path = "core_tests.rs"]
mod tests;
