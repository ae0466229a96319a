//! Compiles the entry program; the disciplines compile theirs against the same headers. And what
//! runs all of them in this process.

fn main() {
    bpf::compile("../../bpf/entry.bpf.c");
    bpf::compile_switch();
}
