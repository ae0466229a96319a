//! `coord watch`.

use std::process::ExitCode;

use chain_client::KeyState;
use commands::{command_line::end_when_unread, common::stopped, output::print_line};
use serde_json::json;

use crate::reach::Reach;

/// Print the state of a key, and then each state that it comes to have, until interrupted. States
/// that follow one another at once may be told as the last of them.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  shortstop coord watch --cluster shop.toml --tenant 7 leader.url"
)]
pub struct Args {
    /// The key.
    key: String,
    /// Stop after so many states.
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    #[command(flatten)]
    reach: Reach,
}

/// Prints a line for each state.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    end_when_unread();
    args.reach.read(async |client| {
        let mut watch = client.watch(&args.key);
        let mut left = args.count.unwrap_or(u64::MAX);
        while left > 0 {
            let state = tokio::select! {
                state = watch.next() => state?,
                () = stopped() => break,
            };
            print(&state, args.reach.json)?;
            left -= 1;
        }
        Ok(ExitCode::SUCCESS)
    })
}

fn print(state: &KeyState, as_json: bool) -> anyhow::Result<()> {
    let text = state.value.as_deref().map(String::from_utf8_lossy);
    match (as_json, text) {
        (true, text) => print_line(json!({ "version": state.version, "value": text })),
        (false, Some(text)) => print_line(format_args!("{} {text}", state.version)),
        (false, None) => print_line(format_args!("{} (absent)", state.version)),
    }
}
