//! Compiles the switch half against the shared headers.

fn main() {
    bpf::compile("highest.bpf.c");
    println!("cargo:rerun-if-changed=counters.h");
    println!("cargo:rerun-if-changed=mutants.h");
}
