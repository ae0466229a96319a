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

/// Fails where namespaces cannot be made, rather than pass without having tested anything.
pub fn needs_root() {
    // SAFETY: geteuid cannot fail.
    assert!(
        unsafe { libc::geteuid() } == 0,
        "network namespaces need root"
    );
}
