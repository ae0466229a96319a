//! What a client knows of the chains. All of it is a hint: the switches refuse what does not agree
//! with theirs.

use std::{collections::BTreeMap, net::SocketAddr};

use chain_wire::{Route, chain_of};
use wire::{KeyHash, PORT};

/// A [`Route`]'s protocol: any member answers reads.
const READS_ANYWHERE: u8 = 1;

/// One chain, as far as it is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Chain {
    /// The number that it was learnt under. What is sent to it names this one and not a higher one
    /// that another chain's switch told: so its own say what has changed.
    pub number: u64,
    /// From head to tail; never empty.
    pub members: Vec<SocketAddr>,
}

/// The chains of a tenant.
#[derive(Default)]
pub(super) struct View {
    /// The highest number heard of; 0: none yet.
    pub number: u64,
    /// Whether any member may answer reads, and finds the chain by itself.
    pub reads_anywhere: bool,
    chains: u16,
    known: BTreeMap<u16, Chain>,
}

/// What came of being told of a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Novelty {
    /// Nothing.
    Nothing,
    /// Something.
    News,
    /// The chains began anew: what they remembered of writes is not what it was.
    Generation,
}

impl View {
    /// The chain of a key.
    pub fn chain_of(&self, hash: KeyHash) -> Option<&Chain> {
        let chains = self.chains.max(1);
        self.known.get(&chain_of(hash, chains))
    }

    /// Whether this address is a member of some chain.
    pub fn has(&self, address: SocketAddr) -> bool {
        let mut chains = self.known.values();
        chains.any(|chain| chain.members.contains(&address))
    }

    /// A switch says which chain a key has.
    pub fn learn(&mut self, route: &Route) -> Novelty {
        let Route { number, chain, chains, .. } = *route;
        if number < self.number || number == 0 {
            return Novelty::Nothing;
        }
        let began_anew = self.number != 0 && number >> 48 != self.number >> 48;
        let members = route.members.iter().map(|ip| (*ip, PORT).into());
        let news = Chain { number, members: members.collect() };
        let is_news = self.known.get(&chain) != Some(&news);
        if self.chains != chains {
            self.known.clear();
        }
        self.number = number;
        self.chains = chains;
        self.reads_anywhere = route.protocol == READS_ANYWHERE;
        self.known.insert(chain, news);
        match (began_anew, is_news) {
            (true, _) => Novelty::Generation,
            (_, true) => Novelty::News,
            (_, false) => Novelty::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(number: u64, chain: u16, last: &[u8]) -> Route {
        Route {
            number,
            protocol: READS_ANYWHERE,
            position: None,
            chain,
            chains: 4,
            members: last.iter().map(|n| [10, 0, 0, *n].into()).collect(),
        }
    }

    fn hash(high: u8) -> KeyHash {
        let mut hash = KeyHash::default();
        hash.0[0] = high;
        hash
    }

    #[test]
    fn higher_numbers_replace_and_lower_ones_teach_nothing() {
        let mut view = View::default();
        assert_eq!(view.learn(&route(7, 1, &[1, 2])), Novelty::News);
        assert_eq!(view.learn(&route(7, 1, &[1, 2])), Novelty::Nothing);
        assert_eq!(view.learn(&route(6, 1, &[3])), Novelty::Nothing);
        assert_eq!(view.chain_of(hash(0x7f)).unwrap().members.len(), 2);
        assert_eq!(view.learn(&route(8, 1, &[2])), Novelty::News);
        assert_eq!(view.chain_of(hash(0x40)).unwrap().members.len(), 1);
        assert_eq!(view.learn(&route(8, 0, &[5])), Novelty::News);
        assert_eq!(view.learn(&route(9, 0, &[5])), Novelty::News);
        assert_eq!(view.chain_of(hash(0x40)).unwrap().number, 8);
        assert_eq!(view.learn(&route(9, 1, &[2])), Novelty::News);
        assert_eq!(view.chain_of(hash(0x40)).unwrap().number, 9);
        assert!(view.chain_of(hash(0x80)).is_none());
        assert!(view.has(([10, 0, 0, 5], PORT).into()));
    }

    #[test]
    fn another_generation_is_told_apart() {
        let mut view = View::default();
        view.learn(&route(1 << 48 | 3, 1, &[1]));
        assert_eq!(view.learn(&route(2 << 48, 1, &[1])), Novelty::Generation);
        assert_eq!(view.learn(&route(0, 1, &[1])), Novelty::Nothing);
        assert_eq!(view.number, 2 << 48);
    }
}
