//! Compiles the discipline's data plane against the shared headers.

fn main() {
    bpf::compile("kvswitch.bpf.c");
    println!("cargo:rerun-if-changed=counters.h");
    println!("cargo:rerun-if-changed=redirect.h");
    println!("cargo:rerun-if-changed=send.h");
    println!("cargo:rerun-if-changed=hybrid.h");
    println!("cargo:rerun-if-changed=load.h");
}
