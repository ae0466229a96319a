//! What people change at run time: tenants, their secrets and their pages. Each change is checked
//! as a whole and made as a whole, or refused, and is in the audit log.

mod pages;
mod switches;
mod tenants;

use api::types::PageId;

pub use self::{
    pages::{ask, give_back, lapse},
    switches::may_forget,
    tenants::{change, create, finish_rotation, new_secret, remove, rotate_secret},
};
use super::{memory::Guarantee, tenants::Tenant, views::View};
use crate::admin::{Refusal, RefusalKind};

/// Whose request it is, and when it came.
#[derive(Clone, Copy, Debug)]
pub struct RequestOrigin<'a> {
    /// For the audit log.
    pub who: &'a str,
    /// Milliseconds since 1970.
    pub at_ms: u64,
}

/// A change of a tenant that was checked, and is to be made.
#[derive(Debug)]
#[must_use]
pub struct Change {
    /// Which tenant.
    pub id: u32,
    /// As it is to be; none: it goes.
    pub tenant: Option<Tenant>,
    /// How many pages it is guaranteed where; none: as before.
    pub guaranteed: Option<Guarantee>,
    /// Pages that leave it at once.
    pub leaving: LeavingPages,
    /// Its discipline is another one, or it goes: what was configured for it does not count.
    pub forgotten: bool,
    /// The tenant asks for it itself, or it follows from what it asked for.
    pub own: bool,
    /// For the audit log: what is done, and how; none: nothing that anybody asked for.
    pub entry: Option<(&'static str, String)>,
}

/// Pages that leave a tenant.
#[derive(Debug, PartialEq)]
pub enum LeavingPages {
    /// None.
    Nothing,
    /// Everything.
    All,
    /// These.
    These(Vec<PageId>),
    /// Those beyond what it is guaranteed from now on, the coldest.
    Excess,
}

impl Change {
    /// Of a tenant's description alone.
    fn of(tenant: Tenant, what: &'static str, detail: String) -> Change {
        Change {
            id: tenant.id,
            tenant: Some(tenant),
            guaranteed: None,
            leaving: LeavingPages::Nothing,
            forgotten: false,
            own: false,
            entry: Some((what, detail)),
        }
    }
}

fn invalid(message: String) -> Refusal {
    Refusal::new(RefusalKind::Invalid, message)
}

fn conflict(message: String) -> Refusal {
    Refusal::new(RefusalKind::Conflict, message)
}

/// Refuses a quota below the pages whose items are nowhere else.
fn check_occupied(view: &View<'_>, id: u32, quota: u32) -> Result<(), Refusal> {
    if !view.around.disciplines.has_truth(id) {
        return Ok(());
    }
    let occupied = view.memory.occupied(id, &view.around).len();
    if quota as usize >= occupied {
        return Ok(());
    }
    Err(conflict(format!(
        "tenant {id}: a quota of {quota} pages is too low: {occupied} may hold items that are nowhere else; remove items first"
    )))
}

/// Fewer pages are guaranteed: no more of them can end, and no more can be bound to switches.
fn shorten(tenant: &mut Tenant) {
    let timed: u32 = tenant.timed.iter().map(|part| part.pages).sum();
    let mut excess = timed.saturating_sub(tenant.terms.quota);
    for part in tenant.timed.iter_mut().rev() {
        let less = part.pages.min(excess);
        part.pages -= less;
        excess -= less;
    }
    tenant.timed.retain(|part| part.pages > 0);
    unpin(tenant);
}

/// No more pages are bound to switches than the quota has.
fn unpin(tenant: &mut Tenant) {
    let bound: u32 = tenant.pinned.values().sum();
    let mut excess = bound.saturating_sub(tenant.terms.quota);
    for pages in tenant.pinned.values_mut().rev() {
        let less = (*pages).min(excess);
        *pages -= less;
        excess -= less;
    }
    tenant.pinned.retain(|_, pages| *pages > 0);
}
