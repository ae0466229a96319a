//! Processes of clients that record what they see ([`crate::history`]), steered from here.

use std::{
    io::{BufRead, BufReader, Write},
    path::PathBuf,
    process::{Child, ChildStdin},
    sync::mpsc::{Receiver, channel},
    time::Duration,
};

use anyhow::{Context, bail};

use history::{ClientsConfig, Recorded};
use lab::{
    rack::{Lab, tail},
    topology::ProcessSpec,
};

/// All of a lab's processes of clients.
#[derive(Default)]
pub struct Recorders {
    groups: Vec<Group>,
}

/// Clients that run in one process.
struct Group {
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
    last: String,
    log: PathBuf,
}

impl Recorders {
    /// Starts a process of clients on a host, under a name that is unique there.
    ///
    /// # Errors
    /// It does not start.
    pub fn start(
        &mut self,
        lab: &mut Lab,
        host: &str,
        name: &str,
        config: &ClientsConfig,
    ) -> anyhow::Result<()> {
        let file = format!("{host}-{name}.json");
        std::fs::write(lab.dir().join(&file), serde_json::to_string(config)?)?;
        let file = format!("{{dir}}/{file}");
        let command = ["shortstop", "lab", "clients", "--config", &file];
        let spec = ProcessSpec {
            name: name.into(),
            command: command.map(String::from).to_vec(),
            cpu: None,
            nice: 0,
            ready: None,
            settled: None,
            autostart: false,
        };
        let mut child = lab.start_piped(host, &spec)?;
        let input = child.stdin.take();
        let output = child.stdout.take().context("no pipe from the clients")?;
        let (send, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if send.send(line).is_err() {
                    break;
                }
            }
        });
        self.groups.push(Group {
            child,
            input,
            lines,
            last: "0".into(),
            log: lab.dir().join(format!("{host}-{name}.log")),
        });
        Ok(())
    }

    /// Operations so far, over all clients.
    ///
    /// # Errors
    /// A process that ended by itself; its log is part of the message.
    pub fn operations(&mut self) -> anyhow::Result<u64> {
        let mut sum = 0;
        for group in &mut self.groups {
            while let Ok(line) = group.lines.try_recv() {
                group.last = line;
            }
            if let Some(status) = group.child.try_wait()? {
                bail!(
                    "the clients ended by themselves ({status}):\n{}",
                    tail(&group.log)
                );
            }
            sum += group.last.parse::<u64>().unwrap_or(0);
        }
        Ok(sum)
    }

    /// Stops the clients; returns what all of them recorded.
    ///
    /// # Errors
    /// A record that cannot be read; the log of its process is part of the message.
    pub fn finish(&mut self) -> anyhow::Result<Recorded> {
        let mut all = Recorded::default();
        for group in &mut self.groups {
            if let Some(mut input) = group.input.take() {
                let _ = input.write_all(b"\n");
            }
        }
        for group in &mut self.groups {
            // The lines end when the process does; the last one is the record.
            while let Ok(line) = group.lines.recv_timeout(Duration::from_secs(30)) {
                group.last = line;
            }
            group.child.wait()?;
            let mut seen: Recorded = serde_json::from_str(&group.last)
                .with_context(|| format!("the clients' record:\n{}", tail(&group.log)))?;
            all.operations.append(&mut seen.operations);
            all.cached += seen.cached;
            all.unanswered += seen.unanswered;
            all.torn += seen.torn;
        }
        Ok(all)
    }
}

impl Drop for Recorders {
    fn drop(&mut self) {
        for group in &mut self.groups {
            let _ = group.child.kill();
            let _ = group.child.wait();
        }
    }
}
