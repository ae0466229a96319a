//! `shortstop delete`: removes one key.
//!
//! The exit status tells scripts whether there was such a key; that of a failure is [`super`]'s.

use std::process::ExitCode;

use commands::{
    output::print_line,
    target::{Target, not_found},
};

/// Remove a key. Exit status: 0 if it is removed, 1 if there is no such key, 2 after any failure.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  shortstop delete --server 10.0.2.1 user:42\n  \
    shortstop delete --cluster rack.toml --tenant 7 --seal-key seal.key user:42")]
pub struct Args {
    /// The key, 1 to 250 bytes.
    key: String,
    #[command(flatten)]
    target: Target,
}

/// Removes the key and says so.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let (deleted, took) = args.target.run(async |client| client.delete(&args.key).await)?;
    if args.target.json {
        let latency_us = took.as_micros() as u64;
        print_line(
            serde_json::json!({ "deleted": deleted, "from": "store", "latency_us": latency_us }),
        )?;
    }
    if !deleted {
        return Ok(not_found());
    }
    if !args.target.json {
        print_line("deleted")?;
    }
    Ok(ExitCode::SUCCESS)
}
