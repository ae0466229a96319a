//! Tenants come, change and go; their secrets are rotated.

use std::net::SocketAddr;

use api::types::{NAME_MAX, NewSecret, TenantChange, TenantSpec};
use decide::{Items, Runs, WRITE_BACK};
use wire::{Secret, TENANT_OPEN, TENANT_SYSTEM};

use super::{Change, LeavingPages, check_occupied, conflict, invalid, shorten};
use crate::{
    admin::Refusal,
    server::{
        tenants::{TENANTS_MAX, Tenant},
        views::View,
    },
};

/// Stores that a refusal names at most.
const STORES_NAMED: usize = 8;

fn check_secret(secret: &str) -> Result<(), Refusal> {
    let mut bytes = [0; 16];
    let good = hex::decode_to_slice(secret, &mut bytes).is_ok() && bytes != [0; 16];
    good.then_some(())
        .ok_or_else(|| invalid("secret: 32 hex digits, not all zero, are expected".into()))
}

/// Creates a tenant; see [`crate::admin::Admin::create_tenant`]. It has the `fresh` secret unless
/// it asks for another.
///
/// # Errors
/// As there.
pub fn create(view: &View<'_>, spec: TenantSpec, fresh: Secret) -> Result<Change, Refusal> {
    let tenants = view.around.tenants;
    let id = spec.id.unwrap_or_else(|| tenants.free_id());
    if id == TENANT_OPEN || id == TENANT_SYSTEM {
        return Err(invalid(format!(
            "tenant {id}: this number is reserved; 1 to {} are possible",
            TENANT_SYSTEM - 1
        )));
    }
    if tenants.get(id).is_some() {
        return Err(conflict(format!("tenant {id} is there already")));
    }
    if tenants.is_retired(id) && !spec.reuse {
        return Err(conflict(format!(
            "tenant {id} was removed, and the stores may still have its values: choose another number, or say that it \
             is to be reused (--reuse)"
        )));
    }
    check_is_clear(view, id)?;
    if tenants.len() >= TENANTS_MAX {
        return Err(conflict(format!(
            "there are {TENANTS_MAX} tenants already, which is the most"
        )));
    }
    let secret = spec.secret.clone().unwrap_or_else(|| hex::encode(fresh.0));
    check_secret(&secret)?;
    let tenant =
        Tenant { hash_secret: Some(secret.clone()), secret, terms: spec.into(), ..Tenant::new(id) };
    check(view, &tenant)?;
    check_kernels(view, &tenant)?;
    check_write_back(view, &tenant)?;
    let guaranteed = view.memory.try_to_place(&tenant, &view.around)?;
    let detail = format!(
        "tenant {id} {:?}, quota {}, policy {}, rate {}",
        tenant.terms.name,
        tenant.terms.quota,
        tenant.terms.policy.name(),
        tenant.terms.rate
    );
    Ok(Change { guaranteed: Some(guaranteed), ..Change::of(tenant, "tenant.create", detail) })
}

/// Refuses a number whose former tenant a switch may still have: of two setups only the later is
/// told to it, and it would take the new tenant for the old one, with all that is on its pages.
fn check_is_clear(view: &View<'_>, id: u32) -> Result<(), Refusal> {
    let Some(switch) = view.memory.leaving(id).next() else { return Ok(()) };
    let name = view.around.switches.get(switch).map(|switch| &*switch.known().name);
    let name = name.unwrap_or_default();
    Err(conflict(format!(
        "tenant {id}: switch {switch} ({name}) has not said yet that nothing of the removed tenant is left there: try \
         again when it has been attached for a moment, or, if it is gone for good, shortstop topology forget {switch}"
    )))
}

/// Changes a tenant; see [`crate::admin::Admin::change_tenant`].
///
/// # Errors
/// As there.
pub fn change(view: &View<'_>, id: u32, change: TenantChange) -> Result<Change, Refusal> {
    let before = view.known(id)?;
    let detail = serde_json::to_string(&change).unwrap_or_default();
    let after = changed(before, change);
    if id == TENANT_OPEN && !after.terms.stores.is_empty() {
        return Err(invalid(
            "tenant 0 is open to everybody: it cannot be limited to some stores".into(),
        ));
    }
    check(view, &after)?;
    let new_discipline = after.terms.discipline != before.terms.discipline;
    // What it has already is not refused, whatever came to be attached since.
    if new_discipline {
        check_kernels(view, &after)?;
    }
    if before.terms.write_back_ms == 0 {
        check_write_back(view, &after)?;
    }
    match new_discipline {
        true => check_may_leave(view, id)?,
        false => check_fixed(view, before, &after)?,
    }
    let mut after = after;
    if after.terms.quota < before.terms.quota {
        check_occupied(view, id, after.terms.quota)?;
        shorten(&mut after);
    }
    // Only what was changed may be refused for want of room.
    let moves = (after.terms.quota, after.terms.policy, &after.terms.clients, &after.terms.stores)
        != (before.terms.quota, before.terms.policy, &before.terms.clients, &before.terms.stores);
    let guaranteed = moves.then(|| view.memory.try_to_place(&after, &view.around));
    // The discipline before forgets all, and the next one learns anew. Items that are nowhere else
    // are no store's.
    let moved_stores =
        after.terms.stores != before.terms.stores && !view.around.disciplines.has_truth(id);
    Ok(Change {
        guaranteed: guaranteed.transpose()?,
        leaving: match new_discipline || moved_stores {
            true => LeavingPages::All,
            false => LeavingPages::Nothing,
        },
        forgotten: new_discipline,
        ..Change::of(after, "tenant.change", format!("tenant {id}: {detail}"))
    })
}

fn changed(before: &Tenant, mut change: TenantChange) -> Tenant {
    let mut tenant = before.clone();
    if change.quota.is_some() {
        tenant.given = None;
    }
    let named = change.discipline.as_ref();
    if named.is_some_and(|named| *named != before.terms.discipline) {
        // Another discipline's options mean something else.
        change.options.get_or_insert_default();
    } else if let Some(options) = &mut change.options {
        let mut all = before.terms.options.clone();
        all.append(options);
        *options = all;
    }
    tenant.terms = tenant.terms.changed_by(change);
    tenant
}

/// Refuses to change an option by which the tenant's items were made: those that are made later
/// would not go with them.
fn check_fixed(view: &View<'_>, before: &Tenant, after: &Tenant) -> Result<(), Refusal> {
    let disciplines = view.around.disciplines;
    let (id, discipline) = (after.id, disciplines.named(after.terms.discipline()));
    let (before, after) = (&before.terms.options, &after.terms.options);
    let Some(name) = discipline.and_then(|d| d.changes_fixed(before, after)) else { return Ok(()) };
    let occupied = view.memory.occupied(id, &view.around).len();
    if occupied == 0 {
        return Ok(());
    }
    Err(conflict(format!(
        "tenant {id}: option {name} stays as it is while there are items, which were made by it, and {occupied} pages may hold \
         some: remove its items first, or make another tenant with --option {name}"
    )))
}

/// Refuses to take everything from a tenant whose items are nowhere else.
fn check_may_leave(view: &View<'_>, id: u32) -> Result<(), Refusal> {
    let has_truth = view.around.disciplines.has_truth(id);
    let occupied = || view.memory.occupied(id, &view.around).len();
    if !has_truth || occupied() == 0 {
        return Ok(());
    }
    Err(conflict(format!(
        "tenant {id}: {} pages may hold items that are nowhere else, and another discipline would lose them: remove its \
         items first, or the tenant",
        occupied()
    )))
}

/// Removes a tenant; see [`crate::admin::Admin::remove_tenant`].
///
/// # Errors
/// As there.
pub fn remove(view: &View<'_>, id: u32) -> Result<Change, Refusal> {
    let tenant = view.known(id)?;
    if tenant.is_of(&view.around.config.cluster) {
        return Err(conflict(format!(
            "tenant {id} is in the cluster file: take it out there, restart the controller, and remove it then"
        )));
    }
    if id == TENANT_OPEN {
        return Err(conflict(
            "tenant 0 is switched off with open_tenant = false in the cluster file".into(),
        ));
    }
    Ok(Change {
        id,
        tenant: None,
        guaranteed: None,
        leaving: LeavingPages::All,
        forgotten: true,
        own: false,
        entry: Some(("tenant.remove", format!("tenant {id}"))),
    })
}

/// Begins a rotation to the `fresh` secret; see [`crate::admin::Admin::rotate_secret`].
///
/// # Errors
/// As there.
pub fn rotate_secret(view: &View<'_>, id: u32, fresh: Secret) -> Result<Change, Refusal> {
    let mut tenant = with_secret(view, id)?.clone();
    if tenant.also_secret.is_some() {
        return Err(conflict(format!(
            "tenant {id}: a rotation goes on; finish it first, then begin the next"
        )));
    }
    let old = std::mem::replace(&mut tenant.secret, hex::encode(fresh.0));
    tenant.hash_secret.get_or_insert_with(|| old.clone());
    tenant.also_secret = Some(old);
    let detail = format!("tenant {id}: two secrets are valid");
    Ok(Change::of(tenant, "tenant.rotate", detail))
}

/// Ends a rotation; see [`crate::admin::Admin::finish_rotation`].
///
/// # Errors
/// As there.
pub fn finish_rotation(view: &View<'_>, id: u32) -> Result<Change, Refusal> {
    let mut tenant = with_secret(view, id)?.clone();
    if tenant.also_secret.take().is_none() {
        return Err(conflict(format!("tenant {id}: no rotation goes on")));
    }
    let detail = format!("tenant {id}: one secret is valid");
    Ok(Change::of(tenant, "tenant.rotated", detail))
}

/// A tenant's secrets after a change of them.
pub fn new_secret(tenant: &Tenant) -> NewSecret {
    NewSecret {
        tenant: tenant.id,
        secret: tenant.secret.clone(),
        also_secret: tenant.also_secret.clone(),
        not_told: vec![],
    }
}

fn with_secret<'a>(view: &View<'a>, id: u32) -> Result<&'a Tenant, Refusal> {
    let tenant = view.known(id)?;
    if id == TENANT_OPEN {
        return Err(conflict("tenant 0 is open to everybody: it has no secret".into()));
    }
    Ok(tenant)
}

/// Whether the switches' kernels take the tenant's discipline. One of copies needs one switch that
/// does: the others forward.
fn check_kernels(view: &View<'_>, tenant: &Tenant) -> Result<(), Refusal> {
    let disciplines = view.around.disciplines;
    let named = disciplines.named(tenant.terms.discipline());
    let needs_all = named.is_none_or(|d| d.items == Items::Truth || d.runs == Runs::Everywhere);
    let name = tenant.terms.discipline().unwrap_or(disciplines.default_name());
    let Some(why) = refused(view, name, needs_all) else { return Ok(()) };
    Err(conflict(format!(
        "tenant {}: discipline {name} does not run here: {why}. Choose another, or a newer kernel for these switches",
        tenant.id
    )))
}

/// Whether one of them answers writes before the tenant's stores have them, if it wants that.
fn check_write_back(view: &View<'_>, tenant: &Tenant) -> Result<(), Refusal> {
    let wanted = (tenant.terms.write_back_ms > 0).then_some(WRITE_BACK);
    let Some(why) = wanted.and_then(|what| refused(view, what, false)) else { return Ok(()) };
    Err(conflict(format!(
        "tenant {}: no switch here can answer writes before its stores have them: {why}. Leave --write-back out, or choose a newer kernel for these switches",
        tenant.id
    )))
}

/// Which of the attached switches refuse something, if one of them alone is too many, or else if
/// all do.
fn refused(view: &View<'_>, what: &str, needs_all: bool) -> Option<String> {
    let attached = view.around.switches.iter().filter(|(_, switch)| switch.is_ready());
    let (mut count, mut refusals) = (0, vec![]);
    for (id, switch) in attached {
        count += 1;
        let why = switch.refused().get(what);
        refusals.extend(why.map(|why| format!("switch {id} ({}): {why}", switch.known().name)));
    }
    let is_refused = !refusals.is_empty() && (needs_all || refusals.len() == count);
    is_refused.then(|| refusals.join("; "))
}

/// Whether a tenant fits this cluster, but for its pages.
fn check(view: &View<'_>, tenant: &Tenant) -> Result<(), Refusal> {
    let of = format!("tenant {}", tenant.id);
    if tenant.terms.name.len() > NAME_MAX {
        return Err(invalid(format!("{of}: the name is longer than {NAME_MAX} bytes")));
    }
    let same_name =
        |other: &&Tenant| other.id != tenant.id && other.terms.name == tenant.terms.name;
    if !tenant.terms.name.is_empty()
        && let Some(other) = view.around.tenants.iter().find(same_name)
    {
        return Err(conflict(format!(
            "{of}: the name {:?} is taken by tenant {}",
            tenant.terms.name, other.id
        )));
    }
    wire::check_write_back(tenant.terms.write_back_ms)
        .map_err(|e| invalid(format!("{of}: {e}")))?;
    if tenant.terms.write_back_ms > 0 && tenant.id == TENANT_OPEN {
        return Err(invalid(
            "tenant 0 is open to everybody: none of its writes are answered before its stores have them".into(),
        ));
    }
    let names = view.around.disciplines.names();
    if let Some(name) = tenant.terms.discipline()
        && !names.contains(&name)
    {
        return Err(invalid(format!(
            "{of}: discipline {name:?} is not known; expected one of {}",
            names.join(", ")
        )));
    }
    if let Some(discipline) = view.around.disciplines.named(tenant.terms.discipline()) {
        let checked = discipline.check_options(&tenant.terms.options);
        checked.map_err(|e| invalid(format!("{of}: {e}")))?;
    }
    view.around.may_use(&tenant.terms.stores).map_err(|e| invalid(format!("{of}: {e}")))?;
    let is_known = |store: &SocketAddr| view.around.stores().any(|known| known == *store);
    if let Some(store) = tenant.terms.stores.iter().find(|store| !is_known(store)) {
        let named = view.around.stores().take(STORES_NAMED);
        let named: Vec<String> = named.map(|store| store.to_string()).collect();
        return Err(invalid(format!(
            "{of}: {store} is not one of the cluster's stores: {}",
            named.join(", ")
        )));
    }
    Ok(())
}
