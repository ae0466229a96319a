//! Where tests run.

use harness::switch::{in_this_process, on_roads};

/// Runs these functions, as tests by their names, in the kernel and in this process.
macro_rules! in_both {
    ($($test:ident),* $(,)?) => {
        run_in_both(&[$((stringify!($test), $test)),*])
    };
}
pub(crate) use in_both;

/// Runs tests in the kernel and in this process.
pub fn run_in_both(tests: &'static [(&'static str, fn())]) {
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
