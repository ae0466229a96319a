//! Each check, on a tiny tree with one of each finding and of what looks like one.

use std::{collections::BTreeMap, fs, path::Path};

use tempfile::TempDir;

use crate::{
    arrows, attributes, circles, columns, docs, finding::Finding, names, patch::Patch, sequencers,
    shapes::shapes, tree::Tree,
};

/// A tree that holds these files.
fn tree(files: &[(&str, &str)]) -> anyhow::Result<(TempDir, Tree)> {
    let root = tempfile::tempdir()?;
    for (path, text) in files {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap_or(root.path()))?;
        fs::write(path, text)?;
    }
    let tree = Tree::read(root.path())?;
    Ok((root, tree))
}

fn manifest(name: &str, dependencies: &[&str]) -> String {
    let list = dependencies.iter().map(|to| format!("{to}.workspace = true\n"));
    let list: String = list.collect();
    format!(
        "[package]\nname = \"{name}\"\n[dependencies]\n{list}[dev-dependencies]\nhouse = \"1\"\n"
    )
}

/// Where the findings are.
fn places(findings: &[Finding]) -> Vec<(&str, usize)> {
    findings.iter().map(|finding| (finding.path.as_str(), finding.line)).collect()
}

/// The circles of a crate `a` of these files, each without its first line.
fn circles_of(files: &[(&str, &str)]) -> anyhow::Result<Vec<Vec<String>>> {
    let manifest = manifest("a", &[]);
    let mut all = vec![("crates/a/Cargo.toml", manifest.as_str())];
    all.extend(files);
    let (_root, tree) = tree(&all)?;
    let arrows = |finding: Finding| {
        let lines = finding.text.lines().skip(1);
        lines.map(|line| line.trim().replace("crates/a/src/", "")).collect()
    };
    Ok(circles::check(&tree)?.into_iter().map(arrows).collect())
}

const LIB: (&str, &str) = ("crates/a/src/lib.rs", "mod b;\nmod c;\npub use c::Cup;\n");

#[test]
fn files_that_use_one_another_are_a_circle() -> anyhow::Result<()> {
    let ways = [
        "use crate::c::Cup;",
        "use crate::Cup;",
        "use super::c::{self, Cup as Mug};",
        "use super::*; fn f(_: Cup) {}",
        "fn f() { crate::c::Cup::new() }",
        "fn f(_: Vec<super::c::Cup>) {}",
        "use crate::c; fn f() { assert!(c::fill(), \"empty\") }",
        "mod inner { use super::super::c::Cup; }",
    ];
    for way in ways {
        let c = "use crate::b::Bowl;\npub struct Cup;\npub fn fill() {}\n";
        let found = circles_of(&[LIB, ("crates/a/src/b.rs", way), ("crates/a/src/c.rs", c)])?;
        let [circle] = found.as_slice() else {
            anyhow::bail!("{way}: {found:?}");
        };
        assert_eq!(circle.len(), 2, "{way}");
        assert!(circle[0].starts_with("b.rs:1 uses c.rs ("), "{way}: {circle:?}");
        assert_eq!(circle[1], "c.rs:1 uses b.rs (crate::b::Bowl)", "{way}");
    }
    Ok(())
}

#[test]
fn one_way_is_none_and_neither_are_tests_nor_parents() -> anyhow::Result<()> {
    let bs = [
        "pub struct Bowl;",
        "#[cfg(test)]\nmod tests {\n    use crate::c::Cup;\n}\n",
        "#[test]\nfn f() { crate::c::fill() }\n",
        "#[cfg(test)]\nuse crate::Cup;\n",
        "pub(in crate::c) struct Bowl;",
        "use crate::c;",
        "use ::c::Cup;",
        "use crate::Spoon;\n",
    ];
    let lib =
        ("crates/a/src/lib.rs", "mod b;\nmod c;\npub use c::Cup;\nuse b::Bowl;\nstruct Spoon;\n");
    for b in bs {
        let c = "use crate::b::Bowl;\npub struct Cup;\npub fn fill() {}\n";
        let found = circles_of(&[lib, ("crates/a/src/b.rs", b), ("crates/a/src/c.rs", c)])?;
        assert!(found.is_empty(), "{b}: {found:?}");
    }
    Ok(())
}

#[test]
fn modules_are_found_in_folders_and_where_an_attribute_says() -> anyhow::Result<()> {
    let found = circles_of(&[
        ("crates/a/src/main.rs", "mod b;\n#[path = \"../other/c.rs\"]\nmod c;\n"),
        ("crates/a/src/b/mod.rs", "mod d;\n"),
        ("crates/a/src/b/d.rs", "use crate::c::Cup;\npub struct Dish;\n"),
        ("crates/a/other/c.rs", "use crate::b::d::Dish;\npub struct Cup;\n"),
    ])?;
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].len(), 2);
    Ok(())
}

#[test]
fn arrows_are_compared_in_both_directions() -> anyhow::Result<()> {
    let [a, b, c] = [("a", &["b", "serde"][..]), ("b", &[]), ("c", &["b"])]
        .map(|(name, dependencies)| manifest(name, dependencies));
    let document = "```arrows\na: b\nb: a\nd:\n```\nc: b\n";
    let (_root, tree) = tree(&[
        ("crates/a/Cargo.toml", &a),
        ("disciplines/b/Cargo.toml", &b),
        ("lab/c/Cargo.toml", &c),
        ("docs/architecture.md", document),
    ])?;
    let findings = arrows::check(&tree)?;
    let texts: BTreeMap<_, _> =
        findings.iter().map(|f| ((f.path.as_str(), f.line), f.text.as_str())).collect();
    assert_eq!(texts.len(), 3);
    assert!(texts[&("lab/c/Cargo.toml", 1)].starts_with("c is not among the arrows"));
    assert!(texts[&("docs/architecture.md", 3)].starts_with("b does not depend on a"));
    assert!(texts[&("docs/architecture.md", 4)].starts_with("there is no crate d"));
    Ok(())
}

#[test]
fn an_arrow_that_is_not_listed_is_found_in_the_manifest() -> anyhow::Result<()> {
    let (_root, tree) = tree(&[
        ("crates/a/Cargo.toml", &manifest("a", &["b"])),
        ("crates/b/Cargo.toml", &manifest("b", &[])),
        ("docs/architecture.md", "```arrows\na:\nb:\n```\n"),
    ])?;
    let findings = arrows::check(&tree)?;
    assert_eq!(places(&findings), [("crates/a/Cargo.toml", 1)]);
    assert!(findings[0].text.starts_with("a depends on b"));
    Ok(())
}

#[test]
fn a_sequencer_has_its_methods_in_one_file() -> anyhow::Result<()> {
    let own = "pub struct Engine;\nimpl Engine {}\nmod part;\n";
    let of_a_trait = "impl Default for super::Engine {}\n#[cfg(test)]\nimpl super::Engine {}\n";
    for (part, expected) in [
        (
            "\nimpl super::Engine {}\n",
            &[("crates/store/src/lib.rs", 2), ("crates/store/src/part.rs", 2)][..],
        ),
        (of_a_trait, &[]),
    ] {
        let (_root, tree) = tree(&[
            ("crates/store/Cargo.toml", &manifest("store", &[])),
            ("crates/store/src/lib.rs", own),
            ("crates/store/src/part.rs", part),
        ])?;
        assert_eq!(places(&sequencers::check(&tree)?), expected);
    }
    Ok(())
}

#[test]
fn an_attribute_of_a_tenant_is_named_in_few_files() -> anyhow::Result<()> {
    let names = |count: usize| -> anyhow::Result<usize> {
        let others = (0..count).map(|n| format!("crates/a/src/b{n}.rs"));
        let others: Vec<String> = others.collect();
        let mut files = vec![
            ("crates/api/src/types/terms.rs", "//! rate: over_rate.\n"),
            ("crates/a/src/c.rs", "//! over_rate_of others, and never over_rates.\n"),
            ("crates/a/tests/all/d.rs", "//! over_rate.\n"),
            ("lab/a/src/e.rs", "//! over_rate.\n"),
        ];
        files.extend(others.iter().map(|path| (&**path, "//! Of over_rate.\n")));
        let (_root, tree) = tree(&files)?;
        Ok(attributes::named(&tree).len())
    };
    assert_eq!((names(11)?, names(12)?), (0, 1));
    Ok(())
}

/// The repository itself: the files that the patch touches are few, as it has them, and all.
#[test]
fn an_attribute_of_a_tenant_can_be_added() -> anyhow::Result<()> {
    let tree = Tree::texts(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."))?;
    let findings = attributes::check(&tree)?;
    let findings: Vec<String> = findings.iter().map(ToString::to_string).collect();
    assert!(findings.is_empty(), "{}", findings.join("\n"));
    Ok(())
}

#[test]
fn an_attribute_that_is_added_is_missed_where_the_compiler_would_miss_it() -> anyhow::Result<()> {
    let patch = Patch::read(
        "+++ b/crates/a/src/b.rs\n@@ -1,2 +1,3 @@\n pub struct Bowl {\n     pub rate: u8,\n\
         +    pub priority: u8,\n",
    )?;
    let b = "/// Holds.\npub struct Bowl {\n    pub rate: u8,\n}\n";
    let found = |c: &str| -> anyhow::Result<usize> {
        let files = [("crates/a/src/b.rs", b), ("lab/c/tests/all/c.rs", c)];
        let (_root, tree) = tree(&files)?;
        Ok(attributes::added(&tree, &patch)?.len())
    };
    for missed in [
        "const B: Bowl = a::Bowl { rate: 1 };",
        "fn f(Bowl { ref rate }: &Bowl) {}",
        "fn f() { g(vec![Bowl { rate }]) }",
        "fn f() { let Bowl { mut rate, } = g(); }",
    ] {
        assert_eq!(found(missed)?, 1, "{missed}");
    }
    for fine in [
        "const B: Bowl = Bowl { rate: 1, ..A };",
        "fn f(Bowl { rate, .. }: Bowl) {}",
        "const B: Bowl = Bowl { rate: 1, priority: 2 };",
        "pub struct Bowl { rate: u8 }",
        "const B: Bowl = Bowl { size: 1 };",
        "const B: Dish = Dish { rate: 1 };",
    ] {
        assert_eq!(found(fine)?, 0, "{fine}");
    }
    let (_root, other) = tree(&[("crates/a/src/b.rs", "pub struct Bowl;\n")])?;
    let findings = attributes::added(&other, &patch)?;
    assert!(findings[0].text.starts_with("does not fit crates/a/src/b.rs: "));
    Ok(())
}

#[test]
fn fields_are_those_of_structs_of_messages_and_of_terms() -> anyhow::Result<()> {
    let terms =
        "terms! {\n/// Says.\n#[changed(serde())]\nrate: u64 = 0;\nname: Vec<u8> = vec![];\n}";
    let message =
        "\nmessage Tenant {\n  uint32 id = 1;\n  repeated string stores = 7; // Some.\n}\n";
    for (path, text, name, fields) in [
        ("a.rs", "struct Bowl { pub rate: u8, id: u8 }", "Bowl", ["id", "rate"]),
        ("a.rs", terms, "TenantChange", ["name", "rate"]),
        ("a.proto", message, "Tenant", ["id", "stores"]),
    ] {
        let shapes = shapes(path, text)?;
        assert!(shapes[name].iter().eq(&fields), "{name}: {:?}", shapes[name]);
    }
    Ok(())
}

#[test]
fn names_of_types_are_nouns() -> anyhow::Result<()> {
    let text = "struct Seen;\nenum TablesGone {}\ntrait Which {}\n#[cfg(test)]\ntype Whose = u8;\n\
                struct SeenKeys;\nstruct Feed;\nenum Kind { Seen }\ntrait Of { type Seen; }\n";
    let (_root, tree) = tree(&[("crates/a/src/lib.rs", text)])?;
    let found: Vec<_> = names::check(&tree)?.into_iter().map(|finding| finding.line).collect();
    assert_eq!(found, [1, 2, 3, 5, 9]);
    Ok(())
}

#[test]
fn a_file_says_what_it_is_for() -> anyhow::Result<()> {
    let (_root, tree) = tree(&[
        ("crates/a/src/lib.rs", "//! Says it.\nmod b;\n"),
        ("crates/a/src/b.rs", "// Says nothing of the module.\n/// Nor does this.\nstruct Bowl;\n"),
    ])?;
    assert_eq!(places(&docs::check(&tree)?), [("crates/a/src/b.rs", 1)]);
    Ok(())
}

#[test]
fn comments_are_at_most_100_columns_wide() -> anyhow::Result<()> {
    let long = "word ".repeat(20);
    let rust = format!(
        "// {long}\n// {}\nconst T: &str = \"{long}\";\nconst A: u8 = 1; // {long}\n\
         /// | {long}|\n/// {}\nstruct Bowl;\n",
        &long[..96],
        "word".repeat(30),
    );
    let c = format!("/*\n * {long}\n */\nint a = 1; /* {long} */\n");
    let shell = format!("#!/bin/sh\n# {long}\necho {long}\n");
    let (_root, tree) = tree(&[
        ("bpf/a.h", &c),
        ("crates/a/src/lib.rs", &rust),
        ("tools/a", &shell),
        ("tools/a.txt", &shell),
    ])?;
    let expected = [
        ("bpf/a.h", 2),
        ("bpf/a.h", 4),
        ("crates/a/src/lib.rs", 1),
        ("crates/a/src/lib.rs", 4),
        ("tools/a", 2),
    ];
    assert_eq!(places(&columns::check(&tree)?), expected);
    Ok(())
}

#[test]
fn what_is_no_rust_is_named() {
    let read = tree(&[("lab/a/src/lib.rs", "fn {")]);
    let error = read.err().map(|error| format!("{error:#}"));
    assert!(error.is_some_and(|error| error.starts_with("lab/a/src/lib.rs: ")));
}
