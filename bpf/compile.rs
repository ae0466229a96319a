//! For build scripts of crates that carry a data-plane program: compiles C against the headers in
//! this folder.
//!
//! `build.rs` is `fn main() { bpf::compile("NAME.bpf.c") }`, with this crate among the build
//! dependencies; the crate then has the object, packed:
//! `include_bytes!(concat!(env!("OUT_DIR"), "/NAME.bpf.o.zlib"))`, and the same programs as native
//! code (`user/`), linked into it: `unsafe extern "C" { fn NAME_unit() -> *const c_void; }`. It
//! needs clang and libbpf only: libbpf-cargo does the same, and takes as long to build as a tenth
//! of everything else.

mod native;

use std::{
    env,
    ffi::CString,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// Compiles `source`, a path from the root of the crate that is being built, into
/// `OUT_DIR/NAME.bpf.o.zlib`, and into a native library that the crate is linked with. `CLANG`
/// names another compiler than clang-19.
///
/// # Panics
/// Outside of a build script, and if clang refuses: it says why.
pub fn compile(source: &str) {
    let (source, headers, out) = for_kernel(source);
    pack(&object_of(&source, &out));
    native::compile(&clang(), &headers, &source, &out);
}

/// Likewise for the kernel alone, into `OUT_DIR/NAME.bpf.o`: programs of measurements that stand on
/// what only it has.
///
/// # Panics
/// As [`compile`].
pub fn compile_for_kernel(source: &str) {
    for_kernel(source);
}

/// Returns where the source, the headers and what is made of them lie.
fn for_kernel(source: &str) -> (PathBuf, PathBuf, PathBuf) {
    let variable = |name| env::var(name).expect("set by cargo for build scripts");
    let crate_dir = PathBuf::from(variable("CARGO_MANIFEST_DIR"));
    let headers = headers_above(&crate_dir);
    let source = crate_dir.join(source);
    let out = PathBuf::from(variable("OUT_DIR"));
    let object = object_of(&source, &out);
    let compiled = object.with_extension("debug.o");
    let clang = clang();
    let arch = variable("CARGO_CFG_TARGET_ARCH");
    let status = Command::new(&clang)
        .args(["-target", "bpf", "-O2", "-g", "-mcpu=v3", "-fno-stack-protector"])
        .args(["-Wall", "-Wextra", "-Werror"])
        .args(sparing(&clang))
        .arg(format!("-D__TARGET_ARCH_{}", name_in_headers(&arch)))
        .arg(format!("-I{}", headers.display()))
        .arg(format!("-I/usr/include/{arch}-linux-gnu"))
        .arg(format!("-I{}", libbpf_headers(&out).display()))
        .arg("-c")
        .arg(&source)
        .arg("-o")
        .arg(&compiled)
        .status()
        .unwrap_or_else(|e| panic!("{clang} (set CLANG to name another than clang-19): {e}"));
    assert!(status.success(), "{clang}: {}: {status}", source.display());
    link(&compiled, &object);
    println!("cargo:rerun-if-changed={}", source.display());
    println!("cargo:rerun-if-changed={}", headers.display());
    println!("cargo:rerun-if-env-changed=CLANG");
    (source, headers, out)
}

/// Compiles what all native programs need beside their own code; of the one crate that runs them.
///
/// # Panics
/// As [`compile`].
pub fn compile_switch() {
    let crate_dir = env::var("CARGO_MANIFEST_DIR").expect("set by cargo for build scripts");
    let headers = headers_above(Path::new(&crate_dir));
    let source = headers.join("user/switch.c");
    native::library(&clang(), &headers, &source, "user_switch");
    println!("cargo:rerun-if-changed={}", headers.display());
    println!("cargo:rerun-if-env-changed=CLANG");
}

/// Before 19 clang keeps so much on the stack that what it unrolls by itself needs more than the
/// 512 bytes that the kernel has for a program and all that it calls. What must be unrolled
/// says so.
fn sparing(clang: &str) -> &'static [&'static str] {
    let version = Command::new(clang).arg("-dumpversion").output();
    let version = version.map_or(vec![], |said| said.stdout);
    let major = String::from_utf8_lossy(&version);
    match major.split('.').next().and_then(|major| major.trim().parse().ok()) {
        Some(0..19) => &["-fno-unroll-loops"],
        _ => &[],
    }
}

/// Where the object of this source lies: `NAME.bpf.o`.
fn object_of(source: &Path, out: &Path) -> PathBuf {
    out.join(source.file_name().expect("a file")).with_extension("o")
}

/// Writes an object as programs carry it, beside the object: a fourth as long.
fn pack(object: &Path) {
    let bytes = fs::read(object).expect("linked just now");
    let packed = miniz_oxide::deflate::compress_to_vec_zlib(&bytes, 9);
    fs::write(object.with_extension("o.zlib"), packed).expect("OUT_DIR can be written");
}

fn clang() -> String {
    env::var("CLANG").unwrap_or_else(|_| "clang-19".into())
}

/// This folder, in the tree that the crate lies in: cargo takes a tree that was moved for the one
/// that it built before, so what was true when this crate was compiled may not be. A crate outside
/// of any tree gets the folder of then.
fn headers_above(crate_dir: &Path) -> PathBuf {
    let mut above = crate_dir.ancestors().map(|dir| dir.join("bpf"));
    above
        .find(|dir| dir.join("discipline.h").is_file())
        .unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into())
}

/// What the headers call the machine that the programs will run on.
fn name_in_headers(arch: &str) -> &str {
    match arch {
        "x86_64" => "x86",
        "aarch64" => "arm64",
        "riscv64" => "riscv",
        other => other,
    }
}

/// Writes the headers of the libbpf that loads the programs, to be included as `<bpf/NAME.h>`.
fn libbpf_headers(out: &Path) -> PathBuf {
    let include = out.join("libbpf");
    fs::create_dir_all(include.join("bpf")).expect("OUT_DIR can be written");
    for (name, text) in libbpf_sys::API_HEADERS {
        fs::write(include.join("bpf").join(name), text).expect("OUT_DIR can be written");
    }
    include
}

/// Links one object, which leaves its debug information out, and with it the paths of this machine;
/// types (BTF) stay.
fn link(compiled: &Path, object: &Path) {
    let text = |path: &Path| CString::new(path.to_str().expect("UTF-8")).expect("no NUL");
    let (from, to) = (text(compiled), text(object));
    // SAFETY: the strings outlive the calls, and the linker is used between its making and its
    // freeing only; null is "no options".
    let linked = unsafe {
        let linker = libbpf_sys::bpf_linker__new(to.as_ptr(), std::ptr::null_mut());
        assert!(!linker.is_null(), "{}: cannot be written", object.display());
        let added = libbpf_sys::bpf_linker__add_file(linker, from.as_ptr(), std::ptr::null());
        let finalized = libbpf_sys::bpf_linker__finalize(linker);
        libbpf_sys::bpf_linker__free(linker);
        added == 0 && finalized == 0
    };
    assert!(linked, "{}: libbpf cannot link it", compiled.display());
}
