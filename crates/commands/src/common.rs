//! What several commands share.

use std::{
    net::SocketAddr,
    time::{Duration, SystemTime},
};

/// Done at SIGINT or SIGTERM, or at SIGHUP, as when the terminal goes, unless that is ignored
/// (`nohup`).
pub async fn stopped() {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut int), Ok(mut term)) =
        (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
    else {
        return std::future::pending().await;
    };
    let mut hangup = (!is_hangup_ignored()).then(|| signal(SignalKind::hangup()).ok()).flatten();
    let hung_up = async {
        match &mut hangup {
            Some(hangup) => hangup.recv().await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        _ = int.recv() => {}
        _ = term.recv() => {}
        _ = hung_up => {}
    }
}

fn is_hangup_ignored() -> bool {
    // SAFETY: all zeros are one, which the system writes over.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: asks, and changes nothing.
    let asked = unsafe { libc::sigaction(libc::SIGHUP, std::ptr::null(), &raw mut action) };
    asked == 0 && action.sa_sigaction == libc::SIG_IGN
}

/// A time of day as logs have it, in UTC.
pub fn moment(at: SystemTime) -> String {
    humantime::format_rfc3339_seconds(at).to_string()
}

/// A length of time, with its unit.
///
/// # Errors
/// Says what was expected.
pub fn time(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text).map_err(|_| {
        format!("{text:?}: expected a number and a unit, such as 500ms, 30s, 5m, 2h, 7d")
    })
}

/// An address with its port, of a process that is known by it.
///
/// # Errors
/// Says what was expected.
pub fn socket_address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        "expected IP:PORT, such as 10.0.2.1:7117 or [fd00::1]:7117; names are not looked up here".into()
    })
}

/// A number of bytes, with an optional KiB, MiB or GiB.
///
/// # Errors
/// Says what was expected.
pub fn size(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match &text[digits.len()..] {
        "" | "B" => 0,
        "KiB" | "K" => 10,
        "MiB" | "M" => 20,
        "GiB" | "G" => 30,
        unit => return Err(format!("unit {unit:?}: expected KiB, MiB or GiB")),
    };
    digits
        .parse::<u64>()
        .ok()
        .and_then(|n| n.checked_mul(1 << shift))
        .ok_or_else(|| format!("{text:?} is not a size; expected for example 512MiB"))
}

/// A number of bytes in which something fits: 1 MiB and more.
///
/// # Errors
/// Says what was expected.
pub fn memory(text: &str) -> Result<u64, String> {
    match size(text)? {
        bytes if bytes >= 1 << 20 => Ok(bytes),
        _ => Err(format!("{text:?}: expected at least 1MiB, for example 256MiB")),
    }
}
