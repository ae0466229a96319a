//! Compiles the discipline's data plane against the shared headers.

fn main() {
    bpf::compile("chain.bpf.c");
    for header in [
        "client", "commit", "copy", "counters", "mutants", "packet", "pass", "read", "record",
        "repair", "signal", "tell", "view", "watch", "write",
    ] {
        println!("cargo:rerun-if-changed={header}.h");
    }
}
