//! The gateway's own answer to `stats`, where several stores would have one each. Names are
//! memcached's where it counts the same.

use std::time::SystemTime;

use crate::shared::GatewayState;

/// The answer, as it is sent.
pub(super) fn own_stats(shared: &GatewayState) -> String {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let counters = &shared.counters;
    let rows = [
        ("pid", u64::from(std::process::id())),
        ("uptime", shared.since.elapsed().as_secs()),
        ("time", now.map_or(0, |now| now.as_secs())),
        ("pointer_size", u64::from(usize::BITS)),
        ("curr_connections", shared.connected() as u64),
        ("total_connections", counters.total_connections_received.get()),
        ("rejected_connections", counters.rejected_connections.get()),
        ("bytes_read", counters.total_net_input_bytes.get()),
        ("bytes_written", counters.total_net_output_bytes.get()),
        ("held_memory", shared.held() as u64),
        ("local_hits", counters.local_hits.get()),
        ("local_grants", counters.local_grants.get()),
        ("local_invalidations", counters.local_invalidations.get()),
    ];
    let rows: String =
        rows.iter().map(|(name, count)| format!("STAT {name} {count}\r\n")).collect();
    format!("STAT version shortstop-{}\r\n{rows}END\r\n", env!("CARGO_PKG_VERSION"))
}
