//! The control half. Nothing of it is here yet: every key stays at its home.

use std::time::Duration;

use decide::{Action, Discipline, Event, Limits};

struct Controller;

impl Discipline for Controller {
    fn on(&mut self, _now: Duration, _event: Event<'_>, _out: &mut Vec<Action>) {}
}

/// Makes the control half.
pub fn controller(_limits: Limits) -> Box<dyn Discipline> {
    Box::new(Controller)
}
