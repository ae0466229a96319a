//! What the controller keeps of one switch.

use std::{collections::BTreeMap, time::Duration};

use api::proto::{PageUse, Routes, Setup};
use serde::{Deserialize, Serialize};

use super::{
    held::Held,
    outbox::Outbox,
    rate::{Bucket, Rate},
};
use crate::{ItemKey, SwitchId};

/// A stream of a switch; a newer one of the same switch makes it void.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Link {
    /// The switch.
    pub switch: SwitchId,
    pub(super) generation: u64,
}

/// What is remembered of a switch beside its items and pages.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Known {
    /// As the switch called itself.
    pub name: String,
    /// Pages of cache memory.
    pub pages: u32,
    /// Its last threshold of each tenant.
    #[serde(default)]
    pub thresholds: BTreeMap<u32, u32>,
}

/// A switch whose stream is up.
pub(super) struct Attachment {
    pub generation: u64,
    pub heard: Duration,
    /// Keys of a list that the switch is telling, until the last of them came.
    pub telling: Option<Vec<ItemKey>>,
    /// Until the first list is told, nothing is sent.
    pub greeted: bool,
    /// It must tell what it holds: the digests differ.
    pub list_wanted: bool,
    pub setup_sent: Option<Setup>,
    /// Version of the page table that was sent, and when.
    pub table_sent: Option<(u64, Duration)>,
    pub thresholds_sent: BTreeMap<u32, u32>,
    /// Version of the routes that were sent, and when.
    pub routes_sent: Option<(u64, Duration)>,
}

/// One page as the switch last told of it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PageSeen {
    pub items: u32,
    pub cells: u32,
    /// The last window in which its items had requests, and how many.
    pub used_in: u64,
    pub requests: u64,
}

pub(super) struct Switch {
    pub known: Known,
    pub known_dirty: bool,
    pub attached: Option<Attachment>,
    pub held: Held,
    pub outbox: Outbox,
    pub bucket: Bucket,
    pub updates: Rate,
    pub reports: Rate,
    pub malformed: u64,
    pub reconciled: u64,
    /// The window that its last counters were of.
    pub window: u64,
    pub pages_seen: BTreeMap<u32, PageSeen>,
    /// Share of each tenant's free cells that no item of the usual size could use.
    pub fragmentation: BTreeMap<u32, f64>,
    /// Version of the page table that it said is in force, on this stream.
    pub table_applied: Option<u64>,
    /// The routes it is to have, and the version of those it said it has.
    pub routes: Routes,
    pub routes_applied: Option<u64>,
    pub routes_failed: Vec<String>,
}

impl Switch {
    pub fn new(known: Known, held: Held, outbox: Outbox, bucket: Bucket) -> Switch {
        Switch {
            known,
            known_dirty: false,
            attached: None,
            held,
            outbox,
            bucket,
            updates: Rate::default(),
            reports: Rate::default(),
            malformed: 0,
            reconciled: 0,
            window: 0,
            pages_seen: BTreeMap::new(),
            fragmentation: BTreeMap::new(),
            table_applied: None,
            routes: Routes::default(),
            routes_applied: None,
            routes_failed: vec![],
        }
    }

    /// Whether it is attached and said what it holds.
    pub fn is_ready(&self) -> bool {
        self.attached.as_ref().is_some_and(|a| a.greeted)
    }

    /// Takes in what a window's counters say of its pages.
    pub fn see_pages(&mut self, window: u64, pages: &[PageUse]) {
        self.window = window;
        // A page that is not listed holds nothing.
        self.pages_seen
            .retain(|page, _| pages.iter().any(|p| p.page == *page));
        for page in pages.iter().filter(|p| p.page < self.known.pages) {
            let seen = self.pages_seen.entry(page.page).or_default();
            (seen.items, seen.cells) = (page.items, page.cells);
            if page.requests > 0 {
                (seen.used_in, seen.requests) = (window, page.requests);
            }
        }
    }

    /// What a page is worth to its tenant: pages with lower ones go first (MADINC's least recently used, then by requests).
    pub fn worth(&self, page: u32) -> (std::cmp::Reverse<u64>, u64) {
        let requests = self.pages_seen.get(&page).map_or(0, |seen| seen.requests);
        (std::cmp::Reverse(self.idle_windows(page)), requests)
    }

    /// Windows since a page's items had requests; a page that never had any counts as long idle.
    pub fn idle_windows(&self, page: u32) -> u64 {
        self.pages_seen
            .get(&page)
            .map_or(u64::MAX, |seen| self.window.saturating_sub(seen.used_in))
    }
}
