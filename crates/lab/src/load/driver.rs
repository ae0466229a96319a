use std::{
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin},
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    time::{Duration, Instant},
};

use anyhow::{Context, bail};

use super::{LoadConfig, Phase, PhaseResult};
use crate::{
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
}

impl LoadDriver {
    /// Starts a generator on a host.
    ///
    /// # Errors
    /// Its configuration cannot be written, or it does not start.
    pub fn start(lab: &mut Lab, host: &str, config: &LoadConfig) -> anyhow::Result<LoadDriver> {
        let file = lab.dir().join("load.json");
        std::fs::write(&file, serde_json::to_string(config)?)?;
        let command = ["shortstop", "lab", "load", "--config", "{dir}/load.json"];
        let spec = ProcessSpec {
            name: "load".into(),
            command: command.map(String::from).to_vec(),
            cpu: config.cpu,
            nice: 0,
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
            log: lab.dir().join(format!("{host}-load.log")),
        })
    }

    /// Runs one phase.
    ///
    /// # Errors
    /// An interruption, or the generator's death; its log is part of the message.
    pub fn run(&mut self, phase: &Phase) -> anyhow::Result<PhaseResult> {
        let mut line = serde_json::to_string(phase)?;
        line.push('\n');
        let told = self
            .input
            .write_all(line.as_bytes())
            .and_then(|()| self.input.flush());
        told.with_context(|| format!("the load generator is gone:\n{}", tail(&self.log)))?;
        let start = Instant::now();
        // Preparing a million keys takes a second or two the first time.
        let patience = Duration::from_secs_f64(phase.warmup_s + phase.seconds + 30.0);
        loop {
            interrupt::check()?;
            match self.lines.recv_timeout(Duration::from_millis(50)) {
                Ok(line) => {
                    return serde_json::from_str(&line?).context("the load generator's result");
                }
                Err(RecvTimeoutError::Disconnected) => {
                    bail!("the load generator ended:\n{}", tail(&self.log))
                }
                Err(RecvTimeoutError::Timeout) if start.elapsed() > patience => {
                    bail!(
                        "the load generator gave no result in {} s",
                        patience.as_secs()
                    )
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }
}

impl Drop for LoadDriver {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
