//! The controller without its sockets: messages of switches in, messages to switches out.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    time::Duration,
};

use super::{
    convert,
    outbox::{IN_FLIGHT_MAX, Outbox},
    rate::{Bucket, Rate},
    state::{Batch, Known, Memory},
};
use crate::{
    Action, Change, Discipline, Event, ItemKey, Limits, Outcome, SwitchId,
    proto::{
        Acks, Commands, Counters, Dropped, FromSwitch, Hello, HotReports, Setup, StatusReply,
        SwitchStatus, TenantSetup, TenantThreshold, ToSwitch, Tuning, from_switch, to_switch,
    },
};

/// Commands in one message.
const COMMANDS_PER_MESSAGE: usize = 512;
/// Keys that a switch may say it holds: bounds what a hello can make us remember.
const HELD_MAX: usize = 1 << 20;
/// Switches that are remembered.
const SWITCHES_MAX: usize = 4096;
/// A switch heard from within this time is alive, and another that claims its id is refused.
const ALIVE_FOR: Duration = Duration::from_secs(5);

/// What every switch is told, and the bounds of what it is asked.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The cluster file's text.
    pub cluster: String,
    /// Tenants that the switches serve.
    pub tenants: Vec<u32>,
    /// Name of the discipline.
    pub discipline: String,
    /// What the discipline keeps to.
    pub limits: Limits,
    /// Commands per second and switch.
    pub updates_per_s: u32,
    /// One request in 2^n is counted.
    pub sample_shift: u32,
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

/// A stream of a switch; a newer one of the same switch makes it void.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Link {
    /// The switch.
    pub switch: SwitchId,
    generation: u64,
}

struct Attachment {
    generation: u64,
    heard: Duration,
    /// Keys of the hello, until the last of them came.
    hello: Option<Vec<ItemKey>>,
    setup_sent: bool,
    threshold_sent: u32,
}

struct Switch {
    known: Known,
    known_dirty: bool,
    attached: Option<Attachment>,
    /// What it is believed to hold.
    held: HashSet<ItemKey>,
    held_dirty: HashSet<ItemKey>,
    outbox: Outbox,
    bucket: Bucket,
    updates: Rate,
    reports: Rate,
    malformed: u64,
}

/// See the module.
pub struct Core {
    plan: Plan,
    discipline: Box<dyn Discipline>,
    switches: BTreeMap<SwitchId, Switch>,
    next_seq: u64,
    next_generation: u64,
}

impl Core {
    /// Starts from what is remembered. Commands are numbered from `first_seq`, which must be above all
    /// numbers that earlier runs used.
    pub fn new(
        plan: Plan,
        discipline: Box<dyn Discipline>,
        memory: Memory,
        first_seq: u64,
    ) -> Core {
        let mut core = Core {
            plan,
            discipline,
            switches: BTreeMap::new(),
            next_seq: first_seq,
            next_generation: 1,
        };
        let Memory {
            switches,
            mut items,
        } = memory;
        for (id, known) in switches {
            let mut switch = core.new_switch(known, Duration::ZERO);
            switch.held = items.remove(&id).unwrap_or_default();
            core.switches.insert(id, switch);
        }
        core
    }

    fn new_switch(&self, known: Known, now: Duration) -> Switch {
        Switch {
            known,
            known_dirty: false,
            attached: None,
            held: HashSet::new(),
            held_dirty: HashSet::new(),
            outbox: Outbox::new(4 * self.plan.limits.max_items.max(IN_FLIGHT_MAX)),
            bucket: Bucket::new(self.plan.updates_per_s, now),
            updates: Rate::default(),
            reports: Rate::default(),
            malformed: 0,
        }
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
            let switch = self.new_switch(Known::default(), now);
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
            hello: Some(Vec::new()),
            setup_sent: false,
            threshold_sent: 0,
        });
        let link = Link {
            switch: id,
            generation,
        };
        self.held(
            now,
            link,
            convert::keys(&hello.held).collect(),
            !hello.held_follows,
        )?;
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
        let greeting = attachment.hello.is_some();
        use from_switch::Body;
        match message.body {
            Some(Body::Held(held)) if greeting => {
                self.held(now, link, convert::keys(&held.keys).collect(), held.last)?;
            }
            _ if greeting => {
                return Err(Refusal::Protocol(
                    "expected more of the keys that the switch holds",
                ));
            }
            Some(Body::Acks(acks)) => self.acks(now, link.switch, &acks),
            Some(Body::Hot(hot)) => self.hot(now, link.switch, &hot),
            Some(Body::Counters(counters)) => self.counters(now, link.switch, &counters),
            Some(Body::Dropped(dropped)) => self.dropped(now, link.switch, &dropped),
            Some(Body::Hello(_)) => return Err(Refusal::Protocol("a second hello")),
            Some(Body::Held(_)) => {
                return Err(Refusal::Protocol("held keys after the last of them"));
            }
            Some(_) => {}
            None => {} // Of a later version: not for us.
        }
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

    /// Time passed.
    pub fn tick(&mut self, now: Duration) {
        for switch in self.switches.values_mut() {
            switch.updates.tick(now);
            switch.reports.tick(now);
        }
        self.tell(now, Event::Tick);
    }

    /// The next message for a stream, if there is one now.
    pub fn next_message(&mut self, now: Duration, link: Link) -> Option<ToSwitch> {
        self.attachment(link)?;
        let switch = self.switches.get_mut(&link.switch)?;
        let attachment = switch.attached.as_mut()?;
        if attachment.hello.is_some() {
            return None;
        }
        let threshold = switch.known.threshold.max(1);
        if !attachment.setup_sent {
            attachment.setup_sent = true;
            attachment.threshold_sent = threshold;
            let setup = setup(&self.plan, switch.known.pages, threshold);
            return Some(ToSwitch {
                body: Some(to_switch::Body::Setup(setup)),
            });
        }
        if attachment.threshold_sent != threshold {
            attachment.threshold_sent = threshold;
            let threshold = |tenant: &u32| TenantThreshold {
                tenant: *tenant,
                hot_threshold: threshold,
            };
            let tuning = Tuning {
                thresholds: self.plan.tenants.iter().map(threshold).collect(),
            };
            return Some(ToSwitch {
                body: Some(to_switch::Body::Tuning(tuning)),
            });
        }
        let most = switch.bucket.available(now).min(COMMANDS_PER_MESSAGE);
        let commands = switch.outbox.take(now, most, &mut self.next_seq);
        switch.bucket.take(commands.len());
        (!commands.is_empty()).then(|| ToSwitch {
            body: Some(to_switch::Body::Commands(Commands { commands })),
        })
    }

    /// What changed since the last call, to be remembered.
    pub fn take_changes(&mut self) -> Batch {
        let mut batch = Batch::default();
        for (id, switch) in &mut self.switches {
            if std::mem::take(&mut switch.known_dirty) {
                batch.switches.push((*id, switch.known.clone()));
            }
            for key in std::mem::take(&mut switch.held_dirty) {
                let held = switch.held.contains(&key);
                batch.items.push((*id, key, held));
            }
        }
        batch
    }

    /// A batch could not be written: it belongs to the next one.
    pub fn put_changes_back(&mut self, batch: Batch) {
        for (id, _) in batch.switches {
            self.switches.entry(id).and_modify(|s| s.known_dirty = true);
        }
        for (id, key, _) in batch.items {
            self.switches.entry(id).and_modify(|s| {
                s.held_dirty.insert(key);
            });
        }
    }

    /// For people.
    pub fn status(&self, now: Duration, uptime: Duration) -> StatusReply {
        let switches = self.switches.iter().map(|(id, s)| SwitchStatus {
            switch_id: u32::from(*id),
            name: s.known.name.clone(),
            attached: s.attached.is_some(),
            pages: s.known.pages,
            items: s.held.len() as u64,
            commands_waiting: s.outbox.waiting() as u64,
            commands_in_flight: s.outbox.in_flight() as u64,
            hot_threshold: s.known.threshold,
            updates_per_s: s.updates.per_s(now),
            reports_per_s: s.reports.per_s(now),
            counters: self.named_counters(*id, s),
        });
        StatusReply {
            discipline: self.plan.discipline.clone(),
            uptime_ms: uptime.as_millis() as u64,
            switches: switches.collect(),
        }
    }

    fn named_counters(&self, id: SwitchId, switch: &Switch) -> HashMap<String, u64> {
        let own = self
            .discipline
            .counters(id)
            .into_iter()
            .chain([("malformed_keys", switch.malformed)]);
        own.map(|(name, n)| (name.to_string(), n)).collect()
    }

    fn attachment(&mut self, link: Link) -> Option<&mut Attachment> {
        let attachment = self.switches.get_mut(&link.switch)?.attached.as_mut()?;
        (attachment.generation == link.generation).then_some(attachment)
    }

    /// Keys of the hello; with the last of them the switch counts as attached.
    fn held(
        &mut self,
        now: Duration,
        link: Link,
        mut keys: Vec<ItemKey>,
        last: bool,
    ) -> Result<(), Refusal> {
        let attachment = self.attachment(link).ok_or(Refusal::Replaced)?;
        let Some(mut all) = attachment.hello.take() else {
            return Ok(());
        };
        all.append(&mut keys);
        if all.len() > HELD_MAX {
            return Err(Refusal::Invalid(format!(
                "the switch holds more than {HELD_MAX} keys"
            )));
        }
        if !last {
            attachment.hello = Some(all);
            return Ok(());
        }
        let switch = self.switches.get_mut(&link.switch).expect("attached");
        let now_held: HashSet<ItemKey> = all.into_iter().collect();
        let mut lost: Vec<ItemKey> = switch.held.difference(&now_held).cloned().collect();
        lost.sort();
        let mut held: Vec<ItemKey> = now_held.iter().cloned().collect();
        held.sort();
        switch.held_dirty.extend(lost.iter().cloned());
        switch
            .held_dirty
            .extend(now_held.difference(&switch.held).cloned());
        switch.held = now_held;
        switch.outbox.reconnected();
        let switch = link.switch;
        self.tell(
            now,
            Event::Attached {
                switch,
                held: &held,
                lost: &lost,
            },
        );
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
            let changed = match (change, outcome) {
                (Change::Insert, Outcome::Done) => switch.held.insert(key.clone()),
                _ => switch.held.remove(&key),
            };
            if changed {
                switch.held_dirty.insert(key.clone());
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

    fn counters(&mut self, now: Duration, id: SwitchId, counters: &Counters) {
        let items = self.well_formed(id, convert::counted(&counters.items), counters.items.len());
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
            for key in &keys {
                if switch.held.remove(key) {
                    switch.held_dirty.insert(key.clone());
                }
            }
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
        keys.retain(|(key, _)| self.plan.tenants.contains(&key.tenant));
        if let Some(switch) = self.switches.get_mut(&id) {
            switch.malformed += (sent - keys.len()) as u64;
        }
        keys
    }

    /// Tells the discipline, and carries out what it wants.
    fn tell(&mut self, now: Duration, event: Event<'_>) {
        let mut actions = Vec::new();
        self.discipline.on(now, event, &mut actions);
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
            self.discipline.on(now, event, &mut actions);
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
                    tenant: _,
                    requests,
                } => {
                    let Some(switch) = self.switches.get_mut(&id) else {
                        continue;
                    };
                    switch.known_dirty |= switch.known.threshold != requests;
                    switch.known.threshold = requests;
                }
            }
        }
    }
}

/// The setup of a switch.
fn setup(plan: &Plan, _pages: u32, threshold: u32) -> Setup {
    let tenants = plan.tenants.iter().map(|&tenant| TenantSetup {
        tenant,
        discipline: plan.discipline.clone(),
        hot_threshold: threshold,
        measured: false,
    });
    Setup {
        cluster: plan.cluster.clone(),
        tenants: tenants.collect(),
        window_ms: plan.limits.window_ms,
        sample_shift: plan.sample_shift,
        term: 0,
    }
}
