//! The one writer of a switch's tables, without a thread, a socket or a clock of its own. Takes
//! messages in turn, and carries values between the parts: what [`Memory`] did is news to
//! [`Filling`] and [`Reporting`], which never write an item.

mod halves;
#[cfg(test)]
mod tests;

use std::time::{Duration, Instant};

use api::{
    convert,
    proto::{
        self, Ack, Acks, Command, Configured, Dropped, FromSwitch, ToSwitch, from_switch::Body,
        to_switch,
    },
};
use dataplane::{Event, KeptPorts, PortNews, Programs, Table, TenantEntry};
use decide::{Change, ItemKey, Outcome, Registration};
use tokio::sync::mpsc::Sender;
use tracing::{info, warn};

use super::{
    AgentError,
    configurations::Configurations,
    courier::{Courier, Requests},
    epoch::Reservation,
    filling::Filling,
    halves::Halves,
    hot::ReportMoment,
    list::HeldList,
    memory::{Memory, News},
    registry,
    reporting::Reporting,
    served::ServedCluster,
    tell::{KEYS_PER_MESSAGE, send, tenant_keys},
};

/// How often counts of hot keys are looked at again.
const FOLLOW_UP: Duration = Duration::from_millis(100);
/// How often leases are looked at; the data plane renews them itself when stores offer to.
const LEASE_CHECK: Duration = Duration::from_millis(200);

/// What every switch's agent is behind its sockets and threads: messages of the controller and the
/// time in, messages to the controller and packets to stores out.
pub struct Tables {
    /// Those whose programs run here.
    disciplines: Vec<&'static Registration>,
    /// The last setup.
    served: Option<ServedCluster>,
    memory: Memory,
    configurations: Configurations,
    filling: Filling,
    requests: Requests,
    halves: Halves,
    reporting: Reporting,
    epochs: Reservation,
    /// Interfaces that are attached again when they are made anew.
    ports: Option<KeptPorts>,
    /// The highest term heard of.
    term: u64,
    /// Length of a statistics window.
    window: Duration,
    /// The time of the last call.
    now: Instant,
    follow_up: Instant,
    window_end: Instant,
    lease_check: Instant,
    list: HeldList,
    /// Nothing was asked in the last window, and nothing was told since.
    is_at_rest: bool,
    /// Something was told in this window.
    was_told: bool,
    out: Sender<FromSwitch>,
}

impl Tables {
    /// Takes over a data plane as an earlier agent left it. What is for the controller goes into
    /// `out`; what that has no room for is left out, and made again later.
    ///
    /// # Errors
    /// If the data plane cannot be reached.
    pub fn open(
        programs: Programs,
        id: u16,
        disciplines: &'static [Registration],
        epochs: Reservation,
        courier: Box<dyn Courier>,
        out: Sender<FromSwitch>,
        now: Instant,
    ) -> Result<Tables, AgentError> {
        let at = programs.backing();
        // Reserved before the first of them is given out.
        let mut epochs = epochs;
        let first = Table::open(&at)?.first_epoch(id, epochs.start());
        epochs.keep_ahead(first)?;
        TenantEntry::look_again(&at)?;
        let memory = Memory::open(&at, id, first)?;
        let mut reporting = Reporting::open(&at)?;
        reporting.begin(memory.next_window());
        let window = Duration::from_secs(1);
        let mut tables = Tables {
            disciplines: registry::that_run(disciplines, &programs),
            served: None,
            memory,
            configurations: Configurations::new(programs, disciplines),
            filling: Filling::open(&at)?,
            requests: Requests::new(courier),
            halves: Halves::new(disciplines, at.clone()),
            reporting,
            epochs,
            ports: None,
            term: 0,
            window,
            now,
            follow_up: now,
            window_end: now + window,
            lease_check: now,
            list: HeldList::default(),
            is_at_rest: false,
            was_told: false,
            out,
        };
        tables.pass_on_news();
        Ok(tables)
    }

    /// From here on these interfaces are attached again whenever they were made anew.
    pub fn keep_attached(&mut self, ports: KeptPorts) {
        self.ports = Some(ports);
    }

    fn look_at_ports(&mut self) -> Result<(), AgentError> {
        let Some(ports) = &mut self.ports else { return Ok(()) };
        let mut is_back = false;
        for news in self.configurations.programs().keep_attached(ports) {
            match news {
                PortNews::Back(_) => {
                    is_back = true;
                    info!("{news}");
                }
                PortNews::Gone(_) | PortNews::Refused(..) => warn!("{news}"),
            }
        }
        match &self.served {
            Some(served) if is_back => self.configurations.set_groups_again(served)?,
            _ => return Ok(()),
        }
        self.tell_halves()
    }

    /// The highest term that a controller's message had; 0: none had one yet.
    pub fn term(&self) -> u64 {
        self.term
    }

    /// Whether nothing has been asked, told or done here in the last window: then a round is due
    /// every [`REST_TICK`](super::REST_TICK).
    pub fn is_at_rest(&self) -> bool {
        self.is_at_rest && self.halves.know_nobody() && self.list.is_told()
    }

    /// One round; due every [`TICK`](super::TICK). Whether packets came for disciplines' halves:
    /// then [`listen`](Tables::listen) is due after [`LISTEN`](super::LISTEN).
    ///
    /// # Errors
    /// If the tables can no longer be served.
    pub fn tick(&mut self, now: Instant) -> Result<bool, AgentError> {
        self.now = now;
        self.look_at_events()?;
        if now >= self.follow_up {
            self.follow_up = now + FOLLOW_UP;
            let window = self.memory.window();
            let memory = &self.memory;
            let hits = |key: &ItemKey| memory.requests_on_probation(key);
            self.reporting.tell_risen(ReportMoment::Doubled, window, hits, &self.out);
        }
        if now >= self.window_end {
            self.window_end = now + self.window;
            self.look_at_ports()?;
            self.configurations.programs().note_interfaces()?;
            self.end_window()?;
        }
        if now >= self.lease_check {
            self.lease_check = now + LEASE_CHECK;
            self.ask_for_leases();
            self.epochs.keep_ahead(self.memory.epoch())?;
        }
        self.fill();
        self.go_on_with_list();
        self.tell_configured();
        let came = self.listen();
        self.tick_halves();
        self.memory.tend_probation(self.served.as_ref());
        self.memory.reuse_resting()?;
        self.memory.give_blanks();
        self.follow_begun();
        Ok(came)
    }

    /// A stream to the controller began: it is told what is held. What was said before is none of
    /// its business, and is best emptied out of the queue first.
    pub fn attached(&mut self) {
        self.list.begin_stream();
        self.go_on_with_list();
    }

    /// Does what the controller says. Routes are not for the tables.
    ///
    /// # Errors
    /// If the tables can no longer be served.
    pub fn take(&mut self, message: ToSwitch, now: Instant) -> Result<(), AgentError> {
        self.now = now;
        self.wake();
        match message.body {
            Some(to_switch::Body::Setup(setup)) => self.set_up(&setup)?,
            Some(to_switch::Body::Commands(commands)) => {
                let acks = self.obey(commands.commands)?;
                // First, or an item that made way for a later one of these commands would be
                // believed to be there.
                send(&self.out, Body::Acks(Acks { acks }));
                self.pass_on_news();
            }
            Some(to_switch::Body::Configurations(configurations)) => {
                self.configure(&configurations)?;
            }
            Some(to_switch::Body::Pages(table)) => self.take_page_table(&table)?,
            Some(to_switch::Body::ListHeld(_)) => self.tell_held(),
            Some(to_switch::Body::Message(message)) => self.tell_half(&message),
            Some(to_switch::Body::Routes(_)) | None => {}
        }
        Ok(())
    }

    fn set_up(&mut self, setup: &proto::Setup) -> Result<(), AgentError> {
        if setup.term < self.term {
            warn!("a controller that does not lead any longer sent a setup: left out");
            return Ok(());
        }
        let cluster = setup.cluster.as_ref().ok_or("it has no cluster".to_owned());
        let cluster = match cluster.and_then(|cluster| convert::cluster(cluster)) {
            Ok(cluster) => cluster,
            Err(e) => {
                warn!("the controller sent a setup that cannot be used, the old one stays: {e}");
                return Ok(());
            }
        };
        self.window = Duration::from_millis(u64::from(setup.window_ms.clamp(100, 60_000)));
        self.term = setup.term;
        self.memory.set_sampling(setup.sample_shift);
        self.filling.set_sampling(setup.sample_shift);
        let slots = self.filling.slots(&cluster);
        let served = ServedCluster::new(cluster, &setup.tenants, slots, &self.disciplines);
        let backing = self.configurations.backing().clone();
        // What programs go by, and not the last setup: an earlier agent may have heard that one.
        let changed = served.with_another_discipline(&TenantEntry::disciplines(&backing)?);
        let waited = self.memory.pages_applied().is_none();
        self.configurations.need(&served)?;
        // What another discipline's programs must not find goes before they are called.
        self.memory.fit(&served, &changed)?;
        self.filling.let_go(&served.slots)?;
        let parameters = self.configurations.parameters(&changed)?;
        TenantEntry::install(&backing, &served.entries(&parameters))?;
        self.configurations.fit(&served, &changed)?;
        self.memory.begin_probation(&backing, &served)?;
        self.reporting.fit(served.tenants.keys().copied())?;
        info!("set up: {} tenants, {} stores", served.tenants.len(), served.slots.len());
        self.served = Some(served);
        self.pass_on_news();
        if waited {
            self.confirm_pages();
        }
        self.tell_halves()?;
        self.tell_configured();
        self.ask_for_leases();
        Ok(())
    }

    /// Removals first: their cells are then free for what is put.
    fn obey(&mut self, commands: Vec<Command>) -> Result<Vec<Ack>, AgentError> {
        let read = |command: Command| Some((command.seq, convert::change(command)?));
        let changes = commands.into_iter().filter_map(read);
        let mut acks = vec![];
        let mut ack = |seq, outcome: Outcome| {
            let outcome = proto::Outcome::from(outcome).into();
            acks.push(Ack { seq, outcome });
        };
        self.memory.look_at_all_blanks(self.served.as_ref());
        let mut puts = vec![];
        for (seq, (key, change)) in changes {
            match change {
                Change::Remove => {
                    self.memory.remove(&key);
                    ack(seq, Outcome::Done);
                }
                Change::RemoveIf(begins) => ack(seq, self.memory.remove_if(&key, &begins)),
                Change::Put(record) => puts.push((seq, key, record)),
            }
        }
        self.memory.begin_batch();
        for (seq, key, record) in puts {
            ack(seq, self.memory.put(&key, &record, self.served.as_ref())?);
        }
        Ok(acks)
    }

    fn configure(&mut self, message: &proto::Configurations) -> Result<(), AgentError> {
        if message.term < self.term {
            warn!("a controller that does not lead any longer sent configurations: left out");
            return Ok(());
        }
        self.configurations.take(message, self.served.as_ref())?;
        self.tell_halves()?;
        self.tell_configured();
        Ok(())
    }

    /// Says which configurations are in force; those that there is no room for are said again.
    fn tell_configured(&mut self) {
        let tenants = self.configurations.untold();
        if !tenants.is_empty() {
            let body = Body::Configured(Configured { tenants: tenants.clone() });
            if send(&self.out, body) {
                self.configurations.told(&tenants);
            }
        }
    }

    fn take_page_table(&mut self, table: &proto::PageTable) -> Result<(), AgentError> {
        if table.term < self.term {
            return Ok(());
        }
        self.term = table.term;
        self.memory.take_page_table(table, self.served.as_ref())?;
        self.pass_on_news();
        self.confirm_pages();
        Ok(())
    }

    /// Says which table is in force; said again with every window, should it be lost.
    fn confirm_pages(&self) {
        if let Some(applied) = self.memory.pages_applied() {
            send(&self.out, Body::Pages(applied));
        }
    }

    /// Lists everything that is held; what the queue has no room for, later.
    fn tell_held(&mut self) {
        self.list.owe();
        self.go_on_with_list();
    }

    fn go_on_with_list(&mut self) {
        let memory = &self.memory;
        self.list.tell(|| memory.keys().cloned().collect(), |key| memory.holds(key), &self.out);
    }

    /// What became of items, to whom it concerns.
    fn pass_on_news(&mut self) {
        let (mut dropped, mut unfit) = (vec![], vec![]);
        for news in self.memory.take_news() {
            match news {
                News::Here { key, place, fetch } => {
                    self.reporting.add(&key);
                    self.list.add(&key);
                    if fetch {
                        self.filling.fetch(key, place, self.now);
                    }
                }
                News::Gone(key) => self.reporting.remove(&key),
                News::Dropped(key) => dropped.push(key),
                News::Unfit(key) => unfit.push(key),
            }
        }
        // One that came back at once, by a command, is not gone.
        dropped.retain(|key| !self.memory.holds(key));
        for part in dropped.chunks(KEYS_PER_MESSAGE) {
            let keys = tenant_keys(part);
            let unfit = vec![];
            send(&self.out, Body::Dropped(Dropped { keys, unfit }));
        }
        for part in unfit.chunks(KEYS_PER_MESSAGE) {
            let (keys, unfit) = (vec![], tenant_keys(part));
            send(&self.out, Body::Dropped(Dropped { keys, unfit }));
        }
    }

    fn wake(&mut self) {
        (self.is_at_rest, self.was_told) = (false, true);
    }

    fn look_at_events(&mut self) -> Result<(), AgentError> {
        let events = self.reporting.events()?;
        if !events.is_empty() {
            self.wake();
        }
        // Items that the events are about began before them.
        self.memory.look_at_all_blanks(self.served.as_ref());
        self.heed(events)
    }

    fn heed(&mut self, events: Vec<Event>) -> Result<(), AgentError> {
        let window_now = self.memory.window();
        let tenants = self.served.as_ref().map_or(0, |s| s.tenants.len());
        let (mut hot, mut too_small) = (vec![], vec![]);
        for event in events {
            match event {
                Event::Hot { tenant, key, window, has_item, .. } => {
                    let key = key.into();
                    let key = ItemKey { tenant, key };
                    // The hash is made anew: what a packet claims could hide an entry from writes.
                    let hash = self.served.as_ref().and_then(|s| s.hash_of(&key));
                    if let Some(hash) = hash
                        && self.memory.holds(&key) == has_item
                        && let Some(count) = self.reporting.hot(&key, hash, window, tenants)
                    {
                        hot.push((key, count));
                    }
                }
                Event::TooLarge { tenant, key, value_len } => {
                    let key = key.into();
                    too_small.push((ItemKey { tenant, key }, usize::from(value_len)));
                }
            }
        }
        self.memory.make_larger(&too_small, self.served.as_ref())?;
        self.pass_on_news();
        self.reporting.tell_hot(&hot, window_now, &self.out);
        Ok(())
    }

    fn end_window(&mut self) -> Result<(), AgentError> {
        let window = self.memory.window();
        let memory = &self.memory;
        let hits = |key: &ItemKey| memory.requests_on_probation(key);
        self.reporting.tell_risen(ReportMoment::AtEnd, window, hits, &self.out);
        let seen = self.memory.end_window();
        self.filling.fetch_missing(&seen.requests, &self.memory, self.now);
        if let Some(served) = &self.served {
            let switch = self.memory.switch_id();
            self.filling.tell_reads(&seen.requests, switch, served, &mut self.requests);
        }
        let window_ms = self.window.as_millis() as u32;
        let asked = seen.requests.iter().any(|(_, requests)| *requests > 0);
        let counted = self.reporting.tell_window(window, window_ms, seen, &self.out)?;
        self.is_at_rest = !asked && !counted && !self.was_told;
        self.was_told = false;
        self.memory.apply_pages(self.served.as_ref())?;
        self.pass_on_news();
        self.confirm_pages();
        self.reporting.tell_traffic(&self.out);
        self.reporting.begin(self.memory.next_window());
        let keys: Vec<ItemKey> = self.memory.on_probation().cloned().collect();
        self.follow(&keys);
        Ok(())
    }

    /// Items on probation are candidates as long as they are not confirmed: their hits are told
    /// with the reads that missed.
    fn follow(&mut self, keys: &[ItemKey]) {
        let Some(served) = &self.served else { return };
        for key in keys {
            if let Some(hash) = served.hash_of(key) {
                self.reporting.follow(key, hash, served.tenants.len());
            }
        }
    }

    fn follow_begun(&mut self) {
        let begun = self.memory.take_begun();
        self.follow(&begun);
    }

    fn ask_for_leases(&mut self) {
        if let Some(served) = &self.served {
            let switch = self.memory.switch_id();
            self.filling.ask_for_leases(switch, served, &mut self.requests);
        }
    }

    fn fill(&mut self) {
        let served = self.served.as_ref();
        let (memory, requests) = (&self.memory, &mut self.requests);
        let without_value = self.filling.send(self.now, memory, served, requests);
        self.memory.give_up_unfit(&without_value);
        self.pass_on_news();
    }
}
