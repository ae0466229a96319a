//! What a value costs that goes round as a packet: a round for nobody, and a read that waits and is answered by it.
//!
//! The recirculation port is played: the packet as one run left it is what the next run finds. One key, so nothing waits for
//! memory. A packet that nobody asks for ends after a while, so runs are few at a time.

use anyhow::{Context, ensure};
use wire::{Header, Op, Secret};

use crate::{
    Options,
    cache::{self, Cache, pages_for},
    drive, packet,
    report::{Report, Side, Target},
    runs::{DROP, REDIRECT},
};

const VALUE_LEN: usize = 128;
/// Rounds for nobody at a time.
const IDLE: u32 = 500;
/// Reads that wait at a time, and times that they do in one batch.
const WAITING: u32 = 8;
const TIMES: usize = 10;
/// What else runs on this machine may keep a packet from going on in time.
const TRIES: usize = 200;

/// Nanoseconds, one figure for each batch.
#[derive(Default)]
struct Cost {
    idle: Vec<f64>,
    read: Vec<f64>,
}

struct Loop {
    cache: Cache,
    read: Vec<u8>,
    ingress: u32,
}

impl Loop {
    /// A packet that goes round, and reads that wait for it or not.
    fn wake(&self) -> anyhow::Result<Vec<u8>> {
        let mut out = vec![];
        for _ in 0..TRIES {
            let (_, verdict) = self
                .cache
                .entry
                .run(&self.read, self.ingress, 1, &mut out)?;
            if verdict == REDIRECT {
                return Ok(out);
            }
            // The one before still counts as going round.
            std::thread::sleep(std::time::Duration::from_millis(30));
        }
        anyhow::bail!("no read makes a value go round")
    }

    /// Nanoseconds of a round for nobody, and of a read that waits with its answer. None: the packet ended meanwhile.
    fn batch(&self, frame: &mut Vec<u8>) -> anyhow::Result<Option<(f64, f64)>> {
        let (entry, back) = (&self.cache.entry, &self.cache.comes_back);
        let mut out = vec![];
        let mut read_ns = 0.0;
        // Reads that found the packet before wait still.
        back.run(frame, self.ingress, 2 * WAITING, &mut out)?;
        std::mem::swap(frame, &mut out);
        for _ in 0..TIMES {
            let (waits, verdict) = entry.run(&self.read, self.ingress, WAITING, &mut out)?;
            if verdict != DROP {
                return Ok(None);
            }
            let (answered, verdict) = back.run(frame, self.ingress, WAITING, &mut out)?;
            if verdict != REDIRECT {
                return Ok(None);
            }
            std::mem::swap(frame, &mut out);
            read_ns += (waits + answered) / TIMES as f64;
        }
        let (idle, verdict) = back.run(frame, self.ingress, IDLE, &mut out)?;
        Ok((verdict == REDIRECT).then_some((idle, read_ns)))
    }
}

/// Measures the first of the disciplines whose values go round, if there is one; `hit_ns` is what a hit of the usual one costs.
///
/// # Errors
/// The kernel refuses, or no packet goes round for long enough.
pub fn measure(
    options: &Options,
    report: &mut Report,
    [ingress, egress]: [u32; 2],
    hit_ns: &[f64],
) -> anyhow::Result<()> {
    let copies =
        |one: &&decide::Registration| one.items == decide::Items::Copies && one.programs.len() > 1;
    for registration in options.known.iter().filter(copies) {
        let pages = pages_for(1, drive::key(0).len(), VALUE_LEN)?;
        let tenant = cache::tenant(wire::TENANT_OPEN, Secret::NONE);
        let object = cache::discipline(registration, pages);
        let mut cache = Cache::load("round", &[object], tenant, pages, packet::STORE.into())?;
        if !cache.sends_round(egress, ingress) {
            continue;
        }
        let hash = drive::hash(0, 0);
        let filled = cache.fill(&tenant, hash, &drive::key(0), &[b'v'; VALUE_LEN])?;
        ensure!(filled, "an empty table has no room");
        let header = Header {
            client: 0xc11e_0001,
            request: 20_001,
            key_hash: hash,
            ..Header::new(Op::ReadRequest)
        };
        let payload = packet::payload(header, &drive::key(0), b"", VALUE_LEN, &Secret::NONE)?;
        let round = Loop {
            cache,
            read: packet::request(&payload),
            ingress,
        };
        // On a machine with other work none may go round for as long as this takes: no row then.
        if let Ok(cost) = costs(&round, options.batches) {
            tell(report, cost, hit_ns);
        }
        return Ok(());
    }
    Ok(())
}

fn costs(round: &Loop, batches: usize) -> anyhow::Result<Cost> {
    let mut cost = Cost::default();
    for _ in 0..batches {
        let figures = (0..TRIES).find_map(|_| {
            let mut frame = round.wake();
            let batch = frame.as_mut().map(|frame| round.batch(frame));
            match batch {
                Ok(batch) => batch.transpose(),
                Err(_) => frame.err().map(Err),
            }
        });
        let (idle, read) = figures.context("no packet goes round for long enough")??;
        cost.idle.push(idle);
        cost.read.push(read);
    }
    Ok(cost)
}

fn tell(report: &mut Report, cost: Cost, hit_ns: &[f64]) {
    let rows = [
        ("round_over_hit128_random", "a round for nobody", cost.idle),
        (
            "waiting_read_over_hit128_random",
            "read that waits, and its answer",
            cost.read,
        ),
    ];
    for (key, what, ns) in rows {
        let sides = [Side::new(what, &ns), Side::new("hit", hit_ns)];
        report.ratio(key, Target::Report, "ns", sides);
    }
}
