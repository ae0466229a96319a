//! Puts each discipline's `experiments/*.toml` into the binary: a new file there needs no line of code.

use std::{env, fs, path::Path};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let root = env::var("CARGO_MANIFEST_DIR")?;
    let out = env::var("OUT_DIR")?;
    for discipline in ["netcache", "madinc"] {
        let directory = Path::new(&root).join(discipline).join("experiments");
        let mut files = Vec::new();
        if directory.is_dir() {
            for entry in fs::read_dir(&directory)? {
                let path = entry?.path();
                if path.extension().is_some_and(|e| e == "toml") {
                    files.push(path);
                }
            }
            println!("cargo::rerun-if-changed={}", directory.display());
        } else {
            println!(
                "cargo::rerun-if-changed={}",
                Path::new(&root).join(discipline).display()
            );
        }
        files.sort();
        let mut list = String::from("&[\n");
        for path in files {
            let name = path
                .file_stem()
                .and_then(|s| s.to_str())
                .ok_or("file name is not UTF-8")?;
            let path = path.to_str().ok_or("path is not UTF-8")?;
            list.push_str(&format!("    ({name:?}, include_str!({path:?})),\n"));
        }
        list.push(']');
        fs::write(
            Path::new(&out).join(format!("{discipline}_experiments.rs")),
            list,
        )?;
    }
    Ok(())
}
