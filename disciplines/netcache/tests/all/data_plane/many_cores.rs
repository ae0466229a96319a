//! What several cores write goes back and forth between them, and is what bounds them: which lines
//! those are, packet by packet.

use std::collections::BTreeSet;

use harness::{Message, Runner, switch::in_this_process};

use super::world::*;

/// The lines that this packet writes, as table and number, when it comes a second time: the first
/// shows this CPU whatever it notes once.
fn written(w: &World, on: &Runner, packet: &Message) -> BTreeSet<(String, usize)> {
    let frame = packet.frame().bytes();
    on.run(&frame, None, &mut vec![]);
    let before = w.switch.lines();
    on.run(&frame, None, &mut vec![]);
    w.switch.lines().changed_since(&before)
}

#[test]
fn a_hit_or_miss_writes_nothing_that_another_core_does() {
    in_this_process(|| {
        let mut w = world();
        w.cached(SIGNED, KEY, V128);
        let another = w.switch.another_runner();
        let cold = b"a key that is cold";
        let read = |key| Message::read(SIGNED, key);
        let write = |key| Message::write(SIGNED, key, b"new");
        // (what, the packet, tables with lines that both cores write)
        let rows: [(&str, Message, &[&str]); 4] = [
            ("hit", read(KEY), &[]),
            ("miss", read(cold), &[]),
            // Its number.
            ("write of what is not cached", write(cold), &["config"]),
            // The item as well.
            ("write", write(KEY), &["config", "pages"]),
        ];
        for (what, packet, expected) in rows {
            let own = written(&w, &w.switch.runner, &packet);
            let others = written(&w, &another, &packet);
            assert!(!own.is_empty() && !others.is_empty(), "{what}: counted by nobody");
            let shared: BTreeSet<&str> = own.intersection(&others).map(|(t, _)| &t[..]).collect();
            let lines = own.intersection(&others).count();
            assert_eq!(shared, expected.iter().copied().collect(), "{what}");
            assert_eq!(lines, expected.len(), "{what}: one line of each");
        }
    });
}
