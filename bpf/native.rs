//! The same C as native code, with `user/target.h` in the place of `target.h`.

use std::{
    env, fs,
    path::Path,
    process::{Command, Stdio},
};

/// Compiles the programs of `source` (`NAME.bpf.c`) as a unit: with a list of its tables and
/// programs that `NAME_unit()` leads to.
pub fn compile(clang: &str, headers: &Path, source: &Path, out: &Path) {
    let file = source.file_name().expect("a file").to_string_lossy();
    let name = file.split('.').next().expect("split gives one at least");
    let text = preprocessed(clang, headers, source);
    let unit = out.join(format!("{name}_unit.c"));
    fs::write(&unit, list(name, source, &text)).expect("OUT_DIR can be written");
    library(clang, headers, &unit, &format!("{name}_unit"));
}

/// Compiles one file into a static library that the crate is linked with.
pub fn library(clang: &str, headers: &Path, source: &Path, name: &str) {
    let mut build = cc::Build::new();
    // As the Rust side has them: in builds for those who develop, never in one for users.
    if env::var("PROFILE").is_ok_and(|profile| profile == "debug") {
        build.define("MUTANTS", None);
    }
    build
        .compiler(clang)
        .file(source)
        .include(headers.join("user"))
        .include(headers)
        .std("gnu11")
        // Headers of packets are read as words, wherever they lie.
        .flags(["-fno-strict-aliasing", "-Wno-sign-compare"])
        .opt_level(2)
        .warnings_into_errors(true)
        .cargo_metadata(true)
        .compile(name);
}

fn preprocessed(clang: &str, headers: &Path, source: &Path) -> String {
    let output = Command::new(clang)
        .args(["-E", "-P", "-std=gnu11", "-DUSER_LIST"])
        .arg(format!("-I{}", headers.join("user").display()))
        .arg(format!("-I{}", headers.display()))
        .arg(source)
        .stderr(Stdio::inherit())
        .output()
        .unwrap_or_else(|e| panic!("{clang} (set CLANG to name another than clang-19): {e}"));
    assert!(output.status.success(), "{clang} -E {}", source.display());
    String::from_utf8(output.stdout).expect("C is ASCII")
}

fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// What stands before `} NAME SEC(".maps")`.
fn tables(text: &str) -> Vec<&str> {
    let before = text.split("SEC(\".maps\")").map(str::trim_end);
    let mut tables: Vec<&str> =
        before.map(|part| part.rsplit(|c| !is_name(c)).next().expect("one at least")).collect();
    tables.pop();
    tables
}

/// The functions that a section of programs is named before.
fn programs(text: &str) -> Vec<&str> {
    let sections = text.split("SEC(\"xdp").skip(1);
    sections
        .map(|section| function_behind(section).expect("a section is followed by a function"))
        .collect()
}

fn function_behind(section: &str) -> Option<&str> {
    let (_, function) = section.split_once(')')?;
    let (head, _) = function.split_once('(')?;
    head.split_whitespace().last()
}

/// The unit's text. Functions of several units must not share a name: C has one space of names for
/// all of them.
fn list(name: &str, source: &Path, text: &str) -> String {
    let (tables, programs) = (tables(text), programs(text));
    let mut unit = String::new();
    for program in &programs {
        unit += &format!("#define {program} {name}_unit_{program}\n");
    }
    unit += &format!("#define LICENSE {name}_unit_license\n");
    unit += &format!("#include \"{}\"\n", source.display());
    unit += "static const struct user_map tables_of_unit[] = {\n";
    for table in tables {
        unit += &format!("\tUSER_MAP({table})\n");
    }
    unit += "};\nstatic const struct user_program programs_of_unit[] = {\n";
    for program in programs {
        unit += &format!("\t{{\"{program}\", {program}}},\n");
    }
    unit += &format!(
        "}};\n\
         const struct user_unit *{name}_unit(void);\n\
         const struct user_unit *{name}_unit(void)\n\
         {{\n\
         \tstatic const struct user_unit unit = {{\n\
         \t\ttables_of_unit,\n\
         \t\tprograms_of_unit,\n\
         \t\tsizeof(tables_of_unit) / sizeof(tables_of_unit[0]),\n\
         \t\tsizeof(programs_of_unit) / sizeof(programs_of_unit[0]),\n\
         \t}};\n\
         \treturn &unit;\n\
         }}\n"
    );
    unit
}
