//! Before a Redis Cluster the gateway looks like one, of a single node that has every slot: so that
//! clients which insist on a cluster stay with it. Words and the address at which a client has
//! come go in, an answer comes out.

use std::{fmt::Write as _, net::SocketAddr};

use wire::{CLUSTER_SLOTS, Secret, cluster_slot};

/// The answer to CLUSTER with these words behind it, of a client that has come to this address and
/// speaks this version of RESP.
pub(super) fn answer(words: &[&[u8]], at: SocketAddr, protocol: u8) -> Vec<u8> {
    let name = words.first().map(|word| word.to_ascii_lowercase()).unwrap_or_default();
    let (host, port, id) = (at.ip().to_string(), at.port(), id_of(at));
    let last = CLUSTER_SLOTS - 1;
    let text = match (&name[..], &words[1.min(words.len())..]) {
        (b"keyslot", [key]) => format!(":{}\r\n", cluster_slot(key)),
        (b"myid", []) => bulk(&id),
        (b"info", []) => bulk(&format!(
            "cluster_enabled:1\r\ncluster_state:ok\r\ncluster_slots_assigned:{CLUSTER_SLOTS}\r\ncluster_slots_ok:{CLUSTER_SLOTS}\r\n\
             cluster_slots_pfail:0\r\ncluster_slots_fail:0\r\ncluster_known_nodes:1\r\ncluster_size:1\r\n\
             cluster_current_epoch:1\r\ncluster_my_epoch:1\r\n"
        )),
        (b"nodes", []) => {
            bulk(&format!("{id} {host}:{port}@{port} myself,master - 0 0 1 connected 0-{last}\n"))
        }
        (b"slots", []) => format!(
            "*1\r\n*3\r\n:0\r\n:{last}\r\n*4\r\n{}:{port}\r\n{}*0\r\n",
            bulk(&host),
            bulk(&id)
        ),
        (b"shards", []) => {
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
            let node = map(&[
                ("id", bulk(&id)),
                ("port", format!(":{port}\r\n")),
                ("ip", bulk(&host)),
                ("endpoint", bulk(&host)),
                ("role", bulk("master")),
                ("replication-offset", ":0\r\n".into()),
                ("health", bulk("online")),
            ]);
            let slots = format!("*2\r\n:0\r\n:{last}\r\n");
            let shard = map(&[("slots", slots), ("nodes", format!("*1\r\n{node}"))]);
            format!("*1\r\n{shard}")
        }
        _ => "-ERR CLUSTER: a gateway answers SLOTS, SHARDS, NODES, INFO, MYID and KEYSLOT; ask a node itself\r\n"
            .into(),
    };
    text.into_bytes()
}

fn bulk(text: &str) -> String {
    format!("${}\r\n{text}\r\n", text.len())
}

/// A node's name, 40 hex digits, that is an address's for good.
fn id_of(at: SocketAddr) -> String {
    let hash = Secret::NONE.key_hash(0, at.to_string().as_bytes());
    format!("{:016x}{:016x}{:08x}", hash.high(), hash.low(), hash.low() >> 32)
}

#[cfg(test)]
mod tests {
    use resp::ReplyScanner;

    use super::*;

    #[test]
    fn each_answer_is_one_reply_that_names_the_gateway() {
        let at = "10.0.0.9:6380".parse().unwrap();
        for protocol in [2, 3] {
            for name in [&b"SLOTS"[..], b"shards", b"nodes", b"info", b"myid", b"forget"] {
                let said = answer(&[name], at, protocol);
                let reply = ReplyScanner::default().scan(&said).unwrap().expect("all of it");
                assert_eq!(reply.len, said.len(), "{}", said.escape_ascii());
            }
            assert_eq!(answer(&[b"keyslot", b"foo"], at, protocol), b":12182\r\n");
            assert!(answer(&[], at, protocol).starts_with(b"-ERR CLUSTER"));
        }
        let slots = "*1\r\n*3\r\n:0\r\n:16383\r\n*4\r\n$8\r\n10.0.0.9\r\n:6380\r\n$40\r\n";
        assert!(answer(&[b"slots"], at, 2).starts_with(slots.as_bytes()));
        assert_eq!(id_of(at).len(), 40);
    }
}
