//! Before a Redis Cluster gateways look like one, so that clients which insist on a cluster stay
//! with them. Words and the nodes that a client is shown go in, an answer comes out.

use std::fmt::Write as _;

use wire::{CLUSTER_SLOTS, Secret, cluster_slot};

use crate::cluster_nodes::{ShownNode, SlotRange};

/// The answer to CLUSTER with these words behind it, of a client that is shown these nodes and
/// speaks this version of RESP.
pub(super) fn answer(words: &[&[u8]], nodes: &[ShownNode], protocol: u8) -> Vec<u8> {
    let name = words.first().map(|word| word.to_ascii_lowercase()).unwrap_or_default();
    let asked = nodes.iter().find(|node| node.is_asked);
    let text = match (&name[..], &words[1.min(words.len())..]) {
        (b"keyslot", [key]) => format!(":{}\r\n", cluster_slot(key)),
        (b"myid", []) => bulk(&asked.map(id_of).unwrap_or_default()),
        (b"info", []) => info(nodes),
        (b"nodes", []) => bulk(&nodes.iter().map(line).collect::<String>()),
        (b"slots", []) => slots(nodes),
        (b"shards", []) => {
            let shards: Vec<String> = nodes.iter().map(|node| shard(node, protocol)).collect();
            format!("*{}\r\n{}", shards.len(), shards.concat())
        }
        _ => "-ERR CLUSTER: a gateway answers SLOTS, SHARDS, NODES, INFO, MYID and KEYSLOT; ask a node itself\r\n"
            .into(),
    };
    text.into_bytes()
}

fn info(nodes: &[ShownNode]) -> String {
    let (known, size) = (nodes.len(), nodes.iter().filter(|node| !node.slots.is_empty()).count());
    bulk(&format!(
        "cluster_enabled:1\r\ncluster_state:ok\r\ncluster_slots_assigned:{CLUSTER_SLOTS}\r\ncluster_slots_ok:{CLUSTER_SLOTS}\r\n\
         cluster_slots_pfail:0\r\ncluster_slots_fail:0\r\ncluster_known_nodes:{known}\r\ncluster_size:{size}\r\n\
         cluster_current_epoch:1\r\ncluster_my_epoch:1\r\n"
    ))
}

/// A node's line in the answer to NODES.
fn line(node: &ShownNode) -> String {
    let ShownNode { address, is_away, is_asked, .. } = node;
    let (host, port) = (address.ip(), address.port());
    let myself = if *is_asked { "myself," } else { "" };
    let (fail, state) = if *is_away { (",fail", "disconnected") } else { ("", "connected") };
    let mut line =
        format!("{} {host}:{port}@{port} {myself}master{fail} - 0 0 1 {state}", id_of(node));
    for (first, last) in &node.slots {
        let _ = match first == last {
            true => write!(line, " {first}"),
            false => write!(line, " {first}-{last}"),
        };
    }
    line.push('\n');
    line
}

/// The answer to SLOTS: each range with its node.
fn slots(nodes: &[ShownNode]) -> String {
    let of_node = |node: &ShownNode| {
        let (host, port) = (bulk(&node.address.ip().to_string()), node.address.port());
        let shown = format!("*4\r\n{host}:{port}\r\n{}*0\r\n", bulk(&id_of(node)));
        let range =
            |(first, last): &SlotRange| (*first, format!("*3\r\n:{first}\r\n:{last}\r\n{shown}"));
        node.slots.iter().map(range).collect::<Vec<_>>()
    };
    let mut ranges: Vec<(u32, String)> = nodes.iter().flat_map(of_node).collect();
    ranges.sort_unstable();
    let texts: String = ranges.iter().map(|(_, text)| &text[..]).collect();
    format!("*{}\r\n{texts}", ranges.len())
}

/// A node's part of the answer to SHARDS.
fn shard(node: &ShownNode, protocol: u8) -> String {
    let map = |fields: &[(&str, String)]| {
        let mut text = match protocol {
            3 => format!("%{}\r\n", fields.len()),
            _ => format!("*{}\r\n", 2 * fields.len()),
        };
        for (name, value) in fields {
            let _ = write!(text, "{}{value}", bulk(name));
        }
        text
    };
    let host = node.address.ip().to_string();
    let shown = map(&[
        ("id", bulk(&id_of(node))),
        ("port", format!(":{}\r\n", node.address.port())),
        ("ip", bulk(&host)),
        ("endpoint", bulk(&host)),
        ("role", bulk("master")),
        ("replication-offset", ":0\r\n".into()),
        ("health", bulk(if node.is_away { "fail" } else { "online" })),
    ]);
    let mut slots = format!("*{}\r\n", 2 * node.slots.len());
    for (first, last) in &node.slots {
        let _ = write!(slots, ":{first}\r\n:{last}\r\n");
    }
    map(&[("slots", slots), ("nodes", format!("*1\r\n{shown}"))])
}

fn bulk(text: &str) -> String {
    format!("${}\r\n{text}\r\n", text.len())
}

/// A node's name, 40 hex digits, that is an address's for good.
fn id_of(node: &ShownNode) -> String {
    let hash = Secret::NONE.key_hash(0, node.address.to_string().as_bytes());
    format!("{:016x}{:016x}{:08x}", hash.high(), hash.low(), hash.low() >> 32)
}

#[cfg(test)]
mod tests {
    use resp::ReplyScanner;

    use super::*;

    fn node(at: &str, slots: &[SlotRange], is_away: bool, is_asked: bool) -> ShownNode {
        ShownNode { address: at.parse().unwrap(), slots: slots.to_vec(), is_away, is_asked }
    }

    #[test]
    fn each_answer_is_one_reply_that_names_the_gateways() {
        let alone = [node("10.0.0.9:6380", &[(0, 16383)], false, true)];
        let three = [
            node("10.0.0.9:6380", &[(0, 0), (900, 16383)], false, false),
            node("10.0.0.9:6381", &[(1, 899)], false, true),
            node("[fe::1]:6382", &[], true, false),
        ];
        for nodes in [&alone[..], &three] {
            for protocol in [2, 3] {
                for name in [&b"SLOTS"[..], b"shards", b"nodes", b"info", b"myid", b"forget"] {
                    let said = answer(&[name], nodes, protocol);
                    let reply = ReplyScanner::default().scan(&said).unwrap().expect("all of it");
                    assert_eq!(reply.len, said.len(), "{}", said.escape_ascii());
                }
                assert_eq!(answer(&[b"keyslot", b"foo"], nodes, protocol), b":12182\r\n");
                assert!(answer(&[], nodes, protocol).starts_with(b"-ERR CLUSTER"));
            }
        }
        let slots = "*1\r\n*3\r\n:0\r\n:16383\r\n*4\r\n$8\r\n10.0.0.9\r\n:6380\r\n$40\r\n";
        assert!(answer(&[b"slots"], &alone, 2).starts_with(slots.as_bytes()));
        let said = |name: &[u8]| String::from_utf8(answer(&[name], &three, 2)).unwrap();
        assert!(said(b"slots").starts_with("*3\r\n*3\r\n:0\r\n:0\r\n"), "{}", said(b"slots"));
        let (nodes, ids) = (said(b"nodes"), three.each_ref().map(id_of));
        let lines: Vec<&str> = nodes.lines().skip(1).collect();
        assert_eq!(
            lines[0],
            format!("{} 10.0.0.9:6380@6380 master - 0 0 1 connected 0 900-16383", ids[0])
        );
        assert_eq!(
            lines[1],
            format!("{} 10.0.0.9:6381@6381 myself,master - 0 0 1 connected 1-899", ids[1])
        );
        assert_eq!(
            lines[2],
            format!("{} fe::1:6382@6382 master,fail - 0 0 1 disconnected", ids[2])
        );
        assert!(said(b"info").contains("cluster_known_nodes:3\r\ncluster_size:2\r\n"));
        assert_eq!(said(b"myid"), bulk(&ids[1]));
        assert_eq!(ids[0].len(), 40);
    }
}
