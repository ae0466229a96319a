//! What one node of a Redis Cluster says of all of them: the text of `CLUSTER NODES`.

use std::fmt;

/// Where a node listens.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeAddress {
    /// An address, or a name.
    pub host: String,
    /// The port of its clients.
    pub port: u16,
}

impl fmt::Display for NodeAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

impl NodeAddress {
    /// Of HOST:PORT, as Redis writes it, also around an address of version 6; an empty host is
    /// `usual`.
    pub fn parse(text: &str, usual: &str) -> Option<NodeAddress> {
        let (host, port) = text.rsplit_once(':')?;
        let within = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let host = within.unwrap_or(host);
        if host.contains(['[', ']']) {
            return None;
        }
        let host = if host.is_empty() { usual } else { host };
        Some(NodeAddress { host: host.into(), port: port.parse().ok()? })
    }
}

/// A line of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterNode {
    /// The node's name.
    pub id: String,
    /// Where it is.
    pub address: NodeAddress,
    /// What it is called, if it was given a name: MOVED and ASK may name it so.
    pub hostname: Option<String>,
    /// Whether it is a master.
    pub is_master: bool,
    /// Whether others take it to have failed.
    pub is_failed: bool,
    /// Of a replica, its master's name.
    pub master: Option<String>,
    /// The number of its claim to its slots.
    pub config_epoch: u64,
    /// The first and the last of each run of its slots.
    pub slots: Vec<(u16, u16)>,
    /// Slots that it is giving away or taking in; a node says that of itself only.
    pub moving: Vec<u16>,
}

impl ClusterNode {
    /// Whether it is one whose word counts.
    pub fn is_master_with_slots(&self) -> bool {
        self.is_master && !self.slots.is_empty()
    }
}

/// What a node says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeView {
    /// Its own name.
    pub myself: String,
    /// All that it knows, itself too; but for those without an address.
    pub nodes: Vec<ClusterNode>,
}

impl NodeView {
    /// The masters with slots that it names.
    pub fn masters(&self) -> impl Iterator<Item = &ClusterNode> {
        self.nodes.iter().filter(|node| node.is_master_with_slots())
    }

    /// Of the text that a node at `host` has answered, which need not know its own address.
    ///
    /// # Errors
    /// The line that is none of `CLUSTER NODES`, or that it does not say who it is.
    pub fn parse(text: &str, host: &str) -> Result<NodeView, String> {
        let mut myself = None;
        let mut nodes = vec![];
        for line in text.lines().filter(|line| !line.is_empty()) {
            let wrong = || format!("{line:?} is no line of CLUSTER NODES");
            let words: Vec<&str> = line.split_ascii_whitespace().collect();
            let [id, at, flags, master, _, _, epoch, _, slots @ ..] = &words[..] else {
                return Err(wrong());
            };
            let flags: Vec<&str> = flags.split(',').collect();
            let is = |flag| flags.contains(&flag);
            if is("myself") {
                myself = Some(id.to_string());
            }
            if is("noaddr") || is("handshake") {
                continue;
            }
            // IP:PORT@CPORT, the name behind a comma, and what later versions add.
            let mut parts = at.split(',');
            let at = parts.next().and_then(|at| at.split('@').next()).unwrap_or_default();
            let mut node = ClusterNode {
                id: id.to_string(),
                address: NodeAddress::parse(at, host).ok_or_else(wrong)?,
                hostname: parts.next().filter(|name| !name.is_empty()).map(str::to_string),
                is_master: is("master"),
                is_failed: is("fail"),
                master: Some(master.to_string()).filter(|master| master != "-"),
                config_epoch: epoch.parse().map_err(|_| wrong())?,
                slots: vec![],
                moving: vec![],
            };
            for word in slots {
                let moving = word.strip_prefix('[').and_then(|word| word.split_once('-'));
                match moving {
                    Some((slot, _)) => node.moving.push(slot_of(slot).ok_or_else(wrong)?),
                    None => {
                        let (first, last) = word.split_once('-').unwrap_or((word, word));
                        let run = slot_of(first).zip(slot_of(last));
                        node.slots.push(run.filter(|(a, b)| a <= b).ok_or_else(wrong)?);
                    }
                }
            }
            nodes.push(node);
        }
        let myself = myself.ok_or("CLUSTER NODES: no line is the node's own")?;
        Ok(NodeView { myself, nodes })
    }
}

fn slot_of(text: &str) -> Option<u16> {
    let slot: u16 = text.parse().ok()?;
    (u32::from(slot) < wire::CLUSTER_SLOTS).then_some(slot)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brackets_stand_around_a_whole_address() {
        let parsed = |text| NodeAddress::parse(text, "usual").map(|at| at.to_string());
        for (text, at) in [
            ("[fd00::1]:6379", "[fd00::1]:6379"),
            ("fd00::1:6379", "[fd00::1]:6379"),
            ("redis1:6379", "redis1:6379"),
            (":6379", "usual:6379"),
        ] {
            assert_eq!(parsed(text).as_deref(), Some(at), "{text}");
        }
        for wrong in ["[fd00::1]:11211:2", "[fd00::1", "fd00::1]:6379", "[[::1]]:1"] {
            assert_eq!(parsed(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_line_of_each_version_is_read() {
        let text = "07c3 127.0.0.1:30004@31004,host4 slave e7d1 0 1426238317239 4 connected\n\
                    67ed :30002@31002 myself,master - 0 1426238316232 2 connected 5461-10922 7 [5461->-e7d1]\n\
                    6ec2 [::1]:30006@31006,,tls-port=0,shard-id=9 master,fail - 0 0 3 disconnected\n\
                    aaaa :0@0 master,noaddr - 0 0 0 disconnected\n";
        let view = NodeView::parse(text, "redis2").unwrap();
        assert_eq!(view.myself, "67ed");
        let at: Vec<String> = view.nodes.iter().map(|node| node.address.to_string()).collect();
        assert_eq!(at, ["127.0.0.1:30004", "redis2:30002", "[::1]:30006"]);
        let names: Vec<_> = view.nodes.iter().map(|node| node.hostname.as_deref()).collect();
        assert_eq!(names, [Some("host4"), None, None]);
        assert_eq!(view.nodes[0].master.as_deref(), Some("e7d1"));
        assert_eq!(
            (view.nodes[1].slots.as_slice(), view.nodes[1].moving.as_slice()),
            (&[(5461, 10_922), (7, 7)][..], &[5461][..])
        );
        assert!(view.nodes[2].is_failed && view.nodes[2].is_master);
        for wrong in [
            "a b c",
            "a h:1@1 master - 0 0 x c",
            "a h:1@1 myself,master - 0 0 1 c 9-3",
            "a h:1@1 myself,master - 0 0 1 c 16384",
            "a h:1@1 master - 0 0 1 c",
        ] {
            assert!(NodeView::parse(wrong, "h").is_err(), "{wrong}");
        }
    }
}
