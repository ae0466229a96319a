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

use serde::{Serialize, de::DeserializeOwned};

use super::{LoadConfig, Phase, PhaseResult};

/// What a phase of a load is told by.
pub trait LoadPhase: Serialize {
    /// How long it takes, in seconds.
    fn seconds(&self) -> f64;
}

impl LoadPhase for Phase {
    fn seconds(&self) -> f64 {
        self.warmup_s + self.seconds
    }
}

/// What a generator is started with.
pub trait Loads: Serialize {
    /// The command of `shortstop-lab` that it runs as.
    const COMMAND: &str;
    /// What it is told.
    type Phase: LoadPhase;
    /// What it measures.
    type Result: DeserializeOwned;
}

impl Loads for LoadConfig {
    const COMMAND: &str = "load";
    type Phase = Phase;
    type Result = PhaseResult;
}

/// A load generator that runs in a namespace of the lab and is told phase by phase what to do.
pub struct LoadDriver<C = LoadConfig> {
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

    /// Begins a phase; [`LoadDriver::finish`] has its result. Several generators can so run at the
    /// same time.
    ///
    /// # Errors
    /// The generator's death; its log is part of the message.
    pub fn begin(&mut self, phase: &C::Phase) -> anyhow::Result<()> {
        self.process.tell(&serde_json::to_string(phase)?)?;
        // Preparing a million keys takes a second or two the first time.
        let patience = Duration::from_secs_f64(phase.seconds() + 30.0);
        self.deadline = Some(Instant::now() + patience);
        Ok(())
    }

    /// The result of the phase that was begun, if it is there already.
    ///
    /// # Errors
    /// As [`LoadDriver::finish`].
    pub fn poll(&mut self) -> anyhow::Result<Option<C::Result>> {
        self.wait(Duration::ZERO)
    }

    /// Waits for the result of the phase that was begun.
    ///
    /// # Errors
    /// An interruption, the generator's death (its log is part of the message), or a phase that
    /// does not end.
    pub fn finish(&mut self) -> anyhow::Result<C::Result> {
        loop {
            interrupt::check()?;
            if let Some(result) = self.wait(Duration::from_millis(50))? {
                return Ok(result);
            }
        }
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
