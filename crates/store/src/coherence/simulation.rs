//! The rules against a network that loses, duplicates and reorders: random schedules, and after
//! each read that a switch answers from its copy the question whether a write that was answered
//! before says otherwise.
//!
//! One key, one store, three switches, one lease clock. Switches here follow rules 1, 2, 5 and 6 as
//! a switch does: an entry has an epoch and perhaps a value; a write or an INVALIDATE raises the
//! epoch and drops the value.

use proptest::prelude::*;

use super::*;

const SWITCHES: usize = 3;
const MS: Nanos = 1_000_000;
const LEASE: Nanos = 100 * MS;

/// What is in flight. Values are the numbers of the writes that wrote them.
#[derive(Clone, Debug)]
enum Message {
    /// To the store, through a switch or none: a write of the next value, with the epoch taken on
    /// the way.
    Write { client: usize, request: u64, epoch: Epoch },
    /// To the store: a read through switch X that asks for a grant.
    Fetch(Epoch),
    /// To a switch: a grant.
    Grant { epoch: Epoch, value: u32 },
    /// To a switch.
    Invalidate(Invalidate),
    /// To the store.
    Ack(Epoch),
    /// To the store: a switch's clock when it asked.
    LeaseRequest { switch: SwitchId, sent: Nanos },
    /// To a switch.
    LeaseReply { switch: SwitchId, sent: Nanos, term: u64 },
}

/// One switch's half.
#[derive(Clone, Debug, Default)]
struct Switch {
    /// Rule 1: numbers given out so far.
    last_epoch: u64,
    entry_epoch: u64,
    value: Option<u32>,
    term: u64,
    lease_until: Nanos,
    /// Epochs up to this were taken in an earlier term.
    floor: u64,
}

impl Switch {
    fn take_epoch(&mut self) -> u64 {
        self.last_epoch += 1;
        self.entry_epoch = self.last_epoch;
        self.value = None;
        self.last_epoch
    }

    fn install(&mut self, number: u64, value: u32) {
        if number == self.entry_epoch && number > self.floor {
            self.value = Some(value);
        }
    }

    fn renew(&mut self, now: Nanos, sent: Nanos, term: u64) {
        if sent + LEASE <= now {
            return;
        }
        if term != self.term {
            self.lease_until = 0;
            self.term = term;
            self.floor = self.last_epoch;
            self.take_epoch();
        }
        self.lease_until = self.lease_until.max(sent + LEASE);
    }

    fn serves(&self, now: Nanos) -> Option<u32> {
        self.value.filter(|_| now < self.lease_until && self.entry_epoch > self.floor)
    }
}

struct World {
    now: Nanos,
    store: KeyState<(usize, u64)>,
    leases: Leases<()>,
    windows: [Window<u32>; 2],
    /// The number of the last write applied: the value at the store.
    value: u32,
    /// The highest value that a client has been told is written, or has read.
    known: u32,
    applied: std::collections::HashSet<(usize, u64)>,
    switches: [Switch; SWITCHES],
    flying: Vec<Message>,
}

#[derive(Clone, Debug)]
enum Event {
    /// Client `client` writes through this switch (or none); `again`: it repeats its last request.
    Write {
        client: usize,
        through: usize,
        again: bool,
    },
    Fetch(usize),
    Read(usize),
    Renew(usize),
    Deliver(usize),
    Duplicate(usize),
    Lose(usize),
    Pass(u64),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        3 => (0..2usize, 0..=SWITCHES, any::<bool>())
            .prop_map(|(client, through, again)| Event::Write { client, through, again }),
        4 => (0..SWITCHES).prop_map(Event::Fetch),
        6 => (0..SWITCHES).prop_map(Event::Read),
        2 => (0..SWITCHES).prop_map(Event::Renew),
        16 => any::<usize>().prop_map(Event::Deliver),
        2 => any::<usize>().prop_map(Event::Duplicate),
        1 => any::<usize>().prop_map(Event::Lose),
        3 => (0..40u64).prop_map(Event::Pass),
    ]
}

impl World {
    fn new() -> World {
        World {
            now: 0,
            store: KeyState::default(),
            leases: Leases::new(LEASE, 1),
            windows: Default::default(),
            value: 0,
            known: 0,
            applied: Default::default(),
            switches: Default::default(),
            flying: vec![],
        }
    }

    fn happen(&mut self, event: Event, requests: &mut [u64; 2]) -> Result<(), TestCaseError> {
        match event {
            Event::Write { client, through, again } => {
                requests[client] += u64::from(!again || requests[client] == 0);
                let epoch = match self.switches.get_mut(through) {
                    Some(switch) => Epoch::new(through as u16 + 1, switch.take_epoch()),
                    None => Epoch::NONE,
                };
                self.flying.push(Message::Write { client, request: requests[client], epoch });
            }
            Event::Fetch(at) => {
                let epoch = Epoch::new(at as u16 + 1, self.switches[at].entry_epoch);
                self.flying.push(Message::Fetch(epoch));
            }
            Event::Read(at) => {
                if let Some(value) = self.switches[at].serves(self.now) {
                    prop_assert!(value >= self.known, "read {value}, but {} is known", self.known);
                    self.known = value;
                }
            }
            Event::Renew(at) => {
                let switch = at as u16 + 1;
                self.flying.push(Message::LeaseRequest { switch, sent: self.now });
            }
            Event::Deliver(which) if !self.flying.is_empty() => {
                let which = which % self.flying.len();
                let message = self.flying.swap_remove(which);
                self.deliver(message)?;
            }
            Event::Duplicate(which) if !self.flying.is_empty() => {
                self.flying.push(self.flying[which % self.flying.len()].clone());
            }
            Event::Lose(which) if !self.flying.is_empty() => {
                self.flying.swap_remove(which % self.flying.len());
            }
            Event::Pass(ms) => {
                self.now += ms * MS;
                self.poll()?;
            }
            _ => {}
        }
        Ok(())
    }

    fn deliver(&mut self, message: Message) -> Result<(), TestCaseError> {
        let now = self.now;
        match message {
            Message::Write { client, request, epoch } => {
                if self.windows[client].begin(request, 4) == Verdict::New {
                    let write = Write { told_stores: false, epoch, body: (client, request) };
                    if let Submission::Refused(_) = self.store.submit(write, 3) {
                        self.windows[client].forget(request);
                    }
                    self.poll()?;
                }
            }
            Message::Fetch(epoch) => {
                if self.store.grant(epoch, &self.leases, true, now).is_ok() {
                    self.flying.push(Message::Grant { epoch, value: self.value });
                }
            }
            Message::Grant { epoch, value } => {
                self.switches[usize::from(epoch.switch()) - 1].install(epoch.number(), value);
            }
            Message::Invalidate(Invalidate { switch, .. }) => {
                let number = self.switches[usize::from(switch) - 1].take_epoch();
                self.flying.push(Message::Ack(Epoch::new(switch, number)));
            }
            Message::Ack(epoch) => {
                self.store.prove_invalid(epoch);
                self.poll()?;
            }
            Message::LeaseRequest { switch, sent } => {
                if let LeaseAnswer::Lent { term, .. } = self.leases.request(switch, (), sent, now) {
                    self.flying.push(Message::LeaseReply { switch, sent, term });
                }
            }
            Message::LeaseReply { switch, sent, term } => {
                self.switches[usize::from(switch) - 1].renew(now, sent, term);
            }
        }
        Ok(())
    }

    fn poll(&mut self) -> Result<(), TestCaseError> {
        let mut sent = vec![];
        while self.store.poll(&mut self.leases, self.now, &mut sent) == Step::Apply {
            let Some(Write { epoch, body: (client, request), .. }) = self.store.applied(0) else {
                break;
            };
            prop_assert!(self.applied.insert((client, request)), "applied twice");
            self.value += 1;
            self.known = self.value;
            self.windows[client].finish(request, self.value);
            if self.store.grant(epoch, &self.leases, true, self.now).is_ok() {
                self.flying.push(Message::Grant { epoch, value: self.value });
            }
        }
        self.flying.extend(sent.into_iter().map(Message::Invalidate));
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn no_stale_value_is_ever_served(events in prop::collection::vec(event(), 1..400)) {
        let mut world = World::new();
        let mut requests = [0; 2];
        for event in events {
            world.happen(event, &mut requests)?;
        }
    }
}

/// The simulation must be able to fail: copies are served in it, writes wait, leases lapse.
#[test]
fn the_simulation_exercises_what_it_checks() {
    let mut world = World::new();
    let mut requests = [0; 2];
    let mut run = |events: &[Event]| {
        for event in events {
            world.happen(event.clone(), &mut requests).unwrap();
        }
        (world.switches[0].serves(world.now), world.value)
    };
    let (renew, first) = (Event::Renew(0), Event::Deliver(0));
    let lent = run(&[renew, first.clone(), first.clone()]);
    assert_eq!(lent, (None, 0));
    assert_eq!(
        run(&[Event::Fetch(0), first.clone(), first.clone()]),
        (Some(0), 0),
        "a copy is served"
    );
    let around = Event::Write { client: 0, through: SWITCHES, again: false };
    assert_eq!(run(&[around, first.clone()]), (Some(0), 0), "the write waits for it");
    assert_eq!(run(&[first.clone(), first]), (None, 1), "invalidated, acknowledged, applied");
}
