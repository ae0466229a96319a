use std::sync::atomic::Ordering::Relaxed;

use wire::KeyHash;

use crate::{
    Backing, Error,
    layout::{Config, SKETCH_COLUMNS, Sketch},
    mapped::Mapped,
    tenant::hash_salt,
};

/// The count-min sketches of all CPUs, read by the agent.
pub struct Sketches {
    per_cpu: Mapped<Sketch>,
    config: Mapped<Config>,
}

/// As `mix` in `bpf/sketch.h`.
fn mix(a: u64, b: u64) -> u64 {
    let mut x = a ^ b.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
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
            config: at.mapped("config")?,
        })
    }

    /// Estimated reads of an uncached key in a window, over all CPUs. Never too low, but for races.
    pub fn estimate(&self, tenant: u32, hash: KeyHash, window: u32) -> u64 {
        let seed = self.config.at(0).seed.load(Relaxed);
        let seed = seed.wrapping_mul(2 * u64::from(tenant) + 1);
        let mixed = mix(hash.high() ^ seed, hash.low() ^ hash_salt(tenant));
        let on_cpu = |cpu| {
            let sketch: &Sketch = self.per_cpu.at(cpu);
            let rows = sketch.row.iter().enumerate();
            rows.map(|(i, row)| {
                let cell = row[(mixed >> (16 * i)) as usize & (SKETCH_COLUMNS - 1)].load(Relaxed);
                if cell >> 24 == window & 0xff {
                    u64::from(cell & 0xff_ffff)
                } else {
                    0
                }
            })
            .min()
            .unwrap_or(0)
        };
        (0..self.per_cpu.len()).map(on_cpu).sum()
    }
}
