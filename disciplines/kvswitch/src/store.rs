//! The store half: what the control half tells it becomes holding, releasing and confirming. The
//! copies themselves are the store's, under the rules of `docs/coherence.md`.

use std::{collections::BTreeMap, time::Duration};

use decide::{Key, StoreAction, StoreHalf};

use crate::message::{Instruction, StoreMessage};

/// Keys of one tenant that are held at most; of more the control half has no need.
const KEYS_MOST: usize = 100_000;

/// The keys that are held for each tenant.
#[derive(Default)]
pub struct Store {
    tenants: BTreeMap<u32, HeldKeys>,
}

/// Keys, and whether each was named since the last [`Instruction::Begin`].
#[derive(Default)]
struct HeldKeys {
    keys: BTreeMap<Key, bool>,
}

impl StoreHalf for Store {
    fn told(&mut self, _now: Duration, tenant: u32, message: &[u8], out: &mut Vec<StoreAction>) {
        if let Some(told) = StoreMessage::decode(message) {
            let held = self.tenants.entry(tenant).or_default();
            held.told(tenant, told, out);
        }
    }

    fn left(&mut self, _now: Duration, tenant: u32, _out: &mut Vec<StoreAction>) {
        self.tenants.remove(&tenant);
    }
}

impl HeldKeys {
    fn told(&mut self, tenant: u32, told: StoreMessage, out: &mut Vec<StoreAction>) {
        match told.instruction {
            Instruction::Hold => self.hold(tenant, told.keys, out),
            Instruction::Release => {
                let there = |key: &Key| self.keys.remove(key).is_some();
                let gone = told.keys.into_iter().filter(there);
                out.extend(gone.map(|key| StoreAction::Release { tenant, key }));
            }
            Instruction::Begin => self.keys.values_mut().for_each(|named| *named = false),
            Instruction::End => {
                let unnamed = self.keys.iter().filter(|(_, named)| !**named);
                let release = |key: Key| StoreAction::Release { tenant, key };
                out.extend(unnamed.map(|(key, _)| release(key.clone())));
                self.keys.retain(|_, named| *named);
            }
            Instruction::Confirm => out.push(StoreAction::Confirm { tenant }),
        }
    }

    /// A key that was held already is held again: the store may have refused it, and confirms it if
    /// it has not, for a switch may ask that has not heard of it.
    fn hold(&mut self, tenant: u32, keys: Vec<Key>, out: &mut Vec<StoreAction>) {
        for key in keys {
            if self.keys.len() < KEYS_MOST || self.keys.contains_key(&key) {
                self.keys.insert(key.clone(), true);
                out.push(StoreAction::Hold { tenant, key });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TENANT: u32 = 7;

    fn keys(names: &str) -> Vec<Key> {
        names.split(' ').map(|name| Key::copy_from_slice(name.as_bytes())).collect()
    }

    fn tell(store: &mut Store, instruction: Instruction, names: &str) -> Vec<String> {
        let mut messages = StoreMessage::messages(instruction, &keys(names));
        if names.is_empty() {
            messages = vec![StoreMessage::word(instruction)];
        }
        let mut out = vec![];
        for message in &messages {
            store.told(Duration::ZERO, TENANT, message, &mut out);
        }
        let name = |key: Key| String::from_utf8_lossy(&key).into_owned();
        let said = |action| match action {
            StoreAction::Hold { key, .. } => format!("+{}", name(key)),
            StoreAction::Release { key, .. } => format!("-{}", name(key)),
            StoreAction::Confirm { .. } => "confirm".into(),
            other => format!("{other:?}"),
        };
        out.into_iter().map(said).collect()
    }

    #[test]
    fn keys_are_held_whenever_they_are_named_and_released_once() {
        let mut store = Store::default();
        assert_eq!(tell(&mut store, Instruction::Hold, "a b"), ["+a", "+b"]);
        assert_eq!(tell(&mut store, Instruction::Hold, "b c"), ["+b", "+c"]);
        assert_eq!(tell(&mut store, Instruction::Release, "a a x"), ["-a"]);
        assert_eq!(tell(&mut store, Instruction::Confirm, ""), ["confirm"]);
    }

    #[test]
    fn what_a_new_leader_does_not_name_goes() {
        let mut store = Store::default();
        tell(&mut store, Instruction::Hold, "a b c");
        assert_eq!(tell(&mut store, Instruction::Begin, ""), [""; 0]);
        assert_eq!(tell(&mut store, Instruction::Hold, "b d"), ["+b", "+d"]);
        assert_eq!(tell(&mut store, Instruction::End, ""), ["-a", "-c"]);
        assert_eq!(tell(&mut store, Instruction::End, ""), [""; 0]);
    }

    #[test]
    fn of_a_tenant_that_left_nothing_is_known() {
        let mut store = Store::default();
        tell(&mut store, Instruction::Hold, "a");
        store.left(Duration::ZERO, TENANT, &mut vec![]);
        assert_eq!(tell(&mut store, Instruction::Hold, "a"), ["+a"]);
    }

    #[test]
    fn there_is_a_most_that_is_held() {
        let mut store = Store::default();
        let names: Vec<String> = (0..KEYS_MOST + 5).map(|n| n.to_string()).collect();
        assert_eq!(tell(&mut store, Instruction::Hold, &names.join(" ")).len(), KEYS_MOST);
    }
}
