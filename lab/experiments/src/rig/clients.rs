//! All of a rig's clients that record what they see.

use history::ClientRecord;

use super::machines::Recording;

/// Clients, host by host.
#[derive(Default)]
pub struct Clients {
    groups: Vec<Recording>,
}

impl Clients {
    pub(super) fn add(&mut self, group: Recording) {
        self.groups.push(group);
    }

    /// Operations so far, over all clients.
    ///
    /// # Errors
    /// A group that ended by itself.
    pub fn operations(&mut self) -> anyhow::Result<u64> {
        self.groups.iter_mut().map(|group| group.operations()).sum()
    }

    /// Stops the clients; returns what all of them recorded.
    ///
    /// # Errors
    /// A record that cannot be read.
    pub fn finish(&mut self) -> anyhow::Result<ClientRecord> {
        let mut all = ClientRecord::default();
        self.groups.iter_mut().for_each(|group| group.stop());
        for group in &mut self.groups {
            all.add(group.finish()?);
        }
        Ok(all)
    }
}
