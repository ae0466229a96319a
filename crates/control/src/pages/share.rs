//! How the pages of one switch are shared out: guaranteed ones to their owners as far as they use
//! them, idle ones to whoever wants more.
//!
//! 1. An owner keeps what its items with requests fill, and a page more, up to its guarantee and
//!    never none. What it leaves cold beyond that may be lent, and is its own again as soon as it
//!    claims it. Items count, not pages: a few items in use on each page would keep all of them,
//!    where a few pages hold them as well.
//! 2. What no owner keeps goes to tenants that want more, max-min fair: nobody gets more than
//!    another that wants it too. While a page is nobody's, nobody who wants it is refused.
//! 3. Of what nobody wants, owners that could use their own have it; then tenants that could use
//!    more, if only it costs nobody anything: what idles serves even keys that are hardly ever
//!    asked for. Whoever wants something takes it from them.
//! 4. Of what nobody wants, tenants without any page get one each, unless they have enough on other
//!    switches: a tenant reaches a switch only where it has pages, and would never be noticed there
//!    otherwise.
//! 5. Pages that are still over return to their owners, up to the guarantees; the rest is nobody's.
//!
//! A page that moves is cleared and filled anew, so small gains are not worth it: an owner lends
//! only what exceeds its use by [`OWN_SLACK`], a borrower keeps a few pages too many while nobody
//! else wants them and one of them even then, and between borrowers pages move only for a gain of
//! two pages and an eighth, or for a first page. What tenants want may therefore flutter by a page
//! without pages moving to and fro, but for those that want nothing now and one page then.
//!
//! Cost: some sorts of the tenants and a step per page and round of levelling, microseconds for
//! some hundred tenants.

use std::{cmp::Reverse, collections::BTreeMap};

/// An owner that lends keeps its pages while they exceed what it uses by at most so many.
pub const OWN_SLACK: u32 = 1;
/// A borrower keeps so many pages too many while nobody else wants them, or an eighth of what
/// it wants.
const LENT_SLACK: u32 = 2;

/// What a tenant wants of a switch, and what it has there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Demand {
    /// Pages of its quota that are placed on this switch.
    pub guaranteed: u32,
    /// Pages that it claims of its guarantee, because it had a use for them lately: see
    /// [`super::claim`].
    pub claimed: u32,
    /// Pages that it would fill if it had them: what its discipline wants, in pages, rounded up.
    pub wanted: u32,
    /// Pages that it would fill if that took them from nobody: at least those.
    pub could_use: u32,
    /// Whether it may have pages beyond its guarantee.
    pub may_borrow: bool,
    /// Whether its guaranteed pages, on other switches, are enough for it: it need not be
    /// noticed here.
    pub at_home: bool,
    /// What it has now: guaranteed pages.
    pub own: u32,
    /// What it has now: borrowed pages.
    pub lent: u32,
}

impl Demand {
    /// Pages that it has a use for.
    fn need(&self) -> u32 {
        self.wanted.max(self.claimed)
    }

    /// Guaranteed pages that it keeps whatever others want.
    fn keep(&self) -> u32 {
        self.keep_for(self.need()).max(1).min(self.guaranteed)
    }

    /// Guaranteed pages that it keeps though others could use them, whom they cost nothing.
    fn reserve(&self) -> u32 {
        self.keep_for(self.could_use.max(self.need())).min(self.guaranteed)
    }

    /// Pages that it keeps where it has a use for so many.
    fn keep_for(&self, used: u32) -> u32 {
        let enough = used.saturating_add(OWN_SLACK);
        if self.own > enough { used + 1 } else { self.own.max(used) }
    }
}

/// What a tenant should have on a switch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Portion {
    /// Guaranteed pages.
    pub own: u32,
    /// Borrowed pages.
    pub lent: u32,
}

/// Shares `total` pages of a switch out. Together the portions are at most `total`.
pub fn share(total: u32, demands: &BTreeMap<u32, Demand>) -> BTreeMap<u32, Portion> {
    let tenants: Vec<&Demand> = demands.values().collect();
    let mut own: Vec<u32> = tenants.iter().map(|t| t.keep()).collect();
    if sum(&own) > u64::from(total) {
        // Guarantees of more pages than there are, as when a switch lost memory.
        let now: Vec<u32> = tenants.iter().map(|t| t.own).collect();
        own = level(vec![0; own.len()], &own, &now, total);
    }
    let mut idle = total - sum(&own) as u32;

    let borrowers = borrowers(&tenants, &own, idle);
    let lent = lend(idle, &borrowers);
    idle -= sum(&lent) as u32;
    let reserve = tenants.iter().zip(&own);
    let reserve: Vec<u32> = reserve.map(|(t, own)| t.reserve().max(*own)).collect();
    let now: Vec<u32> = tenants.iter().map(|t| t.own).collect();
    let before = sum(&own);
    own = level(own, &reserve, &now, idle);
    idle -= (sum(&own) - before) as u32;
    let guests = guests(&tenants, &own, &lent);
    let lent = lend_more(idle, &lent, &guests);
    let idle = total - (sum(&own) + sum(&lent)) as u32;

    let guaranteed: Vec<u32> = tenants.iter().map(|t| t.guaranteed).collect();
    let own = give_back(own, &guaranteed, &now, idle);

    let portions = own.into_iter().zip(lent);
    let portions = portions.map(|(own, lent)| Portion { own, lent });
    demands.keys().copied().zip(portions).collect()
}

#[derive(Clone, Copy)]
struct Borrower {
    /// Pages that it wants to borrow.
    wanted: u32,
    /// Pages that it has borrowed.
    has: u32,
    /// Whether it has no guaranteed page.
    has_none: bool,
}

impl Borrower {
    /// What it keeps of its pages while nobody else wants them: no page moves for a small excess.
    fn at_ease(&self) -> u32 {
        let slack = LENT_SLACK.max(self.wanted / 8);
        if self.has > self.wanted.saturating_add(slack) {
            self.wanted + u32::from(self.wanted > 0)
        } else {
            self.has
        }
    }

    /// What it keeps while others want more: at most `excess` pages beyond what it wants.
    fn pressed(&self, excess: u32) -> u32 {
        self.has.min(self.wanted.saturating_add(excess))
    }

    /// Whether pages should move so that it has its fair share.
    fn is_worth_it(&self, fair: u32, lent: u32) -> bool {
        let gain = fair.saturating_sub(lent);
        (gain > 0 && lent == 0 && self.has_none) || (gain >= 2 && gain >= fair.div_ceil(8))
    }
}

/// Who wants how much of what no owner keeps. Tenants that would have no page at all want one,
/// while nobody else wants it; one that has none yet gets it only if another stays idle, so that it
/// is not taken away at once.
fn borrowers(tenants: &[&Demand], own: &[u32], idle: u32) -> Vec<Borrower> {
    let borrower = |(tenant, own): (&&Demand, &u32)| Borrower {
        wanted: tenant.wanted.saturating_sub(*own),
        has: tenant.lent,
        has_none: *own == 0,
    };
    let none = Borrower { wanted: 0, has: 0, has_none: false };
    let mut borrowers: Vec<Borrower> = tenants
        .iter()
        .zip(own)
        .map(|pair| if pair.0.may_borrow { borrower(pair) } else { none })
        .collect();
    let asked: u64 = borrowers.iter().map(|b| u64::from(b.wanted)).sum();
    let margin = u64::from(asked > 0);
    let seen = |i: usize| tenants[i].own + tenants[i].lent > 0;
    let mut unseen: Vec<usize> = (0..tenants.len())
        .filter(|&i| tenants[i].may_borrow && !tenants[i].at_home)
        .filter(|&i| own[i] == 0 && borrowers[i].wanted == 0)
        .collect();
    unseen.sort_by_key(|&i| (!seen(i), i));
    for (i, before) in unseen.into_iter().zip(asked..) {
        let needed = if seen(i) { 1 } else { 1 + margin };
        if before + needed > u64::from(idle) {
            break;
        }
        borrowers[i].wanted = 1;
    }
    borrowers
}

/// Who could use how much in all, beside what each keeps of its own.
fn guests(tenants: &[&Demand], own: &[u32], lent: &[u32]) -> Vec<Borrower> {
    let guest = |((tenant, own), lent): ((&&Demand, &u32), &u32)| {
        // One that may not borrow keeps nothing that it has on loan either.
        let if_may = |pages: u32| if tenant.may_borrow { pages } else { 0 };
        Borrower {
            wanted: if_may(tenant.could_use.saturating_sub(*own)).max(*lent),
            has: if_may(tenant.lent),
            has_none: tenant.may_borrow && *own == 0,
        }
    };
    tenants.iter().zip(own).zip(lent).map(guest).collect()
}

/// Lends what nobody wants, beside what was lent to those who want it: as it is now, if that is
/// nearly fair; else fairly.
fn lend_more(idle: u32, lent: &[u32], guests: &[Borrower]) -> Vec<u32> {
    let (wanted, has) = wishes(guests);
    let fair = level(lent.to_vec(), &wanted, &has, idle);
    as_it_is(idle + sum(lent) as u32, lent, &fair, guests).unwrap_or(fair)
}

/// Lends a pool of pages: as it is now and what is left to those with least, if that is nearly
/// fair; else fairly.
fn lend(pool: u32, borrowers: &[Borrower]) -> Vec<u32> {
    let (wanted, has) = wishes(borrowers);
    let nothing = vec![0; borrowers.len()];
    let fair = level(nothing.clone(), &wanted, &has, pool);
    if let Some(lent) = as_it_is(pool, &nothing, &fair, borrowers) {
        return lent;
    }
    let left = pool - sum(&fair) as u32;
    let excess: Vec<u32> = borrowers.iter().map(|b| b.pressed(1)).collect();
    let most: Vec<u32> = excess.iter().zip(&fair).map(|(e, f)| *e.max(f)).collect();
    level(fair, &most, &has, left)
}

/// What borrowers want, and what they have.
fn wishes(borrowers: &[Borrower]) -> (Vec<u32>, Vec<u32>) {
    borrowers.iter().map(|b| (b.wanted, b.has)).unzip()
}

/// A pool of pages as it is lent now, each with its `least`, and what is left to those with least:
/// if that is nearly as fair as `fair`.
fn as_it_is(pool: u32, least: &[u32], fair: &[u32], borrowers: &[Borrower]) -> Option<Vec<u32>> {
    let (wanted, has) = wishes(borrowers);
    let stay = |keep: &dyn Fn(&Borrower) -> u32| {
        let kept = least.iter().zip(borrowers);
        let kept: Vec<u32> = kept.map(|(least, borrower)| keep(borrower).max(*least)).collect();
        let left = u64::from(pool).checked_sub(sum(&kept))? as u32;
        let most: Vec<u32> = kept.iter().zip(&wanted).map(|(k, w)| *k.max(w)).collect();
        Some(level(kept, &most, &has, left))
    };
    let has_all = |lent: &Vec<u32>| lent.iter().zip(&wanted).all(|(lent, wanted)| lent >= wanted);
    let is_fair =
        |lent: &Vec<u32>| !(0..lent.len()).any(|i| borrowers[i].is_worth_it(fair[i], lent[i]));
    let pressed = |excess| stay(&|borrower| borrower.pressed(excess)).filter(is_fair);
    stay(&Borrower::at_ease).filter(has_all).or_else(|| pressed(1)).or_else(|| pressed(0))
}

/// Raises the lowest of `from` first, each up to its `most`, by `pages` in all. Where not all of
/// the lowest can be raised, those that have more `now` come first, then the first.
fn level(mut from: Vec<u32>, most: &[u32], now: &[u32], mut pages: u32) -> Vec<u32> {
    loop {
        let open = |i: &usize| from[*i] < most[*i];
        let Some(low) = (0..from.len()).filter(open).map(|i| from[i]).min() else { return from };
        let mut lowest: Vec<usize> =
            (0..from.len()).filter(open).filter(|&i| from[i] == low).collect();
        // Up to the next level at once: where one of them is full, or where others are.
        let full = lowest.iter().map(|&i| most[i]).min().unwrap_or(low);
        let others =
            (0..from.len()).filter(|&i| from[i] > low && from[i] < most[i]).map(|i| from[i]);
        let step = others.min().map_or(full, |next| next.min(full)) - low;
        let n = lowest.len() as u64;
        let step = u64::from(step).min(u64::from(pages) / n) as u32;
        if step == 0 {
            lowest.sort_by_key(|&i| (Reverse(now[i]), i));
            for i in lowest.into_iter().take(pages as usize) {
                from[i] += 1;
            }
            return from;
        }
        for &i in &lowest {
            from[i] += step;
        }
        pages -= step * n as u32;
    }
}

/// Returns idle pages to their owners: first to those that have them now, then evenly.
fn give_back(own: Vec<u32>, guaranteed: &[u32], now: &[u32], idle: u32) -> Vec<u32> {
    let before = sum(&own);
    let still: Vec<u32> = (0..own.len()).map(|i| now[i].min(guaranteed[i]).max(own[i])).collect();
    let own = level(own, &still, now, idle);
    let left = idle - (sum(&own) - before) as u32;
    level(own, guaranteed, now, left)
}

fn sum(of: &[u32]) -> u64 {
    of.iter().map(|n| u64::from(*n)).sum()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    type Demands = BTreeMap<u32, Demand>;

    fn owner(guaranteed: u32, wanted: u32) -> Demand {
        Demand {
            guaranteed,
            wanted,
            could_use: wanted,
            may_borrow: true,
            at_home: false,
            ..Demand::default()
        }
    }

    fn of(demands: impl IntoIterator<Item = Demand>) -> Demands {
        (1..).zip(demands).collect()
    }

    fn with(mut demands: Demands, portions: &BTreeMap<u32, Portion>) -> Demands {
        for (id, demand) in &mut demands {
            demand.own = portions[id].own;
            demand.lent = portions[id].lent;
        }
        demands
    }

    fn numbers(portions: &BTreeMap<u32, Portion>) -> Vec<(u32, u32)> {
        portions.values().map(|p| (p.own, p.lent)).collect()
    }

    #[test]
    fn a_tenant_with_enough_elsewhere_need_not_be_noticed_here() {
        let demand = |at_home| Demand { may_borrow: true, at_home, ..Demand::default() };
        let demands = BTreeMap::from([(1, demand(true)), (2, demand(false))]);
        let portions = share(8, &demands);
        assert_eq!((portions[&1].lent, portions[&2].lent), (0, 1));
    }

    #[test]
    fn guarantees_first_then_the_idle_ones_evenly() {
        // (pages, tenants as (guaranteed, wanted), shares as (own, lent))
        #[allow(clippy::type_complexity)]
        let rows: &[(u32, &[(u32, u32)], &[(u32, u32)])] = &[
            // Everyone wants its own: that is what it gets.
            (8, &[(4, 4), (4, 4)], &[(4, 0), (4, 0)]),
            (8, &[(4, 9), (4, 9)], &[(4, 0), (4, 0)]),
            // Nobody wants anything: owners keep theirs, and those without get a page of what is
            // nobody's.
            (8, &[(4, 0), (2, 0), (0, 0)], &[(4, 0), (2, 0), (0, 1)]),
            // Nobody's pages go to those that want more.
            (12, &[(4, 9), (4, 4), (0, 0)], &[(4, 4), (4, 0), (0, 0)]),
            (12, &[(2, 9), (2, 9), (0, 9)], &[(2, 3), (2, 3), (0, 2)]),
            (12, &[(2, 3), (2, 9), (0, 9)], &[(2, 1), (2, 4), (0, 3)]),
            // An owner without use for its pages keeps one of them while others want them.
            (8, &[(8, 0), (0, 99)], &[(1, 0), (0, 7)]),
            // It lends no more than they want.
            (8, &[(6, 0), (2, 4)], &[(4, 0), (2, 2)]),
            // More guarantees than pages: as far as they reach, evenly.
            (6, &[(4, 4), (4, 4), (1, 0)], &[(3, 0), (2, 0), (1, 0)]),
            (0, &[(4, 4), (0, 4)], &[(0, 0), (0, 0)]),
        ];
        for (total, tenants, shares) in rows {
            let demands = of(tenants.iter().map(|&(g, w)| owner(g, w)));
            let portions = share(*total, &demands);
            assert_eq!(numbers(&portions), *shares, "{total} {tenants:?}");
        }
    }

    #[test]
    fn idle_pages_go_to_whoever_could_use_them_but_for_what_others_want() {
        let hungry = |wanted, could_use, lent| Demand {
            wanted,
            could_use,
            lent,
            may_borrow: true,
            ..Demand::default()
        };
        let idle = Demand { own: 4, ..owner(20, 4) };
        let share = |demands: &[Demand]| numbers(&share(20, &of(demands.iter().copied())));
        assert_eq!(share(&[idle, hungry(3, 30, 0)]), [(4, 0), (0, 16)]);
        assert_eq!(share(&[idle, hungry(3, 9, 0)]), [(11, 0), (0, 9)]);
        // What another wants comes first, also where it is there already.
        assert_eq!(share(&[idle, hungry(3, 30, 16), hungry(12, 12, 0)]), [(4, 0), (0, 4), (0, 12)]);
        // The owner's own need even more so, and what it could use of its own.
        assert_eq!(share(&[owner(20, 18), hungry(3, 30, 16)]), [(18, 0), (0, 2)]);
        let back = |could_use, own| Demand { could_use, own, ..owner(20, 4) };
        assert_eq!(share(&[back(7, 4), hungry(3, 30, 16)]), [(7, 0), (0, 13)]);
        assert_eq!(share(&[back(12, 4), hungry(3, 30, 16)]), [(12, 0), (0, 8)]);
        assert_eq!(share(&[back(7, 14), hungry(3, 30, 6)]), [(8, 0), (0, 12)]);
    }

    #[test]
    fn an_owner_gets_its_pages_back_at_once() {
        let lending =
            with(of([owner(8, 0), owner(0, 99)]), &share(8, &of([owner(8, 0), owner(0, 99)])));
        let mut demands = lending.clone();
        demands.get_mut(&1).unwrap().wanted = 6;
        assert_eq!(numbers(&share(8, &demands)), [(6, 0), (0, 2)]);
        // A claim counts like a wish.
        let mut demands = lending;
        demands.get_mut(&1).unwrap().claimed = 8;
        assert_eq!(numbers(&share(8, &demands)), [(8, 0), (0, 0)]);
    }

    #[test]
    fn pages_do_not_move_between_borrowers_for_a_small_gain() {
        let borrower = |wanted, lent| Demand {
            wanted,
            lent,
            may_borrow: true,
            at_home: false,
            ..Demand::default()
        };
        // (pages, borrowers as (wants, has), what they get)
        let rows = [
            (8, [(4, 3), (20, 5)], [3, 5]),
            (8, [(20, 2), (20, 6)], [4, 4]),
            (40, [(99, 18), (99, 22)], [18, 22]),
            (40, [(99, 17), (99, 23)], [20, 20]),
            (40, [(99, 19), (99, 21)], [19, 21]),
            (400, [(999, 180), (999, 220)], [180, 220]),
            (400, [(999, 170), (999, 230)], [200, 200]),
            // The first page is always worth it.
            (4, [(4, 0), (4, 4)], [2, 2]),
            (2, [(1, 0), (4, 2)], [1, 1]),
            // What is not wanted is kept while nobody else wants it.
            (8, [(3, 5), (2, 2)], [5, 2]),
            (8, [(3, 5), (4, 3)], [4, 4]),
        ];
        for (total, wishes, expected) in rows {
            let demands = of(wishes.map(|(wanted, lent)| borrower(wanted, lent)));
            let lent: Vec<u32> = share(total, &demands).values().map(|p| p.lent).collect();
            assert_eq!(lent, expected, "{total} {wishes:?}");
        }
    }

    fn demand() -> impl Strategy<Value = Demand> {
        let small = || prop_oneof![3 => 0..8u32, 1 => 0..60u32];
        let more = prop_oneof![1 => Just(0), 1 => small()];
        (small(), 0..8u32, small(), any::<bool>(), small(), small(), more).prop_map(
            |(guaranteed, claimed, wanted, may_borrow, own, lent, more)| Demand {
                guaranteed,
                claimed: claimed.min(own + lent),
                wanted,
                could_use: wanted + more,
                may_borrow,
                at_home: false,
                own: own.min(guaranteed),
                lent,
            },
        )
    }

    fn demands() -> impl Strategy<Value = Demands> {
        proptest::collection::vec(demand(), 0..10).prop_map(of)
    }

    fn settle(total: u32, mut demands: Demands) -> Demands {
        for _ in 0..4 {
            demands = with(demands.clone(), &share(total, &demands));
        }
        demands
    }

    /// Pages that some tenant got.
    fn moved(before: &Demands, after: &Demands) -> u32 {
        let got = |(b, a): (&Demand, &Demand)| {
            a.own.saturating_sub(b.own) + a.lent.saturating_sub(b.lent)
        };
        before.values().zip(after.values()).map(got).sum()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn guarantees_hold_and_nothing_wanted_is_idle(total in 0..120u32, demands in demands()) {
            let portions = share(total, &demands);
            let pairs = || demands.values().zip(portions.values());
            let given: u32 = portions.values().map(|p| p.own + p.lent).sum();
            prop_assert!(given <= total);
            let guaranteed: u32 = demands.values().map(|d| d.guaranteed).sum();
            for (demand, portion) in pairs() {
                prop_assert!(portion.own <= demand.guaranteed);
                prop_assert!(demand.may_borrow || portion.lent == 0);
                let due = demand.need().max(1).min(demand.guaranteed);
                prop_assert!(guaranteed > total || portion.own >= due);
            }
            let refused = pairs().any(|(d, p)| d.may_borrow && p.own + p.lent < d.wanted);
            if refused {
                prop_assert_eq!(given, total);
                for (demand, portion) in pairs() {
                    prop_assert!(portion.own <= demand.need() + OWN_SLACK);
                    // A page to be seen, and one that is not worth moving.
                    prop_assert!(portion.lent <= demand.wanted.max(1) + 1);
                }
            }
            // No page idles that somebody could use.
            let hungry = pairs().any(|(d, p)| d.may_borrow && p.own + p.lent < d.could_use);
            if hungry {
                prop_assert_eq!(given, total);
                let kept = |d: &Demand| (d.need().max(1) + OWN_SLACK).max(d.reserve());
                prop_assert!(pairs().all(|(d, p)| p.own <= kept(d)));
            }
            // Nobody goes unseen while pages are nobody's.
            let unseen = pairs().any(|(d, p)| d.may_borrow && p.own + p.lent == 0);
            prop_assert!(!unseen || total - given <= 1);
        }

        #[test]
        fn the_same_wishes_move_nothing(total in 0..120u32, demands in demands()) {
            let settled = settle(total, demands);
            let again = with(settled.clone(), &share(total, &settled));
            prop_assert_eq!(again, settled);
        }

        #[test]
        fn a_flutter_of_a_page_comes_to_rest(
            total in 0..120u32,
            demands in demands(),
            flutter in proptest::collection::vec(proptest::collection::vec(0..=1u32, 10), 100),
        ) {
            let base: Vec<u32> = demands.values().map(|d| d.wanted).collect();
            let mut now = settle(total, demands);
            let mut pages = 0;
            for round in flutter {
                for ((demand, base), up) in now.values_mut().zip(&base).zip(round) {
                    // Between nothing and a first page it may go to and fro: first pages
                    // always move.
                    demand.wanted = if *base > 0 { base + up } else { 0 };
                }
                let next = with(now.clone(), &share(total, &now));
                pages += moved(&now, &next);
                now = next;
            }
            prop_assert!(pages <= 4 * now.len() as u32, "{} pages moved", pages);
        }

        #[test]
        fn borrowers_are_treated_alike(total in 0..120u32, demands in demands()) {
            let mut fresh = demands.clone();
            fresh.values_mut().for_each(|d| d.lent = 0);
            let ideal = share(total, &fresh);
            let portions = share(total, &demands);
            for (id, demand) in &demands {
                let (got, fair) = (portions[id].lent, ideal[id].lent);
                let short = demand.may_borrow && portions[id].own + got < demand.wanted;
                // What is over is nobody's by right: of it a page more or less is not worth moving.
                let due = fair.min(demand.wanted.saturating_sub(portions[id].own));
                prop_assert!(!short || got + (due / 8).max(1) + 1 >= due, "{got} of {due}");
                let short = demand.may_borrow && ideal[id].own + fair < demand.wanted;
                let most = ideal.values().map(|p| p.lent).max().unwrap_or(0);
                prop_assert!(!short || most <= fair + 1, "{fair}, another {most}");
            }
        }
    }
}
