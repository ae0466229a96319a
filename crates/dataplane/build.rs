//! Compiles the entry program; the disciplines compile theirs against the same headers.

include!("../../bpf/compile.rs");

fn main() {
    let bpf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bpf");
    compile(&bpf.join("entry.bpf.c"), &bpf);
}
