//! The gateway's own answer to `stats`, where several stores would have one each. Names are
//! memcached's where it counts the same.

use std::time::SystemTime;

use crate::shared::GatewayState;

/// The answer, as it is sent.
pub(super) fn own_stats(shared: &GatewayState) -> String {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let counted = |name: &str| {
        let found = shared.counters.read().find(|(counter, _)| *counter == name);
        found.map_or(0, |(_, count)| count)
    };
    let rows = [
        ("pid", u64::from(std::process::id())),
        ("uptime", shared.since.elapsed().as_secs()),
        ("time", now.map_or(0, |now| now.as_secs())),
        ("pointer_size", u64::from(usize::BITS)),
        ("curr_connections", shared.connected() as u64),
        ("total_connections", counted("total_connections_received")),
        ("rejected_connections", counted("rejected_connections")),
        ("bytes_read", counted("total_net_input_bytes")),
        ("bytes_written", counted("total_net_output_bytes")),
        ("held_memory", shared.held() as u64),
        ("local_hits", counted("local_hits")),
        ("local_grants", counted("local_grants")),
        ("local_invalidations", counted("local_invalidations")),
    ];
    let rows: String =
        rows.iter().map(|(name, count)| format!("STAT {name} {count}\r\n")).collect();
    format!("STAT version shortstop-{}\r\n{rows}END\r\n", env!("CARGO_PKG_VERSION"))
}
