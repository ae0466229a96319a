//! What switches and stores report, as events of each tenant's discipline.

use std::collections::BTreeSet;

use api::{
    proto::{
        Acks, Configured, Counters, Dropped, FromStore, HalfReport, HotReports, from_store::Body,
    },
    text::one_line,
};
use decide::{Event, MESSAGE_MAX, SwitchId};

use super::Exchange;
use crate::server::{
    configurations::Place, incoming, journal::Journal, stores::StoreStreamId, switch::Told,
    tenants::Tenants,
};

impl Exchange {
    /// A switch told all that it holds.
    pub fn holds(&mut self, id: SwitchId, told: Told, journal: &mut Journal) {
        if told.greeting {
            if let Some(switch) = self.switches.get(id) {
                let life = switch.life(id);
                self.tell(life, journal);
            }
            self.tell(Event::Attached { switch: id }, journal);
        }
        let held = incoming::by_tenant(told.held);
        let lost = incoming::by_tenant(told.lost);
        let users = self.switches.get(id).map_or(vec![], |s| s.users());
        let all: BTreeSet<u32> = held.keys().chain(lost.keys()).copied().collect();
        for tenant in users.into_iter().chain(all).collect::<BTreeSet<u32>>() {
            let event = Event::Holds {
                switch: id,
                tenant,
                held: held.get(&tenant).map_or(&[], Vec::as_slice),
                lost: lost.get(&tenant).map_or(&[], Vec::as_slice),
            };
            self.tell(event, journal);
        }
    }

    /// Commands were answered.
    pub fn acks(&mut self, id: SwitchId, acks: &Acks, journal: &mut Journal) {
        for ack in &acks.acks {
            let outcome = incoming::outcome(ack.outcome);
            let switch = self.switches.get_mut(id);
            let answered = switch.and_then(|switch| switch.acknowledged(ack.seq, outcome));
            let Some((key, asked)) = answered else {
                continue;
            };
            for change in asked.replaced.iter().chain([&asked.change]) {
                let event = Event::Answered {
                    switch: id,
                    tenant: key.tenant,
                    key: &key.key,
                    change,
                    outcome,
                };
                self.tell(event, journal);
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
        for (tenant, keys) in counts.iter().filter(|(_, keys)| !keys.is_empty()) {
            let event = Event::Hot {
                switch: id,
                tenant: *tenant,
                window: hot.window,
                keys,
            };
            self.tell(event, journal);
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
            let event = Event::WindowEnd {
                switch: id,
                tenant,
                window: counters.window,
                items: items.get(&tenant).map_or(&[], Vec::as_slice),
                tallies: tallies.get(&tenant).unwrap_or(&[0; decide::TALLIES]),
            };
            self.tell(event, journal);
        }
    }

    /// A switch gave items up.
    pub fn dropped(&mut self, id: SwitchId, dropped: &Dropped, journal: &mut Journal) {
        for (keys, unfit) in [(&dropped.keys, false), (&dropped.unfit, true)] {
            let items = incoming::items(keys);
            if let Some(switch) = self.switches.get_mut(id) {
                switch.dropped(&items);
            }
            for (tenant, keys) in &incoming::by_tenant(items) {
                let event = Event::Dropped {
                    switch: id,
                    tenant: *tenant,
                    keys,
                    unfit,
                };
                self.tell(event, journal);
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
            self.tell(Event::Configured { switch, tenant }, journal);
        }
    }

    /// A discipline's half in a switch's agent reports.
    pub fn switch_reported(&mut self, switch: SwitchId, said: &HalfReport, journal: &mut Journal) {
        let (tenant, report) = (said.tenant, &said.report[..]);
        if self.disciplines.name_of(tenant) == said.discipline && report.len() <= MESSAGE_MAX {
            let event = Event::SwitchReported {
                switch,
                tenant,
                report,
            };
            self.tell(event, journal);
        }
    }

    /// A store took messages in, or reports.
    pub fn store_said(&mut self, stream: StoreStreamId, said: FromStore, journal: &mut Journal) {
        let Some(store) = self.stores.on(stream) else {
            return;
        };
        match said.body {
            Some(Body::Ack(ack)) => {
                for tenant in self.stores.acknowledged(stream, ack.seq) {
                    self.tell(Event::Told { store, tenant }, journal);
                }
            }
            Some(Body::Report(said)) => {
                let (tenant, report) = (said.tenant, &said.report[..]);
                let is_its = self.disciplines.name_of(tenant) == said.discipline;
                if is_its && report.len() <= MESSAGE_MAX {
                    let event = Event::Reported {
                        store,
                        tenant,
                        report,
                    };
                    self.tell(event, journal);
                }
            }
            Some(Body::Hello(_)) | None => {}
        }
    }
}
