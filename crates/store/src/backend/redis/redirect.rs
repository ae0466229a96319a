//! What a node of a Redis Cluster says of slots that it does not have: the words of MOVED and ASK.

use std::collections::HashMap;

use redis::ConnectionAddr;

use crate::{
    backend::remote::{Command, Outcome, Verb},
    slot_map::NodeAddress,
};

/// Where a node of a Redis Cluster says that a slot is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Redirect {
    /// The node.
    pub at: NodeAddress,
    /// The slot is on its way there: only who says ASKING is answered.
    pub asking: bool,
}

impl Redirect {
    /// What an error's words say, of the node at this host.
    pub fn in_words(words: &str, host: &str) -> Option<Redirect> {
        let mut parts = words.split(' ');
        let asking = match parts.next()? {
            "ASK" => true,
            "MOVED" => false,
            _ => return None,
        };
        let named = parts.nth(1)?;
        let at = NodeAddress::parse(named.strip_prefix('?').unwrap_or(named), host)?;
        Some(Redirect { at, asking })
    }
}

/// The commands that are to be asked at other nodes than the one at `from`, by their places in the
/// batch and in its order: those that were sent on, and reads behind a write that was. What such a
/// read has found may be older.
pub(super) fn redirected(
    from: &ConnectionAddr,
    commands: &[Command],
    outcomes: &[Outcome],
) -> Vec<(Redirect, Vec<usize>)> {
    let ConnectionAddr::Tcp(host, _) = from else { return vec![] };
    let mut written: HashMap<&[u8], Redirect> = HashMap::new();
    let mut parts: Vec<(Redirect, Vec<usize>)> = vec![];
    for (at, (command, outcome)) in commands.iter().zip(outcomes).enumerate() {
        let is_read = matches!(command.verb, Verb::Get { .. });
        let said = match outcome {
            Outcome::Refused(refusal) => Redirect::in_words(refusal.words(), host),
            _ => None,
        };
        // A read goes where the write goes and behind it, also where it was told otherwise: that
        // may be news of a moment later, and be asked before.
        let behind = written.get(&command.name[..]).filter(|_| is_read).cloned();
        let Some(to) = behind.or(said) else { continue };
        if !is_read {
            written.insert(&command.name, to.clone());
        }
        match parts.iter_mut().find(|(other, _)| *other == to) {
            Some((_, part)) => part.push(at),
            None => parts.push((to, vec![at])),
        }
    }
    parts
}

/// Whether these are words about where slots are: nobody's business but the store's.
pub(crate) fn is_elsewhere(words: &str) -> bool {
    ["MOVED ", "ASK ", "CLUSTERDOWN "].iter().any(|code| words.starts_with(code))
}

/// What a client is told in the place of such words.
pub(crate) fn put_off(words: &str) -> String {
    let mut parts = words.split(' ');
    match (parts.next(), parts.next()) {
        (Some("MOVED" | "ASK"), Some(slot)) => {
            format!("TRYAGAIN slot {slot} is being moved")
        }
        _ => format!("TRYAGAIN {words}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::{Refusal, remote::OnlyIf};

    #[test]
    fn where_a_slot_is_a_node_says() {
        let at = |host: &str, port, asking| {
            Some(Redirect { at: NodeAddress { host: host.into(), port }, asking })
        };
        let rows = [
            ("MOVED 3999 127.0.0.1:6381", at("127.0.0.1", 6381, false)),
            ("ASK 7 fd00::1:6381 (advice)", at("fd00::1", 6381, true)),
            ("MOVED 7 :6381", at("here", 6381, false)),
            ("MOVED 7 ?:6381", at("here", 6381, false)),
            ("MOVED 7", None),
            ("TRYAGAIN Multiple keys", None),
        ];
        for (words, expected) in rows {
            assert_eq!(Redirect::in_words(words, "here"), expected, "{words}");
        }
    }

    #[test]
    fn a_read_follows_the_write_before_it_whatever_it_was_told_itself() {
        let command = |name: &[u8], verb| Command {
            ticket: 0,
            tenant: 0,
            name: name.into(),
            version: 0,
            compared: None,
            verb,
        };
        let get = || Verb::Get { track: false, most: 1, large: None };
        let delete = Verb::Delete { only_if: OnlyIf::Always };
        let commands = [command(b"j", get()), command(b"k", delete), command(b"k", get())];
        let told = ["MOVED 7 h:2", "ASK 8 h:2", "MOVED 8 h:2"];
        let outcomes = told.map(|words| Outcome::Refused(Refusal::new(words)));
        let from = ConnectionAddr::Tcp("h".into(), 1);
        let parts = redirected(&from, &commands, &outcomes);
        let places: Vec<_> = parts.into_iter().map(|(to, places)| (to.asking, places)).collect();
        assert_eq!(places, [(false, vec![0]), (true, vec![1, 2])]);
    }

    #[test]
    fn where_a_slot_is_no_client_is_told() {
        let words = "MOVED 3999 127.0.0.1:6381";
        assert!(is_elsewhere(words) && is_elsewhere("ASK 1 h:1") && !is_elsewhere("OOM x"));
        assert_eq!(put_off(words), "TRYAGAIN slot 3999 is being moved");
        assert_eq!(
            put_off("CLUSTERDOWN The cluster is down"),
            "TRYAGAIN CLUSTERDOWN The cluster is down"
        );
    }
}
