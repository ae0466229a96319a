//! `shortstop set`: writes the value of one key, under a condition if one is given, and prints the
//! version that it has then.

use std::{process::ExitCode, time::Duration};

use client::Condition;
use commands::{common::time, output::print_line, target::Target, value::read_stdin};

/// Write the value of a key and print its new version.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  shortstop set --server 10.0.2.1 user:42 Ada --ttl 30s\n  \
    date | shortstop set --server 10.0.2.1 --if-absent lock -\n  \
    shortstop set --server 10.0.2.1 logo - < logo.png\n  \
    (umask 077; openssl rand -hex 32 > seal.key)\n  \
    shortstop set --cluster rack.toml --tenant 7 --seal-key seal.key user:42 Ada")]
pub struct Args {
    /// The key, 1 to 250 bytes.
    key: String,
    /// The value, at most `max_value` bytes of the cluster file (1 MiB unless it says otherwise);
    /// `-` reads it from standard input.
    value: String,
    /// Forget the key after this time.
    #[arg(long, value_name = "TIME", value_parser = time)]
    ttl: Option<Duration>,
    #[command(flatten)]
    condition: OnlyIf,
    #[command(flatten)]
    target: Target,
}

#[derive(clap::Args)]
#[group(multiple = false)]
struct OnlyIf {
    /// Write only if the key has this version. What others write directly in the store's backend is
    /// no new version, and may be overwritten unread.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..u64::MAX))]
    if_version: Option<u64>,
    /// Write only if there is no such key.
    #[arg(long)]
    if_absent: bool,
    /// Write only if the key exists.
    #[arg(long)]
    if_present: bool,
}

impl OnlyIf {
    fn condition(&self) -> Condition {
        match self {
            OnlyIf { if_version: Some(version), .. } => Condition::Version(*version),
            OnlyIf { if_absent: true, .. } => Condition::Absent,
            OnlyIf { if_present: true, .. } => Condition::Present,
            _ => Condition::Always,
        }
    }
}

/// Writes the key and prints the version that the store gave it.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let value = match args.value.as_str() {
        "-" => read_stdin()?,
        text => text.as_bytes().to_vec(),
    };
    let condition = args.condition.condition();
    let (version, took) = args
        .target
        .run(async |client| client.set_if(&args.key, &value, args.ttl, condition).await)?;
    if args.target.json {
        let latency_us = took.as_micros() as u64;
        let json =
            serde_json::json!({ "version": version, "from": "store", "latency_us": latency_us });
        print_line(json)?;
    } else {
        print_line(format_args!("version {version}"))?;
    }
    Ok(ExitCode::SUCCESS)
}
