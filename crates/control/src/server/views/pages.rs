//! Pages as people are shown them.

use std::collections::BTreeMap;

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
        let rows: BTreeMap<PageId, PageRow> = ledger.rows().collect();
        let all = ledger
            .switches()
            .flat_map(|(switch, pages)| (0..pages).map(move |page| PageId { switch, page }));
        let views = all
            .filter(|id| filter.switch.is_none_or(|switch| id.switch == switch))
            .filter(|id| filter.after.is_none_or(|after| *id > after))
            .map(|id| self.view_of(id, rows.get(&id)))
            .filter(|view| filter.tenant.is_none_or(|tenant| view.tenant == Some(tenant)))
            .filter(|view| filter.kind.is_none_or(|kind| view.kind == kind));
        Ok(views.take(filter.limit).collect())
    }

    /// One page.
    pub fn page(&self, id: PageId) -> PageView {
        self.view_of(id, self.memory.ledger().row(id).as_ref())
    }

    fn view_of(&self, id: PageId, row: Option<&PageRow>) -> PageView {
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
