//! Where the masters of a Redis Cluster are, and where masters were: by the maps that were
//! believed.

use crate::slot_map::NodeAddress;

/// Addresses that are remembered of masters that are none any more.
const FORMER: usize = 256;

/// By all maps so far.
#[derive(Debug, Default)]
pub(super) struct Masters {
    now: Vec<NodeAddress>,
    /// The newest last.
    former: Vec<NodeAddress>,
}

impl Masters {
    /// By a newer map they are there. False: as before.
    pub fn become_those(&mut self, now: &[NodeAddress]) -> bool {
        if self.now == now {
            return false;
        }
        let before = std::mem::replace(&mut self.now, now.to_vec());
        self.former.extend(before);
        self.former.retain(|node| !now.contains(node));
        let surplus = self.former.len().saturating_sub(FORMER);
        self.former.drain(..surplus);
        true
    }

    /// Whether one was there, and is none any more.
    pub fn had(&self, at: &NodeAddress) -> bool {
        self.former.contains(at)
    }

    /// Whether some map has had one there.
    pub fn know(&self, at: &NodeAddress) -> bool {
        self.now.contains(at) || self.had(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(port: u16) -> NodeAddress {
        NodeAddress { host: "h".into(), port }
    }

    #[test]
    fn a_master_that_is_on_no_map_yet_was_none() {
        let mut masters = Masters::default();
        assert!(masters.become_those(&[node(1), node(2)]));
        assert!(!masters.become_those(&[node(1), node(2)]));
        assert!(masters.become_those(&[node(2), node(3)]));
        let had = [1, 2, 3, 4].map(|port| masters.had(&node(port)));
        assert_eq!(had, [true, false, false, false]);
        let know = [1, 2, 3, 4].map(|port| masters.know(&node(port)));
        assert_eq!(know, [true, true, true, false]);
        // It comes back.
        masters.become_those(&[node(1)]);
        assert!(!masters.had(&node(1)) && masters.had(&node(3)));
    }

    #[test]
    fn few_former_ones_are_remembered() {
        let mut masters = Masters::default();
        for port in 0..2 * FORMER as u16 {
            masters.become_those(&[node(port)]);
        }
        assert_eq!(masters.former.len(), FORMER);
        assert!(!masters.know(&node(0)) && masters.had(&node(2 * FORMER as u16 - 2)));
    }
}
