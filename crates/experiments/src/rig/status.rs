//! What stores say of themselves.

use std::{io::Read, os::unix::net::UnixStream, time::Duration};

use anyhow::{Context, ensure};
use lab::{interrupt, rack::tail};
use serde::Deserialize;

use super::Rig;

/// The status of a store.
#[derive(Clone, Debug, Deserialize)]
pub struct StoreStatus {
    /// Whether it answers.
    pub ready: bool,
    /// Whether it has waited long enough to take writes.
    pub takes_writes: bool,
    /// Its partitions.
    pub partitions: Vec<PartitionStatus>,
}

/// The status of one partition.
#[derive(Clone, Debug, Deserialize)]
pub struct PartitionStatus {
    /// Its number; none: as the cluster file orders them.
    #[serde(default)]
    pub partition: Option<u32>,
    /// Requests since the store started.
    pub served: u64,
}

impl Rig {
    /// The status of the store on a host.
    ///
    /// # Errors
    /// It does not say.
    pub fn store_status(&self, host: &str) -> anyhow::Result<StoreStatus> {
        let mut stream = UnixStream::connect(self.file(&format!("{host}.sock")))?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        serde_json::from_str(&text).context("a store's status")
    }

    /// Hosts with a store, in order.
    pub fn stores(&self) -> Vec<String> {
        self.plan.nodes_of("store")
    }

    pub(super) fn wait_for_stores(&mut self) -> anyhow::Result<()> {
        for host in self.stores() {
            let name = format!("{host}-store");
            let what = format!("{name} to take writes");
            interrupt::wait_for(&what, Duration::from_secs(60), || {
                ensure!(self.lab.is_running(&name), "{name} ended");
                let status = self.store_status(&host).ok();
                Ok(status.filter(|s| s.ready && s.takes_writes).map(|_| ()))
            })
            .with_context(|| tail(&self.file(&format!("{name}.log"))))?;
        }
        Ok(())
    }
}
