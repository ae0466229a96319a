//! Load: what clients ask for ([`workload`]), the generator, and the search for the rate that a rack can just carry
//! ([`search`], held against the analytic [`model`]). Called by experiments and by the binary's `lab load`.
//!
//! The generator: what it is told ([`LoadConfig`], [`Phase`]), what it measures ([`PhaseResult`]),
//! and the loop between. It runs as a process of its own inside a client's namespace; experiments steer
//! it phase by phase over its standard input, one JSON document per line each way.
//!
//! Cost aimed at per request on one core: one draw of a rank (a few powers), one copy of
//! some 200 bytes, 1/32 of a `sendmmsg`, 1/64 of a `recvmmsg`: below 6 us, so 150,000 requests a second.

mod batch;
mod config;
mod driver;
mod each_key;
mod forge;
mod generator;
pub mod model;
mod results;
pub mod search;
mod tenant;
mod versions;
mod window;
pub mod workload;

pub use config::{Arrivals, ChurnSchedule, LoadConfig, Phase, PhaseKind};
pub use driver::LoadDriver;
pub use generator::Generator;
pub use results::{Interval, Latency, PhaseResult, ServedBy, TenantResult};

use std::io::{BufRead, Write};

use anyhow::Context;

/// Runs the phases of the configuration; if it has none, phases come from standard input, one JSON
/// document per line. One JSON result per line goes to `out`.
///
/// # Errors
/// A socket that cannot be opened, a phase that cannot be read, an output that is gone.
pub fn run(config: LoadConfig, input: impl BufRead, mut out: impl Write) -> anyhow::Result<()> {
    let mut phases = config.phases.clone();
    let interactive = phases.is_empty();
    let mut generator = Generator::new(config)?;
    let mut emit = |result: &PhaseResult| -> anyhow::Result<()> {
        serde_json::to_writer(&mut out, result)?;
        out.write_all(b"\n")?;
        Ok(out.flush()?)
    };
    for phase in phases.drain(..) {
        emit(&generator.run(&phase)?)?;
    }
    if interactive {
        for line in input.lines() {
            let line = line.context("reading a phase")?;
            let phase: Phase = serde_json::from_str(&line)
                .with_context(|| format!("a phase of the load generator: {line:?}"))?;
            emit(&generator.run(&phase)?)?;
        }
    }
    Ok(())
}
