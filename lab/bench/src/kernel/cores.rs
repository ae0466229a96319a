//! What two processors do at once, over one alone.

use std::sync::Barrier;

use anyhow::{Context, anyhow, ensure};

use super::{
    Rig,
    floor::Floor,
    hits::{ITEMS, Stock},
    pair::{Contender, NOTHING},
};
use crate::{
    cpu::Machine,
    drive::{Aim, Drive},
    report::{Report, Side, Target::AtLeast},
    runs::Program,
};

const CPUS: usize = 2;
const HIT: u32 = 1;
const FLOOR: u32 = 2;
/// Other work on the processors from which on the figure is in doubt.
const OTHERS_MOST: f64 = 0.05;

/// A program's rates on one processor, a batch each.
#[derive(Default)]
struct Rates {
    alone: Vec<f64>,
    beside: Vec<f64>,
}

/// Runs of both programs on one processor.
struct Runner<'a> {
    contenders: [Contender<'a>; 2],
}

impl<'a> Runner<'a> {
    fn new(drive: &'a Drive, programs: &[Program; 3], aim: &Aim) -> anyhow::Result<Runner<'a>> {
        for (number, program) in [NOTHING, HIT, FLOOR].into_iter().zip(programs) {
            drive.target(number, program)?;
        }
        let contender = |number| Contender::new(drive, number, aim);
        Ok(Runner { contenders: [contender(HIT)?, contender(FLOOR)?] })
    }
}

/// What the thread on `cpu` does: batches alone, then together with the others; it comes to every
/// meeting, whatever fails.
fn on_cpu(
    cpu: usize,
    ingress: u32,
    batches: usize,
    programs: &[Program; 3],
    aim: &Aim,
    meet: &Barrier,
) -> anyhow::Result<[Rates; 2]> {
    lab::process::pin_self(cpu);
    // Each has a driver of its own: what they share is what is measured.
    let drive = Drive::load();
    let runner = drive.as_ref().map_err(|e| anyhow!("{e:#}"));
    let mut runner = runner.and_then(|drive| {
        // Not the same keys at the same time.
        let aim = Aim { seed: cpu as u64, ..aim.clone() };
        Runner::new(drive, programs, &aim)
    });
    let mut rates: [Rates; 2] = Default::default();
    for _ in 0..batches {
        for (program, rates) in rates.iter_mut().enumerate() {
            for turn in 0..=CPUS {
                meet.wait();
                if turn != cpu && turn != CPUS {
                    continue;
                }
                let Ok(running) = &mut runner else { continue };
                let contender = &mut running.contenders[program];
                match contender.batch(ingress) {
                    Err(error) => runner = Err(error),
                    Ok(()) => {
                        let ns = contender.taken.net.last().copied().unwrap_or(f64::NAN);
                        let to = match turn == cpu {
                            true => &mut rates.alone,
                            false => &mut rates.beside,
                        };
                        to.push(1e9 / ns);
                    }
                }
            }
        }
    }
    runner.map(|_| rates)
}

/// Rates of both together, and of one alone (the mean of them), batch by batch.
fn together(each: &[[Rates; 2]], program: usize) -> [Vec<f64>; 2] {
    let batches = 0..each[0][program].alone.len();
    let sum = |batch: usize, of: fn(&Rates) -> &Vec<f64>| -> f64 {
        each.iter().map(|rates| of(&rates[program])[batch]).sum()
    };
    [
        batches.clone().map(|batch| sum(batch, |rates| &rates.beside)).collect(),
        batches.map(|batch| sum(batch, |rates| &rates.alone) / each.len() as f64).collect(),
    ]
}

/// Hits per second of two processors at once over those of one: both draw from the same items.
///
/// # Errors
/// The kernel refuses, not all are hits, or there is one processor only.
pub fn two(rig: &Rig, report: &mut Report, key: &str) -> anyhow::Result<()> {
    let cpus = dataplane::cpus(); // this thread may use one only
    ensure!(cpus as usize >= CPUS, "{key} needs two processors, and there is {cpus}");
    let (cache, aim) = Stock::open(ITEMS, 128).load(rig, vec![])?;
    let floor = Floor::of(&aim, ITEMS)?;
    let nothing = Program::of(&rig.floors, "nothing")?;
    let programs = [nothing, cache.entry.again()?, floor.program.again()?];
    let meet = Barrier::new(CPUS);
    let machine = Machine::now();
    let each = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..CPUS)
            .map(|cpu| {
                let (programs, aim, meet) = (&programs, &aim, &meet);
                let (ingress, batches) = (rig.ingress, rig.options.batches);
                scope.spawn(move || on_cpu(cpu, ingress, batches, programs, aim, meet))
            })
            .collect();
        let ended = threads.into_iter().map(|thread| thread.join());
        ended
            .map(|ended| ended.map_err(|_| anyhow!("a measuring thread panicked"))?)
            .collect::<anyhow::Result<Vec<_>>>()
    })?;
    let others = machine.map(|machine| machine.since()).context("/proc/stat")?;
    // Each alone once, and both at once.
    let turns = 2 * CPUS as u64;
    rig.counted("hit", cache.count("hit")?, turns * rig.runs())?;
    let [both, one] = together(&each, 1);
    let floors = both.iter().zip(&one).map(|(both, one)| both / one).collect();
    report.machine("the floor's rate on two processors over one", floors, "x");
    let [both, one] = together(&each, 0);
    let sides = [Side::new("hits on two processors", &both), Side::new("on one", &one)];
    report.ratio(key, AtLeast(1.9), "/s", sides);
    if others.other + others.stolen > OTHERS_MOST {
        report.note(key, format!("in doubt: {others}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_that_do_not_disturb_each_other_do_twice_as_much() {
        let rates = |alone, beside| Rates { alone: vec![alone], beside: vec![beside] };
        let each = [[Rates::default(), rates(3.0, 3.0)], [Rates::default(), rates(5.0, 5.0)]];
        assert_eq!(together(&each, 1), [vec![8.0], vec![4.0]]);
    }
}
