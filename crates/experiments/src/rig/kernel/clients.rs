//! Processes of clients that record what they see ([`history`]), steered from here.

use std::time::Duration;

use anyhow::Context;
use history::{ClientsConfig, Recorded};
use lab::{
    rack::Lab,
    steered::{Seat, Steered},
};

/// All of a rig's processes of clients.
#[derive(Default)]
pub struct Clients {
    groups: Vec<Group>,
}

/// Clients that run in one process.
struct Group {
    process: Steered,
    last: String,
}

impl Clients {
    pub(in crate::rig) fn start(
        &mut self,
        lab: &mut Lab,
        seat: &Seat,
        config: &ClientsConfig,
    ) -> anyhow::Result<()> {
        self.groups.push(Group {
            process: Steered::start(lab, seat, "clients", config)?,
            last: "0".into(),
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
            while let Some(line) = group.process.hear(Duration::ZERO)? {
                group.last = line;
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
        self.groups.iter_mut().for_each(|g| g.process.close());
        for group in &mut self.groups {
            // The lines end when the process does; the last one is the record.
            while let Ok(Some(line)) = group.process.hear(Duration::from_secs(30)) {
                group.last = line;
            }
            let mut seen: Recorded = serde_json::from_str(&group.last)
                .with_context(|| format!("the clients' record:\n{}", group.process.log()))?;
            all.operations.append(&mut seen.operations);
            all.cached += seen.cached;
            all.unanswered += seen.unanswered;
            all.torn += seen.torn;
        }
        Ok(all)
    }
}
