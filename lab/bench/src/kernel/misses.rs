//! Packets that no item answers.

use anyhow::ensure;
use dataplane::{Events, Mode, TenantEntry};

use super::{
    Rig,
    hits::{ITEMS, Stock},
    pair::{Side, timed},
};
use crate::{
    cache,
    drive::Aim,
    packet,
    report::{Report, Side as Told, Target::AtMost},
    runs::{PASS, Program, REDIRECT},
};

/// Keys that are asked for are those of Zipf (exponent 1) behind the items that are cached, up to
/// so many doublings of their number: 1.28 million.
const OCTAVES: u32 = 7;
/// Reads in a batch, which is a window here, from which a key is reported. About one miss in a
/// hundred gets so far, and nearly all of those are reports: 5,000 a second, what a controller
/// allows a switch, at half a million misses.
const HOT_THRESHOLD: u32 = 3;
/// For programs of a few nanoseconds.
const REPEAT: u32 = 400_000;

/// A read that misses, over forwarding alone.
///
/// # Errors
/// The kernel refuses, not all are misses, or none was reported as hot.
pub fn forwarded(rig: &Rig, report: &mut Report, key: &str) -> anyhow::Result<()> {
    let (cache, hits) = Stock::open(ITEMS, 128).load(rig, vec![])?;
    let open = cache::tenant(hits.tenant, hits.secret);
    cache.set_tenants(&[TenantEntry { parameters: [HOT_THRESHOLD, 0], ..open }])?;
    cache.attach("out0", Mode::Generic)?;
    let reads = Aim { first: ITEMS, octaves: OCTAVES, verdict: REDIRECT, ..hits };
    let fib = Program::of(&rig.floors, "fib_forward")?;
    let sides =
        [Side { program: &cache.entry, aim: reads.clone() }, Side { program: &fib, aim: reads }];
    // Reports are read as an agent does, or the ring would be full and all others cheaper.
    let events = Events::open(cache.home())?;
    let [ours, theirs] = rig.measure(sides, || {
        while events.drain()?.count() > 0 {}
        cache.items.table.next_window();
        Ok(())
    })?;
    let misses = cache.count("miss")?;
    rig.counted("miss", misses, rig.runs())?;
    let (reported, lost) = (
        cache.count("hot_report")?,
        cache.count("hot_report_lost")? + cache.count("hot_report_share")?,
    );
    ensure!(
        reported > 0 && lost == 0,
        "of {misses} misses {reported} were reported as hot, and {lost} reports were lost: expected some, and none"
    );
    let share = reported as f64 / misses as f64 * 100.0;
    report.machine("misses that are reported as hot keys", vec![share], "%");
    let sides = [Told::new("miss", &ours.net), Told::new("FIB and redirect", &theirs.net)];
    report.ratio(key, AtMost(2.0), "ns", sides);
    Ok(())
}

/// A UDP packet to another port, over an empty program. The loop of the test run is part of both.
///
/// # Errors
/// The kernel refuses.
pub fn passed(rig: &Rig, report: &mut Report, key: &str) -> anyhow::Result<()> {
    let (cache, _) = Stock::open(1, 128).load(rig, vec![])?;
    let nothing = Program::of(&rig.floors, "nothing")?;
    let other = other_packet();
    let (mut empty, mut passed) = (vec![], vec![]);
    for _ in 0..rig.options.batches {
        for (program, ns) in [(&nothing, &mut empty), (&cache.entry, &mut passed)] {
            ns.push(timed(REPEAT, || {
                let (_, verdict) = program.run(&other, rig.ingress, REPEAT, &mut vec![])?;
                ensure!(verdict == PASS, "a packet that is not ours: verdict {verdict}");
                Ok(())
            })?);
        }
    }
    report.machine("an empty program, with the test run around it", empty.clone(), "ns");
    let sides = [Told::new("UDP to another port", &passed), Told::new("empty program", &empty)];
    report.ratio(key, AtMost(1.2), "ns", sides);
    Ok(())
}

/// What the longest way through the parser that is not ours looks like: UDP, another port.
fn other_packet() -> Vec<u8> {
    let mut frame = packet::request(&[0; 64]);
    frame[36..38].copy_from_slice(&53u16.to_be_bytes());
    frame
}
