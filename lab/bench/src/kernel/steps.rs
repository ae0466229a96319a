//! Where a hit's time goes: the data plane's own code, cut short after each step
//! (`bpf/steps.bpf.c`).

use dataplane::{Object, TenantEntry};

use super::{
    Rig,
    hits::{ITEMS, Stock},
    pair::{NOTHING, REPEAT, timed},
};
use crate::{
    cache::{self, one_step},
    drive::{Aim, AimedDrive},
    report::{Figure, Report},
    runs::{PASS, TX},
};

const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/steps.bpf.o"));
// The driver's numbers for what is measured.
const ALONE: u32 = 1;
const WHOLE: u32 = 2;

/// Number of the program that only parses; it runs without the entry program before it.
const PARSED: u32 = 8;

/// The programs cut short, by number, and what each adds to the one before.
const STEPS: [(u32, &str, &str); 4] = [
    (9, "step_admitted", "+ tenant, clock, rate, tail call (admit)"),
    (10, "step_found", "+ bucket, item header, key compared (find)"),
    (11, "step_counted", "+ request counted, lease checked"),
    (12, "step_copied", "+ value copied into the packet"),
];

/// They load like disciplines, so that they share the tables.
fn disciplines() -> Vec<Object> {
    let parsed = one_step("step_parsed", PARSED, OBJECT);
    let rest = STEPS.map(|(number, name, _)| one_step(name, number, OBJECT));
    std::iter::once(parsed).chain(rest).collect()
}

/// Measures every step in turn, batch by batch, and reports what each adds.
///
/// # Errors
/// The kernel refuses.
pub fn profile(rig: &Rig, report: &mut Report) -> anyhow::Result<()> {
    let (cache, hit) = Stock::open(ITEMS, 128).load(rig, disciplines())?;
    let tenant = cache::tenant(hit.tenant, hit.secret);
    let (drive, bare) = (&rig.drive, cache.discipline(PARSED)?);
    drive.target(ALONE, &bare)?;
    drive.target(WHOLE, &cache.entry)?;
    let aim = |target, keys, verdict| drive.aim(&Aim { target, keys, verdict, ..hit.clone() });
    let mut nothing = aim(NOTHING, ITEMS, PASS)?;
    let mut parsed = aim(ALONE, ITEMS, TX)?;
    let mut whole = aim(WHOLE, ITEMS, TX)?;
    let mut one = aim(WHOLE, 1, TX)?;
    let time = |aimed: &mut AimedDrive| timed(REPEAT, || aimed.run(rig.ingress, REPEAT).map(drop));
    let mut adds: Vec<Vec<f64>> = vec![vec![]; STEPS.len() + 2];
    let (mut all, mut warm) = (vec![], vec![]);
    for _ in 0..rig.options.batches {
        let driver = time(&mut nothing)?;
        let mut after = vec![time(&mut parsed)?];
        for (number, _, _) in STEPS {
            let discipline = number;
            cache.set_tenants(&[TenantEntry { discipline, ..tenant }])?;
            after.push(time(&mut whole)?);
        }
        cache.set_tenants(&[tenant])?;
        after.push(time(&mut whole)?);
        all.push(after[after.len() - 1] - driver);
        warm.push(time(&mut one)? - driver);
        let before = std::iter::once(driver).chain(after.iter().copied());
        for (add, (before, after)) in adds.iter_mut().zip(before.zip(after.iter())) {
            add.push(after - before);
        }
    }
    let names = std::iter::once("packet parsed, header and key noted (parse)")
        .chain(STEPS.map(|(_, _, what)| what))
        .chain(["+ reply built, counted, sent back (answer)"]);
    let figure = |what, values| Figure::of(what, values, "ns");
    let steps = names.zip(adds).map(|(what, values)| figure(what, values));
    report.profile.extend(steps);
    let whole = figure("= a hit on a random key", all);
    let warm = figure("a hit on the same key each time (warm)", warm);
    report.profile.extend([whole, warm]);
    Ok(())
}
