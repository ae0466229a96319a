//! What may happen next in a world, and what must be so.

use stateright::{Model, Property, semantics::ConsistencyTester};

use super::{
    bounds::now_ns,
    key::Call,
    packets,
    world::{Client, State, Stop, World},
};

/// What must be so in every state.
pub const ALWAYS: [&str; 4] = [
    "linearizable",
    "no write is there twice",
    "what a member lacks can be sent",
    "relaxed reads are as new as what was answered before",
];
/// What must be so in one.
pub const SOMETIMES: [&str; 2] = ["all are answered", "the last arrangement answers"];

/// What may happen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// A client begins its next operation: it sends it to that switch, as that view says.
    Begin { client: usize, view: u8, switch: u8, until: Stop },
    /// It sends the one that it waits for again.
    Again { client: usize, view: u8, switch: u8, until: Stop },
    /// A packet that set out arrives.
    Arrive { packet: u32, until: Stop },
    /// A run that stopped in the midst of a packet goes on.
    GoOn { switch: u8 },
    /// The agent of a switch makes the key's item.
    Insert { switch: u8 },
    /// A switch gets the row of that view.
    Configure { switch: u8, view: u8 },
    /// Two switches confirm their view to each other, if it is the same.
    Confirm { from: u8, to: u8 },
    /// A switch's agent looks at all that is there.
    Look { switch: u8 },
    /// Time passes.
    Pass,
}

impl World {
    fn of_clients(&self, state: &State, actions: &mut Vec<Action>) {
        for (client, at) in state.clients.iter().enumerate() {
            let is_over = usize::from(at.begun) == self.bounds.scripts[client].len();
            if if at.waits { at.retries == 0 } else { is_over } {
                continue;
            }
            let operation = at.begun - u8::from(at.waits);
            let call = self.call(client, operation);
            for view in self.known(state) {
                for &switch in self.targets(call, view) {
                    let packet = self.request(client, operation, view, switch);
                    let moments = self.moments(state, packet).into_iter();
                    actions.extend(moments.map(|until| match at.waits {
                        true => Action::Again { client, view, switch, until },
                        false => Action::Begin { client, view, switch, until },
                    }));
                }
            }
        }
    }

    fn of_network(&self, state: &State, actions: &mut Vec<Action>) {
        for &packet in &state.flying {
            let moments = self.moments(state, packet).into_iter();
            actions.extend(moments.map(|until| Action::Arrive { packet, until }));
        }
    }

    fn of_switches(&self, state: &State, actions: &mut Vec<Action>) {
        for site in &state.sites {
            let from = site.switch;
            if site.stopped.is_some() {
                actions.push(Action::GoOn { switch: from });
            }
            if self.may_insert(state, site) {
                actions.push(Action::Insert { switch: from });
            }
            if let Some(view) = self.next_view(state, from) {
                actions.push(Action::Configure { switch: from, view });
            }
            if self.fills(*site) || self.bounds.asks {
                actions.push(Action::Look { switch: from });
            }
            // Who begins makes no difference among those of the same view.
            let others = state.sites.iter().filter(|to| {
                let is_other = to.switch > from || to.switch < from && to.view != site.view;
                is_other && site.view.is_some() && to.view.is_some()
            });
            actions.extend(others.map(|to| Action::Confirm { from, to: to.switch }));
        }
        // A run takes no time that a lease would notice.
        let is_any_stopped = state.sites.iter().any(|site| site.stopped.is_some());
        if state.step < self.bounds.steps && !is_any_stopped {
            actions.push(Action::Pass);
        }
    }
}

impl Model for World {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![self.begin()]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        self.of_clients(state, actions);
        self.of_network(state, actions);
        self.of_switches(state, actions);
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Begin { client, view, switch, until } => {
                let at = &mut state.clients[client];
                let call = self.call(client, at.begun);
                (at.begun, at.waits) = (at.begun + 1, true);
                at.retries = self.bounds.retries[client];
                if call == Call::Relaxed {
                    at.floor = state.told;
                } else {
                    let begun = state.history.on_invoke(client, call);
                    begun.expect("it did not wait");
                }
                self.send(&mut state, client, view, switch, until);
            }
            Action::Again { client, view, switch, until } => {
                state.clients[client].retries -= 1;
                self.send(&mut state, client, view, switch, until);
            }
            Action::Arrive { packet, until } => self.arrive(&mut state, packet, until),
            Action::GoOn { switch } => self.go_on(&mut state, switch),
            Action::Insert { switch } => self.insert(&mut state.sites[usize::from(switch)]),
            Action::Configure { switch, view } => {
                state.sites[usize::from(switch)].view = Some(view)
            }
            Action::Confirm { from, to } => {
                let [mut a, mut b] = [from, to].map(|switch| state.sites[usize::from(switch)]);
                self.switches().confirm(&mut a, &mut b, now_ns(state.step));
                state.sites[usize::from(from)] = a;
                state.sites[usize::from(to)] = b;
            }
            Action::Look { switch } => {
                let site = state.sites[usize::from(switch)];
                let sent = self.switches().agent(site, now_ns(state.step));
                for packet in sent {
                    self.fly(&mut state, packet);
                }
            }
            Action::Pass => state.step += 1,
        }
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(ALWAYS[0], |_, state: &State| state.is_linearizable),
            Property::always(ALWAYS[1], |world: &World, state: &State| {
                let mut switches = world.switches();
                let mut sites = state.sites.iter().filter(|site| site.stopped.is_none());
                !sites.any(|site| switches.look(site.tables).twice)
            }),
            Property::always(ALWAYS[2], World::can_send),
            Property::always(ALWAYS[3], |_, state: &State| state.is_new_enough),
            Property::sometimes(SOMETIMES[0], |world: &World, state: &State| {
                let is_over = |(at, script): (&Client, &&[Call])| {
                    !at.waits && usize::from(at.begun) == script.len()
                };
                state.clients.iter().zip(world.bounds.scripts).all(is_over)
            }),
            Property::sometimes(SOMETIMES[1], |_, state: &State| state.answered_last),
        ]
    }

    fn format_action(&self, action: &Action) -> String {
        let Action::Arrive { packet, until } = action else {
            return format!("{action:?}");
        };
        let switches = self.switches();
        let to = switches.destination(*packet);
        let until = until.map_or(String::new(), |moment| format!(" until moment {moment}"));
        format!("{to:?} gets{until} {}", packets::said(&switches.frame(*packet)))
    }
}
