//! For the build scripts of crates that carry a data-plane program: compiles C against the headers in this folder.
//!
//! `build.rs` is `fn main() { bpf::compile("NAME.bpf.c") }`, with this crate among the build dependencies; the crate
//! then has the object: `include_bytes!(concat!(env!("OUT_DIR"), "/NAME.bpf.o"))`.

use std::{env, path::Path};

use libbpf_cargo::SkeletonBuilder;

/// Compiles `source`, a path from the root of the crate that is being built, into `OUT_DIR/NAME.bpf.o`. `CLANG` names
/// another compiler than clang-19.
///
/// # Panics
/// Outside of a build script, and if clang refuses: it says why.
pub fn compile(source: &str) {
    let variable = |name| env::var(name).expect("set by cargo for build scripts");
    let headers = Path::new(env!("CARGO_MANIFEST_DIR"));
    let source = Path::new(&variable("CARGO_MANIFEST_DIR")).join(source);
    let name = source.file_stem().expect("a file").to_string_lossy();
    let object = Path::new(&variable("OUT_DIR")).join(format!("{name}.o"));
    let arch = variable("CARGO_CFG_TARGET_ARCH");
    let args = ["-O2", "-g", "-mcpu=v3", "-Wall", "-Wextra", "-Werror"].map(String::from);
    let includes = [
        format!("-I{}", headers.display()),
        format!("-I/usr/include/{arch}-linux-gnu"),
    ];
    SkeletonBuilder::new()
        .source(&source)
        .obj(&object)
        .clang(env::var("CLANG").unwrap_or_else(|_| "clang-19".into()))
        .clang_args(args.into_iter().chain(includes))
        .build()
        .unwrap_or_else(|e| panic!("clang (set CLANG to name another than clang-19): {e:?}"));
    println!("cargo:rerun-if-changed={}", source.display());
    println!("cargo:rerun-if-changed={}", headers.display());
    println!("cargo:rerun-if-env-changed=CLANG");
}
