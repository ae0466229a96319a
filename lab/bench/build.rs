//! Compiles the measurement's own programs against the data plane's headers.

fn main() {
    for program in ["drive", "floors", "steps"] {
        bpf::compile(&format!("bpf/{program}.bpf.c"));
    }
    bpf::compile_for_kernel("bpf/ports.bpf.c");
}
