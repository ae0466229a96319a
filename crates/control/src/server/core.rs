//! The controller without its sockets: messages of switches in, messages to switches out.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use api::proto::{
    Acks, Commands, Counters, Dropped, FromSwitch, Hello, HotReports, ListHeld, StatusReply,
    SwitchStatus, TenantThreshold, ToSwitch, Tuning, from_switch, to_switch,
};
use wire::Cluster;

use super::{
    allocate::Allocation,
    applications::Applications,
    audit::Audit,
    convert,
    held::Held,
    journal::Journal,
    network::Network,
    outbox::{IN_FLIGHT_MAX, Outbox},
    rate::Bucket,
    remember::Remembered,
    switch::{Attachment, Known, Link, Switch},
    tenants::Tenants,
};
use crate::{
    Action, Change, Event, ItemKey, Limits, Outcome, SwitchId,
    pages::ledger::Ledger,
    state::{Memory, StateError},
};

/// Commands in one message.
const COMMANDS_PER_MESSAGE: usize = 512;
/// Keys that a switch may say it holds: bounds what it can make us remember.
const HELD_MAX: usize = 1 << 20;
/// Switches that are remembered.
const SWITCHES_MAX: usize = 4096;
/// A switch heard from within this time is alive, and another that claims its id is refused.
const ALIVE_FOR: Duration = Duration::from_secs(5);
/// A page table or a list of routes that was not confirmed is sent again after this time.
const SEND_AGAIN: Duration = Duration::from_secs(2);

/// What every switch is told, and the bounds of what it is asked.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The cluster file.
    pub cluster: Cluster,
    /// What disciplines keep to.
    pub limits: Limits,
    /// Commands per second and switch.
    pub updates_per_s: u32,
    /// One request in 2^n is counted.
    pub sample_shift: u32,
    /// Of this controller's lead: above that of every controller before it.
    pub term: u64,
}

/// Why a switch's stream is closed.
#[derive(Debug, PartialEq, thiserror::Error)]
pub enum Refusal {
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
    /// The stream was replaced by a newer one of the same switch.
    #[error("a newer stream of this switch replaced this one")]
    Replaced,
}

/// See the module.
pub struct Core {
    pub(super) plan: Plan,
    pub(super) applications: Applications,
    pub(super) tenants: Tenants,
    pub(super) ledger: Ledger,
    pub(super) switches: BTreeMap<SwitchId, Switch>,
    pub(super) journal: Journal,
    pub(super) allocation: Allocation,
    pub(super) network: Network,
    pub(super) audit: Audit,
    /// The time of the last event, and the wall clock's then in milliseconds since 1970.
    pub(super) now: Duration,
    pub(super) clock_ms: u64,
    /// What stores watch has changed since they were told.
    pub(super) cluster_changed: bool,
    next_seq: u64,
    next_generation: u64,
}

impl Core {
    /// Starts from what is remembered. Commands are numbered from `first_seq`, which must be above all
    /// numbers that earlier runs used.
    ///
    /// # Errors
    /// A remembered row that makes no sense, by name.
    pub fn new(
        plan: Plan,
        applications: Applications,
        memory: Memory,
        first_seq: u64,
    ) -> Result<Core, StateError> {
        let remembered = Remembered::read(&memory)?;
        let mut applications = applications;
        let retired = remembered.retired.iter().map(|(id, _)| *id);
        let tenants = Tenants::new(remembered.tenants, retired, &plan.cluster);
        for tenant in tenants.iter() {
            applications.choose(tenant.id, tenant.discipline.as_deref());
        }
        let mut core = Core {
            tenants,
            applications,
            ledger: Ledger::restore(remembered.tables, remembered.pages),
            network: Network::new(remembered.topology, remembered.routes_managed),
            audit: Audit::new(remembered.audit),
            switches: BTreeMap::new(),
            journal: Journal::default(),
            allocation: Allocation::default(),
            now: Duration::ZERO,
            clock_ms: 0,
            cluster_changed: true,
            next_seq: first_seq,
            next_generation: 1,
            plan,
        };
        let switches = remembered.switches;
        let mut items = memory.items;
        for (id, known) in switches {
            let held = Held::new(items.remove(&id).unwrap_or_default());
            let switch = core.new_switch(known, held, Duration::ZERO);
            core.switches.insert(id, switch);
        }
        core.allocation.place_again();
        core.note_changes();
        Ok(core)
    }

    fn new_switch(&self, known: Known, held: Held, now: Duration) -> Switch {
        let outbox = Outbox::new(4 * self.plan.limits.max_items.max(IN_FLIGHT_MAX));
        Switch::new(
            known,
            held,
            outbox,
            Bucket::new(self.plan.updates_per_s, now),
        )
    }

    /// A stream began with this hello.
    ///
    /// # Errors
    /// If the switch cannot be taken.
    pub fn attach(&mut self, now: Duration, hello: &Hello) -> Result<Link, Refusal> {
        let id = SwitchId::try_from(hello.switch_id)
            .ok()
            .filter(|id| *id != 0)
            .ok_or_else(|| {
                Refusal::Invalid(format!(
                    "switch id {}: expected 1 to 65535",
                    hello.switch_id
                ))
            })?;
        if let Some(Switch {
            known,
            attached: Some(a),
            ..
        }) = self.switches.get(&id)
            && known.name != hello.name
            && now < a.heard + ALIVE_FOR
        {
            return Err(Refusal::Taken {
                id,
                name: known.name.clone(),
            });
        }
        if !self.switches.contains_key(&id) {
            if self.switches.len() >= SWITCHES_MAX {
                return Err(Refusal::Invalid(format!(
                    "more than {SWITCHES_MAX} switches"
                )));
            }
            let switch = self.new_switch(Known::default(), Held::default(), now);
            self.switches.insert(id, switch);
        }
        let generation = self.next_generation;
        self.next_generation += 1;
        let switch = self.switches.get_mut(&id).expect("just made");
        let name: String = hello.name.chars().take(256).collect();
        if (&switch.known.name, switch.known.pages) != (&name, hello.pages) {
            (switch.known.name, switch.known.pages) = (name, hello.pages);
            switch.known_dirty = true;
        }
        switch.attached = Some(Attachment {
            generation,
            heard: now,
            telling: Some(Vec::new()),
            greeted: false,
            list_wanted: false,
            setup_sent: None,
            table_sent: None,
            thresholds_sent: BTreeMap::new(),
            routes_sent: None,
        });
        (switch.routes_applied, switch.table_applied) = (None, None);
        let link = Link {
            switch: id,
            generation,
        };
        self.pages_attached(id, hello);
        Ok(link)
    }

    /// A later message of a stream.
    ///
    /// # Errors
    /// If the stream must be closed.
    pub fn message(
        &mut self,
        now: Duration,
        link: Link,
        message: FromSwitch,
    ) -> Result<(), Refusal> {
        let attachment = self.attachment(link).ok_or(Refusal::Replaced)?;
        attachment.heard = now;
        let (greeted, telling) = (attachment.greeted, attachment.telling.is_some());
        use from_switch::Body;
        match message.body {
            Some(Body::Held(held)) if telling => {
                self.held(now, link, convert::keys(&held.keys).collect(), held.last)?;
            }
            _ if !greeted => {
                return Err(Refusal::Protocol(
                    "expected more of the keys that the switch holds",
                ));
            }
            Some(Body::Acks(acks)) => self.acks(now, link.switch, &acks),
            Some(Body::Hot(hot)) => self.hot(now, link.switch, &hot),
            Some(Body::Counters(counters)) => self.counters(now, link, &counters),
            Some(Body::Dropped(dropped)) => self.dropped(now, link.switch, &dropped),
            Some(Body::Pages(applied)) => self.pages_applied(now, link.switch, applied),
            Some(Body::Interfaces(interfaces)) => self.interfaces(link.switch, &interfaces),
            Some(Body::Routes(applied)) => self.routes_applied(link.switch, applied),
            Some(Body::Traffic(traffic)) => self.traffic(link.switch, &traffic),
            Some(Body::Hello(_)) => return Err(Refusal::Protocol("a second hello")),
            Some(Body::Held(_)) => {
                return Err(Refusal::Protocol("held keys that nobody asked for"));
            }
            None => {} // Of a later version: not for us.
        }
        self.note_changes();
        Ok(())
    }

    /// A stream ended.
    pub fn detach(&mut self, now: Duration, link: Link) {
        if self.attachment(link).is_none() {
            return;
        }
        if let Some(switch) = self.switches.get_mut(&link.switch) {
            switch.attached = None;
        }
        self.tell(
            now,
            Event::Detached {
                switch: link.switch,
            },
        );
    }

    /// Time passed; `clock_ms` is in milliseconds since 1970.
    pub fn tick(&mut self, now: Duration, clock_ms: u64) {
        (self.now, self.clock_ms) = (now, clock_ms);
        for switch in self.switches.values_mut() {
            switch.updates.tick(now);
            switch.reports.tick(now);
        }
        self.tell(now, Event::Tick);
        self.end_leases(clock_ms / 1000);
        self.allocate(now);
        self.note_changes();
    }

    /// The next message for a stream, if there is one now.
    pub fn next_message(&mut self, now: Duration, link: Link) -> Option<ToSwitch> {
        if !self.attachment(link)?.greeted {
            return None;
        }
        let body = self
            .next_list(link)
            .or_else(|| self.next_setup(link))
            .or_else(|| self.next_table(now, link))
            .or_else(|| self.next_tuning(link))
            .or_else(|| self.next_routes(now, link))
            .or_else(|| self.next_commands(now, link))?;
        Some(ToSwitch { body: Some(body) })
    }

    fn next_list(&mut self, link: Link) -> Option<to_switch::Body> {
        let attachment = self.attachment(link)?;
        if !std::mem::take(&mut attachment.list_wanted) {
            return None;
        }
        attachment.telling = Some(Vec::new());
        Some(to_switch::Body::ListHeld(ListHeld {}))
    }

    fn next_setup(&mut self, link: Link) -> Option<to_switch::Body> {
        if !self.allocation.setup_is_due(link.switch) {
            let sent = &self.attachment(link)?.setup_sent;
            if sent.is_some() {
                return None;
            }
        }
        // Secrets in it must be as safe as what is told of them.
        if !self.table_is_durable(link.switch) {
            return None;
        }
        let setup = self.setup_of(link.switch);
        self.allocation.setup_made(link.switch);
        let thresholds = setup.tenants.iter().map(|t| (t.tenant, t.hot_threshold));
        let thresholds: BTreeMap<u32, u32> = thresholds.collect();
        let attachment = self.attachment(link)?;
        if attachment.setup_sent.as_ref() == Some(&setup) {
            return None;
        }
        attachment.thresholds_sent = thresholds;
        attachment.setup_sent = Some(setup.clone());
        Some(to_switch::Body::Setup(setup))
    }

    fn next_table(&mut self, now: Duration, link: Link) -> Option<to_switch::Body> {
        let version = self.ledger.owners(link.switch).0;
        let applied = self.switches.get(&link.switch)?.table_applied;
        let confirmed = applied == Some(version);
        let attachment = self.attachment(link)?;
        let again = |at: Duration| !confirmed && at + SEND_AGAIN <= now;
        let sent = attachment.table_sent;
        if sent.is_some_and(|(sent, at)| sent == version && !again(at))
            || !self.table_is_durable(link.switch)
        {
            return None;
        }
        self.attachment(link)?.table_sent = Some((version, now));
        Some(to_switch::Body::Pages(self.table_of(link.switch)))
    }

    fn next_tuning(&mut self, link: Link) -> Option<to_switch::Body> {
        let switch = self.switches.get_mut(&link.switch)?;
        let sent = &mut switch.attached.as_mut()?.thresholds_sent;
        let mut thresholds = vec![];
        for (tenant, sent) in sent {
            if let Some(wanted) = switch.known.thresholds.get(tenant)
                && wanted != sent
            {
                *sent = *wanted;
                thresholds.push(TenantThreshold {
                    tenant: *tenant,
                    hot_threshold: *wanted,
                });
            }
        }
        (!thresholds.is_empty()).then_some(to_switch::Body::Tuning(Tuning { thresholds }))
    }

    fn next_routes(&mut self, now: Duration, link: Link) -> Option<to_switch::Body> {
        let switch = self.switches.get_mut(&link.switch)?;
        let attachment = switch.attached.as_mut()?;
        let version = switch.routes.version;
        let is_late = attachment
            .routes_sent
            .is_none_or(|(sent, at)| sent != version || at + SEND_AGAIN <= now);
        if version == 0 || switch.routes_applied == Some(version) || !is_late {
            return None;
        }
        attachment.routes_sent = Some((version, now));
        Some(to_switch::Body::Routes(switch.routes.clone()))
    }

    /// Commands come after the table that gives them room.
    fn next_commands(&mut self, now: Duration, link: Link) -> Option<to_switch::Body> {
        let version = self.ledger.owners(link.switch).0;
        let switch = self.switches.get_mut(&link.switch)?;
        let sent = switch.attached.as_ref()?.table_sent;
        if sent.is_none_or(|(sent, _)| sent != version) {
            return None;
        }
        let most = switch.bucket.available(now).min(COMMANDS_PER_MESSAGE);
        let commands = switch.outbox.take(now, most, &mut self.next_seq);
        switch.bucket.take(commands.len());
        (!commands.is_empty()).then_some(to_switch::Body::Commands(Commands { commands }))
    }

    /// For people.
    pub fn status(&self, now: Duration, uptime: Duration) -> StatusReply {
        let switches = self.switches.iter().map(|(id, s)| SwitchStatus {
            switch_id: u32::from(*id),
            name: s.known.name.clone(),
            attached: s.is_ready(),
            pages: s.known.pages,
            items: s.held.len() as u64,
            commands_waiting: s.outbox.waiting() as u64,
            commands_in_flight: s.outbox.in_flight() as u64,
            hot_threshold: s.known.thresholds.values().max().copied().unwrap_or(0),
            updates_per_s: s.updates.per_s(now),
            reports_per_s: s.reports.per_s(now),
            counters: self.named_counters(*id, s),
        });
        StatusReply {
            discipline: self.applications.default_name().into(),
            uptime_ms: uptime.as_millis() as u64,
            switches: switches.collect(),
            leading: true,
            term: self.plan.term,
            leader: String::new(),
        }
    }

    fn named_counters(&self, id: SwitchId, switch: &Switch) -> HashMap<String, u64> {
        let own = [
            ("malformed_keys", switch.malformed),
            ("reconciliations", switch.reconciled),
        ];
        let all = self.applications.counters(id).into_iter().chain(own);
        all.map(|(name, n)| (name.to_string(), n)).collect()
    }

    pub(super) fn attachment(&mut self, link: Link) -> Option<&mut Attachment> {
        let attachment = self.switches.get_mut(&link.switch)?.attached.as_mut()?;
        (attachment.generation == link.generation).then_some(attachment)
    }

    /// Keys of a list of what the switch holds; with the last of them what we believed is put right.
    fn held(
        &mut self,
        now: Duration,
        link: Link,
        mut keys: Vec<ItemKey>,
        last: bool,
    ) -> Result<(), Refusal> {
        let attachment = self.attachment(link).ok_or(Refusal::Replaced)?;
        let Some(mut all) = attachment.telling.take() else {
            return Ok(());
        };
        all.append(&mut keys);
        if all.len() > HELD_MAX {
            return Err(Refusal::Invalid(format!(
                "the switch holds more than {HELD_MAX} keys"
            )));
        }
        if !last {
            attachment.telling = Some(all);
            return Ok(());
        }
        let greeting = !std::mem::replace(&mut attachment.greeted, true);
        let switch = self.switches.get_mut(&link.switch).expect("attached");
        let (held, lost) = switch.held.replace(all);
        if greeting {
            switch.outbox.reconnected();
            self.route_attached();
            self.allocate(now);
        }
        let event = Event::Attached {
            switch: link.switch,
            held: &held,
            lost: &lost,
        };
        self.tell(now, event);
        self.note_changes();
        Ok(())
    }

    fn acks(&mut self, now: Duration, id: SwitchId, acks: &Acks) {
        for ack in &acks.acks {
            let Some(switch) = self.switches.get_mut(&id) else {
                return;
            };
            let Some((change, key)) = switch.outbox.answered(ack.seq) else {
                continue;
            };
            let outcome = convert::outcome(ack.outcome);
            match (change, outcome) {
                (Change::Insert, Outcome::Done) => switch.held.insert(key.clone()),
                _ => switch.held.remove(&key),
            }
            if outcome == Outcome::Done {
                switch.updates.add(1);
            }
            self.tell(
                now,
                Event::Answered {
                    switch: id,
                    change,
                    key: &key,
                    outcome,
                },
            );
        }
    }

    fn hot(&mut self, now: Duration, id: SwitchId, hot: &HotReports) {
        let keys = self.well_formed(id, convert::counted(&hot.keys), hot.keys.len());
        if let Some(switch) = self.switches.get_mut(&id) {
            switch.reports.add(keys.len() as u64);
        }
        self.tell(
            now,
            Event::Hot {
                switch: id,
                window: hot.window,
                keys: &keys,
            },
        );
    }

    fn counters(&mut self, now: Duration, link: Link, counters: &Counters) {
        let id = link.switch;
        let items = self.well_formed(id, convert::counted(&counters.items), counters.items.len());
        if let Some(switch) = self.switches.get_mut(&id) {
            switch.see_pages(counters.window, &counters.pages);
            let tenants = counters.tenants.iter();
            switch.fragmentation = tenants.map(|t| (t.tenant, t.fragmentation)).collect();
            let ours = switch.held.digest();
            let differs = counters
                .held
                .is_some_and(|theirs| (theirs.count, theirs.sum) != (ours.count, ours.sum));
            if let Some(attachment) = &mut switch.attached
                && differs
                && attachment.telling.is_none()
            {
                attachment.list_wanted = true;
                switch.reconciled += 1;
                tracing::info!(
                    switch = id,
                    "holds other items than believed: asking for a list"
                );
            }
        }
        self.age_traffic(id);
        self.tell(
            now,
            Event::WindowEnd {
                switch: id,
                window: counters.window,
                items: &items,
            },
        );
    }

    fn dropped(&mut self, now: Duration, id: SwitchId, dropped: &Dropped) {
        let keys: Vec<ItemKey> = convert::keys(&dropped.keys).collect();
        if let Some(switch) = self.switches.get_mut(&id) {
            keys.iter().for_each(|key| switch.held.remove(key));
        }
        self.tell(
            now,
            Event::Dropped {
                switch: id,
                keys: &keys,
            },
        );
    }

    /// Leaves keys of tenants out that we do not serve; counts what was left out, of `sent`.
    fn well_formed(
        &mut self,
        id: SwitchId,
        mut keys: Vec<(ItemKey, u64)>,
        sent: usize,
    ) -> Vec<(ItemKey, u64)> {
        keys.retain(|(key, _)| self.tenants.get(key.tenant).is_some());
        if let Some(switch) = self.switches.get_mut(&id) {
            switch.malformed += (sent - keys.len()) as u64;
        }
        keys
    }

    /// Tells the disciplines, and carries out what they want.
    pub(super) fn tell(&mut self, now: Duration, event: Event<'_>) {
        let mut actions = Vec::new();
        self.applications.tell(now, event, &mut actions);
        let mut not_sent = Vec::new();
        self.carry_out(actions, &mut not_sent);
        for (switch, change, key) in not_sent {
            let mut actions = Vec::new();
            let event = Event::Answered {
                switch,
                change,
                key: &key,
                outcome: Outcome::NotSent,
            };
            self.applications.tell(now, event, &mut actions);
            debug_assert!(
                actions.is_empty(),
                "nothing may be asked for in answer to NotSent"
            );
        }
    }

    fn carry_out(&mut self, actions: Vec<Action>, not_sent: &mut Vec<(SwitchId, Change, ItemKey)>) {
        for action in actions {
            match action {
                Action::Change {
                    switch: id,
                    change,
                    key,
                } => {
                    let Some(switch) = self.switches.get_mut(&id) else {
                        continue;
                    };
                    if !switch.outbox.push(change, key.clone()) {
                        not_sent.push((id, change, key));
                    }
                }
                Action::Threshold {
                    switch: id,
                    tenant,
                    requests,
                } => {
                    let Some(switch) = self.switches.get_mut(&id) else {
                        continue;
                    };
                    let before = switch.known.thresholds.insert(tenant, requests);
                    switch.known_dirty |= before != Some(requests);
                }
            }
        }
    }
}

impl Core {
    /// Items that came or went since the last call.
    pub(super) fn take_items(&mut self) -> Vec<(SwitchId, ItemKey, bool)> {
        let of = |(id, switch): (&SwitchId, &mut Switch)| {
            let id = *id;
            let changed = switch.held.take_changed();
            changed.into_iter().map(move |(key, held)| (id, key, held))
        };
        self.switches.iter_mut().flat_map(of).collect()
    }

    /// Items could not be written: they belong to the next ones.
    pub(super) fn put_items_back(&mut self, items: Vec<(SwitchId, ItemKey, bool)>) {
        for (id, key, _) in items {
            if let Some(switch) = self.switches.get_mut(&id) {
                switch.held.put_back(key);
            }
        }
    }

    /// The cluster file as stores are to have it: with all tenants.
    pub(super) fn cluster_text(&self) -> String {
        self.tenants.cluster(&self.plan.cluster, |_| true).to_toml()
    }
}

#[cfg(test)]
#[path = "core_tests.rs"]
mod tests;
