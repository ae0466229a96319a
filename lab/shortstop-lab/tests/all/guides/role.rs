//! Commands that run until they are ended, as README says of store, controller, switch and gateway:
//! each has a terminal of its own. How to see that one does its work.

use std::fs;

use super::chain_guide;

/// What a long-running command is.
#[derive(Clone, Debug, PartialEq)]
pub struct Role {
    /// `store`, `control`, `switch` or `gateway`; of `coord`, the word behind it.
    pub kind: String,
    /// The port that it listens on; 0 if it listens on none.
    port: u16,
    /// The status socket of a store, if it has one.
    socket: Option<String>,
}

impl Role {
    /// The role that a command starts, if it is one.
    pub fn of(line: &str) -> Option<Role> {
        if !["shortstop ", "nsenter ", "ip netns exec "].iter().any(|first| line.starts_with(first))
        {
            return None;
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        // Behind what enters a namespace.
        let words: Vec<&str> = words.into_iter().skip_while(|word| *word != "shortstop").collect();
        let (kind, usual_port) = match words[..] {
            ["shortstop", _, "status" | "detach" | "--check" | "--help", ..] => return None,
            ["shortstop", kind @ "store", ..] => (kind, 7117),
            ["shortstop", kind @ "control", ..] => (kind, 7118),
            ["shortstop", kind @ "gateway", ..] => (kind, 6380),
            ["shortstop", kind @ "switch", ..] => (kind, 0),
            ["shortstop", chain_guide::GROUP, kind, ..] if chain_guide::LASTING.contains(&kind) => {
                (kind, 0)
            }
            _ => return None,
        };
        let option = |name: &str| {
            let value = words.iter().skip_while(|word| **word != name).nth(1);
            value.map(|value| (*value).to_owned())
        };
        let port = option("--listen").and_then(|listen| listen.rsplit_once(':')?.1.parse().ok());
        let port = port.unwrap_or(usual_port);
        Some(Role { kind: kind.into(), port, socket: option("--status-socket") })
    }

    /// Whether it does its work on its machine: it listens, and a store takes writes, which it does
    /// some seconds after its start; or its programs are attached. `said` is what it has printed,
    /// `pid` a process of its machine, and `ask` runs a command there.
    pub fn is_ready(&self, pid: u32, said: &str, ask: impl Fn(&str) -> String) -> bool {
        match (self.kind.as_str(), &self.socket) {
            ("switch", _) => said.contains("serving"),
            ("watch" | "elect", _) => !said.is_empty(),
            ("store", Some(socket)) => {
                let status = format!("shortstop store status --socket {socket} || :");
                ask(&status).contains("takes writes yes")
            }
            ("store", None) => self.is_open(pid, "udp", "07"),
            _ => self.is_open(pid, "tcp", "0A"),
        }
    }

    /// Whether a socket of this state has the port, in the network of that process.
    fn is_open(&self, pid: u32, protocol: &str, state: &str) -> bool {
        let port = format!(":{:04X}", self.port);
        [protocol.to_owned(), format!("{protocol}6")].iter().any(|table| {
            let text = fs::read_to_string(format!("/proc/{pid}/net/{table}")).unwrap_or_default();
            text.lines().skip(1).any(|line| {
                let fields: Vec<&str> = line.split_whitespace().collect();
                fields.get(1).is_some_and(|local| local.ends_with(&port))
                    && fields.get(3) == Some(&state)
            })
        })
    }
}
