//! What switches and stores report, as events of each tenant's discipline.

use std::collections::BTreeSet;

use api::{
    proto::{
        Acks, Configured, Counters, Dropped, FromStore, HalfReport, HotReports, from_store::Body,
    },
    text::one_line,
};
use decide::{Answer, Eviction, HotKeys, Inventory, MESSAGE_MAX, SwitchId, WindowEnd};

use super::Exchange;
use crate::server::{
    configurations::Place,
    incoming,
    journal::Journal,
    stores::{Acknowledgement, StoreStreamId},
    switch::ItemsReport,
    tenants::Tenants,
};

impl Exchange {
    /// A switch told all that it holds.
    pub fn holds(&mut self, id: SwitchId, told: ItemsReport, journal: &mut Journal) {
        if told.greeting {
            if let Some(switch) = self.switches.get(id) {
                let life = switch.life(id);
                self.tell_all(journal, |to, now, out| to.life(now, life, out));
            }
            self.tell_all(journal, |to, now, out| to.attached(now, id, out));
        }
        let held = incoming::by_tenant(told.held);
        let lost = incoming::by_tenant(told.lost);
        let users = self.switches.get(id).map_or(vec![], |s| s.users());
        let all: BTreeSet<u32> = held.keys().chain(lost.keys()).copied().collect();
        for tenant in users.into_iter().chain(all).collect::<BTreeSet<u32>>() {
            let inventory = Inventory {
                switch: id,
                tenant,
                held: held.get(&tenant).map_or(&[], Vec::as_slice),
                lost: lost.get(&tenant).map_or(&[], Vec::as_slice),
            };
            self.tell(tenant, journal, |to, now, out| to.holds(now, inventory, out));
        }
    }

    /// Commands were answered.
    pub fn acks(&mut self, id: SwitchId, acks: &Acks, journal: &mut Journal) {
        for ack in &acks.acks {
            let outcome = incoming::outcome(ack.outcome);
            let switch = self.switches.get_mut(id);
            let answered = switch.and_then(|switch| switch.acknowledged(ack.seq, outcome));
            let Some((key, asked)) = answered else { continue };
            for change in asked.replaced.iter().chain([&asked.change]) {
                let answer =
                    Answer { switch: id, tenant: key.tenant, key: &key.key, change, outcome };
                self.tell(key.tenant, journal, |to, now, out| to.answered(now, answer, out));
            }
        }
    }

    /// Keys crossed their threshold.
    pub fn hot(&mut self, id: SwitchId, hot: &HotReports, of: &Tenants, journal: &mut Journal) {
        let (counts, malformed) = incoming::counts(&hot.keys, |t| of.get(t).is_some());
        if let Some(switch) = self.switches.get_mut(id) {
            let keys = counts.values().map(|keys| keys.len() as u64).sum();
            switch.reported(keys, malformed);
        }
        for (&tenant, keys) in counts.iter().filter(|(_, keys)| !keys.is_empty()) {
            let keys = HotKeys { switch: id, tenant, window: hot.window, keys };
            self.tell(tenant, journal, |to, now, out| to.hot(now, keys, out));
        }
    }

    /// A window ended: for all tenants that may use the switch, one after the other.
    pub fn counters(
        &mut self,
        id: SwitchId,
        counters: &Counters,
        of: &Tenants,
        journal: &mut Journal,
    ) {
        let (items, malformed) = incoming::counts(&counters.items, |t| of.get(t).is_some());
        let tallies = incoming::tallies(&counters.tallies);
        let mut users = vec![];
        if let Some(switch) = self.switches.get_mut(id) {
            switch.reported(0, malformed);
            if switch.compare(counters) {
                let line = "holds other items than believed: asking for a list";
                tracing::info!(switch = id, "{line}");
            }
            users = switch.users();
        }
        for tenant in users {
            let end = WindowEnd {
                switch: id,
                tenant,
                window: counters.window,
                items: items.get(&tenant).map_or(&[], Vec::as_slice),
                tallies: tallies.get(&tenant).unwrap_or(&[0; decide::TALLIES]),
            };
            self.tell(tenant, journal, |to, now, out| to.window_end(now, end, out));
        }
    }

    /// A switch gave items up.
    pub fn dropped(&mut self, id: SwitchId, dropped: &Dropped, journal: &mut Journal) {
        for (keys, unfit) in [(&dropped.keys, false), (&dropped.unfit, true)] {
            let items = incoming::items(keys);
            if let Some(switch) = self.switches.get_mut(id) {
                switch.dropped(&items);
            }
            for (&tenant, keys) in &incoming::by_tenant(items) {
                let eviction = Eviction { switch: id, tenant, keys, unfit };
                self.tell(tenant, journal, |to, now, out| to.dropped(now, eviction, out));
            }
        }
    }

    /// Configurations are in force.
    pub fn configured(&mut self, switch: SwitchId, told: Configured, journal: &mut Journal) {
        for said in told.tenants {
            let tenant = said.tenant;
            let place = Place { switch, tenant };
            if !self.configurations.confirmed(place, said.version) {
                continue;
            }
            if !said.trouble.is_empty() {
                let trouble = one_line(&said.trouble);
                tracing::warn!(switch, tenant, "not all of the configuration: {trouble}");
            }
            self.tell(tenant, journal, |to, now, out| to.configured(now, switch, tenant, out));
        }
    }

    /// A discipline's half in a switch's agent reports.
    pub fn switch_reported(&mut self, switch: SwitchId, said: &HalfReport, journal: &mut Journal) {
        let (tenant, report) = (said.tenant, &said.report[..]);
        if self.disciplines.name_of(tenant) == said.discipline && report.len() <= MESSAGE_MAX {
            self.tell(tenant, journal, |to, now, out| {
                to.switch_reported(now, switch, tenant, report, out);
            });
        }
    }

    /// A store took messages in, or reports.
    pub fn store_said(&mut self, stream: StoreStreamId, said: FromStore, journal: &mut Journal) {
        let Some(store) = self.stores.on(stream) else { return };
        match said.body {
            Some(Body::Ack(ack)) => {
                let Acknowledgement { told, not_told } = self.stores.acknowledged(stream, ack.seq);
                for tenant in told {
                    self.tell(tenant, journal, |to, now, out| to.told(now, store, tenant, out));
                }
                for tenant in not_told {
                    self.tell(tenant, journal, |to, now, out| to.not_told(now, store, tenant, out));
                }
            }
            Some(Body::Report(said)) => {
                let (tenant, report) = (said.tenant, &said.report[..]);
                let is_its = self.disciplines.name_of(tenant) == said.discipline;
                if is_its && report.len() <= MESSAGE_MAX {
                    self.tell(tenant, journal, |to, now, out| {
                        to.store_reported(now, store, tenant, report, out);
                    });
                }
            }
            Some(Body::Hello(_)) | None => {}
        }
    }
}
