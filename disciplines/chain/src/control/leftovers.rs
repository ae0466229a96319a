//! Items of keys whose chains a switch has left, because they had one member too many: nobody is
//! answered by them any more, and their room is others'.
//!
//! Who left for another reason keeps its items until it joins again, and is cleared then.

use std::collections::{BTreeMap, BTreeSet};

use decide::{Answer, Change, Key, Outcome, SwitchId};

use super::context::{Context, Facts};
use crate::view::View;

/// Changes that are on their way at a time.
const ASKED_MOST: usize = 1000;

/// What is to go yet.
#[derive(Debug, Default)]
pub(super) struct Leftovers {
    /// The chains that switches have left.
    left: BTreeMap<SwitchId, BTreeSet<usize>>,
    asked: BTreeSet<(SwitchId, Key)>,
}

impl Leftovers {
    /// Whether everything that was asked for is answered.
    pub fn is_idle(&self) -> bool {
        self.asked.is_empty()
    }

    /// This view comes in the place of the present one: who leaves a chain in it leaves items.
    pub fn note(&mut self, facts: &Facts, view: &View) {
        for (at, (before, after)) in facts.chains().iter().zip(&view.chains).enumerate() {
            let leaves = before.slots.iter().filter(|slot| !after.slots.contains(slot));
            for switch in leaves.filter_map(|slot| facts.switch_in(*slot)) {
                self.left.entry(switch).or_default().insert(at);
            }
        }
    }

    /// Asks for what is next, once nobody goes by an earlier view.
    pub fn go_on(&mut self, cx: &mut Context<'_>) {
        let is_quiet = cx.facts.is_confirmed() && cx.facts.memory.past.is_empty();
        if !is_quiet || !cx.facts.knows_all() || !self.is_idle() {
            return;
        }
        self.left.retain(|switch, chains| {
            // Whoever is a member again was cleared as it joined.
            chains.retain(|chain| !cx.facts.members_of(*chain).contains(switch));
            !chains.is_empty()
        });
        let is_there =
            |switch: &SwitchId| cx.is_attached(*switch) && cx.facts.confirmed.contains(switch);
        let next = self.left.iter().find(|(switch, _)| is_there(switch));
        let Some((switch, chains)) = next.map(|(switch, chains)| (*switch, chains)) else { return };
        let chains: Vec<usize> = chains.iter().copied().collect();
        let keys = cx.facts.keys_to_clear(switch, &chains);
        if keys.is_empty() {
            self.left.remove(&switch);
        }
        for key in keys.into_iter().take(ASKED_MOST) {
            self.asked.insert((switch, key.clone()));
            cx.ask(switch, key, Change::Remove);
        }
    }

    /// A change of an item was answered, of one of these perhaps.
    pub fn answered(&mut self, cx: &mut Context<'_>, answer: Answer<'_>) {
        if self.asked.remove(&(answer.switch, answer.key.clone())) {
            // There is room again.
            cx.facts.full &= answer.outcome != Outcome::Done;
        }
    }
}
