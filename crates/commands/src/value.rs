//! Values as commands read and print them.

use std::{io::Read, process::ExitCode, time::Duration};

use anyhow::Context;
use client::Value;
use wire::MAX_VALUE_MOST;

use crate::{
    output::{self, print_line},
    target::not_found,
};

/// A value from standard input. One byte more than any cluster takes is read, so that too much is
/// refused by the usual message.
///
/// # Errors
/// It cannot be read.
pub fn read_stdin() -> anyhow::Result<Vec<u8>> {
    let mut value = Vec::new();
    let limit = u64::from(MAX_VALUE_MOST) + 1;
    std::io::stdin()
        .lock()
        .take(limit)
        .read_to_end(&mut value)
        .context("cannot read standard input")?;
    Ok(value)
}

/// Prints what a key has: as JSON, or its bytes, with a newline after them if they are not to be
/// `raw`.
///
/// # Errors
/// It cannot be written.
pub fn print(
    value: Option<&Value>,
    took: Duration,
    json: bool,
    raw: bool,
) -> anyhow::Result<ExitCode> {
    if json {
        print_line(to_json(value, took))?;
    }
    let Some(value) = value else { return Ok(not_found()) };
    if !json {
        output::print(&value.bytes)?;
        if !raw {
            output::print("\n")?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Who has answered.
fn from(value: &Value) -> &'static str {
    match (value.from_copy, value.from_switch) {
        (true, _) => "local",
        (_, true) => "switch",
        _ => "store",
    }
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
        "from": from(value),
        "latency_us": latency_us,
    });
    if let Some(left) = value.expires_in {
        json["expires_in_ms"] = (left.as_millis() as u64).into();
    }
    // JSON has no bytes: a value that is no text is given a second time, exactly.
    if std::str::from_utf8(&value.bytes).is_err() {
        let hex: String = value.bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        json["value_hex"] = hex.into();
    }
    json
}
