use std::{io::Write, process::ExitCode, time::Duration};

use client::Value;

use super::target::{Target, not_found};

/// Print the value of a key. Exit status: 0 if there is one, 1 if there is no such key, 2 after any failure.
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
    let (value, took) = args
        .target
        .run(async |client| client.get(&args.key).await)?;
    print(value.as_ref(), took, args.target.json, args.raw)
}

/// Prints what a key has: as JSON, or its bytes, with a newline after them if they are not to be `raw`.
///
/// # Errors
/// It cannot be written.
pub fn print(
    value: Option<&Value>,
    took: Duration,
    json: bool,
    raw: bool,
) -> anyhow::Result<ExitCode> {
    let mut out = std::io::stdout().lock();
    if json {
        writeln!(out, "{}", to_json(value, took))?;
    }
    let Some(value) = value else {
        return Ok(not_found());
    };
    if !json {
        out.write_all(&value.bytes)?;
        if !raw {
            out.write_all(b"\n")?;
        }
        out.flush()?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What a key has, as a JSON object.
fn to_json(value: Option<&Value>, took: Duration) -> serde_json::Value {
    let latency_us = took.as_micros() as u64;
    let Some(value) = value else {
        return serde_json::json!({ "value": null, "latency_us": latency_us });
    };
    let mut json = serde_json::json!({
        "value": String::from_utf8_lossy(&value.bytes),
        "version": value.version,
        "from": if value.from_switch { "switch" } else { "store" },
        "latency_us": latency_us,
    });
    if let Some(left) = value.expires_in {
        json["expires_in_ms"] = (left.as_millis() as u64).into();
    }
    // JSON has no bytes: a value that is no text is given a second time, exactly.
    if std::str::from_utf8(&value.bytes).is_err() {
        let hex: String = value
            .bytes
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        json["value_hex"] = hex.into();
    }
    json
}
