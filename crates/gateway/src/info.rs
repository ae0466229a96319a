//! What INFO and CONFIG GET tell.

use std::fmt::Write;

use bytes::Bytes;

use crate::shared::GatewayState;

/// The Redis whose commands these are, for clients that look at the version to know what they
/// may use.
pub(crate) const REDIS_VERSION: &str = "7.0.0";

/// The sections that are asked for, or all.
pub(crate) fn text(wanted: &[Bytes], shared: &GatewayState) -> String {
    let everything = ["default", "all", "everything"];
    let asked = |name: &str| {
        let hit = |word: &Bytes| {
            word.eq_ignore_ascii_case(name.as_bytes())
                || everything.iter().any(|all| word.eq_ignore_ascii_case(all.as_bytes()))
        };
        wanted.is_empty() || wanted.iter().any(hit)
    };
    let mut out = String::new();
    let mut section = |name: &str, lines: Vec<(&str, String)>| {
        if !asked(name) {
            return;
        }
        let (first, rest) = name.split_at(1);
        let gap = if out.is_empty() { "" } else { "\r\n" };
        let _ = write!(out, "{gap}# {}{rest}\r\n", first.to_uppercase());
        for (name, value) in lines {
            let _ = write!(out, "{name}:{value}\r\n");
        }
    };
    let uptime_s = shared.since.elapsed().as_secs();
    section(
        "server",
        vec![
            ("redis_version", REDIS_VERSION.into()),
            ("redis_git_sha1", "00000000".into()),
            ("redis_git_dirty", "0".into()),
            ("redis_mode", "standalone".into()),
            ("os", std::env::consts::OS.into()),
            ("arch_bits", usize::BITS.to_string()),
            ("multiplexing_api", "epoll".into()),
            ("shortstop_version", env!("CARGO_PKG_VERSION").into()),
            ("process_id", std::process::id().to_string()),
            ("tcp_port", shared.listen.port().to_string()),
            ("uptime_in_seconds", uptime_s.to_string()),
            ("uptime_in_days", (uptime_s / 86_400).to_string()),
        ],
    );
    section(
        "clients",
        vec![
            ("connected_clients", shared.connected().to_string()),
            ("maxclients", shared.limits.connections.to_string()),
        ],
    );
    let (used, total) = shared.memory.used_and_total();
    section(
        "memory",
        vec![
            ("held_memory", shared.held().to_string()),
            ("backlog_memory", shared.waiting_for_servers().to_string()),
            ("large_requests_memory", used.to_string()),
            ("maxmemory", total.to_string()),
            ("maxmemory_policy", "noeviction".into()),
        ],
    );
    // What clients look for before they begin: that nothing is being loaded, and that this is no
    // replica and no part of a cluster.
    section(
        "persistence",
        vec![
            ("loading", "0".into()),
            ("async_loading", "0".into()),
            ("rdb_bgsave_in_progress", "0".into()),
            ("aof_enabled", "0".into()),
        ],
    );
    section("replication", vec![("role", "master".into()), ("connected_slaves", "0".into())]);
    section("cluster", vec![("cluster_enabled", "0".into())]);
    let counters = shared.counters.read();
    section("stats", counters.map(|(name, count)| (name, count.to_string())).collect());
    out
}

/// What `INFO gateway` tells: what this gateway counts, and what each command has cost.
pub(crate) fn gateway(shared: &GatewayState) -> String {
    let mut out = String::from("# Gateway\r\n");
    let version = env!("CARGO_PKG_VERSION");
    let (connected, held) = (shared.connected(), shared.held());
    let backlog = shared.waiting_for_servers();
    let most = shared.limits.memory_bytes;
    let _ = write!(
        out,
        "shortstop_version:{version}\r\nconnected_clients:{connected}\r\nheld_memory:{held}\r\nbacklog_memory:{backlog}\r\nmax_memory:{most}\r\n"
    );
    let (bytes, keys) = shared.copies.as_ref().map_or((0, 0), |copies| copies.kept());
    let _ = write!(out, "local_bytes:{bytes}\r\nlocal_keys:{keys}\r\n");
    for (name, count) in shared.counters.read() {
        let _ = write!(out, "{name}:{count}\r\n");
    }
    for line in shared.stats.lines() {
        let _ = write!(out, "{line}\r\n");
    }
    out
}

/// Settings by the names that Redis has for them.
pub(crate) fn settings(shared: &GatewayState) -> Vec<(&'static str, String)> {
    vec![
        ("appendonly", "no".into()),
        ("databases", "1".into()),
        ("maxclients", shared.limits.connections.to_string()),
        ("maxmemory", shared.limits.memory_bytes.to_string()),
        ("maxmemory-policy", "noeviction".into()),
        ("port", shared.listen.port().to_string()),
        ("proto-max-bulk-len", shared.limits.word_bytes.to_string()),
        ("save", String::new()),
        ("timeout", "0".into()),
    ]
}

/// Whether a name matches a pattern of letters, `?` and `*`. Linear: only the last star is gone
/// back to.
pub(crate) fn glob(pattern: &[u8], name: &[u8]) -> bool {
    let (mut p, mut n) = (0, 0);
    let mut star = None;
    while n < name.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, n));
                p += 1;
            }
            Some(letter) if *letter == b'?' || *letter == name[n] => {
                p += 1;
                n += 1;
            }
            _ => match star {
                Some((at, from)) => {
                    p = at + 1;
                    n = from + 1;
                    star = Some((at, n));
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|letter| *letter == b'*')
}

#[cfg(test)]
mod tests {
    use super::glob;

    #[test]
    fn patterns() {
        for (pattern, name, expected) in [
            ("save", "save", true),
            ("*", "save", true),
            ("max*", "maxmemory", true),
            ("m?x*y", "maxmemory", true),
            ("*a*b*", "save", false),
            ("sav", "save", false),
            ("save?", "save", false),
            ("", "save", false),
        ] {
            assert_eq!(glob(pattern.as_bytes(), name.as_bytes()), expected, "{pattern}");
        }
    }
}
