//! `shortstop get`: prints the value of one key.
//!
//! The exit status tells scripts whether there was such a key; that of a failure is [`super`]'s.

use std::process::ExitCode;

use commands::{target::Target, value::print};

/// Print the value of a key. Exit status: 0 if there is one, 1 if there is no such key, 2 after
/// any failure.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  shortstop get --server 10.0.2.1 user:42\n  \
    shortstop get --cluster rack.toml --tenant 7 --json user:42\n  \
    shortstop get --cluster rack.toml --tenant 7 --seal-key seal.key user:42")]
pub struct Args {
    /// The key, 1 to 250 bytes.
    key: String,
    /// Print the value's bytes only, without a newline after them.
    #[arg(long, conflicts_with = "json")]
    raw: bool,
    #[command(flatten)]
    target: Target,
}

/// Asks for the key and prints what came.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let (value, took) = args.target.run(async |client| client.get(&args.key).await)?;
    print(value.as_ref(), took, args.target.json, args.raw)
}
