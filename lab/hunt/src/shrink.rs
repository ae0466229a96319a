//! A plan that fails is long, and most of it beside the point: the experiment `coherence`, and
//! tests, show the smallest that they find here.

use crate::{Commands, Disciplines, Faults, HuntPlan, Shape, run};

/// Takes away whatever a plan that fails fails without. `budget` is how many runs may be spent;
/// each smaller plan that still fails is told. Returns the smallest.
pub fn shrink(
    plan: &HuntPlan,
    disciplines: Disciplines,
    mut budget: usize,
    mut told: impl FnMut(&HuntPlan),
) -> HuntPlan {
    let mut smallest = plan.clone();
    let fails = |plan: &HuntPlan| run(plan, disciplines).is_ok_and(|o| o.complaint().is_some());
    loop {
        let mut got_smaller = false;
        for smaller in candidates(&smallest) {
            if budget == 0 {
                return smallest;
            }
            budget -= 1;
            if fails(&smaller) {
                told(&smaller);
                smallest = smaller;
                got_smaller = true;
                break;
            }
        }
        if !got_smaller {
            return smallest;
        }
    }
}

/// Plans that are a little smaller, the boldest first.
fn candidates(plan: &HuntPlan) -> Vec<HuntPlan> {
    let mut all = vec![];
    let mut with = |change: &dyn Fn(&mut HuntPlan)| {
        let mut smaller = plan.clone();
        change(&mut smaller);
        // Clients have a tenant to ask at least.
        if smaller != *plan && !smaller.asking().is_empty() {
            all.push(smaller);
        }
    };
    let deeds = plan.deeds.len();
    with(&|p| p.deeds.clear());
    with(&|p| drop(p.deeds.drain(..deeds / 2)));
    with(&|p| p.deeds.truncate(deeds / 2));
    for i in 0..deeds {
        with(&|p| drop(p.deeds.remove(i)));
    }
    with(&|p| p.faults = Faults { delay_ms: p.faults.delay_ms, ..Faults::default() });
    with(&|p| p.faults.loss = 0.0);
    with(&|p| p.faults.duplicate = 0.0);
    with(&|p| p.faults.reorder = 0.0);
    with(&|p| p.faults.flip = 0.0);
    with(&|p| p.life = Default::default());
    with(&|p| p.clients.expiring = 0.0);
    with(&|p| p.commands = None);
    with(&|p| p.commands = p.commands.map(|commands| Commands { each: 1, ..commands }));
    with(&|p| p.clients.second_links = false);
    with(&|p| p.clients.plain = 1.0);
    with(&|p| p.clients.same_ids = false);
    with(&|p| p.clients.caches = false);
    with(&|p| p.stores.iter_mut().for_each(|store| store.room = None));
    with(&|p| p.tenants.iter_mut().for_each(|tenant| tenant.write_back_ms = 0));
    with(&|p| p.stores.iter_mut().for_each(|store| store.data_us = 0));
    with(&|p| p.stores.iter_mut().for_each(|store| store.is_shard = false));
    with(&|p| p.clients.longest_value = 0);
    with(&|p| p.ipv6 = false);
    with(&|p| p.lasts_ms = (p.lasts_ms / 2).max(500));
    with(&|p| p.clients.hosts = 1);
    with(&|p| p.clients.each = (p.clients.each / 2).max(1));
    with(&|p| p.clients.keys = (p.clients.keys / 2).max(1));
    with(&|p| p.stores.truncate(1));
    with(&|p| p.shape = Shape::Line(1));
    with(&|p| p.settings.clear());
    with(&|p| p.tenants.clear());
    with(&|p| p.tenants.truncate(1));
    with(&|p| {
        if !p.tenants.is_empty() {
            p.open = None;
        }
    });
    all
}

#[cfg(test)]
mod tests {
    use decide::{NONE, Registration};

    use super::*;
    use crate::Limits;

    static ANY: [Registration; 1] = [Registration { name: "any", object: &[0], ..NONE }];

    #[test]
    fn whatever_is_taken_away_clients_have_a_tenant_to_ask() {
        let plans = (1..=200).map(|seed| HuntPlan::draw(seed, &ANY, Limits::default()));
        let smaller: Vec<HuntPlan> = plans.flat_map(|plan| candidates(&plan)).collect();
        assert!(smaller.len() > 1000);
        assert!(smaller.iter().all(|plan| !plan.asking().is_empty()));
    }
}
