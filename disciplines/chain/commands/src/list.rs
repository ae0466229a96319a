//! `coord list`: which keys there are.

use std::{collections::BTreeSet, process::ExitCode};

use anyhow::{Context, ensure};
use api::types::{KeyList, LIST_MAX};
use commands::{api::Api, command_line::end_when_unread, output::print_line};
use serde_json::json;

use crate::reach::Reach;

/// Print the keys that begin with a prefix, each with its version, in their order. A key that is
/// there for as long as this takes is listed, and each that is listed was there at some moment of
/// it. Exit status 1: some may be missing, since the controller has just begun.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  shortstop coord list --cluster shop.toml --tenant 7 \\\n      --control http://10.0.0.5:7118 db."
)]
pub struct Args {
    /// What they begin with [default: any].
    #[arg(default_value = "")]
    prefix: String,
    #[command(flatten)]
    reach: Reach,
    #[command(flatten)]
    control: commands::reach::Reach,
}

/// Prints a line for each key.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    end_when_unread();
    ensure!(
        !args.reach.is_sealed(),
        "--seal-key: the names of sealed keys are hidden from whoever lists them"
    );
    let (tenant, json) = (args.reach.tenant(), args.reach.json);
    let prefix = hex::encode(&args.prefix);
    let control = Api { reach: args.control, json };
    let (keys, unheard) = candidates(&control, tenant, &prefix)?;
    args.reach.read(async |client| {
        for key in keys {
            let key = hex::decode(&key).context("the controller's answer is not understood")?;
            if let Some(value) = client.get(&key).await? {
                print(&key, value.version, json)?;
            }
        }
        Ok(())
    })?;
    if !unheard.is_empty() {
        eprintln!(
            "switches {unheard:?} did not say yet what they have: what only they have is missing"
        );
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}

/// The keys that there may be, and the switches that may have more.
fn candidates(
    control: &Api,
    tenant: u32,
    prefix: &str,
) -> anyhow::Result<(Vec<String>, BTreeSet<u16>)> {
    let (mut keys, mut unheard): (Vec<String>, _) = (vec![], BTreeSet::new());
    loop {
        let after = keys.last().map_or("", String::as_str);
        let path = format!("/v1/tenants/{tenant}/keys?prefix={prefix}&after={after}");
        let more: KeyList = control.get(&path)?;
        unheard.extend(more.unheard);
        let is_last = more.keys.len() < LIST_MAX;
        keys.extend(more.keys);
        if is_last {
            return Ok((keys, unheard));
        }
    }
}

fn print(key: &[u8], version: u64, as_json: bool) -> anyhow::Result<()> {
    let text = String::from_utf8_lossy(key);
    match as_json {
        // JSON has no bytes: a key that is no text is given a second time, exactly.
        true if std::str::from_utf8(key).is_err() => {
            print_line(json!({ "key": text, "key_hex": hex::encode(key), "version": version }))
        }
        true => print_line(json!({ "key": text, "version": version })),
        false => print_line(format_args!("{text}  {version}")),
    }
}
