//! The controller without its sockets: messages of switches, stores and people in, messages to
//! switches and stores out.
//!
//! It decides nothing by itself. It hands what comes in to the value that it concerns ([`Memory`],
//! [`Network`], [`Tenants`], [`Exchange`]) and carries on what that returns.
//! [`operations`](super::operations) are what people ask of it.
//!
//! Whoever drives it hands every message and every [`TICK_EVERY`] the time in, takes what is to be
//! sent with [`Core::next_message`] and [`Core::next_for_store`] after each of them and every
//! [`PUMP_EVERY`], and writes [`Core::take_batch`] as soon as there is something in the
//! [`Core::journal`] (items every [`ITEMS_EVERY`]), telling [`Core::written`] afterwards: some
//! messages wait for that.

use std::{collections::BTreeSet, time::Duration};

use api::{
    proto::{
        FromStore, FromSwitch, Hello, Interfaces, PagesApplied, StoreHello, ToStore, ToSwitch,
        from_switch::Body,
    },
    types::{PageId, RouteTable, TopologySpec, TopologyView},
};
use decide::SwitchId;

use super::{
    around::Surroundings,
    audit::{Audit, Entry},
    changes::{self, Change, LeavingPages},
    configurations::Configurations,
    exchange::Exchange,
    homes::Homes,
    incoming,
    journal::Journal,
    kept::KeptValues,
    memories::Memories,
    memory::{Memory, PageMoves},
    network::{Network, RememberedNetwork, TopologyChange},
    published::PublishedCluster,
    remember::RememberedState,
    setup,
    stores::Stores,
    switch::{BelievedItems, ItemsReport},
    switches::Switches,
    tenants::{Tenant, TenantChanged, Tenants},
};
pub use super::{
    changes::RequestOrigin,
    config::CoreConfig,
    disciplines::Disciplines,
    stores::StoreStreamId,
    switch::{CloseReason, StreamId},
    views::View,
};
use crate::{
    admin::Refusal,
    pages::ledger::Kind,
    state::{Batch, LoadedState, StateError},
};

/// How often what became due is to be sent.
pub const PUMP_EVERY: Duration = Duration::from_millis(10);
/// How often the core is to be told the time.
pub const TICK_EVERY: Duration = Duration::from_millis(100);
/// How often while nothing is to be done ([`Core::is_idle`]).
pub const IDLE_TICK_EVERY: Duration = Duration::from_secs(2);
/// After this time without a word of anything but that there is nothing, the core is idle.
const IDLE_AFTER: Duration = Duration::from_secs(2);
/// How often the items that switches hold are to be written; other changes are written at once.
pub const ITEMS_EVERY: Duration = Duration::from_millis(500);
/// How often while nothing is to be done.
pub const IDLE_ITEMS_EVERY: Duration = Duration::from_secs(2);

/// What became of a change that somebody asked for.
#[derive(Debug)]
pub struct ChangeOutcome {
    /// The tenant that was changed.
    pub id: u32,
    /// The tenant as it is now; none: it is gone.
    pub tenant: Option<Tenant>,
    /// Guaranteed pages that it got at once.
    pub given: Vec<PageId>,
    /// Pages that leave it.
    pub left: Vec<PageId>,
}

/// A controller that leads.
pub struct Core {
    config: CoreConfig,
    tenants: Tenants,
    memory: Memory,
    network: Network,
    exchange: Exchange,
    cluster: PublishedCluster,
    homes: Homes,
    journal: Journal,
    audit: Audit,
    /// The wall clock's time at the last tick, in milliseconds since 1970.
    clock_ms: u64,
    /// When a switch last told of something, or somebody came, went or wanted something.
    busy_at: Duration,
}

impl Core {
    /// Starts from what is remembered. What is numbered begins with `first_number`, which must be
    /// above all numbers that earlier runs used.
    ///
    /// # Errors
    /// A remembered row that makes no sense, by name.
    pub fn new(
        config: CoreConfig,
        disciplines: Disciplines,
        mut loaded: LoadedState,
        first_number: u64,
    ) -> Result<Core, StateError> {
        let remembered = RememberedState::read(&loaded)?;
        let retired = remembered.retired.iter().map(|(id, _)| *id);
        let (tenants, changed) = Tenants::new(remembered.tenants, retired, &config.cluster);
        let names = remembered.switches.iter().map(|(id, known)| (*id, known.name.clone()));
        let (network, rewired) = Network::new(RememberedNetwork {
            spec: remembered.topology,
            routes_managed: remembered.routes_managed,
            switches: names.collect(),
            interfaces: remembered.interfaces,
        });
        let mut switches = Switches::default();
        for (id, known) in remembered.switches {
            let held = BelievedItems::new(loaded.items.remove(&id).unwrap_or_default());
            switches.restore(id, known, held, &config);
        }
        let configurations = Configurations::new(remembered.configurations);
        let stores = Stores::new(config.cluster.stores.iter().map(|store| store.address));
        let memories = Memories::new(remembered.memories);
        let exchange = Exchange::new(
            disciplines,
            switches,
            configurations,
            stores,
            (memories, KeptValues::new(remembered.kept)),
            first_number,
        );
        let mut core = Core {
            config,
            tenants,
            memory: Memory::new(remembered.tables, remembered.pages),
            network,
            exchange,
            cluster: PublishedCluster::default(),
            homes: Homes::default(),
            journal: Journal::default(),
            audit: Audit::new(remembered.audit),
            clock_ms: 0,
            busy_at: Duration::ZERO,
        };
        core.choose_all();
        changed.into_iter().for_each(|id| core.note_tenant(id));
        core.release_unserved();
        core.publish();
        core.rewired(rewired);
        Ok(core)
    }

    // ---- switches and stores

    /// A switch's stream began with this hello.
    ///
    /// # Errors
    /// If the switch cannot be taken.
    pub fn attach(&mut self, now: Duration, hello: &Hello) -> Result<StreamId, CloseReason> {
        self.happens(now);
        let attached = self.exchange.attach(hello, &self.config, &mut self.journal);
        let (stream, is_new) = attached?;
        let id = stream.switch;
        let moved = self.memory.attached(id, hello.pages);
        self.moved(moved);
        // Whose traffic is measured depends on how many switches there are.
        let all = self.exchange.switches().ids().filter(|_| is_new);
        let setups: Vec<SwitchId> = all.chain([id]).collect();
        self.make_setups(setups);
        Ok(stream)
    }

    /// A later message of a switch's stream.
    ///
    /// # Errors
    /// If the stream must be closed.
    pub fn message(
        &mut self,
        now: Duration,
        stream: StreamId,
        message: FromSwitch,
    ) -> Result<(), CloseReason> {
        let id = stream.switch;
        self.exchange.at(now);
        if incoming::says_something(&message) {
            self.busy_at = now;
        }
        let Core { exchange, journal, tenants, .. } = self;
        let switch = exchange.heard(stream)?;
        match message.body {
            Some(Body::Held(held)) => {
                if let Some(told) = switch.tells(incoming::items(&held.keys), held.last)? {
                    self.holds(id, told);
                }
            }
            _ if !switch.is_ready() => {
                let expected = "expected more of the keys that the switch holds";
                return Err(CloseReason::Protocol(expected));
            }
            Some(Body::Hello(_)) => return Err(CloseReason::Protocol("a second hello")),
            Some(Body::Acks(acks)) => exchange.acks(id, &acks, journal),
            Some(Body::Hot(hot)) => exchange.hot(id, &hot, tenants, journal),
            Some(Body::Counters(counters)) => {
                self.memory.counted(id, &counters);
                self.network.age_traffic(id);
                exchange.counters(id, &counters, tenants, journal);
            }
            Some(Body::Dropped(dropped)) => exchange.dropped(id, &dropped, journal),
            Some(Body::Configured(told)) => exchange.configured(id, told, journal),
            Some(Body::Ack(ack)) => switch.took_mail(ack.seq),
            Some(Body::Report(said)) => exchange.switch_reported(id, &said, journal),
            Some(Body::Routes(applied)) => switch.routes_applied(id, self.config.term, applied),
            Some(Body::Traffic(traffic)) => {
                let is_known = |tenant| tenants.get(tenant).is_some();
                self.network.count(id, &traffic, tenants.len(), is_known);
            }
            Some(Body::Pages(applied)) if applied.term != self.config.term => {}
            Some(Body::Pages(applied)) => {
                switch.table_applied(applied.version);
                self.pages_applied(id, applied);
            }
            Some(Body::Interfaces(told)) => {
                let name = switch.known().name.clone();
                self.interfaces(id, &name, &told);
            }
            None => {} // Of a later version: not for us.
        }
        Ok(())
    }

    /// A switch told all that it holds. Its tenants' memory is told before.
    fn holds(&mut self, id: SwitchId, told: ItemsReport) {
        if told.greeting {
            self.route();
            self.allocate();
        }
        self.exchange.holds(id, told, &mut self.journal);
    }

    fn pages_applied(&mut self, id: SwitchId, applied: PagesApplied) {
        let (freed, moved) = self.memory.applied(id, applied.version);
        self.moved(moved);
        if freed {
            self.allocate();
        }
    }

    fn interfaces(&mut self, id: SwitchId, name: &str, told: &Interfaces) {
        if let Some(rewired) = self.network.learn(id, name, told) {
            tracing::info!(switch = id, "interfaces changed");
            self.rewired(rewired);
        }
        // Last: nothing of what follows from it has to wait until it is written.
        self.network.note(id, &mut self.journal);
    }

    /// A switch's stream ended.
    pub fn detach(&mut self, now: Duration, stream: StreamId) {
        self.happens(now);
        self.exchange.detach(stream, &mut self.journal);
    }

    /// The next message for a switch's stream, if there is one now.
    pub fn next_message(&mut self, now: Duration, stream: StreamId) -> Option<ToSwitch> {
        let (durable, term) = (self.journal.durable(), self.config.term);
        self.exchange.next_message(now, stream, durable, &self.memory, term)
    }

    /// A store's stream began with this hello.
    pub fn store_came(&mut self, hello: &StoreHello) -> StoreStreamId {
        self.exchange.store_came(hello, &mut self.journal)
    }

    /// A later message of a store's stream.
    pub fn store_said(&mut self, now: Duration, stream: StoreStreamId, message: FromStore) {
        self.happens(now);
        self.exchange.store_said(stream, message, &mut self.journal);
    }

    /// A store's stream ended.
    pub fn store_went(&mut self, stream: StoreStreamId) {
        self.exchange.store_went(stream, &mut self.journal);
    }

    /// The next message for a store's stream, if there is one now.
    pub fn next_for_store(&mut self, stream: StoreStreamId) -> Option<ToStore> {
        let cluster = self.cluster.safe(self.journal.durable());
        self.exchange.next_for_store(stream, cluster, &self.memory)
    }

    // ---- time and people

    /// Time passed; `clock_ms` is in milliseconds since 1970.
    pub fn tick(&mut self, now: Duration, clock_ms: u64) {
        self.exchange.at(now);
        self.clock_ms = clock_ms;
        self.exchange.tick(&mut self.journal);
        self.lapse(clock_ms / 1000);
        if self.network.tick(now) {
            self.memory.place_again();
            self.route();
        }
        self.allocate();
    }

    /// Something happens at this time that the core has to do with.
    fn happens(&mut self, now: Duration) {
        self.exchange.at(now);
        self.busy_at = now;
    }

    /// Whether switches have told of nothing for some time: no requests, nothing hot, nothing done.
    pub fn is_idle(&self) -> bool {
        self.exchange.now() >= self.busy_at + IDLE_AFTER
    }

    /// The controller is to stop. False: it is better asked again soon, for something is awaited
    /// that is to be kept.
    pub fn ending(&mut self, now: Duration) -> bool {
        self.exchange.at(now);
        self.exchange.ending(&mut self.journal)
    }

    /// Parts of quotas end whose time is over, at this second since 1970.
    fn lapse(&mut self, clock_s: u64) {
        for change in changes::lapse(&self.view(), clock_s) {
            let asked = RequestOrigin { who: "controller", at_ms: clock_s * 1000 };
            self.make(asked, change);
        }
    }

    /// Makes a change of a tenant, if `plan` finds it possible.
    ///
    /// # Errors
    /// The errors of `plan`; then nothing was changed.
    pub fn change(
        &mut self,
        asked: RequestOrigin<'_>,
        plan: impl FnOnce(&View<'_>) -> Result<Change, Refusal>,
    ) -> Result<ChangeOutcome, Refusal> {
        let change = plan(&self.view())?;
        self.busy_at = self.exchange.now();
        let (id, tenant) = (change.id, change.tenant.clone());
        let before = self.own_pages(id);
        let left = self.make(asked, change);
        self.allocate();
        let given = &self.own_pages(id) - &before;
        Ok(ChangeOutcome { id, tenant, given: given.into_iter().collect(), left })
    }

    fn own_pages(&self, tenant: u32) -> BTreeSet<PageId> {
        let held = self.memory.ledger().held(tenant);
        let own = held.filter(|(_, hold)| hold.kind == Kind::Own);
        own.map(|(page, _)| page).collect()
    }

    /// See [`Admin::declare_topology`](crate::admin::Admin::declare_topology).
    ///
    /// # Errors
    /// Those of [`Admin::declare_topology`](crate::admin::Admin::declare_topology).
    pub fn declare_topology(
        &mut self,
        asked: RequestOrigin<'_>,
        spec: TopologySpec,
    ) -> Result<TopologyView, Refusal> {
        let (switches, links) = (spec.switches.len(), spec.links.len());
        let rewired = self.network.declare(spec)?;
        self.journal.put("topology".into(), self.network.declared());
        let detail = format!("{switches} switches, {links} links");
        self.rewired(rewired);
        self.note(asked, "topology.declare", detail);
        self.allocate();
        Ok(self.view().topology())
    }

    /// The switches and stores that were not sent what is valid now: they go on by what they know.
    pub fn not_told(&self) -> Vec<String> {
        self.exchange.not_told(self.cluster.version())
    }

    /// Whether every switch has said that nothing of a removed tenant is left on it.
    pub fn is_clear_of(&self, tenant: u32) -> bool {
        self.memory.leaving(tenant).next().is_none()
    }

    /// See [`Admin::forget_switch`](crate::admin::Admin::forget_switch).
    ///
    /// # Errors
    /// Those of [`Admin::forget_switch`](crate::admin::Admin::forget_switch).
    pub fn forget_switch(
        &mut self,
        asked: RequestOrigin<'_>,
        id: SwitchId,
    ) -> Result<TopologyView, Refusal> {
        let name = changes::may_forget(&self.view(), id)?;
        self.memory.forget(id);
        // What it had is placed elsewhere at once, if it can be: then no tenant is without memory
        // in between.
        self.allocate();
        self.exchange.forget_switch(id, &mut self.journal);
        let pinned = self.tenants.iter().filter(|t| t.pinned.contains_key(&id));
        for mut tenant in pinned.cloned().collect::<Vec<_>>() {
            tenant.pinned.remove(&id);
            let changed = self.tenants.put(tenant);
            self.tenant_changed(changed);
        }
        let rewired = self.network.forget(id);
        self.network.note(id, &mut self.journal);
        self.journal.put("topology".into(), self.network.declared());
        self.rewired(rewired);
        // Whose traffic is measured depends on how many switches there are.
        let all: Vec<SwitchId> = self.exchange.switches().ids().collect();
        self.make_setups(all);
        self.note(asked, "switch.forget", format!("switch {id} {name:?}"));
        self.allocate();
        Ok(self.view().topology())
    }

    /// Keeps routes, or takes away those that were installed.
    pub fn manage_routes(&mut self, asked: RequestOrigin<'_>, managed: bool) -> RouteTable {
        self.network.manage(managed);
        self.journal.put("routing".into(), &managed);
        self.route();
        let what = if managed { "kept" } else { "left alone" };
        self.note(asked, "routes.manage", format!("routes are {what}"));
        self.view().routes()
    }

    /// All of it, to be looked at.
    pub fn view(&self) -> View<'_> {
        View { around: self.around(), memory: &self.memory, audit: &self.audit }
    }

    // ---- what is to be remembered

    /// What changed since the last batch, in the order in which it is to be written.
    pub fn journal(&self) -> &Journal {
        &self.journal
    }

    /// What is to be written, with the position after it. One batch at a time.
    pub fn take_batch(&mut self, with_items: bool) -> (Batch, u64) {
        let (mut batch, position) = self.journal.take();
        if with_items {
            batch.items = self.exchange.switches_mut().take_items();
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
        self.exchange.switches_mut().put_items_back(items);
        self.journal.put_back(batch);
    }

    // ---- what follows from what

    fn around(&self) -> Surroundings<'_> {
        around(&self.config, &self.tenants, &self.network, &self.exchange, self.clock_ms)
    }

    fn split(&mut self) -> (&mut Memory, Surroundings<'_>) {
        let Core { config, tenants, network, exchange, clock_ms, .. } = self;
        (&mut self.memory, around(config, tenants, network, exchange, *clock_ms))
    }

    /// Does something with memory that goes by what is around it; what moved is carried on.
    fn with_memory<R>(
        &mut self,
        work: impl FnOnce(&mut Memory, &Surroundings<'_>) -> (R, PageMoves),
    ) -> R {
        let (memory, around) = self.split();
        let (result, moved) = work(memory, &around);
        self.moved(moved);
        result
    }

    /// Brings placement and shares of pages up to date.
    fn allocate(&mut self) {
        self.with_memory(|memory, around| ((), memory.update(around)));
    }

    /// Makes a change that was checked; returns the pages that leave.
    fn make(&mut self, asked: RequestOrigin<'_>, change: Change) -> Vec<PageId> {
        let id = change.id;
        let guaranteed = change.guaranteed;
        let left = self.with_memory(|memory, around| match change.leaving {
            LeavingPages::Nothing => (vec![], PageMoves::default()),
            LeavingPages::All => (vec![], memory.release(id)),
            LeavingPages::These(pages) => match memory.take(id, &pages) {
                Ok(moved) => (pages, moved),
                Err(_) => (vec![], PageMoves::default()), // It was checked.
            },
            LeavingPages::Excess => {
                memory.take_what_is_over(id, guaranteed.as_deref().unwrap_or_default(), around)
            }
        });
        if let Some(guaranteed) = guaranteed {
            self.memory.guarantee(id, guaranteed);
        }
        if change.forgotten {
            self.exchange.forget(id, &mut self.journal);
        }
        let changed = match change.tenant {
            Some(tenant) => {
                let (name, journal) = (tenant.terms.discipline(), &mut self.journal);
                self.exchange.choose(id, name, journal);
                self.exchange.tell_options(id, &tenant.terms.options, journal);
                Some(self.tenants.put(tenant))
            }
            None => self.tenants.remove(id),
        };
        if let Some(changed) = changed {
            self.tenant_changed(changed);
        }
        if let Some((what, detail)) = change.entry {
            self.note_of(change.own.then_some(id), asked, what, detail);
        }
        left
    }

    /// Who lost all stores has no memory until it has others.
    fn release_unserved(&mut self) {
        let around = self.around();
        let unserved = self.tenants.iter().filter(|tenant| !around.is_served(tenant));
        let unserved: Vec<u32> = unserved.map(|tenant| tenant.id).collect();
        if !unserved.is_empty() {
            let moved = self.memory.release_all(&unserved);
            self.moved(moved);
        }
    }

    /// Every tenant has its discipline, which learns what is known of it.
    fn choose_all(&mut self) {
        for tenant in self.tenants.iter() {
            let name = tenant.terms.discipline();
            self.exchange.choose(tenant.id, name, &mut self.journal);
            let options = &tenant.terms.options;
            self.exchange.tell_options(tenant.id, options, &mut self.journal);
        }
    }

    /// Adds to the audit log.
    fn note(&mut self, asked: RequestOrigin<'_>, what: &str, detail: String) {
        self.note_of(None, asked, what, detail);
    }

    /// Likewise; `own` is the tenant that asked for itself.
    fn note_of(&mut self, own: Option<u32>, asked: RequestOrigin<'_>, what: &str, detail: String) {
        let (at_ms, who) = (asked.at_ms, asked.who.into());
        let entry = Entry { at_ms, who, what: what.into(), detail, own };
        self.audit.add(&mut self.journal, entry);
    }

    /// Stores learn of the tenant, and the switches where it is or was.
    fn tenant_changed(&mut self, changed: TenantChanged) {
        let TenantChanged(id) = changed;
        self.note_tenant(changed);
        self.publish();
        self.homes.changed(id);
        self.tell_homes(id);
        let (tenant, around) = (self.tenants.get(id), self.around());
        let is_here = |at| tenant.is_some_and(|t| setup::is_here(t, at, &around, &self.memory));
        let here = around.switches.iter();
        let here = here.filter(|(at, switch)| switch.lists(id) || is_here(*at));
        let here: Vec<SwitchId> = here.map(|(at, _)| at).collect();
        self.make_setups(here);
    }

    fn note_tenant(&mut self, changed: TenantChanged) {
        let TenantChanged(id) = changed;
        self.tenants.note(changed, &mut self.journal);
        if self.tenants.get(id).is_none() {
            self.exchange.forget(id, &mut self.journal);
            self.memory.guarantee(id, vec![]);
            let moved = self.memory.release(id);
            self.moved(moved);
        }
    }

    /// Stores are to have the cluster as it is now.
    fn publish(&mut self) {
        let cluster = self.tenants.cluster(&self.config.cluster, |_| true);
        self.cluster.set(&cluster, self.journal.position());
    }

    /// Pages moved: that is remembered, and then switches and disciplines learn it.
    fn moved(&mut self, moved: PageMoves) {
        for id in moved.note(&mut self.journal) {
            self.exchange.table_changed(id, self.journal.position());
        }
        self.make_setups(moved.setups);
        for (tenant, rooms) in &moved.rooms {
            self.tell_homes(*tenant);
            self.exchange.tell_rooms(*tenant, rooms, &mut self.journal);
            if rooms.is_empty() {
                self.homes.forget(*tenant);
            }
        }
    }

    /// A tenant's discipline learns which stores its keys are on, unless it has.
    fn tell_homes(&mut self, id: u32) {
        let discipline = self.exchange.disciplines().name_of(id);
        let tenant = self.tenants.get(id);
        let tenant = tenant.and_then(|tenant| Some((tenant, self.around().stores_of(tenant)?)));
        let cluster = &self.config.cluster;
        if let Some(stores) = self.homes.news(id, discipline, tenant, cluster) {
            let journal = &mut self.journal;
            self.exchange.tell(id, journal, |to, now, out| to.stores(now, id, stores, out));
        }
    }

    /// Makes switches' setups anew; those that did not change are not sent again.
    fn make_setups(&mut self, switches: impl IntoIterator<Item = SwitchId>) {
        for id in switches {
            let setup = setup::of(id, &self.around(), &self.memory);
            let safe_after = self.journal.position();
            self.exchange.want_setup(id, setup, safe_after);
        }
    }

    /// The topology changed: disciplines learn of links, pages and routes follow.
    fn rewired(&mut self, rewired: TopologyChange) {
        for (ends, up) in rewired.links {
            let journal = &mut self.journal;
            self.exchange.tell_all(journal, |to, now, out| to.link(now, ends, up, out));
        }
        self.make_setups(rewired.moved);
        self.memory.place_again();
        self.route();
    }

    /// Works the routes out anew, where the controller keeps them.
    fn route(&mut self) {
        let routes = self.network.routes(self.exchange.switches().ids());
        self.exchange.want_routes(self.config.term, routes);
    }
}

fn around<'a>(
    config: &'a CoreConfig,
    tenants: &'a Tenants,
    network: &'a Network,
    exchange: &'a Exchange,
    clock_ms: u64,
) -> Surroundings<'a> {
    Surroundings {
        config,
        tenants,
        disciplines: exchange.disciplines(),
        network,
        switches: exchange.switches(),
        now: exchange.now(),
        clock_s: clock_ms / 1000,
    }
}

#[cfg(test)]
mod tests;
