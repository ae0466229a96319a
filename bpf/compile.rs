// Included by the build scripts of the crates that carry a data-plane program.

use std::{env, path::Path};

use libbpf_cargo::SkeletonBuilder;

/// Compiles `source` against the headers in `headers` into `OUT_DIR/NAME.bpf.o`, where the crate includes it
/// from. `CLANG` names another compiler than clang-19.
fn compile(source: &Path, headers: &Path) {
    let name = source.file_stem().expect("a file").to_string_lossy();
    let object = Path::new(&env::var("OUT_DIR").expect("set by cargo")).join(format!("{name}.o"));
    let arch = env::var("CARGO_CFG_TARGET_ARCH").expect("set by cargo");
    let args = ["-O2", "-g", "-mcpu=v3", "-Wall", "-Wextra", "-Werror"].map(String::from);
    let includes =
        [format!("-I{}", headers.display()), format!("-I/usr/include/{arch}-linux-gnu")];
    SkeletonBuilder::new()
        .source(source)
        .obj(&object)
        .clang(env::var("CLANG").unwrap_or_else(|_| "clang-19".into()))
        .clang_args(args.into_iter().chain(includes))
        .build()
        .unwrap_or_else(|e| panic!("clang (set CLANG to name another than clang-19): {e:?}"));
    println!("cargo:rerun-if-changed={}", source.display());
    println!("cargo:rerun-if-changed={}", headers.display());
    println!("cargo:rerun-if-env-changed=CLANG");
}
