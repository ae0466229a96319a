//! What people change at run time: tenants, their secrets and their pages. Each change is made whole or refused, and
//! is in the audit log.

use std::collections::BTreeSet;

use api::types::{NAME_MAX, NewSecret, PageId, PageRequest, ReturnPages, TenantChange, TenantSpec};
use wire::{TENANT_OPEN, TENANT_SYSTEM};

use super::{
    core::Core,
    tenants::{QuotaLease, TENANTS_MAX, Tenant},
};
use crate::{
    SwitchId,
    admin::{Refusal, RefusalKind},
    pages::ledger::{Kind, PageRow},
};

/// Whose request it is, and when it came.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// For the audit log.
    pub who: &'a str,
    /// Milliseconds since 1970.
    pub at_ms: u64,
}

fn invalid(message: String) -> Refusal {
    Refusal::new(RefusalKind::Invalid, message)
}

fn conflict(message: String) -> Refusal {
    Refusal::new(RefusalKind::Conflict, message)
}

fn random_secret() -> String {
    hex::encode(rand::random::<[u8; 16]>())
}

fn check_secret(secret: &str) -> Result<(), Refusal> {
    let mut bytes = [0; 16];
    let good = hex::decode_to_slice(secret, &mut bytes).is_ok() && bytes != [0; 16];
    good.then_some(())
        .ok_or_else(|| invalid("secret: 32 hex digits, not all zero, are expected".into()))
}

impl Core {
    /// Creates a tenant; see [`crate::admin::Admin::create_tenant`].
    pub(super) fn create_tenant(
        &mut self,
        asked: Asked<'_>,
        spec: TenantSpec,
    ) -> Result<u32, Refusal> {
        let id = spec.id.unwrap_or_else(|| self.tenants.free_id());
        if id == TENANT_OPEN || id == TENANT_SYSTEM {
            return Err(invalid(format!(
                "tenant {id}: this number is reserved; 1 to {} are possible",
                TENANT_SYSTEM - 1
            )));
        }
        if self.tenants.get(id).is_some() {
            return Err(conflict(format!("tenant {id} is there already")));
        }
        if self.tenants.is_retired(id) && !spec.reuse {
            return Err(conflict(format!(
                "tenant {id} was removed, and the stores may still have its values: choose another number, or say that it \
                 is to be reused"
            )));
        }
        if self.tenants.len() >= TENANTS_MAX {
            return Err(conflict(format!(
                "there are {TENANTS_MAX} tenants already, which is the most"
            )));
        }
        let secret = spec.secret.unwrap_or_else(random_secret);
        check_secret(&secret)?;
        let tenant = Tenant {
            name: spec.name,
            hash_secret: Some(secret.clone()),
            secret,
            quota: spec.quota,
            policy: spec.policy,
            rate: spec.rate,
            over_rate: spec.over_rate.into(),
            discipline: spec.discipline,
            stores: spec.stores,
            clients: spec.clients,
            borrow: spec.borrow,
            ..Tenant::new(id)
        };
        self.check(&tenant)?;
        let placement = self.try_to_place(&tenant)?;
        let detail = format!(
            "tenant {id} {:?}, quota {}, policy {}, rate {}",
            tenant.name,
            tenant.quota,
            tenant.policy.name(),
            tenant.rate
        );
        self.applications.choose(id, tenant.discipline.as_deref());
        self.tenants.put(tenant);
        self.guarantee(id, placement);
        self.audit(asked, "tenant.create", detail);
        Ok(id)
    }

    /// Changes a tenant; see [`crate::admin::Admin::change_tenant`].
    pub(super) fn change_tenant(
        &mut self,
        asked: Asked<'_>,
        id: u32,
        change: TenantChange,
    ) -> Result<(), Refusal> {
        let before = self.known_tenant(id)?.clone();
        let detail = serde_json::to_string(&change).unwrap_or_default();
        let mut tenant = before.clone();
        let set = |to: &mut String, from: Option<String>| {
            if let Some(from) = from {
                *to = from;
            }
        };
        set(&mut tenant.name, change.name);
        tenant.quota = change.quota.unwrap_or(tenant.quota);
        tenant.policy = change.policy.unwrap_or(tenant.policy);
        tenant.rate = change.rate.unwrap_or(tenant.rate);
        tenant.over_rate = change.over_rate.map_or(tenant.over_rate, Into::into);
        tenant.discipline = change.discipline.or(tenant.discipline);
        tenant.stores = change.stores.unwrap_or(tenant.stores);
        tenant.clients = change.clients.unwrap_or(tenant.clients);
        tenant.borrow = change.borrow.unwrap_or(tenant.borrow);
        if id == TENANT_OPEN && !tenant.stores.is_empty() {
            return Err(invalid(
                "tenant 0 is open to everybody: it cannot be limited to some stores".into(),
            ));
        }
        self.check(&tenant)?;
        // Only what was changed may be refused for want of room.
        let moves = (tenant.quota, tenant.policy, &tenant.clients, &tenant.stores)
            != (before.quota, before.policy, &before.clients, &before.stores);
        if moves {
            let placement = self.try_to_place(&tenant)?;
            self.guarantee(id, placement);
        }
        if tenant.discipline != before.discipline || tenant.stores != before.stores {
            // The discipline before forgets all; the next one learns anew.
            self.release_pages(id);
            self.applications.choose(id, tenant.discipline.as_deref());
        }
        if tenant.quota < before.quota {
            shorten_leases(&mut tenant);
        }
        self.tenants.put(tenant);
        self.audit(asked, "tenant.change", format!("tenant {id}: {detail}"));
        Ok(())
    }

    /// Removes a tenant; see [`crate::admin::Admin::remove_tenant`].
    pub(super) fn remove_tenant(&mut self, asked: Asked<'_>, id: u32) -> Result<(), Refusal> {
        let tenant = self.known_tenant(id)?;
        if tenant.declared.is_some() {
            return Err(conflict(format!(
                "tenant {id} is in the cluster file: take it out there and restart the controller"
            )));
        }
        if id == TENANT_OPEN {
            return Err(conflict(
                "tenant 0 is switched off with open_tenant = false in the cluster file".into(),
            ));
        }
        self.release_pages(id);
        for switch in self.switches.values_mut() {
            switch.known_dirty |= switch.known.thresholds.remove(&id).is_some();
        }
        self.tenants.remove(id);
        self.guarantee(id, vec![]);
        self.audit(asked, "tenant.remove", format!("tenant {id}"));
        Ok(())
    }

    /// Begins a rotation; see [`crate::admin::Admin::rotate_secret`].
    pub(super) fn rotate_secret(
        &mut self,
        asked: Asked<'_>,
        id: u32,
    ) -> Result<NewSecret, Refusal> {
        let mut tenant = self.with_secret(id)?.clone();
        if tenant.also_secret.is_some() {
            return Err(conflict(format!(
                "tenant {id}: a rotation goes on; finish it first, then begin the next"
            )));
        }
        let old = std::mem::replace(&mut tenant.secret, random_secret());
        tenant.hash_secret.get_or_insert_with(|| old.clone());
        tenant.also_secret = Some(old);
        let secrets = new_secret(&tenant);
        self.tenants.put(tenant);
        self.audit(
            asked,
            "tenant.rotate",
            format!("tenant {id}: two secrets are valid"),
        );
        Ok(secrets)
    }

    /// Ends a rotation; see [`crate::admin::Admin::finish_rotation`].
    pub(super) fn finish_rotation(
        &mut self,
        asked: Asked<'_>,
        id: u32,
    ) -> Result<NewSecret, Refusal> {
        let mut tenant = self.with_secret(id)?.clone();
        if tenant.also_secret.take().is_none() {
            return Err(conflict(format!("tenant {id}: no rotation goes on")));
        }
        let secrets = new_secret(&tenant);
        self.tenants.put(tenant);
        self.audit(
            asked,
            "tenant.rotated",
            format!("tenant {id}: one secret is valid"),
        );
        Ok(secrets)
    }

    /// Guarantees more pages; see [`crate::admin::Admin::ask_pages`].
    pub(super) fn ask_pages(
        &mut self,
        asked: Asked<'_>,
        id: u32,
        request: PageRequest,
    ) -> Result<Vec<PageId>, Refusal> {
        let mut tenant = self.known_tenant(id)?.clone();
        if request.pages == 0 {
            return Err(invalid("pages = 0: at least 1 is expected".into()));
        }
        let before: BTreeSet<PageId> = self.own_pages(id);
        tenant.quota = tenant.quota.checked_add(request.pages).ok_or_else(|| {
            invalid(format!(
                "pages = {}: that is more than there can be",
                request.pages
            ))
        })?;
        if let Some(switch) = request.switch {
            if !self.switches.contains_key(&switch) {
                return Err(Refusal::new(
                    RefusalKind::NotFound,
                    format!("there is no switch {switch}"),
                ));
            }
            *tenant.pinned.entry(switch).or_default() += request.pages;
        }
        let placement = self.try_to_place(&tenant)?;
        if let Some(seconds) = request.lease_s {
            tenant.leases.push(QuotaLease {
                pages: request.pages,
                ends: (asked.at_ms / 1000).saturating_add(seconds),
                every_s: seconds,
            });
        }
        let quota = tenant.quota;
        self.tenants.put(tenant);
        self.guarantee(id, placement);
        let detail = format!("tenant {id}: {} more, quota {quota}", request.pages);
        self.audit(asked, "pages.ask", detail);
        self.allocate(self.now);
        Ok(self.own_pages(id).difference(&before).copied().collect())
    }

    fn own_pages(&self, tenant: u32) -> BTreeSet<PageId> {
        let own = self
            .ledger
            .held(tenant)
            .filter(|(_, hold)| hold.kind == Kind::Own);
        own.map(|(page, _)| page).collect()
    }

    /// Takes guaranteed pages back; see [`crate::admin::Admin::return_pages`].
    pub(super) fn return_pages(
        &mut self,
        asked: Asked<'_>,
        id: u32,
        returned: &ReturnPages,
    ) -> Result<Vec<PageId>, Refusal> {
        let mut tenant = self.known_tenant(id)?.clone();
        let count = match (returned.count, returned.pages.len()) {
            (Some(count), 0) if count > 0 => count,
            (None, pages) if pages > 0 => pages as u32,
            _ => {
                return Err(invalid(
                    "either `pages`, a list of SWITCH/PAGE, or `count`, at least 1, is expected"
                        .into(),
                ));
            }
        };
        for page in &returned.pages {
            self.ledger
                .check_held(id, *page)
                .map_err(|e| conflict(e.to_string()))?;
            if let Some(PageRow::Held(hold)) = self.ledger.row(*page)
                && (hold.tenant, hold.kind) == (id, Kind::Lent)
            {
                return Err(conflict(format!(
                    "page {page} is not one of tenant {id}'s own: it is lent to it, and goes back by itself"
                )));
            }
        }
        if count > tenant.quota {
            return Err(invalid(format!(
                "tenant {id}: {count} pages cannot be returned, its quota is {}",
                tenant.quota
            )));
        }
        self.ledger
            .take(id, &returned.pages)
            .map_err(|e| conflict(e.to_string()))?;
        tenant.quota -= count;
        shorten_leases(&mut tenant);
        for page in &returned.pages {
            if let Some(pinned) = tenant.pinned.get_mut(&page.switch) {
                *pinned = pinned.saturating_sub(1);
            }
        }
        tenant.pinned.retain(|_, pages| *pages > 0);
        // Fewer pages than before always have a place.
        let placement = self.placement(&tenant).rooms;
        let mut leaving = returned.pages.clone();
        if returned.count.is_some() {
            leaving = self.take_what_is_over(id, &placement);
        }
        let quota = tenant.quota;
        self.tenants.put(tenant);
        self.guarantee(id, placement);
        self.audit(
            asked,
            "pages.return",
            format!("tenant {id}: {count} fewer, quota {quota}"),
        );
        Ok(leaving)
    }

    /// Takes the coldest of a tenant's own pages from switches where it is to be guaranteed fewer.
    fn take_what_is_over(&mut self, id: u32, placement: &[(SwitchId, u32)]) -> Vec<PageId> {
        let mut taken = vec![];
        for (switch, before) in self.allocation.placed(id).to_vec() {
            let after = placement.iter().find(|(to, _)| *to == switch);
            let fewer = before.saturating_sub(after.map_or(0, |(_, pages)| *pages));
            taken.extend(self.take_coldest(switch, id, Kind::Own, fewer));
        }
        taken
    }

    /// Adds to the audit log.
    pub(super) fn audit(&mut self, asked: Asked<'_>, what: &str, detail: String) {
        let entry = super::audit::Entry {
            at_ms: asked.at_ms,
            who: asked.who.into(),
            what: what.into(),
            detail,
        };
        self.audit.add(&mut self.journal, entry);
    }

    pub(super) fn known_tenant(&self, id: u32) -> Result<&Tenant, Refusal> {
        self.tenants.get(id).ok_or_else(|| Refusal::no_tenant(id))
    }

    fn with_secret(&self, id: u32) -> Result<&Tenant, Refusal> {
        let tenant = self.known_tenant(id)?;
        if id == TENANT_OPEN {
            return Err(conflict(
                "tenant 0 is open to everybody: it has no secret".into(),
            ));
        }
        Ok(tenant)
    }

    /// Whether a tenant fits this cluster, but for its pages.
    fn check(&self, tenant: &Tenant) -> Result<(), Refusal> {
        let of = format!("tenant {}", tenant.id);
        if tenant.name.len() > NAME_MAX {
            return Err(invalid(format!(
                "{of}: the name is longer than {} bytes",
                NAME_MAX
            )));
        }
        let same_name = |other: &&Tenant| other.id != tenant.id && other.name == tenant.name;
        if !tenant.name.is_empty()
            && let Some(other) = self.tenants.iter().find(same_name)
        {
            return Err(conflict(format!(
                "{of}: the name {:?} is taken by tenant {}",
                tenant.name, other.id
            )));
        }
        if let Some(name) = &tenant.discipline
            && !self.applications.names().any(|known| known == name)
        {
            let known: Vec<&str> = self.applications.names().collect();
            return Err(invalid(format!(
                "{of}: discipline {name:?} is not known; expected one of {}",
                known.join(", ")
            )));
        }
        let is_known = |store: &&std::net::SocketAddr| {
            self.plan
                .cluster
                .stores
                .iter()
                .any(|s| s.address == **store)
        };
        if let Some(store) = tenant.stores.iter().find(|store| !is_known(store)) {
            return Err(invalid(format!(
                "{of}: {store} is not one of the cluster's stores: {}",
                self.plan
                    .cluster
                    .stores
                    .iter()
                    .take(8)
                    .map(|s| s.address.to_string())
                    .collect::<Vec<_>>()
                    .join(", ")
            )));
        }
        Ok(())
    }

    /// Parts of quotas that end: those of their pages that are unused go back.
    pub(super) fn end_leases(&mut self, clock: u64) {
        let due = |t: &&Tenant| t.leases.iter().any(|lease| lease.ends <= clock);
        let due: Vec<u32> = self.tenants.iter().filter(due).map(|t| t.id).collect();
        for id in due {
            let Some(mut tenant) = self.tenants.get(id).cloned() else {
                continue;
            };
            let mut unused = tenant.quota.saturating_sub(self.pages_in_use(id));
            let before = tenant.quota;
            for lease in tenant.leases.iter_mut().filter(|lease| lease.ends <= clock) {
                let back = lease.pages.min(unused);
                unused -= back;
                lease.pages -= back;
                tenant.quota -= back;
                lease.ends = clock + lease.every_s.max(1);
            }
            tenant.leases.retain(|lease| lease.pages > 0);
            let gone = before - tenant.quota;
            let excess = tenant
                .pinned
                .values()
                .sum::<u32>()
                .saturating_sub(tenant.quota);
            unpin(&mut tenant, excess);
            self.tenants.put(tenant);
            if gone > 0 {
                self.allocation.place_again();
                let controller = Asked {
                    who: "controller",
                    at_ms: clock * 1000,
                };
                let detail = format!("tenant {id}: {gone} unused, their time is over");
                self.audit(controller, "pages.ended", detail);
            }
        }
    }
}

fn new_secret(tenant: &Tenant) -> NewSecret {
    NewSecret {
        tenant: tenant.id,
        secret: tenant.secret.clone(),
        also_secret: tenant.also_secret.clone(),
    }
}

/// Fewer pages are guaranteed: no more of them can end, and no more can be bound to switches.
fn shorten_leases(tenant: &mut Tenant) {
    let mut excess = tenant
        .leases
        .iter()
        .map(|lease| lease.pages)
        .sum::<u32>()
        .saturating_sub(tenant.quota);
    for lease in tenant.leases.iter_mut().rev() {
        let less = lease.pages.min(excess);
        lease.pages -= less;
        excess -= less;
    }
    tenant.leases.retain(|lease| lease.pages > 0);
    let bound = tenant.pinned.values().sum::<u32>();
    unpin(tenant, bound.saturating_sub(tenant.quota));
}

fn unpin(tenant: &mut Tenant, mut excess: u32) {
    for pages in tenant.pinned.values_mut().rev() {
        let less = (*pages).min(excess);
        *pages -= less;
        excess -= less;
    }
    tenant.pinned.retain(|_, pages| *pages > 0);
}
