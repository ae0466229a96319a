//! Compiles the switch half against the shared headers.

fn main() {
    bpf::compile("highest.bpf.c");
}
