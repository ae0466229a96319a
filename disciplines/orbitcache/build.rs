//! Compiles the discipline's data plane against the shared headers.

fn main() {
    bpf::compile("orbitcache.bpf.c");
}
