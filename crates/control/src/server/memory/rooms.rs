//! Where tenants have memory, as their disciplines were told.

use std::collections::{BTreeMap, BTreeSet};

use api::proto::{self, TenantSwitches};
use decide::SwitchId;

use super::placements::Placements;
use crate::pages::{
    ledger::{Kind, Ledger},
    share::Portion,
};

/// A tenant's switches with its pages there, in the order in which they are filled.
pub type TenantRooms = Vec<(SwitchId, Portion)>;

/// The rooms of all tenants that have any.
#[derive(Debug, Default)]
pub struct Rooms {
    of: BTreeMap<u32, TenantRooms>,
    /// Rises whenever a tenant came to a switch or left one; 0: not looked yet.
    version: u64,
}

/// Tenants whose rooms changed, and the switches that one of them came to or left.
#[derive(Debug, Default)]
pub struct RoomsChanged {
    pub rooms: Vec<(u32, TenantRooms)>,
    pub switches: BTreeSet<SwitchId>,
}

impl Rooms {
    /// A tenant's, in the order in which they are filled.
    pub fn of(&self, tenant: u32) -> &[(SwitchId, Portion)] {
        self.of.get(&tenant).map_or(&[], Vec::as_slice)
    }

    /// Whether a tenant has pages on a switch.
    pub fn has(&self, tenant: u32, switch: SwitchId) -> bool {
        self.of(tenant).iter().any(|(id, _)| *id == switch)
    }

    /// Looks at all pages, and says what changed.
    pub fn update(&mut self, ledger: &Ledger, placements: &Placements) -> RoomsChanged {
        let mut all: BTreeMap<u32, BTreeMap<SwitchId, Portion>> = BTreeMap::new();
        for (page, hold) in ledger.holds() {
            let on = all.entry(hold.tenant).or_default();
            let has = on.entry(page.switch).or_default();
            match hold.kind {
                Kind::Own => has.own += 1,
                Kind::Lent => has.lent += 1,
            }
        }
        let tenants: BTreeSet<u32> = all.keys().chain(self.of.keys()).copied().collect();
        let mut changed = RoomsChanged::default();
        for tenant in tenants {
            let mut here = all.remove(&tenant).unwrap_or_default();
            let order = placements.fill_order(tenant, here.keys().copied());
            let portion = |id: SwitchId| Some((id, here.remove(&id)?));
            let rooms: TenantRooms = order.into_iter().filter_map(portion).collect();
            if self.of(tenant) == rooms {
                continue;
            }
            let switches = |rooms: &[(SwitchId, Portion)]| -> BTreeSet<SwitchId> {
                rooms.iter().map(|(id, _)| *id).collect()
            };
            let (before, after) = (switches(self.of(tenant)), switches(&rooms));
            changed.switches.extend(&before ^ &after);
            match rooms.is_empty() {
                true => self.of.remove(&tenant),
                false => self.of.insert(tenant, rooms.clone()),
            };
            changed.rooms.push((tenant, rooms));
        }
        if self.version == 0 || !changed.switches.is_empty() {
            self.version += 1;
        }
        changed
    }

    /// Rises whenever a tenant came to a switch or left one; `None` before the first look at
    /// the pages.
    pub fn version(&self) -> Option<u64> {
        (self.version > 0).then_some(self.version)
    }

    /// What stores are to know of it: where each tenant has pages.
    pub fn placements(&self) -> proto::Placements {
        let tenant = |(tenant, rooms): (&u32, &TenantRooms)| TenantSwitches {
            tenant: *tenant,
            switches: rooms.iter().map(|(id, _)| u32::from(*id)).collect(),
        };
        let tenants = self.of.iter().map(tenant).collect();
        proto::Placements { tenants }
    }
}
