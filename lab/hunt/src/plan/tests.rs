//! Plans of many seeds: what they have, and what they must not have.

use std::collections::BTreeMap;

use decide::{NONE, Registration};

use super::*;

/// As far as plans are concerned, one that has programs.
static ANY: [Registration; 2] = [
    Registration { name: "any", object: &[0], ..NONE },
    Registration { name: "other", object: &[0], ..NONE },
];

fn plans() -> impl Iterator<Item = HuntPlan> {
    (1..=1000).map(|seed| HuntPlan::draw(seed, &ANY, Limits::default()))
}

#[test]
fn a_seed_gives_one_plan_which_a_file_can_hold() {
    for plan in plans().take(100) {
        assert_eq!(HuntPlan::draw(plan.seed, &ANY, Limits::default()), plan);
        let text = serde_json::to_string(&plan).unwrap();
        assert_eq!(serde_json::from_str::<HuntPlan>(&text).unwrap(), plan, "{text}");
    }
}

#[test]
fn everything_is_drawn_that_goes_wrong() {
    let mut deeds: BTreeMap<&str, u32> = BTreeMap::new();
    let (mut crowds, mut same_ids, mut agents) = (0, 0, 0);
    for plan in plans() {
        for deed in &plan.deeds {
            *deeds.entry(deed.name()).or_default() += 1;
            let of_agent = |process: &str| process.ends_with("/agent");
            agents +=
                u32::from(matches!(&deed.act, Act::FailDisk { process } if of_agent(process)));
        }
        crowds += u32::from(plan.is_crowd());
        same_ids += u32::from(plan.clients.same_ids);
    }
    // All but a machine that is halted.
    assert_eq!(deeds.len(), 19, "{deeds:?}");
    assert!(deeds.values().chain([&crowds, &same_ids, &agents]).all(|count| *count > 30));
}

/// Where the file of its reservation is lost, the clock alone keeps a switch's epochs apart.
#[test]
fn who_comes_under_the_id_of_another_switch_has_a_clock_that_is_ahead() {
    for plan in plans() {
        let replaced = plan.deeds.iter().filter_map(|deed| match &deed.act {
            Act::Replace { machine } => Some(machine),
            _ => None,
        });
        for switch in replaced {
            let lost = plan.deeds.iter().filter(|deed| deed.loses_tables() == Some(switch));
            assert_eq!(lost.count(), 1, "seed {}", plan.seed);
            let is_set = plan.deeds.iter().any(|deed| match &deed.act {
                Act::SetWall { machine, .. } => machine == switch,
                _ => false,
            });
            assert!(!is_set, "seed {}", plan.seed);
        }
    }
}

#[test]
fn tenants_are_promised_no_more_pages_than_one_switch_has() {
    for plan in plans() {
        let promised: u32 = plan.tenants.iter().map(|tenant| tenant.quota).sum();
        assert!(promised <= plan.pages, "seed {}", plan.seed);
    }
}
