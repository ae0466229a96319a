use std::{
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin},
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    time::{Duration, Instant},
};

use anyhow::{Context, bail};

use super::{LoadConfig, Phase, PhaseResult};
use lab::{
    interrupt,
    rack::{Lab, tail},
    topology::ProcessSpec,
};

/// A load generator that runs in a namespace of the lab and is told phase by phase what to do.
pub struct LoadDriver {
    child: Child,
    input: ChildStdin,
    lines: Receiver<std::io::Result<String>>,
    log: std::path::PathBuf,
    /// When the phase that runs has to be over.
    deadline: Option<Instant>,
}

impl LoadDriver {
    /// Starts a generator on a host.
    ///
    /// # Errors
    /// Its configuration cannot be written, or it does not start.
    pub fn start(lab: &mut Lab, host: &str, config: &LoadConfig) -> anyhow::Result<LoadDriver> {
        Self::start_as(lab, host, "load", config, 0)
    }

    /// Starts one of several generators of a lab, under a name of its own and with this niceness.
    ///
    /// # Errors
    /// As [`LoadDriver::start`].
    pub fn start_as(
        lab: &mut Lab,
        host: &str,
        name: &str,
        config: &LoadConfig,
        nice: i32,
    ) -> anyhow::Result<LoadDriver> {
        let file = format!("{host}-{name}.json");
        std::fs::write(lab.dir().join(&file), serde_json::to_string(config)?)?;
        let file = format!("{{dir}}/{file}");
        let command = ["shortstop", "lab", "load", "--config", &file];
        let spec = ProcessSpec {
            name: name.into(),
            command: command.map(String::from).to_vec(),
            cpu: config.cpu,
            nice,
            ready: None,
            settled: None,
            autostart: false,
        };
        let mut child = lab.start_piped(host, &spec)?;
        let input = child
            .stdin
            .take()
            .context("no pipe to the load generator")?;
        let output = child
            .stdout
            .take()
            .context("no pipe from the load generator")?;
        let (send, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines() {
                if send.send(line).is_err() {
                    break;
                }
            }
        });
        Ok(LoadDriver {
            child,
            input,
            lines,
            log: lab.dir().join(format!("{host}-{name}.log")),
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
        let mut line = serde_json::to_string(phase)?;
        line.push('\n');
        let told = self
            .input
            .write_all(line.as_bytes())
            .and_then(|()| self.input.flush());
        told.with_context(|| format!("the load generator is gone:\n{}", tail(&self.log)))?;
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
        match self.lines.recv_timeout(time) {
            Ok(line) => {
                self.deadline = None;
                let result = serde_json::from_str(&line?).context("the load generator's result")?;
                Ok(Some(result))
            }
            Err(RecvTimeoutError::Disconnected) => {
                bail!("the load generator ended:\n{}", tail(&self.log))
            }
            Err(RecvTimeoutError::Timeout) if Instant::now() > deadline => {
                bail!("the load generator gave no result in time")
            }
            Err(RecvTimeoutError::Timeout) => Ok(None),
        }
    }
}

impl Drop for LoadDriver {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
