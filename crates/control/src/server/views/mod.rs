//! What people are shown: tenants, pages, switches, the network, and the status.

mod keys;
mod network;
mod pages;
mod tenants;

use std::{collections::BTreeMap, time::Duration};

use api::{
    proto::{StatusReply, SwitchStatus},
    types::{AuditEntry, SwitchView},
};
use decide::SwitchId;

use super::{around::Surroundings, audit::Audit, memory::Memory};

/// Everything, to be looked at.
#[derive(Clone, Copy)]
pub struct View<'a> {
    /// Tenants, disciplines, network and switches.
    pub around: Surroundings<'a>,
    /// Their memory.
    pub memory: &'a Memory,
    /// Who changed what.
    pub audit: &'a Audit,
}

impl View<'_> {
    /// All switches.
    pub fn switches(&self) -> Vec<SwitchView> {
        let ledger = self.memory.ledger();
        let view = |(id, switch): (SwitchId, &super::switch::Switch)| SwitchView {
            id,
            name: switch.known().name.clone(),
            attached: switch.is_ready(),
            pages: switch.known().pages,
            free_pages: ledger.free(id),
            lent_pages: ledger.sum(id).lent,
            items: switch.held.len() as u64,
            refused: switch.refused().clone(),
        };
        self.around.switches.iter().map(view).collect()
    }

    /// At most `limit` entries of the audit log with numbers above `after`, the oldest first.
    pub fn audit(&self, after: u64, limit: usize) -> Vec<AuditEntry> {
        let entry = |(seq, entry): (u64, &super::audit::Entry)| AuditEntry {
            seq,
            at_ms: entry.at_ms,
            who: entry.who.clone(),
            what: entry.what.clone(),
            detail: entry.detail.clone(),
        };
        self.audit.after(after).take(limit).map(entry).collect()
    }

    /// The status of a controller that leads.
    pub fn status(&self, now: Duration) -> StatusReply {
        StatusReply {
            discipline: self.around.disciplines.default_name().into(),
            uptime_ms: now.as_millis() as u64,
            switches: self.switch_statuses(now),
            leading: true,
            term: self.around.config.term,
            leader: String::new(),
        }
    }

    /// Counters by name, summed over switches.
    pub fn counters(&self, now: Duration) -> BTreeMap<String, u64> {
        let mut sums = BTreeMap::new();
        for switch in self.switch_statuses(now) {
            for (name, count) in switch.counters {
                *sums.entry(name).or_default() += count;
            }
        }
        sums
    }

    fn switch_statuses(&self, now: Duration) -> Vec<SwitchStatus> {
        let switches = self.around.switches.iter();
        let status = switches.map(|(id, switch)| {
            let counters = self.around.disciplines.counters(id);
            switch.status(id, now, counters)
        });
        status.collect()
    }
}
