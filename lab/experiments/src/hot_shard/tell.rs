//! What is told of a hot shard.

use serde_json::json;
use text::table::{Table, percent, thousands};

use super::{Clients, Row, WriteLaw};
use crate::Report;

/// Tells rows of clients before and after, by how keys are written; `served`: of the keys that were
/// there before, the part that a gateway answered as the nodes did.
pub(super) fn tell(rows: &[[Row; 2]], served: f64, report: &mut Report) {
    let columns = [
        "clients",
        "writes",
        "per second",
        "over direct",
        "p99",
        "hottest node",
        "all nodes",
        "stores",
        "gateways",
        "wrong",
    ];
    let mut table = Table::new(&columns);
    for [before, row] in rows.iter().flat_map(|pair| [[&pair[0], &pair[0]], [&pair[0], &pair[1]]]) {
        let Row { per_s, equal_per_s, p99_ms, used: [used, most_used], .. } = row;
        let clients = match row.clients {
            Clients::AtNodes => "at the nodes",
            Clients::ByGateways => "at gateways",
        };
        let law = match row.law {
            WriteLaw::Alike => "each key alike",
            WriteLaw::AsRead => "as keys are read",
        };
        let over = per_s / before.per_s.max(1.0);
        let all_nodes: f64 = used.nodes.iter().sum();
        table.row([
            clients.into(),
            law.into(),
            thousands(*per_s),
            format!("{over:.2}"),
            format!("{p99_ms:.2} ms"),
            percent(used.hottest()),
            percent(all_nodes),
            percent(used.stores),
            percent(used.gateways),
            row.wrong.to_string(),
        ]);
        report.rows.push(json!({
            "clients": clients,
            "writes": law,
            "per_s": per_s,
            "over_direct": over,
            "equal_per_s": equal_per_s,
            "equal_load_served": row.equal_served,
            "p99_ms": p99_ms,
            "cpu_of_nodes": used.nodes,
            "cpu_of_stores": used.stores,
            "cpu_of_gateways": used.gateways,
            "cpu_of_nodes_at_most": most_used.nodes,
            "cpu_of_stores_at_most": most_used.stores,
            "reads": row.reads,
            "wrong_values": row.wrong,
            "failed": row.failed,
        }));
    }
    let all = || rows.iter().flatten();
    let by_gateways = all().filter(|row| row.clients == Clients::ByGateways);
    let wrong: usize = by_gateways.map(|row| row.wrong).sum();
    report.count("wrong_values", wrong as u64);
    report.count("failed", all().map(|row| row.failed).sum());
    report.summarize("earlier_keys_served", served);
    let least_served = all().map(|row| row.equal_served).fold(f64::INFINITY, f64::min);
    report.summarize("equal_load_served", least_served);
    for [before, after] in rows {
        let suffix = match before.law {
            WriteLaw::Alike => "",
            WriteLaw::AsRead => "_written_as_read",
        };
        let [used_before, used_after] = [before, after].map(|row| &row.used[0]);
        let cpu = used_after.hottest() / used_before.hottest().max(1e-9);
        for (name, value) in [
            ("hottest_shard_cpu_after_over_before", cpu),
            ("throughput_gain", after.per_s / before.per_s.max(1.0)),
            ("p99_over_direct", after.p99_ms / before.p99_ms.max(1e-6)),
            ("p99_ms_direct", before.p99_ms),
            ("p99_ms_gateway", after.p99_ms),
        ] {
            report.summarize(format!("{name}{suffix}"), value);
        }
    }
    report.text = format!(
        "{}\nOver direct: commands per second by the same nodes. p99, and parts of a processor: at half of what the nodes serve\n\
         directly, for all rows alike. Gateways: every other client is in cluster mode there, too.\n",
        table.render()
    );
}
