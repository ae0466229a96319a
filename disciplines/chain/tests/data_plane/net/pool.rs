//! Switches that one test leaves to the next: loading one in the kernel takes as long as many tests.

use std::cell::RefCell;

use dataplane::Rows;
use harness::{
    World,
    switch::{in_this_process, on_roads},
};

use super::{Net, PLACE, STATE, TENANT};

thread_local! {
    /// Switches in the kernel that no test has now: loading one takes as long as many tests.
    static IDLE: RefCell<Option<Vec<World>>> = const { RefCell::new(None) };
}

/// Runs tests in the kernel and in this process.
pub fn in_both(tests: &'static [(&'static str, fn())]) {
    on_roads(move || {
        IDLE.set(Some(vec![]));
        for (name, test) in tests {
            println!("{name}, in the kernel");
            test();
        }
        IDLE.set(None);
        for (name, test) in tests {
            println!("{name}, in this process");
            in_this_process(*test);
        }
    });
}

pub fn idle_switch() -> Option<World> {
    IDLE.with_borrow_mut(|idle| idle.as_mut()?.pop())
}

impl Drop for Net {
    fn drop(&mut self) {
        if std::thread::panicking() || IDLE.with_borrow(Option::is_none) {
            return;
        }
        for w in self.switches.drain(..) {
            let at = w.switch.backing();
            for held in w.switch.table.scan() {
                w.switch.table.evict(held.slot, held.place);
            }
            let rows = Rows::open(&at, "chain", chain::view::MAP).expect("a map");
            rows.delete(&TENANT.to_ne_bytes()).expect("a row");
            let state = vec![0; STATE];
            at.set_element("chain_states", PLACE, &state)
                .expect("writable");
            for set in 0..1024 {
                let bytes = at.element("chain_watches", set).expect("an element");
                if bytes.iter().any(|byte| *byte != 0) {
                    let zeros = vec![0; bytes.len()];
                    at.set_element("chain_watches", set, &zeros)
                        .expect("writable");
                }
            }
            w.switch.table.next_window();
            IDLE.with_borrow_mut(|idle| idle.as_mut().expect("there").push(w));
        }
    }
}
