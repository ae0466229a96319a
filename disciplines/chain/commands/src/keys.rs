//! `coord get`, `put`, `cas`, `delete`.

use std::{process::ExitCode, time::Instant};

use client::{Condition, Error};
use commands::{
    command_line::end_when_unread,
    output::print_line,
    target::not_found,
    value::{print, read_stdin},
};

use crate::reach::Reach;

/// Print the value of a key.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  shortstop coord get --cluster shop.toml --tenant 7 leader.url")]
pub struct Get {
    /// The key, 1 to 250 bytes.
    key: String,
    /// Print the value's bytes only, without a newline after them.
    #[arg(long, conflicts_with = "json")]
    raw: bool,
    /// Whatever is newest where it is asked, committed or not, if the tenant has the option
    /// `relaxed`: not linearizable, and its version is good for no condition.
    #[arg(long)]
    relaxed: bool,
    #[command(flatten)]
    reach: Reach,
}

/// Write the value of a key and print its new version.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  shortstop coord put --cluster shop.toml --tenant 7 --if-absent \\\n      leader.url http://10.0.0.8"
)]
pub struct Put {
    /// The key, 1 to 250 bytes, not beginning with byte 0.
    key: String,
    /// The value, what fits one packet; `-` reads it from standard input.
    value: String,
    /// Write only if there is no such key.
    #[arg(long, conflicts_with = "if_present")]
    if_absent: bool,
    /// Write only if the key exists.
    #[arg(long)]
    if_present: bool,
    #[command(flatten)]
    reach: Reach,
}

/// Write the value of a key if it has exactly this version.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  shortstop coord cas --cluster shop.toml --tenant 7 \\\n      leader.url 41 http://10.0.0.9"
)]
pub struct Cas {
    /// The key.
    key: String,
    /// The version that it must have; 0: it must be absent.
    version: u64,
    /// The value; `-` reads it from standard input.
    value: String,
    #[command(flatten)]
    reach: Reach,
}

/// Remove a key.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  shortstop coord delete --cluster shop.toml --tenant 7 --if-version 42 \\\n      leader.url"
)]
pub struct Delete {
    /// The key.
    key: String,
    /// Remove it only if it has this version.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..u64::MAX))]
    if_version: Option<u64>,
    #[command(flatten)]
    reach: Reach,
}

/// Prints what a key has.
pub fn get(args: Get) -> anyhow::Result<ExitCode> {
    end_when_unread();
    let (value, took) = args.reach.read(async |client| {
        let start = Instant::now();
        let value = match args.relaxed {
            true => client.get_relaxed(&args.key).await?,
            false => client.get(&args.key).await?,
        };
        Ok((value, start.elapsed()))
    })?;
    print(value.as_ref(), took, args.reach.json, args.raw)
}

/// Writes a key and prints its version.
pub fn put(args: Put) -> anyhow::Result<ExitCode> {
    let condition = match (args.if_absent, args.if_present) {
        (true, _) => Condition::Absent,
        (_, true) => Condition::Present,
        _ => Condition::Always,
    };
    write(&args.reach, &args.key, &args.value, condition)
}

/// Writes a key that has the version.
pub fn cas(args: Cas) -> anyhow::Result<ExitCode> {
    let condition = match args.version {
        0 => Condition::Absent,
        version => Condition::Version(version),
    };
    write(&args.reach, &args.key, &args.value, condition)
}

fn write(reach: &Reach, key: &str, value: &str, condition: Condition) -> anyhow::Result<ExitCode> {
    let value = match value {
        "-" => read_stdin()?,
        text => text.as_bytes().to_vec(),
    };
    let start = Instant::now();
    let written = reach.write(async |client| Ok(client.put(key, &value, condition).await))?;
    let latency_us = start.elapsed().as_micros() as u64;
    match written {
        Ok(version) if reach.json => {
            print_line(serde_json::json!({ "version": version, "latency_us": latency_us }))?;
        }
        Ok(version) => print_line(format_args!("version {version}"))?,
        Err(error) => return refused(error),
    }
    Ok(ExitCode::SUCCESS)
}

/// Removes a key.
pub fn delete(args: Delete) -> anyhow::Result<ExitCode> {
    let condition = args.if_version.map_or(Condition::Always, Condition::Version);
    let removed = args.reach.write(async |client| Ok(client.delete(&args.key, condition).await))?;
    match removed {
        Ok(true) => Ok(ExitCode::SUCCESS),
        Ok(false) => Ok(not_found()),
        Err(error) => refused(error),
    }
}

/// A condition that does not hold is no failure.
fn refused(error: Error) -> anyhow::Result<ExitCode> {
    match error {
        Error::Mismatch { .. } => {
            eprintln!("{error}");
            Ok(ExitCode::FAILURE)
        }
        error => Err(error.into()),
    }
}
