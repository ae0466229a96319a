//! What programs counted of keys that have no item, read by the agent: count-min sketches and
//! HashPipes (Sivaraman and others, SOSR 2017), one of each CPU. The arithmetic is that of
//! `bpf/sketch.h` and `bpf/pipe.h`.

use std::sync::atomic::Ordering::Relaxed;

use wire::KeyHash;

use super::{backing::Backing, mapped::SharedArray, tenant::hash_salt};
use crate::{
    Error,
    layout::{
        Config, PIPE_SLOTS, Pipe, SKETCH_COLUMNS, SKETCH_EXACT, SKETCH_MOST, SKETCH_STEP, Sketch,
    },
    writes::{Atomic, Word},
};

/// The map that those objects share which count keys in pipes.
pub(crate) const PIPES: &str = "pipes";

/// What programs count of keys without items, on all CPUs, read by the agent: each key is in the
/// count-min sketches or in the HashPipes, as its tenant's discipline counts.
pub struct Sketches {
    per_cpu: SharedArray<Sketch>,
    /// Where no discipline counts so there are none.
    pipes: Option<SharedArray<Pipe>>,
    config: SharedArray<Config>,
}

/// As `mix` in `bpf/sketch.h`.
pub(crate) fn mix(a: u64, b: u64) -> u64 {
    let mut x = a ^ b.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// As in `bpf/sketch.h`: what a cell counted in this window.
fn steps_in(cell: u32, window: u32) -> u32 {
    let is_of_it = cell >> 12 == window & 0xf;
    if is_of_it { cell & SKETCH_MOST } else { 0 }
}

/// Likewise: the reads that such a count stands for.
fn reads_of(steps: u32) -> u64 {
    let coarse = steps.saturating_sub(SKETCH_EXACT);
    (steps - coarse + coarse * SKETCH_STEP).into()
}

/// Windows until every cell of a sketch was looked at: fewer than the marks in the cells tell
/// apart.
const LOOKS: usize = 8;

/// Of these cells those are made zero, as this window begins, whose turn it is and which were
/// written in another one.
fn clear<A: Atomic>(cells: &[Word<A>], window: u32, is_of_it: impl Fn(A::Plain) -> bool)
where
    A::Plain: Copy + Default + PartialEq,
{
    let zero = A::Plain::default();
    let mut turns = cells.chunks(cells.len().div_ceil(LOOKS));
    for cell in turns.nth(window as usize % LOOKS).unwrap_or_default() {
        let is = cell.load(Relaxed);
        if is != zero && !is_of_it(is) {
            // Where it is another by now a program has written it, in this window.
            let _ = cell.compare_exchange(is, zero, Relaxed, Relaxed);
        }
    }
}

/// A window begins: cells become zero before their mark comes again, which would make what they
/// counted a later window's.
pub(crate) fn forget_old(per_cpu: &SharedArray<Sketch>, window: u32) {
    for cpu in 0..per_cpu.len() {
        let sketch: &Sketch = per_cpu.at(cpu);
        for row in &sketch.row {
            clear(row, window, |cell| u32::from(cell) >> 12 == window & 0xf);
        }
        clear(&sketch.bloom, window, |cell| u32::from(cell) == window % 255 + 1);
        for reports in [&sketch.reports[..], std::slice::from_ref(&sketch.reports_of_all)] {
            clear(reports, window, |cell| cell >> 24 == window & 0xff);
        }
    }
}

impl Sketches {
    /// The sketches of a switch.
    ///
    /// # Errors
    /// If they cannot be mapped.
    pub fn open(at: impl Into<Backing>) -> Result<Sketches, Error> {
        let at = at.into();
        Ok(Sketches {
            per_cpu: at.mapped("sketches")?,
            pipes: match at.has_map(PIPES) {
                true => Some(at.mapped(PIPES)?),
                false => None,
            },
            config: at.mapped("config")?,
        })
    }

    /// Estimated reads of a key without an item in a window, over all CPUs. In a sketch never too
    /// low (from 2,048 on one CPU on: likely near), in a pipe never too high; but for races.
    pub fn estimate(&self, tenant: u32, hash: KeyHash, window: u32) -> u64 {
        let seed = self.config.at(0).seed.load(Relaxed);
        let seed = seed.wrapping_mul(2 * u64::from(tenant) + 1);
        let mixed = mix(hash.high() ^ seed, hash.low() ^ hash_salt(tenant));
        let on_cpu = |cpu| {
            let sketch: &Sketch = self.per_cpu.at(cpu);
            let rows = sketch.row.iter().enumerate();
            rows.map(|(i, row)| {
                let cell = row[(mixed >> (16 * i)) as usize & (SKETCH_COLUMNS - 1)].load(Relaxed);
                steps_in(cell.into(), window)
            })
            .min()
            .map_or(0, reads_of)
        };
        let in_sketches: u64 = (0..self.per_cpu.len()).map(on_cpu).sum();
        in_sketches + self.in_pipes(mixed, window)
    }

    fn in_pipes(&self, key: u64, window: u32) -> u64 {
        let count = |pipe: &Pipe| -> u64 {
            let stages = pipe.stage.iter().enumerate();
            let slots =
                stages.map(|(i, slots)| &slots[(key >> (16 * i)) as usize & (PIPE_SLOTS - 1)]);
            let its = slots.filter(|slot| {
                slot.key.load(Relaxed) == key && slot.window.load(Relaxed) == window
            });
            its.map(|slot| u64::from(slot.count.load(Relaxed))).sum()
        };
        let pipes = self.pipes.iter();
        pipes.flat_map(|pipes| (0..pipes.len()).map(|cpu| count(pipes.at(cpu)))).sum()
    }
}
