//! What a change makes stale: in a small tree, and in a copy of the real one.

use super::*;
use crate::document::Document;

/// A tree of some crates, in a folder of its own.
struct Tree(tempfile::TempDir);

impl Tree {
    fn write(&self, path: &str, text: &str) {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn append(&self, path: &str, text: &str) {
        let old = fs::read_to_string(self.0.path().join(path)).expect(path);
        self.write(path, &(old + text));
    }

    fn crate_of(&self, folder: &str, rest: &str) {
        let name = folder.rsplit('/').next().unwrap();
        self.write(
            &format!("{folder}/Cargo.toml"),
            &format!("[package]\nname = \"{name}\"\n{rest}"),
        );
        self.write(&format!("{folder}/src/lib.rs"), "");
    }

    fn versions(&self, command: &str) -> Versions {
        let command = Command::parse(&format!("shortstop-lab {command}")).unwrap();
        Code::read(self.0.path()).unwrap().versions(&command).unwrap()
    }

    /// `rig` depends on everything; what it runs where, it says.
    fn small() -> Tree {
        let tree = Tree(tempfile::tempdir().unwrap());
        let crates = ["agent", "door", "rig", "world", "wire"];
        let paths = crates.map(|name| format!("{name} = {{ path = \"crates/{name}\" }}\n"));
        tree.write(
            "Cargo.toml",
            &format!(
                "[workspace.dependencies]\n{}one = \"1\"\n[profile.release.package.two]\nopt-level = 0\n",
                paths.concat()
            ),
        );
        let package = |name: &str, depends: &str| {
            format!(
                "[[package]]\nname = \"{name}\"\nversion = \"1.0.0\"\ndependencies = [{depends}]\n"
            )
        };
        let all = [
            package("wire", "\"one\", \"for-tests\""),
            package("one", "\"of-one\""),
            package("of-one", ""),
            package("for-tests", ""),
        ];
        tree.write("Cargo.lock", &all.concat());
        tree.write("bpf/Cargo.toml", "[package]\nname = \"bpf\"\n");
        tree.crate_of("disciplines/hash", "");
        tree.crate_of("disciplines/other", "");
        tree.write(
            "disciplines/Cargo.toml",
            "[package]\nname = \"registry\"\n[package.metadata.figures.about]\nb = \"other\"\n",
        );
        tree.crate_of(
            "crates/wire",
            "[dependencies]\none.workspace = true\n[dev-dependencies]\nfor-tests = \"1\"\n",
        );
        tree.crate_of("crates/door", "");
        tree.crate_of("crates/agent", "[dependencies]\nwire.workspace = true\n");
        tree.crate_of("crates/world", "[dependencies]\nagent.workspace = true\n");
        tree.crate_of("lab/bench", "[package.metadata.figures]\nruns = [\"door\"]\n");
        tree.crate_of(
            "crates/rig",
            "[package.metadata.figures]\n\
             kernel = { crates = [\"agent\"], files = [\"src/kernel\", \"../world/src/extra.rs\"] }\n\
             sim = { crates = [\"world\"], files = [\"src/sim.rs\"] }\n\
             [dependencies]\ndoor.workspace = true\nworld.workspace = true\n",
        );
        tree.write("crates/rig/src/kernel/mod.rs", "");
        tree.write("crates/rig/src/sim.rs", "");
        tree.write("crates/world/src/extra.rs", "");
        for (name, runs) in [("a", "runs = [\"hash\"]"), ("b", "runs_in_kernel = [\"door\"]")] {
            let text = format!("name = \"{name}\"\nkind = \"k\"\ntitle = \"t\"\n{runs}\n");
            tree.write(&format!("crates/rig/src/{name}.toml"), &text);
            tree.write(&format!("crates/rig/src/{name}.rs"), "");
        }
        tree
    }
}

const ALL: [&str; 5] = ["run a", "run a --world sim", "run b", "run b --world sim", "bench"];

#[test]
fn a_change_reaches_what_runs_it_and_nothing_else() {
    let tree = Tree::small();
    let [a, a_sim, b, b_sim, bench] = ALL;
    // What is changed: of which commands something changes.
    for (path, expected) in [
        ("crates/door/src/lib.rs", &[b, bench][..]),
        ("disciplines/hash/src/lib.rs", &[a, a_sim]),
        ("disciplines/other/src/lib.rs", &[b, b_sim]),
        ("crates/world/src/lib.rs", &[a_sim, b_sim]),
        ("crates/world/src/extra.rs", &[a, a_sim, b, b_sim]),
        ("crates/wire/src/lib.rs", &[a, a_sim, b, b_sim]),
        ("crates/rig/src/lib.rs", &[a, a_sim, b, b_sim]),
        ("crates/rig/src/kernel/mod.rs", &[a, b]),
        ("crates/rig/src/sim.rs", &[a_sim, b_sim]),
        ("crates/rig/src/a.rs", &[a, a_sim]),
        ("crates/rig/src/b.toml", &[b, b_sim]),
        ("lab/bench/src/lib.rs", &[bench]),
    ] {
        let before = ALL.map(|command| tree.versions(command));
        tree.append(path, "# changed\n");
        let is_changed = |(command, before): &(&str, Versions)| tree.versions(command) != *before;
        let changed = ALL.into_iter().zip(before).filter(is_changed);
        let changed: Vec<&str> = changed.map(|(command, _)| command).collect();
        assert_eq!(changed, expected, "{path}");
    }
}

#[test]
fn any_discipline_is_all_of_them() {
    let tree = Tree::small();
    assert!(!tree.versions("run a").contains_key("other"));
    tree.append("crates/rig/src/a.toml", "runs_in_kernel = [\"*\"]\n");
    assert!(tree.versions("run a").contains_key("other"));
    assert!(!tree.versions("run a --world sim").contains_key("other"));
}

#[test]
fn tests_and_documents_change_nothing_and_a_name_does() {
    let tree = Tree::small();
    let before = tree.versions("run a");
    tree.write("crates/wire/README.md", "words");
    tree.write("crates/wire/tests/all.rs", "x");
    tree.append("crates/wire/Cargo.toml", "more = \"1\"\n[lints]\nworkspace = true\n");
    assert_eq!(tree.versions("run a"), before);
    tree.write("crates/wire/src/tests.rs", "x");
    tree.append("crates/wire/src/lib.rs", "#[cfg(test)]\nmod tests;\n");
    let declared = tree.versions("run a");
    tree.append("crates/wire/src/tests.rs", "more");
    tree.append("crates/wire/src/lib.rs", "#[cfg(test)]\nmod more {\n}\n");
    assert_eq!(tree.versions("run a"), declared);
    let root = tree.0.path();
    fs::rename(root.join("crates/rig/src/kernel/mod.rs"), root.join("crates/rig/src/kernel/x.rs"))
        .unwrap();
    assert_ne!(tree.versions("run a"), declared);
}

#[test]
fn packages_count_for_those_that_are_built_with_them() {
    let tree = Tree::small();
    let changed = |from: &str, to: &str, file: &str| {
        let before = ["run a", "bench"].map(|command| tree.versions(command));
        let path = tree.0.path().join(file);
        let old = fs::read_to_string(&path).unwrap();
        fs::write(&path, old.replace(from, to)).unwrap();
        let after = ["run a", "bench"].map(|command| tree.versions(command));
        fs::write(&path, &old).unwrap();
        assert_ne!(old, old.replace(from, to), "{from}");
        [0, 1].map(|i| before[i] != after[i])
    };
    let version = |name: &str| format!("name = \"{name}\"\nversion = \"1.0.0\"");
    let raised = |name: &str| version(name).replace("1.0.0", "1.0.1");
    for (name, expected) in [("one", true), ("of-one", true), ("for-tests", false)] {
        let of = changed(&version(name), &raised(name), "Cargo.lock");
        assert_eq!(of, [expected, false], "{name}");
    }
    assert_eq!(
        changed("one = \"1\"", "one = { version = \"1\", features = [\"x\"] }", "Cargo.toml"),
        [true, false]
    );
    assert_eq!(changed("package.two", "package.three", "Cargo.toml"), [false, false]);
    assert_eq!(changed("package.two", "package.wire", "Cargo.toml"), [true, false]);
}

#[test]
fn what_is_named_and_not_there_is_said() {
    let error = |tree: &Tree| {
        let command = Command::parse("shortstop-lab run a").unwrap();
        let code = Code::read(tree.0.path()).and_then(|code| code.versions(&command));
        format!("{:#}", code.unwrap_err())
    };
    let tree = Tree::small();
    tree.append(
        "disciplines/hash/Cargo.toml",
        "[package.metadata.figures]\nkernel.files = [\"gone\"]\n",
    );
    assert!(error(&tree).contains("disciplines/hash/gone"), "{}", error(&tree));
    let tree = Tree::small();
    tree.append("crates/rig/src/b.toml", "runs = [\"nobody\"]\n");
    assert!(error(&tree).starts_with("nobody, which"), "{}", error(&tree));
    let tree = Tree::small();
    fs::remove_file(tree.0.path().join("crates/rig/src/a.toml")).unwrap();
    assert!(error(&tree).contains("run a: no experiment"), "{}", error(&tree));
}

/// The project that this is a crate of.
fn project() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The code of the project as it is, in a tree that may be changed.
fn copied() -> Tree {
    fn copy(from: &Path, to: &Path) {
        if from.is_dir() {
            fs::create_dir_all(to).unwrap();
            for entry in fs::read_dir(from).unwrap() {
                let name = entry.unwrap().file_name();
                copy(&from.join(&name), &to.join(&name));
            }
        } else {
            fs::copy(from, to).unwrap();
        }
    }
    let tree = Tree(tempfile::tempdir().unwrap());
    for top in ["bpf", "crates", "disciplines", "lab", "Cargo.toml", "Cargo.lock"] {
        copy(&project().join(top), &tree.0.path().join(top));
    }
    tree
}

/// Every command of the documents with what it runs.
fn all(project_of: &Path) -> BTreeMap<String, Versions> {
    let code = Code::read(project_of).unwrap();
    let documents = Document::all(&project()).unwrap();
    let commands = documents.iter().flat_map(Document::commands);
    let versions = |command: Command| (command.name(), code.versions(&command).unwrap());
    commands.map(versions).collect()
}

/// The folder of a discipline with crates for its clients and its load.
const CHAIN: &str = "disciplines/chain";

/// Those whose clients come by gateways.
const BY_GATEWAYS: [&str; 6] = [
    "bench",
    "cluster-moves",
    "cluster-moves --quick",
    "hot-shard --quick",
    "near --quick",
    "restarts --quick",
];

/// Whether a command is of an experiment from that folder, or of one for any discipline.
fn is_of_chains(name: &str) -> bool {
    let code = Code::read(&project()).unwrap();
    let found = code.experiments.get(experiment_of(name));
    found.is_some_and(|e| e.path.starts_with(CHAIN) || e.all_runs().any(|runs| runs == ANY))
}

fn experiment_of(name: &str) -> &str {
    name.split(' ').next().unwrap_or_default()
}

#[test]
fn what_documents_name_runs_what_it_says() {
    let all = all(&project());
    let with = |part: &str| {
        let with = all.iter().filter(|(_, versions)| versions.contains_key(part));
        with.map(|(name, _)| name.as_str()).collect::<Vec<_>>()
    };
    assert_eq!(with("gateway"), BY_GATEWAYS);
    let of = |text: &str| {
        let command = Command::parse(text).unwrap();
        Code::read(&project()).unwrap().versions(&command).unwrap()
    };
    assert!(of("shortstop-lab run large-values").contains_key("gateway"));
    assert_eq!(with("soft"), ["bench"]);
    // Everything goes by these.
    for part in ["wire", "dataplane", "bpf", "store", "Cargo.lock"] {
        assert_eq!(with(part).len(), all.len(), "{part}");
    }
    // The bench fills tables by itself.
    for part in ["control", "agent"] {
        assert_eq!(with(part).len(), all.len() - 1, "{part}");
        assert!(!with(part).contains(&"bench"), "{part}");
    }
    let is_simulated = |name: &&str| name.contains("--world sim");
    let simulated: Vec<&str> = all.keys().map(String::as_str).filter(is_simulated).collect();
    assert_eq!(with("sim"), simulated);
    assert!(with("chain").iter().all(|name| is_of_chains(name)));
    // Whoever asks chains, and the load at them, is in their experiments alone.
    for part in ["chain-client", "chain-loads"] {
        let of_chains = with("chain-experiments");
        assert!(!of_chains.is_empty() && with(part) == of_chains, "{part}");
    }
    for part in [
        "figures",
        "model",
        "harness",
        "disciplines",
        "shortstop",
        "commands",
        "chain-commands",
        "stateright",
    ] {
        assert!(with(part).is_empty(), "{part}");
    }
}

#[test]
fn a_comment_makes_stale_what_runs_it() {
    let tree = copied();
    let before = all(tree.0.path());
    let stale = |path: &str, comment: &str| {
        let old = fs::read_to_string(tree.0.path().join(path)).expect(path);
        tree.append(path, comment);
        let mut now = all(tree.0.path());
        now.retain(|name, versions| before[name] != *versions);
        tree.write(path, &old);
        now.into_keys().collect::<Vec<_>>()
    };
    let comment = "// words\n";
    assert_eq!(stale("crates/gateway/src/lib.rs", comment), BY_GATEWAYS);
    for part in ["src", "wire/src", "client/src", "loads/src", "experiments/src"] {
        let chain = stale(&format!("{CHAIN}/{part}/lib.rs"), comment);
        assert!(
            !chain.is_empty() && chain.iter().all(|name| is_of_chains(name)),
            "{part}: {chain:?}"
        );
    }
    assert_eq!(stale("crates/control/src/lib.rs", comment).len(), before.len() - 1);
    let of_world = |is_sim: bool| {
        let names = before.keys().filter(|name| name.contains("--world sim") == is_sim);
        names.cloned().collect::<Vec<_>>()
    };
    assert_eq!(stale("lab/sim/src/lib.rs", comment), of_world(true));
    assert_eq!(stale("lab/rack/src/namespace.rs", comment), of_world(false));
    let code = Code::read(&project()).unwrap();
    let mut experiments = code.experiments.values();
    let one = experiments.find(|e| e.path.starts_with(CHAIN)).unwrap();
    let its = before.keys().filter(|name| experiment_of(name) == one.name);
    let file = one.path.to_string_lossy();
    assert_eq!(stale(&file, "# words\n"), its.cloned().collect::<Vec<_>>());
    for nothing in [
        "lab/figures/src/lib.rs",
        "lab/model/src/lib.rs",
        "lab/harness/src/lib.rs",
        "crates/store/tests/all/udp.rs",
        "crates/holder/src/tests.rs",
    ] {
        assert!(stale(nothing, comment).is_empty(), "{nothing}");
    }
}

/// What lies beside an experiment's file counts for it alone, so no other may use it.
#[test]
fn nobody_uses_what_is_an_experiments_own() {
    let project = project();
    let code = Code::read(&project).unwrap();
    for experiment in code.experiments.values() {
        let stem = experiment.path.with_extension("");
        let module = stem.file_name().unwrap().to_string_lossy().into_owned();
        let sources = &code.sources[&experiment.of_crate];
        let is_rust = |s: &&Source| s.path.extension().is_some_and(|e| e == "rs");
        let (own, others): (Vec<_>, Vec<_>) =
            sources.iter().filter(is_rust).partition(|s| experiment.owns(&s.path));
        if own.is_empty() {
            continue;
        }
        for other in others {
            let text = fs::read_to_string(project.join(&other.path)).unwrap();
            let uses = |line: &&str| {
                let named = line.contains(&format!("{module}::"));
                named && !line.contains("Kind::") && !line.starts_with("pub use")
            };
            let used = text.lines().find(uses);
            assert_eq!(used, None, "{} uses {module}", other.path.display());
        }
    }
}
