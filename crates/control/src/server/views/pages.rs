//! Pages as people are shown them.

use std::cmp::Ordering;

use api::types::{PageId, PageKind, PageView};
use decide::SwitchId;

use super::View;
use crate::{
    admin::{PageFilter, Refusal, RefusalKind},
    pages::ledger::{Kind, PageRow},
};

impl View<'_> {
    /// Pages that the filter lets through, by switch and index.
    ///
    /// # Errors
    /// There is no such tenant or switch.
    pub fn pages(&self, filter: PageFilter) -> Result<Vec<PageView>, Refusal> {
        if let Some(tenant) = filter.tenant {
            self.known(tenant)?;
        }
        let unknown = |id: &SwitchId| self.around.switches.get(*id).is_none();
        if let Some(id) = filter.switch.filter(unknown) {
            let text = format!("there is no switch {id}");
            return Err(Refusal::new(RefusalKind::NotFound, text));
        }
        let ledger = self.memory.ledger();
        let switches = ledger.switches();
        let switches = switches.filter(|(id, _)| filter.switch.is_none_or(|only| *id == only));
        // A tenant's pages cost what it has, a part of all pages what that part is.
        let on = |(switch, pages): (SwitchId, u32)| -> Box<dyn Iterator<Item = PageId> + '_> {
            let first = filter.after.map_or(0, |after| match after.switch.cmp(&switch) {
                Ordering::Less => 0,
                Ordering::Equal => after.page.saturating_add(1),
                Ordering::Greater => pages,
            });
            let id = move |page| PageId { switch, page };
            match filter.tenant {
                None => Box::new((first..pages).map(id)),
                Some(tenant) => {
                    let rows = ledger.rows_on(switch, tenant).map(|(page, _)| page);
                    Box::new(rows.skip_while(move |page| *page < first).map(id))
                }
            }
        };
        let views = switches.flat_map(on).map(|id| self.page(id));
        let views = views.filter(|view| filter.kind.is_none_or(|kind| view.kind == kind));
        Ok(views.take(filter.limit).collect())
    }

    /// One page.
    pub fn page(&self, id: PageId) -> PageView {
        let (tenant, kind) = match self.memory.ledger().row(id) {
            None => (None, PageKind::Free),
            Some(PageRow::Leaving { from, .. }) => (Some(from), PageKind::Leaving),
            Some(PageRow::Held(hold)) => {
                let kind = match hold.kind {
                    Kind::Own => PageKind::Own,
                    Kind::Lent => PageKind::Lent,
                };
                (Some(hold.tenant), kind)
            }
        };
        let usage = self.memory.usage(id.switch);
        let seen = usage.and_then(|usage| usage.page(id.page));
        let idle = usage.map_or(u64::MAX, |usage| usage.idle_windows(id.page));
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
}
