//! Whether a page ever has two owners: the controller's list beside what the switches' memory says.

use std::collections::BTreeMap;

use super::{PageRow, Rig, SwitchPage};

/// What was seen of the pages' owners, from one look to the next.
#[derive(Debug, Default)]
pub struct Ownership {
    /// Looks that told something.
    pub looks: u64,
    /// Pages with two owners, over all looks.
    pub double_owned: u64,
    /// Items in pages of others, over all looks.
    pub foreign_items: u64,
}

impl Ownership {
    /// Compares what the controller that leads says with the memory of these switches, given by id
    /// and name. Where one of them does not answer, as between two leaders, it is no look.
    pub fn look(&mut self, rig: &Rig, switches: &[(u16, String)]) {
        let Ok(before) = rig.pages() else { return };
        let mut memory = vec![];
        for (id, name) in switches {
            let Ok(pages) = rig.switch_pages(name) else { return };
            memory.extend(pages.into_iter().map(|page| (*id, page)));
        }
        let Ok(after) = rig.pages() else { return };
        self.looks += 1;
        self.foreign_items += memory.iter().map(|(_, page)| page.foreign_items).sum::<u64>();
        self.double_owned += double_owned(&before, &memory, &after);
    }

    /// What was wrong, in words; none: nothing was.
    pub fn complaint(&self) -> Option<String> {
        if self.looks == 0 {
            return Some("nobody could look at the pages' owners".into());
        }
        let found = [
            (self.double_owned, "pages had two owners"),
            (self.foreign_items, "items were in other tenants' pages"),
        ];
        let wrong: Vec<String> = found
            .into_iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, what)| format!("{count} {what}"))
            .collect();
        (!wrong.is_empty()).then(|| wrong.join("; "))
    }
}

/// Pages with two holders: the controller lists two, or a switch has the page for somebody else
/// than whom the controller had given it to before and after the switch was asked. A page that is
/// just being taken away has none at the controller.
fn double_owned(before: &[PageRow], memory: &[(u16, SwitchPage)], after: &[PageRow]) -> u64 {
    let holders = |rows: &[PageRow]| {
        let mut all: BTreeMap<(u16, u32), Vec<u32>> = BTreeMap::new();
        for row in rows {
            all.entry((row.switch, row.page)).or_default().extend(row.holder());
        }
        all
    };
    let (before, after) = (holders(before), holders(after));
    let twice = before.values().filter(|h| h.len() > 1).count();
    let elsewhere = memory.iter().filter(|(switch, page)| {
        let place = (*switch, page.page);
        let (Some(owner), Some(first)) = (page.tenant, before.get(&place)) else { return false };
        first.len() == 1 && after.get(&place) == Some(first) && first[0] != owner
    });
    (twice + elsewhere.count()) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(page: u32, tenant: u32, kind: &str) -> PageRow {
        PageRow { switch: 1, page, tenant: Some(tenant), kind: kind.into(), items: 0 }
    }

    fn held(page: u32, tenant: Option<u32>) -> (u16, SwitchPage) {
        let page = SwitchPage { page, tenant, items: 0, foreign_items: 0 };
        (1, page)
    }

    #[test]
    fn two_holders_of_a_page_are_found() {
        let table = [row(0, 7, "own"), row(1, 8, "lent"), row(2, 7, "leaving")];
        let memory = [held(0, Some(7)), held(1, None), held(2, Some(7)), held(3, None)];
        assert_eq!(double_owned(&table, &memory, &table), 0);
        // The switch still has it for 7 while the controller has given it to 8.
        assert_eq!(double_owned(&table, &[held(1, Some(7))], &table), 1);
        // It changed hands meanwhile: says nothing.
        let moved = [row(1, 7, "own")];
        assert_eq!(double_owned(&table, &[held(1, Some(7))], &moved), 0);
        let twice = [row(0, 7, "own"), row(0, 8, "lent")];
        assert_eq!(double_owned(&twice, &[], &twice), 1);
    }

    #[test]
    fn complaints_name_what_was_wrong() {
        let mut seen = Ownership::default();
        assert!(seen.complaint().unwrap().starts_with("nobody could look"));
        seen.looks = 1;
        assert_eq!(seen.complaint(), None);
        seen.double_owned = 2;
        assert_eq!(seen.complaint().unwrap(), "2 pages had two owners");
    }
}
