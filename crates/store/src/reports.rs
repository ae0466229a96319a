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

type NewestReports = BTreeMap<(&'static str, u32), Bytes>;

/// The newest report of each half about each tenant. Clones are the same.
#[derive(Clone, Default)]
pub(crate) struct Reports(Arc<(Mutex<ReportBooks>, Notify)>);

#[derive(Default)]
struct ReportBooks {
    /// Not taken yet.
    newest: NewestReports,
    /// Taken; whether they arrived is not known.
    taken: NewestReports,
}

impl Reports {
    /// Puts a report in the place of an older one.
    pub fn put(&self, half: &'static str, tenant: u32, report: Bytes) {
        self.kept().newest.insert((half, tenant), report);
        self.0.1.notify_one();
    }

    /// What was taken may be lost: it is to be taken again, but for what is newer.
    pub fn again(&self) {
        let ReportBooks { newest, taken } = &mut *self.kept();
        let older = std::mem::take(taken);
        for (about, report) in older {
            newest.entry(about).or_insert(report);
        }
        self.0.1.notify_one();
    }

    /// Forgets what concerns these tenants.
    pub fn forget(&self, tenants: &BTreeSet<u32>) {
        let ReportBooks { newest, taken } = &mut *self.kept();
        for reports in [newest, taken] {
            reports.retain(|(_, tenant), _| !tenants.contains(tenant));
        }
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
        let ReportBooks { newest, taken } = &mut *self.kept();
        let now = std::mem::take(newest);
        taken.extend(now.clone());
        let report = |((half, tenant), report)| Report { half, tenant, report };
        now.into_iter().map(report).collect()
    }

    fn kept(&self) -> MutexGuard<'_, ReportBooks> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_lost_stream_took_is_reported_again_unless_it_is_older_or_of_a_tenant_that_left() {
        let reports = Reports::default();
        let taken = || {
            let all = reports.take_now().into_iter();
            let all = all.map(|r| (r.tenant, String::from_utf8(r.report.to_vec()).unwrap()));
            all.collect::<Vec<_>>()
        };
        for (tenant, report) in [(7, "old"), (8, "load"), (9, "gone")] {
            reports.put("d", tenant, report.into());
        }
        assert_eq!(taken().len(), 3);
        assert_eq!(taken(), []);
        reports.put("d", 7, "new".into());
        reports.forget(&[9].into());
        reports.again();
        let (new, load) = ((7, "new".into()), (8, "load".into()));
        assert_eq!(taken(), [new.clone(), load.clone()]);
        reports.again();
        assert_eq!(taken(), [new, load]);
    }
}
