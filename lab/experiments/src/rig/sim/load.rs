//! A load generator as a process of a simulated world.

use load::{Phase, PhaseResult};
use sim::{Generator, Io};

use super::steering::LoadProcess;

impl LoadProcess for Generator {
    type Phase = Phase;
    type Result = PhaseResult;

    fn begin(&mut self, phase: &Phase, io: &Io<'_>) -> anyhow::Result<()> {
        Generator::begin(self, phase, io)
    }

    fn take_result(&mut self) -> Option<anyhow::Result<PhaseResult>> {
        Generator::take_result(self)
    }
}
