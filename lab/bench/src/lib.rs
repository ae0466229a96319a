//! What a request costs, as ratios over floors taken in the same run (`docs/benchmarks.md`).
//!
//! In: a discipline's data-plane object, handed over by the binary. Out: a [`Report`] of rows with
//! targets, as text and JSON. Two kinds of rows: [`kernel`] runs programs on packets without an
//! interface (`BPF_PROG_TEST_RUN`), [`veth`] sends real datagrams between namespaces. The two sides
//! of a ratio alternate in short batches; a row's figure is the median of the batches' ratios.

pub mod cache;
mod client;
mod cpu;
pub mod drive;
mod gateway;
mod host;
mod hostile;
mod idle;
mod items;
mod kept;
pub mod kernel;
mod local;
mod packet;
pub mod ports;
mod report;
pub mod runs;
mod soft;
mod stats;
mod status;
mod veth;
mod words;

pub use host::Host;
pub use report::{Report, Row};
pub use stats::Spread;

/// What is measured, and how long.
#[derive(Clone, Debug)]
pub struct Options {
    /// The discipline whose hits and misses are measured.
    pub discipline: &'static decide::Registration,
    /// Batches per row; each is one ratio.
    pub batches: usize,
    /// Only rows whose key contains this.
    pub only: Option<String>,
}

impl Options {
    fn wants(&self, keys: &[&str]) -> bool {
        self.only.as_ref().is_none_or(|only| keys.iter().any(|key| key.contains(only)))
    }
}

/// Measures everything that `options` asks for; `say` hears what is going on.
///
/// # Errors
/// Missing privilege, programs that do not load, memcached that does not start.
pub fn run(options: &Options, say: impl Fn(&str)) -> anyhow::Result<Report> {
    let mut report = Report { host: Host::here(), ..Report::default() };
    kernel::measure(options, &mut report, &say)?;
    veth::measure(options, &mut report, &say)?;
    idle::measure(options, &mut report, &say)?;
    local::measure(options, &mut report, &say)?;
    Ok(report)
}
