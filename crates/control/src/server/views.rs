//! What people are shown of tenants, pages and switches.

use std::collections::BTreeMap;

use api::types::{LeaseView, PageId, PageKind, PageView, SwitchView, TenantOnSwitch, TenantView};
use wire::TENANT_OPEN;

use super::{
    core::Core,
    tenants::{QuotaLease, Tenant},
};
use crate::{
    SwitchId,
    admin::{PageFilter, Refusal, RefusalKind},
    pages::ledger::{Count, Kind, PageRow},
};

impl Core {
    /// A tenant, with its secrets if they are asked for.
    pub(super) fn tenant_view(&self, tenant: &Tenant, secrets: bool) -> TenantView {
        let switches: Vec<TenantOnSwitch> = self
            .switches
            .keys()
            .filter_map(|id| self.tenant_on_switch(tenant.id, *id))
            .collect();
        let cells: u64 = switches.iter().map(|s| s.cells).sum();
        let worst = switches.iter().map(|s| s.fragmentation).fold(0.0, f64::max);
        let shown = |secret: Option<&String>| {
            let secret = secret.filter(|s| secrets && !s.is_empty());
            secret.cloned()
        };
        TenantView {
            id: tenant.id,
            name: tenant.name.clone(),
            secret: shown(Some(&tenant.secret)),
            also_secret: shown(tenant.also_secret.as_ref()),
            hash_secret: shown(tenant.hash_secret.as_ref()),
            rotating: tenant.also_secret.is_some(),
            quota: tenant.quota,
            policy: tenant.policy,
            rate: tenant.rate,
            over_rate: tenant.over_rate.into(),
            discipline: self.applications.of(tenant.id).into(),
            stores: tenant.stores.clone(),
            clients: tenant.clients.clone(),
            borrow: tenant.borrow,
            declared: tenant.declared.is_some() || tenant.id == TENANT_OPEN,
            own_pages: switches.iter().map(|s| s.own_pages).sum(),
            borrowed_pages: switches.iter().map(|s| s.borrowed_pages).sum(),
            lent_out_pages: self.lent_out(tenant.id),
            leaving_pages: switches.iter().map(|s| s.leaving_pages).sum(),
            leases: self.leases(tenant),
            items: switches.iter().map(|s| s.items).sum(),
            cells,
            fragmentation: worst,
            switches,
        }
    }

    /// Guaranteed pages of a tenant that others use: of each switch those that it lacks, as far as somebody borrows there.
    fn lent_out(&self, tenant: u32) -> u32 {
        let on = |(switch, guaranteed): &(SwitchId, u32)| {
            let counts = self.ledger.counts(*switch);
            let has = counts.get(&tenant).map_or(0, |c| c.own);
            let others = counts.iter().filter(|(id, _)| **id != tenant);
            let lent: u32 = others.map(|(_, c)| c.lent).sum();
            guaranteed.saturating_sub(has).min(lent)
        };
        self.allocation.placed(tenant).iter().map(on).sum()
    }

    fn leases(&self, tenant: &Tenant) -> Vec<LeaseView> {
        let now = self.clock_ms / 1000;
        let view = |lease: &QuotaLease| LeaseView {
            pages: lease.pages,
            ends_in_s: lease.ends.saturating_sub(now),
        };
        let mut leases: Vec<LeaseView> = tenant.leases.iter().map(view).collect();
        leases.sort_by_key(|lease| lease.ends_in_s);
        leases
    }

    fn tenant_on_switch(&self, tenant: u32, id: SwitchId) -> Option<TenantOnSwitch> {
        let switch = self.switches.get(&id)?;
        let Count { own, lent, leaving } = *self.ledger.counts(id).get(&tenant)?;
        let pages = self.ledger.holds_on(id);
        let its = pages.filter(|(_, hold)| hold.tenant == tenant);
        let seen = its.filter_map(|(page, _)| switch.pages_seen.get(&page));
        let cells = seen.map(|seen| u64::from(seen.cells)).sum();
        Some(TenantOnSwitch {
            switch: id,
            own_pages: own,
            borrowed_pages: lent,
            leaving_pages: leaving,
            items: switch.held.of(tenant) as u64,
            cells,
            fragmentation: switch.fragmentation.get(&tenant).copied().unwrap_or(0.0),
        })
    }

    /// Pages that the filter lets through, by switch and index.
    pub(super) fn page_views(&self, filter: PageFilter) -> Result<Vec<PageView>, Refusal> {
        if let Some(tenant) = filter.tenant {
            self.known_tenant(tenant)?;
        }
        let unknown = |id: &SwitchId| !self.switches.contains_key(id);
        if let Some(id) = filter.switch.filter(unknown) {
            let text = format!("there is no switch {id}");
            return Err(Refusal::new(RefusalKind::NotFound, text));
        }
        let rows: BTreeMap<PageId, PageRow> = self.ledger.rows().collect();
        let all = self
            .ledger
            .switches()
            .flat_map(|(switch, pages)| (0..pages).map(move |page| PageId { switch, page }));
        let views = all
            .filter(|id| filter.switch.is_none_or(|switch| id.switch == switch))
            .filter(|id| filter.after.is_none_or(|after| *id > after))
            .map(|id| self.page_view(id, rows.get(&id)))
            .filter(|view| {
                filter
                    .tenant
                    .is_none_or(|tenant| view.tenant == Some(tenant))
            })
            .filter(|view| filter.kind.is_none_or(|kind| view.kind == kind));
        Ok(views.take(filter.limit).collect())
    }

    /// One page.
    pub(super) fn page_view(&self, id: PageId, row: Option<&PageRow>) -> PageView {
        let (tenant, kind) = match row {
            None => (None, PageKind::Free),
            Some(PageRow::Leaving { from, .. }) => (Some(*from), PageKind::Leaving),
            Some(PageRow::Held(hold)) => {
                let kind = match hold.kind {
                    Kind::Own => PageKind::Own,
                    Kind::Lent => PageKind::Lent,
                };
                (Some(hold.tenant), kind)
            }
        };
        let switch = self.switches.get(&id.switch);
        let seen = switch.and_then(|s| s.pages_seen.get(&id.page));
        let idle = switch.map_or(u64::MAX, |s| s.idle_windows(id.page));
        PageView {
            switch: id.switch,
            page: id.page,
            tenant,
            kind,
            items: seen.map_or(0, |s| s.items),
            cells: seen.map_or(0, |s| s.cells),
            idle_windows: (idle != u64::MAX).then_some(idle),
        }
    }

    /// All switches.
    pub(super) fn switch_views(&self) -> Vec<SwitchView> {
        let view = |(id, s): (&SwitchId, &super::switch::Switch)| SwitchView {
            id: *id,
            name: s.known.name.clone(),
            attached: s.is_ready(),
            pages: s.known.pages,
            free_pages: self.ledger.free(*id),
            lent_pages: self.ledger.counts(*id).values().map(|c| c.lent).sum(),
            items: s.held.len() as u64,
        };
        self.switches.iter().map(view).collect()
    }
}
