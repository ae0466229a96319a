//! `shortstop get`: prints the value of one key.
//!
//! The exit status tells scripts whether there was such a key; that of a failure is [`super`]'s.

use std::{process::ExitCode, time::Instant};

use commands::{common::size, target::Target, value::print};

/// Print the value of a key. Exit status: 0 if there is one, 1 if there is no such key, 2 after
/// any failure.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  shortstop get --server 10.0.2.1 user:42\n  \
    shortstop get --cluster rack.toml --tenant 7 --json user:42\n  \
    shortstop get --cluster rack.toml --tenant 7 --seal-key seal.key user:42\n  \
    shortstop get --cluster rack.toml --json --repeat 1000 --cache 1MiB user:42")]
pub struct Args {
    /// The key, 1 to 250 bytes.
    key: String,
    /// Print the value's bytes only, without a newline after them.
    #[arg(long, conflicts_with = "json")]
    raw: bool,
    /// Read the key so many times, one after the other, and print each answer.
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    repeat: u64,
    /// Keep a copy of the key in so much memory while it is read again and again, as an application
    /// may with the client library: --json says `"from":"local"` of what the copy answers. 0: none.
    #[arg(long, value_name = "SIZE", default_value = "0", value_parser = size)]
    cache: u64,
    #[command(flatten)]
    target: Target,
}

/// Asks for the key and prints what came.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let cache = usize::try_from(args.cache)?;
    args.target.run_caching(cache, async |client| {
        let mut last = ExitCode::SUCCESS;
        for _ in 0..args.repeat {
            let start = Instant::now();
            let value = client.get(&args.key).await?;
            last = print(value.as_ref(), start.elapsed(), args.target.json, args.raw)?;
        }
        Ok(last)
    })
}
