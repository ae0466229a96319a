//! Compiles the discipline's data plane against the shared headers.

include!("../../bpf/compile.rs");

fn main() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    compile(&here.join("netcache.bpf.c"), &here.join("../../bpf"));
}
