//! Processes that are told what to do line by line, and answer so.

use std::{
    io::{BufRead, BufReader, Write},
    path::PathBuf,
    process::{Child, ChildStdin},
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    time::Duration,
};

use anyhow::{Context, bail};
use plan::{roles, topology::ProcessSpec};
use serde::Serialize;

use crate::rack::{Lab, tail};

/// Which process, where, and how it is scheduled.
#[derive(Clone, Copy, Debug)]
pub struct Seat<'a> {
    /// The node.
    pub host: &'a str,
    /// The process's name, unique there.
    pub name: &'a str,
    /// The CPU to run on; none: any.
    pub cpu: Option<usize>,
    /// Niceness.
    pub nice: i32,
}

/// What a discipline adds to the hidden commands of `shortstop-lab`: a process that is told more on
/// its standard input, and answers on its standard output.
pub struct Program {
    /// The command.
    pub command: &'static str,
    /// What it does, in one line.
    pub about: &'static str,
    /// Does it, with this configuration (JSON).
    pub run: fn(config: &str) -> anyhow::Result<()>,
}

/// A process of `shortstop-lab` with its standard input and output here; killed when dropped.
pub struct SteeredProcess {
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
    what: String,
    log: PathBuf,
}

impl SteeredProcess {
    /// Starts `shortstop-lab WHAT` with a configuration.
    ///
    /// # Errors
    /// The configuration cannot be written, or the process does not start.
    pub fn start(
        lab: &mut Lab,
        seat: &Seat,
        what: &str,
        config: &impl Serialize,
    ) -> anyhow::Result<SteeredProcess> {
        let name = format!("{}-{}", seat.host, seat.name);
        let file = lab.dir().join(format!("{name}.json"));
        std::fs::write(&file, serde_json::to_string(config)?)?;
        let command = roles::steered(what, &file.to_string_lossy());
        let spec =
            ProcessSpec { cpu: seat.cpu, nice: seat.nice, ..ProcessSpec::new(seat.name, command) };
        let mut child = lab.start_piped(seat.host, &spec)?;
        let input = child.stdin.take();
        let output = child.stdout.take().context("no pipe from the process")?;
        let (send, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if send.send(line).is_err() {
                    break;
                }
            }
        });
        Ok(SteeredProcess {
            child,
            input,
            lines,
            log: lab.dir().join(format!("{name}.log")),
            what: name,
        })
    }

    /// Tells it a line.
    ///
    /// # Errors
    /// It is gone; its log is part of the message.
    pub fn tell(&mut self, line: &str) -> anyhow::Result<()> {
        let input = self.input.as_mut().context("its input was closed")?;
        let told = writeln!(input, "{line}").and_then(|()| input.flush());
        told.with_context(|| format!("{} is gone:\n{}", self.what, self.log()))
    }

    /// Has nothing more to tell it.
    pub fn close(&mut self) {
        self.input = None;
    }

    /// The next line that it says, if it comes within this time.
    ///
    /// # Errors
    /// It ended and has said everything; its log is part of the message.
    pub fn hear(&self, time: Duration) -> anyhow::Result<Option<String>> {
        match self.lines.recv_timeout(time) {
            Ok(line) => Ok(Some(line)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => {
                bail!("{} ended:\n{}", self.what, self.log())
            }
        }
    }

    /// The last lines of its log.
    pub fn log(&self) -> String {
        tail(&self.log)
    }
}

impl Drop for SteeredProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
