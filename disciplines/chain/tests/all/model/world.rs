//! A world: its switches, what is in flight, its clients.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard},
};

use chain::view::View;
use dataplane::native::Mutant;
use stateright::semantics::{ConsistencyTester, LinearizabilityTester};

use super::{
    bounds::{Bounds, SETTLED_NS, now_ns},
    key::{Call, Key, Return},
    packets::{self, Destination},
    switches::{Site, Switches},
};

/// A client between or within its operations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Client {
    pub begun: u8,
    pub waits: bool,
    /// How often it may send the present operation again.
    pub retries: u8,
    /// The newest version that anybody had been told of when a relaxed read began.
    pub floor: u64,
}

/// A state of the world.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    pub step: u8,
    pub sites: Vec<Site>,
    /// Numbers of packets that set out and may arrive, again and again, sorted.
    pub flying: Vec<u32>,
    pub clients: Vec<Client>,
    pub history: LinearizabilityTester<usize, Key>,
    pub is_linearizable: bool,
    /// The newest version that a client was told of, where one reads relaxed; its own reads apart.
    pub told: u64,
    /// What relaxed reads told was written by somebody, and no older than that was as they began.
    pub is_new_enough: bool,
    /// A client was answered under the last arrangement.
    pub answered_last: bool,
    /// How many runs have stopped in the midst of a packet.
    pub stops: u8,
}

/// A packet's way through a switch: in one piece, or until a moment at which its CPU stands still
/// and others go on.
pub type Stop = Option<u16>;

pub struct World {
    pub bounds: Bounds,
    views: Vec<View>,
    switches: Mutex<Switches>,
    /// What clients send: by client, operation, view and switch.
    requests: Mutex<HashMap<(usize, u8, u8, u8), u32>>,
}

impl World {
    pub fn new(bounds: Bounds, mutant: Option<&Mutant>) -> World {
        let views = bounds.views();
        let (count, clients) = (bounds.switches().into(), bounds.sessions());
        let switches = Switches::new(&views, count, clients, bounds.shift, mutant);
        World { bounds, views, switches: Mutex::new(switches), requests: Mutex::default() }
    }

    pub fn switches(&self) -> MutexGuard<'_, Switches> {
        self.switches.lock().expect("nobody panicked with it")
    }

    /// Where everything begins: the first members have leases of each other, and hold nothing.
    pub fn begin(&self) -> State {
        let mut switches = self.switches();
        let first = self.arranged(0);
        let site = |switch| Site {
            switch,
            view: first.contains(&switch).then_some(0),
            tables: switches.fresh(first.contains(&switch)),
            stopped: None,
        };
        let mut sites: Vec<Site> = (0..self.bounds.switches()).map(site).collect();
        for b in 0..sites.len() {
            let (before, rest) = sites.split_at_mut(b);
            for a in before {
                switches.confirm(a, &mut rest[0], SETTLED_NS);
            }
        }
        if self.bounds.absent {
            for site in &mut sites {
                site.tables = switches.with_key(site.tables, false);
            }
        }
        State {
            step: 0,
            stops: 0,
            sites,
            flying: vec![],
            clients: vec![Client::default(); self.bounds.scripts.len()],
            history: LinearizabilityTester::new(Key::default()),
            is_linearizable: true,
            told: 0,
            is_new_enough: true,
            answered_last: false,
        }
    }

    fn arranged(&self, view: u8) -> &'static [u8] {
        self.bounds.arrangements[usize::from(view)].0
    }

    /// Where a client may send an operation.
    pub fn targets(&self, call: Call, view: u8) -> &'static [u8] {
        match call {
            Call::Read | Call::Relaxed => self.arranged(view),
            _ => &self.arranged(view)[..1],
        }
    }

    pub fn call(&self, client: usize, operation: u8) -> Call {
        self.bounds.scripts[client][usize::from(operation)]
    }

    /// Whether the last one of a switch's view is to be filled.
    pub fn fills(&self, site: Site) -> bool {
        let filling = |view: u8| self.bounds.arrangements[usize::from(view)].1;
        site.view.is_some_and(filling)
    }

    /// The views that anybody may know of by now.
    pub fn known(&self, state: &State) -> std::ops::RangeInclusive<u8> {
        let newest = state.sites.iter().filter_map(|site| site.view).max();
        0..=newest.expect("somebody has one")
    }

    /// The next view of a switch, once the tails before it are filled.
    pub fn next_view(&self, state: &State, switch: u8) -> Option<u8> {
        let from = state.sites[usize::from(switch)].view.map_or(0, |view| view + 1);
        let mut later = from..self.views.len() as u8;
        let view = later.find(|view| self.arranged(*view).contains(&switch))?;
        let is_filled = |before: u8| {
            let (switches, filling) = self.bounds.arrangements[usize::from(before)];
            let tail = state.sites[usize::from(switches[switches.len() - 1])];
            let number = self.views[usize::from(before)].number;
            !filling || self.switches().look(tail.tables).filled >= number
        };
        (0..view).all(is_filled).then_some(view)
    }

    /// Whether anybody still looks at the packet.
    fn matters(&self, state: &State, packet: u32) -> bool {
        match self.destination(packet) {
            None => false,
            Some(Destination::Switch { reads: None, .. }) => true,
            Some(
                Destination::Client { client, operation, .. }
                | Destination::Switch { reads: Some((client, operation)), .. },
            ) => {
                let at = &state.clients[client];
                at.waits && operation + 1 == usize::from(at.begun)
            }
        }
    }

    /// A packet sets out. The way to a client who will not ask again takes no time: what he is told
    /// late says less.
    pub fn fly(&self, state: &mut State, packet: u32) {
        if !self.matters(state, packet) {
            return;
        }
        if let Some(Destination::Client { client, .. }) = self.destination(packet)
            && state.clients[client].retries == 0
        {
            return self.arrive(state, packet, None);
        }
        if let Err(at) = state.flying.binary_search(&packet) {
            state.flying.insert(at, packet);
        }
    }

    fn destination(&self, packet: u32) -> Option<Destination> {
        self.switches().destination(packet)
    }

    /// What a client sends for the operation that is its next, or that it waits for.
    pub fn request(&self, client: usize, operation: u8, view: u8, switch: u8) -> u32 {
        let mut requests = self.requests.lock().expect("nobody panicked with it");
        let made = || {
            let (call, of) = (self.call(client, operation), &self.views[usize::from(view)]);
            let frame = packets::request(client, operation.into(), call, of, switch.into());
            self.switches().packet(&frame)
        };
        *requests.entry((client, operation, view, switch)).or_insert_with(made)
    }

    /// A client sends the operation that it waits for. The way to the switch takes no time: it
    /// could as well be sent later. A write may come again later, too.
    pub fn send(&self, state: &mut State, client: usize, view: u8, switch: u8, until: Stop) {
        let operation = state.clients[client].begun - 1;
        let packet = self.request(client, operation, view, switch);
        if !self.call(client, operation).is_read() {
            self.fly(state, packet);
        }
        self.arrive(state, packet, until);
    }

    /// The moments at which a packet's run may stop, and that it need not.
    pub fn moments(&self, state: &State, packet: u32) -> Vec<Stop> {
        let Some(Destination::Switch { switch, .. }) = self.destination(packet) else {
            return vec![None];
        };
        let site = &state.sites[switch];
        if state.stops == self.bounds.stops || site.stopped.is_some() {
            return vec![None];
        }
        let moments = self.switches().moments(site, packet, now_ns(state.step));
        std::iter::once(None).chain((0..moments as u16).map(Some)).collect()
    }

    /// A packet comes to where it goes.
    pub fn arrive(&self, state: &mut State, packet: u32, until: Stop) {
        match self.destination(packet) {
            None => {}
            Some(Destination::Switch { switch, .. }) => {
                let now_ns = now_ns(state.step);
                let site = &mut state.sites[switch];
                let leaves = match until {
                    None => self.switches().deliver(site, packet, now_ns),
                    Some(moment) => {
                        state.stops += 1;
                        self.switches().stop(site, packet, now_ns, moment)
                    }
                };
                self.leave(state, &leaves);
            }
            Some(Destination::Client { client, operation, number, said }) => {
                (state.clients[client].waits, state.clients[client].retries) = (false, 0);
                match self.call(client, operation as u8) {
                    Call::Relaxed => self.told_relaxed(state, client, said),
                    _ => self.told(state, client, said),
                }
                state.answered_last |= self.views.last().is_some_and(|v| v.number == number);
                let mut flying = std::mem::take(&mut state.flying);
                flying.retain(|packet| self.matters(state, *packet));
                state.flying = flying;
            }
        }
    }

    fn told(&self, state: &mut State, client: usize, said: Return) {
        let done = state.history.on_return(client, said);
        done.expect("it waits");
        state.is_linearizable = state.history.serialized_history().is_some();
        if self.bounds.has_relaxed_reads() {
            state.told = state.told.max(said.version());
        }
    }

    /// What a relaxed read is told need not be committed, ever; but nobody was told of anything
    /// newer when it began, and somebody writes it.
    fn told_relaxed(&self, state: &mut State, client: usize, said: Return) {
        let floor = std::mem::take(&mut state.clients[client].floor);
        let is_written = match said {
            Return::Value(Some(value), _) => self.bounds.writes(value),
            _ => true,
        };
        state.is_new_enough &= said.version() >= floor && is_written;
    }

    /// The run that stands still at a switch goes on to its end.
    pub fn go_on(&self, state: &mut State, switch: u8) {
        let site = &mut state.sites[usize::from(switch)];
        let leaves = self.switches().go_on(site, now_ns(state.step));
        self.leave(state, &leaves);
    }

    fn leave(&self, state: &mut State, packets: &[u32]) {
        for packet in packets {
            self.fly(state, *packet);
        }
    }

    /// Whether the key may get its item at a switch: it has none, and the members behind have.
    pub fn may_insert(&self, state: &State, site: &Site) -> bool {
        let Some(view) = site.view else { return false };
        let members = self.arranged(view).iter().rev();
        let behind = members.take_while(|member| **member != site.switch);
        let has = |tables| self.switches().has_key(tables);
        let mut behind = behind.map(|member| state.sites[usize::from(*member)].tables);
        !has(site.tables) && behind.all(has)
    }

    /// The agent of a switch makes the key's item.
    pub fn insert(&self, site: &mut Site) {
        site.tables = self.switches().with_key(site.tables, true);
    }

    /// Rule 8: each member has every version that the next one, of the same view, lacks.
    pub fn can_send(&self, state: &State) -> bool {
        let mut switches = self.switches();
        let mut has = |view: u8, pair: &[u8]| {
            let [from, to] = [pair[0], pair[1]].map(|switch| state.sites[usize::from(switch)]);
            let (has, lacks) = (switches.look(from.tables), switches.look(to.tables));
            [from.view, to.view] != [Some(view); 2] || has.oldest <= lacks.last + 1
        };
        let filled = (0u8..).zip(self.bounds.arrangements).filter(|(_, (_, filling))| !filling);
        let mut filled = filled.map(|(view, (members, _))| (view, members.windows(2)));
        filled.all(|(view, mut pairs)| pairs.all(|pair| has(view, pair)))
    }
}
