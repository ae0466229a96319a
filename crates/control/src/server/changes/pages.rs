//! Guaranteed pages are asked for and given back, or go back when their time is over.

use api::types::{LIST_MAX, PageId, PageRequest, ReturnPages};

use super::{Change, LeavingPages, check_occupied, conflict, invalid, shorten, unpin};
use crate::{
    admin::{Refusal, RefusalKind},
    pages::ledger::{Kind, PageRow},
    server::{
        tenants::{Tenant, TimedQuota},
        views::View,
    },
};

/// Guarantees more pages; see [`crate::admin::Admin::ask_pages`]. `own`: the tenant asks
/// for itself.
///
/// # Errors
/// As there.
pub fn ask(
    view: &View<'_>,
    id: u32,
    request: PageRequest,
    own: bool,
    clock_s: u64,
) -> Result<Change, Refusal> {
    let mut tenant = view.known(id)?.clone();
    let pages = request.pages;
    if pages == 0 {
        return Err(invalid("pages = 0: at least 1 is expected".into()));
    }
    let quota = tenant.terms.quota.checked_add(pages);
    tenant.terms.quota =
        quota.ok_or_else(|| invalid(format!("pages = {pages}: that is more than there can be")))?;
    let before = tenant.terms.quota - pages;
    // Its row has them all, and a row that is too long to be written ends the controller.
    if request.lease_s.is_some() && tenant.timed.len() >= LIST_MAX {
        return Err(conflict(format!(
            "tenant {id}: {LIST_MAX} parts of its quota end by themselves, which is the most: ask for more pages at a time"
        )));
    }
    match own {
        true => {
            let given = tenant.given.unwrap_or(before);
            if tenant.terms.quota > given {
                return Err(Refusal::new(
                    RefusalKind::Forbidden,
                    format!(
                        "tenant {id}: {pages} pages were asked for, {} may be: its operator gave it {given}",
                        given.saturating_sub(before)
                    ),
                ));
            }
        }
        false => tenant.given = None,
    }
    if let Some(switch) = request.switch {
        if view.around.switches.get(switch).is_none() {
            return Err(Refusal::new(
                RefusalKind::NotFound,
                format!("there is no switch {switch}"),
            ));
        }
        *tenant.pinned.entry(switch).or_default() += pages;
    }
    let guaranteed = view.memory.try_to_place(&tenant, &view.around)?;
    if let Some(seconds) = request.lease_s {
        tenant.timed.push(TimedQuota {
            pages,
            ends: clock_s.saturating_add(seconds),
            every_s: seconds,
        });
    }
    let detail = format!("tenant {id}: {pages} more, quota {}", tenant.terms.quota);
    Ok(Change { guaranteed: Some(guaranteed), own, ..Change::of(tenant, "pages.ask", detail) })
}

/// Takes guaranteed pages back; see [`crate::admin::Admin::return_pages`]. `own`: the tenant gives
/// them back itself, and may ask for as many again.
///
/// # Errors
/// As there.
pub fn give_back(
    view: &View<'_>,
    id: u32,
    returned: &ReturnPages,
    own: bool,
) -> Result<Change, Refusal> {
    let mut tenant = view.known(id)?.clone();
    let count = match (returned.count, returned.pages.len()) {
        (Some(count), 0) if count > 0 => count,
        (None, pages) if pages > 0 => pages as u32,
        _ => {
            return Err(invalid(
                "either `pages`, a list of SWITCH/PAGE, or `count`, at least 1, is expected".into(),
            ));
        }
    };
    check_named(view, id, &returned.pages)?;
    if count > tenant.terms.quota {
        return Err(invalid(format!(
            "tenant {id}: {count} pages cannot be returned, its quota is {}",
            tenant.terms.quota
        )));
    }
    // What was given for a time only is not to be had for good by giving it back and asking again.
    let timed: u32 = tenant.timed.iter().map(|part| part.pages).sum();
    let lasting = tenant.terms.quota.saturating_sub(timed);
    tenant.given = own.then(|| tenant.given.unwrap_or(lasting));
    tenant.terms.quota -= count;
    check_occupied(view, id, tenant.terms.quota)?;
    shorten(&mut tenant);
    for page in &returned.pages {
        if let Some(pinned) = tenant.pinned.get_mut(&page.switch) {
            *pinned = pinned.saturating_sub(1);
        }
    }
    tenant.pinned.retain(|_, pages| *pages > 0);
    let guaranteed = view.memory.place_fewer(&tenant, &returned.pages, &view.around);
    let detail = format!("tenant {id}: {count} fewer, quota {}", tenant.terms.quota);
    Ok(Change {
        guaranteed: Some(guaranteed),
        leaving: match returned.count {
            Some(_) => LeavingPages::Excess,
            None => LeavingPages::These(returned.pages.clone()),
        },
        own,
        ..Change::of(tenant, "pages.return", detail)
    })
}

/// Whether a tenant may give these pages back.
fn check_named(view: &View<'_>, id: u32, pages: &[PageId]) -> Result<(), Refusal> {
    let ledger = view.memory.ledger();
    let has_truth = view.around.disciplines.has_truth(id);
    let occupied = has_truth.then(|| view.memory.occupied(id, &view.around));
    ledger.check_taken(id, pages).map_err(|e| conflict(e.to_string()))?;
    for page in pages {
        if let Some(PageRow::Held(hold)) = ledger.row(*page)
            && (hold.tenant, hold.kind) == (id, Kind::Lent)
        {
            return Err(conflict(format!(
                "page {page} is not one of tenant {id}'s own: it is lent to it, and goes back by itself"
            )));
        }
        if occupied.as_ref().is_some_and(|all| all.contains(page)) {
            return Err(conflict(format!(
                "page {page} may hold items of tenant {id} that are nowhere else: remove them first"
            )));
        }
    }
    Ok(())
}

/// Parts of quotas that end: those of their pages that are unused go back.
pub fn lapse(view: &View<'_>, clock_s: u64) -> Vec<Change> {
    let stays = |part: &TimedQuota| part.ends > clock_s && part.ends <= next_end(part, clock_s);
    let tenants = view.around.tenants.iter();
    let changed = tenants.filter(|tenant| !tenant.timed.iter().all(stays));
    changed.map(|tenant| lapse_of(view, tenant, clock_s)).collect()
}

/// When a part ends that begins now. None ends later, unless the clock was ahead when it began and
/// has been set since: it would stay for as long as the clock was ahead.
fn next_end(part: &TimedQuota, clock_s: u64) -> u64 {
    clock_s.saturating_add(part.every_s.max(1))
}

fn lapse_of(view: &View<'_>, before: &Tenant, clock_s: u64) -> Change {
    let mut tenant = before.clone();
    let in_use = view.memory.in_use(tenant.id, &view.around);
    let mut unused = tenant.terms.quota.saturating_sub(in_use);
    for part in &mut tenant.timed {
        let next = next_end(part, clock_s);
        if part.ends > clock_s {
            part.ends = part.ends.min(next);
            continue;
        }
        let back = part.pages.min(unused);
        unused -= back;
        part.pages -= back;
        tenant.terms.quota -= back;
        part.ends = next;
    }
    tenant.timed.retain(|part| part.pages > 0);
    unpin(&mut tenant);
    let gone = before.terms.quota - tenant.terms.quota;
    let guaranteed = view.memory.place_fewer(&tenant, &[], &view.around);
    let detail = format!("tenant {}: {gone} unused, their time is over", tenant.id);
    // Whoever asked for a time: a tenant may, again and again.
    let change = Change { own: true, ..Change::of(tenant, "pages.ended", detail) };
    match gone {
        0 => Change { entry: None, ..change },
        _ => Change { guaranteed: Some(guaranteed), ..change },
    }
}
