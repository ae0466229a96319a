//! What disciplines' halves report, until somebody takes it to the controller.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;
use tokio::sync::Notify;

/// What a discipline's half reports about a tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The discipline's name.
    pub half: &'static str,
    /// About which tenant.
    pub tenant: u32,
    /// What it says, for the discipline's control half.
    pub report: Bytes,
}

type Newest = BTreeMap<(&'static str, u32), Bytes>;

/// The newest report of each half about each tenant that has not been taken. Clones are the same.
#[derive(Clone, Default)]
pub(crate) struct Reports(Arc<(Mutex<Newest>, Notify)>);

impl Reports {
    /// Puts a report in the place of an older one.
    pub fn put(&self, half: &'static str, tenant: u32, report: Bytes) {
        self.newest().insert((half, tenant), report);
        self.0.1.notify_one();
    }

    /// Forgets what concerns these tenants.
    pub fn forget(&self, tenants: &BTreeSet<u32>) {
        self.newest()
            .retain(|(_, tenant), _| !tenants.contains(tenant));
    }

    /// Takes all there are; waits for one.
    pub async fn take(&self) -> Vec<Report> {
        loop {
            let taken = self.take_now();
            if !taken.is_empty() {
                return taken;
            }
            self.0.1.notified().await;
        }
    }

    /// Takes all there are.
    pub fn take_now(&self) -> Vec<Report> {
        let taken = std::mem::take(&mut *self.newest());
        let report = |((half, tenant), report)| Report {
            half,
            tenant,
            report,
        };
        taken.into_iter().map(report).collect()
    }

    fn newest(&self) -> MutexGuard<'_, Newest> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
