//! `shortstop audit`: what was changed on the controller, by whom and when.
//!
//! Reads `/v1/audit` in as many requests as it takes, and writes a table, or JSON.

use std::process::ExitCode;

use api::types::AuditEntry;
use commands::api::Api;

use super::table::table;

/// Shows what was changed by whom, oldest first.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  shortstop audit --after 120")]
pub struct Args {
    /// Only changes with a number above this one.
    #[arg(long, value_name = "N", default_value_t = 0)]
    after: u64,
    #[command(flatten)]
    api: Api,
}

/// Asks the controller and prints its answer.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let api = args.api;
    // Not through `list`: its first request has no `after`.
    let mut all: Vec<AuditEntry> = vec![];
    let mut after = args.after;
    loop {
        let more: Vec<AuditEntry> = api.get(&format!("/v1/audit?after={after}"))?;
        let full = more.len() == api::types::LIST_MAX;
        all.extend(more);
        match all.last() {
            Some(last) if full && last.seq > after => after = last.seq,
            _ => break,
        }
    }
    api.print(&all, |all| {
        let row = |e: &AuditEntry| {
            vec![e.seq.to_string(), utc(e.at_ms), e.who.clone(), e.what.clone(), e.detail.clone()]
        };
        let rows: Vec<_> = all.iter().map(row).collect();
        table(&["number", "when (UTC)", "who", "what", "to what"], &rows)
    })
}

/// As `2026-01-31 23:59:59`; days to a date after the proleptic Gregorian calendar's
/// 400-year cycle.
fn utc(at_ms: u64) -> String {
    let seconds = at_ms / 1000;
    let (mut days, second) = (seconds / 86_400, seconds % 86_400);
    let leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    let mut year = 1970 + days / 146_097 * 400;
    days %= 146_097;
    while days >= 365 + u64::from(leap(year)) {
        days -= 365 + u64::from(leap(year));
        year += 1;
    }
    let february = 28 + u64::from(leap(year));
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year}-{month:02}-{:02} {hour:02}:{minute:02}:{second:02}", days + 1)
}

#[cfg(test)]
mod tests {
    #[test]
    fn times_are_dates() {
        assert_eq!(super::utc(0), "1970-01-01 00:00:00");
        assert_eq!(super::utc(951_782_400_000), "2000-02-29 00:00:00");
        assert_eq!(super::utc(1_798_761_599_999), "2026-12-31 23:59:59");
    }
}
