//! The cluster as stores are to have it.

use api::proto::Cluster;

/// The newest one.
#[derive(Default)]
pub struct PublishedCluster {
    /// Rises with each that is another.
    version: u64,
    cluster: Cluster,
    /// The journal's position after which it is safe to send.
    safe_after: u64,
}

impl PublishedCluster {
    /// It is this one, from that position of the journal on.
    pub fn set(&mut self, cluster: &wire::Cluster, safe_after: u64) {
        let cluster = cluster.into();
        if self.cluster != cluster {
            self.version += 1;
            (self.cluster, self.safe_after) = (cluster, safe_after);
        }
    }

    /// Its version.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// With its version, if everything up to `durable` is written and that is enough.
    pub fn safe(&self, durable: u64) -> Option<(u64, &Cluster)> {
        (durable >= self.safe_after).then_some((self.version, &self.cluster))
    }
}
