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

/// Two processors do no more than twice what one does: beyond this the figure is in doubt, too.
const MOST: f64 = 2.05;

/// A turn of a batch: one processor alone, or both at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    Alone(usize),
    Both,
}

/// The turns of a batch in their order, which is another one from batch to batch: what comes first
/// finds the machine otherwise than what comes last.
fn turns(batch: usize) -> [Turn; CPUS + 1] {
    let mut turns = [Turn::Alone(0), Turn::Alone(1), Turn::Both];
    turns.rotate_left(batch % (CPUS + 1));
    turns
}

/// Why a figure is in doubt, with how much of the processors others had; none: it is not.
fn doubt(ratio: f64, used_by_others: f64) -> Option<&'static str> {
    if used_by_others > OTHERS_MOST {
        return Some("others had a part of the processors");
    }
    (ratio > MOST).then_some("two processors cannot do more than twice what one does")
}

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
    for batch in 0..batches {
        for (program, rates) in rates.iter_mut().enumerate() {
            for turn in turns(batch) {
                meet.wait();
                if turn != Turn::Alone(cpu) && turn != Turn::Both {
                    continue;
                }
                let Ok(running) = &mut runner else { continue };
                let contender = &mut running.contenders[program];
                match contender.batch(ingress) {
                    Err(error) => runner = Err(error),
                    Ok(()) => {
                        let ns = contender.taken.net.last().copied().unwrap_or(f64::NAN);
                        let to = match turn {
                            Turn::Alone(_) => &mut rates.alone,
                            Turn::Both => &mut rates.beside,
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
    let ratio = report.rows.last().map_or(0.0, |row| row.ratio.median);
    if let Some(why) = doubt(ratio, others.other + others.stolen) {
        report.note(key, format!("in doubt: {why}; {others}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_turn_is_first_and_last_as_often_as_the_others() {
        let orders: Vec<_> = (0..3).map(turns).collect();
        for place in 0..3 {
            let mut seen: Vec<Turn> = vec![];
            for order in &orders {
                assert!(!seen.contains(&order[place]), "{orders:?}");
                seen.push(order[place]);
            }
        }
        assert_eq!(turns(3), turns(0));
    }

    #[test]
    fn more_than_twice_is_in_doubt_and_so_is_a_busy_machine() {
        for (ratio, others, expected) in
            [(1.95, 0.0, false), (2.05, 0.05, false), (2.23, 0.0, true), (1.95, 0.06, true)]
        {
            assert_eq!(doubt(ratio, others).is_some(), expected, "{ratio} {others}");
        }
    }

    #[test]
    fn two_that_do_not_disturb_each_other_do_twice_as_much() {
        let rates = |alone, beside| Rates { alone: vec![alone], beside: vec![beside] };
        let each = [[Rates::default(), rates(3.0, 3.0)], [Rates::default(), rates(5.0, 5.0)]];
        assert_eq!(together(&each, 1), [vec![8.0], vec![4.0]]);
    }
}
