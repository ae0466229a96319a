//! Generators as processes of a lab, told phase by phase what to do.

use std::{
    marker::PhantomData,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use lab::{
    interrupt,
    rack::Lab,
    steered::{Seat, SteeredProcess},
};

use crate::rig::machines::{Driver, LoadPhase, Loads};

/// A load generator that runs in a namespace of the lab and is told phase by phase what to do.
pub struct LoadDriver<C> {
    process: SteeredProcess,
    /// When the phase that runs has to be over.
    deadline: Option<Instant>,
    of: PhantomData<fn(C)>,
}

impl<C: Loads> LoadDriver<C> {
    /// Starts a generator.
    ///
    /// # Errors
    /// Its configuration cannot be written, or it does not start.
    pub fn start(lab: &mut Lab, seat: &Seat, config: &C) -> anyhow::Result<LoadDriver<C>> {
        Ok(LoadDriver {
            process: SteeredProcess::start(lab, seat, C::COMMAND, config)?,
            deadline: None,
            of: PhantomData,
        })
    }

    fn wait(&mut self, time: Duration) -> anyhow::Result<Option<C::Result>> {
        let deadline = self.deadline.context("no phase was begun")?;
        if let Some(line) = self.process.hear(time)? {
            self.deadline = None;
            return serde_json::from_str(&line).context("the load generator's result");
        }
        if Instant::now() > deadline {
            bail!("the load generator gave no result in time");
        }
        Ok(None)
    }
}

impl<C: Loads> Driver<C::Phase, C::Result> for LoadDriver<C> {
    fn begin(&mut self, phase: &C::Phase) -> anyhow::Result<()> {
        self.process.tell(&serde_json::to_string(phase)?)?;
        // Preparing a million keys takes a second or two the first time.
        let patience = Duration::from_secs_f64(phase.seconds() + 30.0);
        self.deadline = Some(Instant::now() + patience);
        Ok(())
    }

    fn poll(&mut self) -> anyhow::Result<Option<C::Result>> {
        self.wait(Duration::ZERO)
    }

    fn finish(&mut self) -> anyhow::Result<C::Result> {
        loop {
            interrupt::check()?;
            if let Some(result) = self.wait(Duration::from_millis(50))? {
                return Ok(result);
            }
        }
    }
}
