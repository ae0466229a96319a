//! Asks a running controller for its status.

use std::fmt::Write;

use crate::{
    ControlEndpoint, ControllerAnswer,
    connect::said,
    proto::{StatusReply, StatusRequest, control_client::ControlClient},
};

/// Asks the controller at `url` (`http://HOST:PORT`).
///
/// # Errors
/// One line: which controller, what went wrong, what to do.
pub async fn fetch(url: &str) -> Result<StatusReply, String> {
    fetch_from(&ControlEndpoint::new(url)?).await
}

/// Asks the controller that leads; if none does, what one that stands by knows.
///
/// # Errors
/// As [`fetch`].
pub async fn fetch_from(endpoint: &ControlEndpoint) -> Result<StatusReply, String> {
    let mut standby = None;
    let ask = async |link, url: &str| match ControlClient::new(link).status(StatusRequest {}).await
    {
        Ok(reply) if reply.get_ref().leading => ControllerAnswer::Done(reply.into_inner()),
        Ok(reply) => {
            standby = Some(reply.into_inner());
            ControllerAnswer::Later(format!("{url} does not lead"))
        }
        Err(e) => ControllerAnswer::Later(format!("{url}: {}", said(&e))),
    };
    match (endpoint.leader(0, ask).await, standby) {
        (Ok((reply, _)), _) | (Err(_), Some(reply)) => Ok(reply),
        (Err(line), None) => Err(line),
    }
}

/// The status as a JSON document, names as in the protocol.
pub fn to_json(status: &StatusReply) -> serde_json::Value {
    serde_json::to_value(status).expect("its names are text")
}

/// The status as text for a terminal.
pub fn to_text(status: &StatusReply) -> String {
    let mut out = String::new();
    let attached = status.switches.iter().filter(|s| s.attached).count();
    if !status.leading {
        let leader = match status.leader.as_str() {
            "" => "nobody leads at the moment".into(),
            url => format!("{url} leads"),
        };
        let _ = writeln!(out, "stands by; {leader}");
        return out;
    }
    let (known, seconds) = (status.switches.len(), status.uptime_ms / 1000);
    if !status.leader.is_empty() {
        let _ = writeln!(out, "{} leads, term {}", status.leader, status.term);
    }
    let _ = writeln!(
        out,
        "discipline {}, up {seconds} s, {attached} of {known} known switches attached",
        status.discipline
    );
    for s in &status.switches {
        let state = if s.attached { "attached" } else { "away" };
        let _ = writeln!(out, "\nswitch {} {:?}: {state}", s.switch_id, s.name);
        let _ = writeln!(out, "  items             {}", s.items);
        let _ = writeln!(out, "  updates/s         {:.1}", s.updates_per_s);
        let _ = writeln!(out, "  reports/s         {:.1}", s.reports_per_s);
        let _ = writeln!(
            out,
            "  commands          {} waiting, {} in flight",
            s.commands_waiting, s.commands_in_flight
        );
        for (name, count) in s.counters.iter().filter(|(_, count)| **count > 0) {
            let _ = writeln!(out, "  {name:<25} {count}");
        }
    }
    out
}
