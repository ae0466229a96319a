//! Which store was told to hold what. A key that several switches redirect is held until the last
//! of them does so no longer.
//!
//! A store that attaches may have forgotten all, or know of keys from a leader before, and one for
//! which too many messages waited has missed some: it is told to begin anew, then all that it is to
//! hold, and, when that is known to be all, that this is the end.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    net::SocketAddr,
};

use decide::{Action, Key};

use crate::message::{Instruction, StoreMessage};

/// What one store holds of one tenant.
#[derive(Debug, Default)]
struct StoreHoldings {
    /// The keys, each with the number of switches that redirect it.
    keys: BTreeMap<Key, u32>,
    hold: BTreeSet<Key>,
    release: BTreeSet<Key>,
    begun: bool,
    ended: bool,
}

/// What all stores hold.
#[derive(Debug, Default)]
pub struct Holdings {
    attached: BTreeSet<SocketAddr>,
    held: BTreeMap<(u32, SocketAddr), StoreHoldings>,
}

impl Holdings {
    /// A store is there, and may know nothing, or too much.
    pub fn attached(&mut self, store: SocketAddr) {
        self.attached.insert(store);
        let of_it = self.held.iter_mut().filter(|((_, at), _)| *at == store);
        of_it.for_each(|(_, held)| held.restart());
    }

    /// A store did not hear all that it was told of a tenant: it hears it anew; where nothing is to
    /// be held any longer, at once.
    pub fn not_told(&mut self, tenant: u32, store: SocketAddr, out: &mut Vec<Action>) {
        match self.held.get_mut(&(tenant, store)) {
            Some(held) => held.restart(),
            None => out.extend(nothing(tenant, store)),
        }
    }

    /// A store cannot be told anything.
    pub fn detached(&mut self, store: SocketAddr) {
        self.attached.remove(&store);
    }

    /// Whether a store can be told something.
    pub fn is_attached(&self, store: &SocketAddr) -> bool {
        self.attached.contains(store)
    }

    /// A switch redirects reads of a key to this store.
    pub fn hold(&mut self, tenant: u32, store: SocketAddr, key: &Key) {
        let held = self.held.entry((tenant, store)).or_default();
        *held.keys.entry(key.clone()).or_default() += 1;
        held.again(key);
    }

    /// It has to hear again that the store holds it.
    pub fn again(&mut self, tenant: u32, store: SocketAddr, key: &Key) {
        if let Some(held) = self.held.get_mut(&(tenant, store)) {
            held.again(key);
        }
    }

    /// A switch redirects no reads of a key to this store any longer.
    pub fn release(&mut self, tenant: u32, store: SocketAddr, key: &Key) {
        let Some(held) = self.held.get_mut(&(tenant, store)) else { return };
        let Some(switches) = held.keys.get_mut(key) else { return };
        *switches -= 1;
        if *switches == 0 {
            held.keys.remove(key);
            held.hold.remove(key);
            held.release.insert(key.clone());
        }
    }

    /// Nothing of a tenant is held any longer: these stores are told at once, for later a message
    /// might reach another discipline's half. For one that is not there, and was told something,
    /// the messages wait.
    pub fn leave(&mut self, tenant: u32, stores: &[SocketAddr], out: &mut Vec<Action>) {
        let mut known = BTreeSet::new();
        self.held.retain(|(of, store), held| {
            if *of == tenant && (held.begun || held.ended) {
                known.insert(*store);
            }
            *of != tenant
        });
        let may_hold = |store: &&SocketAddr| self.attached.contains(store) || known.contains(store);
        out.extend(stores.iter().filter(may_hold).flat_map(|store| nothing(tenant, *store)));
    }

    /// What these stores hold of a tenant is all that they should.
    pub fn settle(&mut self, tenant: u32, stores: &[SocketAddr], out: &mut Vec<Action>) {
        for store in stores.iter().filter(|store| self.attached.contains(store)) {
            let held = self.held.entry((tenant, *store)).or_default();
            if !held.ended {
                held.tell(tenant, *store, out);
                held.ended = true;
                out.push(tell(tenant, *store, StoreMessage::word(Instruction::End)));
            }
        }
    }

    /// Tells what is new.
    pub fn tell(&mut self, out: &mut Vec<Action>) {
        for ((tenant, store), held) in &mut self.held {
            let is_news = !held.hold.is_empty() || !held.release.is_empty();
            if is_news && self.attached.contains(store) {
                held.tell(*tenant, *store, out);
            }
        }
    }

    /// Copies that a store was told to hold of a tenant.
    pub fn count(&self, tenant: u32, store: SocketAddr) -> usize {
        let held = self.held.get(&(tenant, store));
        held.map_or(0, |held| held.keys.len())
    }
}

impl StoreHoldings {
    fn again(&mut self, key: &Key) {
        self.release.remove(key);
        self.hold.insert(key.clone());
    }

    fn restart(&mut self) {
        self.hold = self.keys.keys().cloned().collect();
        self.release.clear();
        self.begun = false;
        self.ended = false;
    }

    fn tell(&mut self, tenant: u32, store: SocketAddr, out: &mut Vec<Action>) {
        if !mem::replace(&mut self.begun, true) {
            out.push(tell(tenant, store, StoreMessage::word(Instruction::Begin)));
        }
        for (instruction, keys) in [
            (Instruction::Release, mem::take(&mut self.release)),
            (Instruction::Hold, mem::take(&mut self.hold)),
        ] {
            let keys: Vec<Key> = keys.into_iter().collect();
            let messages = StoreMessage::messages(instruction, &keys).into_iter();
            out.extend(messages.map(|message| tell(tenant, store, message)));
        }
    }
}

/// Tells a store that it is to hold nothing.
fn nothing(tenant: u32, store: SocketAddr) -> [Action; 2] {
    [Instruction::Begin, Instruction::End].map(|word| tell(tenant, store, StoreMessage::word(word)))
}

fn tell(tenant: u32, store: SocketAddr, message: bytes::Bytes) -> Action {
    Action::Tell { store, tenant, message }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TENANT: u32 = 7;

    fn store() -> SocketAddr {
        ([10, 0, 0, 1], 7117).into()
    }

    fn key(name: &'static str) -> Key {
        Key::from_static(name.as_bytes())
    }

    fn said(out: &mut Vec<Action>) -> Vec<(Instruction, usize)> {
        let told = |action| match action {
            Action::Tell { message, .. } => StoreMessage::decode(&message).unwrap(),
            other => panic!("{other:?}"),
        };
        out.drain(..).map(told).map(|told| (told.instruction, told.keys.len())).collect()
    }

    fn news(holds: &mut Holdings) -> Vec<(Instruction, usize)> {
        let mut out = vec![];
        holds.tell(&mut out);
        said(&mut out)
    }

    #[test]
    fn a_store_is_told_once_it_is_there_and_all_of_it_when_it_comes_back() {
        let mut holds = Holdings::default();
        holds.hold(TENANT, store(), &key("a"));
        assert_eq!(news(&mut holds), []);
        holds.attached(store());
        assert_eq!(news(&mut holds), [(Instruction::Begin, 0), (Instruction::Hold, 1)]);
        assert_eq!(news(&mut holds), []);
        holds.hold(TENANT, store(), &key("b"));
        holds.release(TENANT, store(), &key("a"));
        assert_eq!(news(&mut holds), [(Instruction::Release, 1), (Instruction::Hold, 1)]);
        holds.detached(store());
        holds.hold(TENANT, store(), &key("c"));
        assert_eq!(news(&mut holds), []);
        holds.attached(store());
        assert_eq!(news(&mut holds), [(Instruction::Begin, 0), (Instruction::Hold, 2)]);
        assert_eq!(holds.count(TENANT, store()), 2);
    }

    #[test]
    fn a_store_that_did_not_hear_all_of_a_tenant_hears_it_anew() {
        let mut holds = Holdings::default();
        holds.attached(store());
        holds.hold(TENANT, store(), &key("a"));
        holds.hold(TENANT + 1, store(), &key("a"));
        let mut out = vec![];
        holds.settle(TENANT, &[store()], &mut out);
        news(&mut holds);
        out.clear();
        holds.not_told(TENANT, store(), &mut out);
        holds.settle(TENANT, &[store()], &mut out);
        assert_eq!(
            said(&mut out),
            [(Instruction::Begin, 0), (Instruction::Hold, 1), (Instruction::End, 0)]
        );
        assert_eq!(news(&mut holds), []);
    }

    #[test]
    fn what_was_held_for_a_leader_before_goes_when_all_is_told() {
        let mut holds = Holdings::default();
        holds.attached(store());
        let mut out = vec![];
        holds.settle(TENANT, &[store()], &mut out);
        assert_eq!(said(&mut out), [(Instruction::Begin, 0), (Instruction::End, 0)]);
        holds.settle(TENANT, &[store()], &mut out);
        assert_eq!(said(&mut out), []);
        holds.attached(store());
        holds.hold(TENANT, store(), &key("a"));
        holds.settle(TENANT, &[store()], &mut out);
        assert_eq!(
            said(&mut out),
            [(Instruction::Begin, 0), (Instruction::Hold, 1), (Instruction::End, 0)]
        );
    }

    #[test]
    fn what_is_over_is_told_to_all_that_were_told_of_it() {
        let (mut holds, other) = (Holdings::default(), ([10, 0, 0, 2], 7117).into());
        let stranger = ([10, 0, 0, 3], 7117).into();
        holds.attached(store());
        holds.hold(TENANT, store(), &key("a"));
        holds.hold(TENANT, other, &key("a"));
        holds.hold(TENANT + 1, store(), &key("a"));
        news(&mut holds);
        holds.detached(store());
        let mut out = vec![];
        holds.leave(TENANT, &[store(), other, stranger], &mut out);
        let to_it =
            |action: &Action| matches!(action, Action::Tell { store: to, .. } if *to == store());
        assert!(out.iter().all(to_it), "the others were told nothing");
        assert_eq!(said(&mut out), [(Instruction::Begin, 0), (Instruction::End, 0)]);
        assert_eq!((holds.count(TENANT, store()), holds.count(TENANT + 1, store())), (0, 1));
        holds.not_told(TENANT, store(), &mut out);
        assert_eq!(said(&mut out), [(Instruction::Begin, 0), (Instruction::End, 0)]);
    }

    #[test]
    fn the_last_switch_that_redirects_a_key_ends_its_holding() {
        let mut holds = Holdings::default();
        holds.attached(store());
        holds.hold(TENANT, store(), &key("a"));
        holds.hold(TENANT, store(), &key("a"));
        news(&mut holds);
        holds.release(TENANT, store(), &key("a"));
        assert_eq!(news(&mut holds), []);
        holds.release(TENANT, store(), &key("a"));
        assert_eq!(news(&mut holds), [(Instruction::Release, 1)]);
        holds.release(TENANT, store(), &key("a"));
        assert_eq!(news(&mut holds), []);
    }

    #[test]
    fn a_key_that_comes_back_at_once_is_not_released() {
        let mut holds = Holdings::default();
        holds.attached(store());
        holds.hold(TENANT, store(), &key("a"));
        news(&mut holds);
        holds.release(TENANT, store(), &key("a"));
        holds.hold(TENANT, store(), &key("a"));
        assert_eq!(news(&mut holds), [(Instruction::Hold, 1)]);
        holds.again(TENANT, store(), &key("a"));
        assert_eq!(news(&mut holds), [(Instruction::Hold, 1)]);
    }
}
