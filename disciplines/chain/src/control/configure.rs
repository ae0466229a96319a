//! What switches are told: the view, each with its own slot in it.

use std::collections::BTreeSet;

use bytes::Bytes;
use decide::{Action, Configuration, Row, SwitchId};

use super::{Switches, tenant::Tenant};
use crate::view::{FULL, Member, View};

impl Tenant {
    /// Tells every switch with memory what it is to go by, if that is another than it was told:
    /// members first, and those before that are none any longer.
    pub(super) fn configure(&mut self, switches: &Switches, out: &mut Vec<Action>) {
        let Some(view) = &self.memory.view else {
            return;
        };
        let life_of = |switch: &SwitchId| switches.get(switch).map_or(0, |seen| seen.life);
        let members: BTreeSet<SwitchId> = self.members().into_iter().collect();
        let others = self.rooms.difference(&members);
        let all: Vec<SwitchId> = members.iter().chain(others).copied().collect();
        let lives = all.iter().map(|switch| (*switch, life_of(switch))).collect();
        let configured = (self.full, lives);
        if !self.is_due && self.configured == configured {
            return;
        }
        for switch in all {
            let Some(row) = self.view_of(view, switch, switches).row() else {
                continue;
            };
            out.push(Action::Configure {
                switch,
                tenant: self.id,
                configuration: Configuration {
                    rows: [row].into_iter().chain(self.full_row()).collect(),
                    ..Configuration::default()
                },
            });
        }
        (self.configured, self.is_due) = (configured, false);
    }

    /// What a switch is told. One that is no member has a slot for itself alone, so that it can say
    /// who has the keys.
    fn view_of(&self, view: &View, switch: SwitchId, switches: &Switches) -> View {
        let mut its = view.clone();
        if let Some(slot) = self.slot_of(switch) {
            let member = view.members[usize::from(slot)];
            (its.slot, its.life) = (Some(slot), member.map_or(0, |member| member.life));
            return its;
        }
        let Some(seen) = switches.get(&switch) else {
            return its;
        };
        its.life = seen.life;
        let free = view.members.iter().position(Option::is_none);
        let is_ipv6 = view.members.iter().flatten().any(|m| m.address.is_ipv6());
        let address = seen.address.filter(|address| address.is_ipv6() == is_ipv6);
        if let Some((slot, address)) = free.zip(address) {
            its.slot = Some(slot as u8);
            its.members[slot] = Some(Member { address, switch, life: seen.life });
        }
        its
    }

    fn full_row(&self) -> Option<Row> {
        self.full.then(|| Row {
            map: FULL.into(),
            key: Bytes::copy_from_slice(&self.id.to_ne_bytes()),
            value: Bytes::copy_from_slice(&1u32.to_ne_bytes()),
        })
    }
}
