//! Compiles the measurement's own programs against the data plane's headers.

include!("../../bpf/compile.rs");

fn main() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    for program in ["drive", "floors", "steps"] {
        compile(
            &here.join(format!("bpf/{program}.bpf.c")),
            &here.join("../../bpf"),
        );
    }
}
