//! Two programs behind the driver, measured in turn.

use std::time::Duration;

use crate::{
    cpu,
    drive::{Aim, AimedDrive, Drive},
    runs::{PASS, Program},
};

/// Runs in one batch.
pub const REPEAT: u32 = 40_000;
/// The driver's number for a program that does nothing, set before anything is measured.
pub const NOTHING: u32 = 0;
// Its numbers for what is measured.
const OURS: u32 = 1;
const THEIRS: u32 = 2;

/// Nanoseconds of one of `repeat` runs: the kernel's own figure is whole nanoseconds only.
///
/// # Errors
/// Those of `run`.
pub fn timed(repeat: u32, run: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<f64> {
    let start = cpu::own();
    run()?;
    Ok((cpu::own() - start).as_nanos() as f64 / f64::from(repeat))
}

/// A program and the requests that it gets.
pub struct Side<'a> {
    pub program: &'a Program,
    pub aim: Aim,
}

/// What a program took in each batch.
#[derive(Default)]
pub struct BatchCosts {
    /// Without the driver, in nanoseconds.
    pub net: Vec<f64>,
    /// The driver alone.
    pub driver: Vec<f64>,
}

/// One side behind the driver, and the driver before nothing with the same requests.
pub struct Contender<'a> {
    aimed: AimedDrive<'a>,
    target: u32,
    verdict: u32,
    pub taken: BatchCosts,
}

impl<'a> Contender<'a> {
    /// `target` is the driver's number for the side's program.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn new(drive: &'a Drive, target: u32, aim: &Aim) -> anyhow::Result<Contender<'a>> {
        Ok(Contender {
            aimed: drive.aim(aim)?,
            target,
            verdict: aim.verdict,
            taken: BatchCosts::default(),
        })
    }

    /// # Errors
    /// The kernel refuses, or the last verdict is not the side's.
    pub fn batch(&mut self, ingress: u32) -> anyhow::Result<()> {
        let aimed = &mut self.aimed;
        aimed.turn(NOTHING, PASS);
        let driver = timed(REPEAT, || aimed.run(ingress, REPEAT).map(drop))?;
        aimed.turn(self.target, self.verdict);
        let both = timed(REPEAT, || aimed.run(ingress, REPEAT).map(drop))?;
        self.taken.net.push(both - driver);
        self.taken.driver.push(driver);
        Ok(())
    }
}

/// Measures ours and theirs in turn, `batches` times each. `each` comes before every batch.
///
/// # Errors
/// The kernel refuses, a verdict is not the side's, or those of `each`.
pub fn measure(
    drive: &Drive,
    ingress: u32,
    batches: usize,
    sides: [Side<'_>; 2],
    mut each: impl FnMut() -> anyhow::Result<()>,
) -> anyhow::Result<[BatchCosts; 2]> {
    let [ours, theirs] = &sides;
    drive.target(OURS, ours.program)?;
    drive.target(THEIRS, theirs.program)?;
    let mut ours = Contender::new(drive, OURS, &ours.aim)?;
    let mut theirs = Contender::new(drive, THEIRS, &theirs.aim)?;
    for _ in 0..batches {
        each()?;
        ours.batch(ingress)?;
        theirs.batch(ingress)?;
    }
    Ok([ours.taken, theirs.taken])
}

/// Nanoseconds of a read from memory that depends on the one before, none of them in a cache: what
/// a cache miss costs.
pub fn memory_latency() -> f64 {
    const WORDS: usize = 16 << 20;
    const READS: u32 = 200_000;
    let mut next: Vec<u32> = (0..WORDS as u32).collect();
    let mut random = 1u64;
    for i in (1..WORDS).rev() {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        next.swap(i, ((random >> 33) as usize) % i);
    }
    let mut at = 0u32;
    let start = cpu::own();
    for _ in 0..READS {
        at = next[at as usize];
    }
    std::hint::black_box(at);
    let taken: Duration = cpu::own() - start;
    taken.as_nanos() as f64 / f64::from(READS)
}
