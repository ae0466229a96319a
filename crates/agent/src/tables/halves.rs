//! What the halves of disciplines are told.

use api::proto::{HalfAck, HalfMessage, from_switch::Body};

use super::Tables;
use crate::{
    AgentError,
    halves::{Halves, Switch},
    tell::send,
};

impl Tables {
    /// The halves with what they work with, once there is a setup.
    fn halves(&mut self) -> Option<(&mut Halves, Switch<'_>)> {
        let switch = Switch {
            memory: &self.memory,
            served: self.served.as_ref()?,
            configurations: &self.configurations,
            requests: &mut self.requests,
            out: &self.out,
        };
        Some((&mut self.halves, switch))
    }

    /// What was carried out is told once no program goes by what was before, where a half relies
    /// on it.
    pub(super) fn tell_halves(&mut self) -> Result<(), AgentError> {
        let changed = self.configurations.take_carried_out();
        let Some((halves, mut switch)) = self.halves() else { return Ok(()) };
        let relies = |tenant: &u32| halves.serve(switch.served, *tenant);
        if changed.iter().any(relies) {
            switch.memory.quiesce()?;
        }
        halves.configured(&changed, &mut switch)
    }

    /// Gives packets that came to disciplines' halves; whether some did.
    pub fn listen(&mut self) -> bool {
        let came = self.requests.receive();
        if let Some((halves, mut switch)) = self.halves() {
            halves.came(&came, &mut switch);
        }
        !came.is_empty()
    }

    /// Time passed.
    pub(super) fn tick_halves(&mut self) {
        if let Some((halves, mut switch)) = self.halves() {
            halves.tick(&mut switch);
        }
    }

    /// The switch is to leave in order: what others rely on here is handed on, while time passes.
    pub fn leave(&mut self) {
        if let Some((halves, mut switch)) = self.halves() {
            halves.leave(&mut switch);
        }
    }

    /// Whether others would miss this switch, after [`Tables::leave`].
    pub fn is_needed(&self) -> bool {
        self.halves.are_needed()
    }

    /// A message for a half: it is taken in, whatever comes of it.
    pub(super) fn tell_half(&mut self, message: &HalfMessage) {
        if let Some((halves, mut switch)) = self.halves() {
            halves.told(message, &mut switch);
        }
        send(&self.out, Body::Ack(HalfAck { seq: message.seq }));
    }
}
