//! `shortstop-lab store`: `shortstop store` with the data and the pace of the crate `emulated`.
//! Labs start it in place of servers that one machine has no room for.

use std::process::ExitCode;

use anyhow::ensure;
use emulated::{Pace, Populate, Rate, RateChange};
use shortstop::cmd::store::{Serve, serve};
use store::{BackendConfig, Config, backend::Backend};

/// Serve keys as `shortstop store` does, as a server that is not there would: with data from the
/// start, and at its pace.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  shortstop-lab store --listen 127.0.0.1:7117 --populate 1000:128\n  \
    shortstop-lab store --listen 127.0.0.1:7117 --populate 1000:128 --rate-limit 250 --queue-limit 32"
)]
pub struct Args {
    #[command(flatten)]
    serve: Serve,
    /// Requests per second that the server of each partition has time for; none: as many as come.
    #[arg(long, value_name = "REQ_PER_S")]
    rate_limit: Option<f64>,
    /// So many seconds after the first request it has time for so many requests per second instead:
    /// a server that turns slow while it runs.
    #[arg(long, value_name = "SECONDS:REQ_PER_S", requires = "rate_limit")]
    rate_later: Option<RateChange>,
    /// Requests that may wait for it.
    #[arg(long, value_name = "N", default_value_t = Rate::QUEUE, requires = "rate_limit")]
    queue_limit: u32,
    /// Begin with N items of VALUE_LEN bytes: key0000000000000 and so on; of several stores each
    /// has those that are its own. Of several lengths with weights, as 64x82,1024x18, each key's
    /// hash chooses one.
    #[arg(long, value_name = "N:VALUE_LEN")]
    populate: Option<Populate>,
}

/// Serves until it is told to stop.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let rate =
        args.rate_limit.map(|requests_per_s| Rate { requests_per_s, queue: args.queue_limit });
    if let Some(rate) = &rate {
        rate.check()?;
    }
    let mut pace = Pace::new(rate);
    if let Some(later) = args.rate_later {
        pace.change_later(later);
    }
    let populate = args.populate;
    serve(args.serve, |data: &mut dyn Backend, config: &Config, version| {
        if let Some(populate) = populate {
            ensure!(
                config.backend == BackendConfig::Embedded,
                "--populate fills the embedded backend only; load the others with their own tools"
            );
            populate.fill(data, &config.cluster, config.identity, version)?;
        }
        Ok(Some(pace.admission()))
    })
}
