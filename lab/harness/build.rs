//! Compiles the tests' discipline against the shared headers.

fn main() {
    bpf::compile("bpf/trial.bpf.c");
    bpf::compile("bpf/refused.bpf.c");
}
