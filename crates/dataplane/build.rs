//! Compiles the entry program; the disciplines compile theirs against the same headers.

fn main() {
    bpf::compile("../../bpf/entry.bpf.c");
}
