//! Where tests run.

use harness::switch::{in_this_process, on_roads};

/// Runs tests in the kernel and in this process.
pub fn in_both(tests: &'static [(&'static str, fn())]) {
    on_roads(move || {
        for (name, test) in tests {
            println!("{name}, in the kernel");
            test();
        }
        for (name, test) in tests {
            println!("{name}, in this process");
            in_this_process(*test);
        }
    });
}
