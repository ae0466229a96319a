use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use lab::{
    interrupt,
    rack::Lab,
    steered::{Seat, Steered},
};

use super::{LoadConfig, Phase, PhaseResult};

/// A load generator that runs in a namespace of the lab and is told phase by phase what to do.
pub struct LoadDriver {
    process: Steered,
    /// When the phase that runs has to be over.
    deadline: Option<Instant>,
}

impl LoadDriver {
    /// Starts a generator.
    ///
    /// # Errors
    /// Its configuration cannot be written, or it does not start.
    pub fn start(lab: &mut Lab, seat: &Seat, config: &LoadConfig) -> anyhow::Result<LoadDriver> {
        Ok(LoadDriver {
            process: Steered::start(lab, seat, "load", config)?,
            deadline: None,
        })
    }

    /// Runs one phase.
    ///
    /// # Errors
    /// An interruption, or the generator's death; its log is part of the message.
    pub fn run(&mut self, phase: &Phase) -> anyhow::Result<PhaseResult> {
        self.begin(phase)?;
        self.finish()
    }

    /// Begins a phase; [`LoadDriver::finish`] has its result. Several generators can so run at the same time.
    ///
    /// # Errors
    /// The generator's death; its log is part of the message.
    pub fn begin(&mut self, phase: &Phase) -> anyhow::Result<()> {
        self.process.tell(&serde_json::to_string(phase)?)?;
        // Preparing a million keys takes a second or two the first time.
        let patience = Duration::from_secs_f64(phase.warmup_s + phase.seconds + 30.0);
        self.deadline = Some(Instant::now() + patience);
        Ok(())
    }

    /// The result of the phase that was begun, if it is there already.
    ///
    /// # Errors
    /// As [`LoadDriver::finish`].
    pub fn poll(&mut self) -> anyhow::Result<Option<PhaseResult>> {
        self.wait(Duration::ZERO)
    }

    /// Waits for the result of the phase that was begun.
    ///
    /// # Errors
    /// An interruption, the generator's death (its log is part of the message), or a phase that does not end.
    pub fn finish(&mut self) -> anyhow::Result<PhaseResult> {
        loop {
            interrupt::check()?;
            if let Some(result) = self.wait(Duration::from_millis(50))? {
                return Ok(result);
            }
        }
    }

    fn wait(&mut self, time: Duration) -> anyhow::Result<Option<PhaseResult>> {
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
