//! Compiles the discipline's data plane against the shared headers.

fn main() {
    bpf::compile("orbitcache.bpf.c");
    println!("cargo:rerun-if-changed=counters.h");
    println!("cargo:rerun-if-changed=mutants.h");
    println!("cargo:rerun-if-changed=orbits.h");
    println!("cargo:rerun-if-changed=parts.h");
}
