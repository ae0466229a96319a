//! Where a hit's time goes: the data plane's own code, cut short after each step (`bpf/steps.bpf.c`).

use dataplane::{Object, TenantEntry};

use crate::{
    Options, Spread,
    cache::{Cache, one_step},
    drive::{Aim, Drive},
    kernel,
    report::{Figure, Report},
};

const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/steps.bpf.o"));
const REPEAT: u32 = 40_000;

/// Number of the program that only parses; it runs without the entry program before it.
pub const PARSED: u32 = 8;

/// The programs cut short, by number, and what each adds to the one before.
const STEPS: [(u32, &str, &str); 4] = [
    (
        9,
        "step_admitted",
        "+ tenant, clock, rate, tail call (admit)",
    ),
    (
        10,
        "step_found",
        "+ bucket, item header, key compared (find)",
    ),
    (11, "step_counted", "+ request counted, lease checked"),
    (12, "step_copied", "+ value copied into the packet"),
];

/// They load like disciplines, so that they share the tables.
pub fn disciplines() -> Vec<Object> {
    let parsed = one_step("step_parsed", PARSED, OBJECT);
    let rest = STEPS.map(|(number, name, _)| one_step(name, number, OBJECT));
    std::iter::once(parsed).chain(rest).collect()
}

/// Measures every step in turn, batch by batch, and reports what each adds.
///
/// # Errors
/// The kernel refuses.
pub fn profile(
    options: &Options,
    report: &mut Report,
    cache: &Cache,
    drive: &Drive,
    hit: &Aim,
    tenant: TenantEntry,
) -> anyhow::Result<()> {
    let mut nothing = drive.aim(&Aim {
        target: 0,
        verdict: crate::runs::PASS,
        ..hit.clone()
    })?;
    let mut parsed = drive.aim(&Aim {
        target: kernel::PARSED,
        ..hit.clone()
    })?;
    let mut whole = drive.aim(hit)?;
    let mut one = drive.aim(&Aim {
        keys: 1,
        ..hit.clone()
    })?;
    let mut adds: Vec<Vec<f64>> = vec![vec![]; STEPS.len() + 2];
    let (mut all, mut warm) = (vec![], vec![]);
    for _ in 0..options.batches {
        let driver = kernel::timed(REPEAT, || nothing.run(0, REPEAT).map(drop))?;
        let mut last = driver;
        let mut note = |adds: &mut Vec<f64>, now: f64| {
            adds.push(now - last);
            last = now;
        };
        note(
            &mut adds[0],
            kernel::timed(REPEAT, || parsed.run(0, REPEAT).map(drop))?,
        );
        for (i, (number, _, _)) in STEPS.iter().enumerate() {
            cache.set_tenant(TenantEntry {
                discipline: *number,
                ..tenant
            })?;
            note(
                &mut adds[i + 1],
                kernel::timed(REPEAT, || whole.run(0, REPEAT).map(drop))?,
            );
        }
        cache.set_tenant(tenant)?;
        let hit = kernel::timed(REPEAT, || whole.run(0, REPEAT).map(drop))?;
        note(&mut adds[STEPS.len() + 1], hit);
        all.push(hit - driver);
        warm.push(kernel::timed(REPEAT, || one.run(0, REPEAT).map(drop))? - driver);
    }
    let names = std::iter::once("packet parsed, header and key noted (parse)")
        .chain(STEPS.iter().map(|(_, _, what)| *what))
        .chain(["+ reply built, counted, sent back (answer)"]);
    let figure = |what: &str, values| Figure {
        what: what.into(),
        value: Spread::of(values),
        unit: "ns",
    };
    report
        .profile
        .extend(names.zip(adds).map(|(what, values)| figure(what, values)));
    report.profile.push(figure("= a hit on a random key", all));
    report
        .profile
        .push(figure("a hit on the same key each time (warm)", warm));
    Ok(())
}
