//! Processes of clients that record what they see ([`history`]), steered from here.

use std::time::Duration;

use anyhow::Context;
use history::ClientRecord;
use lab::{
    rack::Lab,
    steered::{Seat, SteeredProcess},
};
use serde::Serialize;

use crate::rig::machines::Records;

/// Clients that run in one process.
pub struct Group {
    process: SteeredProcess,
    last: String,
}

impl Group {
    /// Starts them, as this command of `shortstop-lab`.
    ///
    /// # Errors
    /// They do not start.
    pub fn start(
        lab: &mut Lab,
        seat: &Seat,
        command: &str,
        config: &impl Serialize,
    ) -> anyhow::Result<Group> {
        Ok(Group { process: SteeredProcess::start(lab, seat, command, config)?, last: "0".into() })
    }
}

impl Records for Group {
    fn operations(&mut self) -> anyhow::Result<u64> {
        while let Some(line) = self.process.hear(Duration::ZERO)? {
            self.last = line;
        }
        Ok(self.last.parse().unwrap_or(0))
    }

    fn stop(&mut self) {
        self.process.close();
    }

    fn finish(&mut self) -> anyhow::Result<ClientRecord> {
        // The lines end when the process does; the last one is the record.
        while let Ok(Some(line)) = self.process.hear(Duration::from_secs(30)) {
            self.last = line;
        }
        serde_json::from_str(&self.last)
            .with_context(|| format!("the clients' record:\n{}", self.process.log()))
    }
}
