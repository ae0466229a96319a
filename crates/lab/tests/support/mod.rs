//! What the tests of real namespaces share.

use std::path::PathBuf;

use lab::process;

/// The example that stands in for the binary; cargo builds it with the tests.
pub fn roles() -> PathBuf {
    let mut path = std::env::current_exe().expect("a running test");
    path.pop();
    path.pop();
    path.push("examples/roles");
    process::set_binary(path.clone());
    path
}

/// Whether namespaces can be made here. Says so if not.
pub fn is_root() -> bool {
    // SAFETY: geteuid cannot fail.
    let root = unsafe { libc::geteuid() } == 0;
    if !root {
        eprintln!("skipped: network namespaces need root");
    }
    root
}
