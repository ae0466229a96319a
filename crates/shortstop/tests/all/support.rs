//! What tests of the program share: how it is run, and the files that they give it.

use std::{
    fs::Permissions,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

/// Runs the binary in a directory with the cluster files of [`files`].
pub fn shortstop(directory: &Path, words: &[&str]) -> Output {
    shortstop_with(directory, words, &[])
}

/// Likewise, with these variables.
pub fn shortstop_with(directory: &Path, words: &[&str], variables: &[(&str, &str)]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_shortstop"))
        .args(words)
        .current_dir(directory)
        .env_remove("SHORTSTOP_LOG")
        .envs(variables.iter().copied())
        .stdin(Stdio::null())
        .output()
        .expect("the binary runs")
}

/// Cluster files, good and bad, in a directory of this test's own.
pub fn files(test: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(test);
    std::fs::create_dir_all(&directory).unwrap();
    let store =
        |last: u32| format!("[[store]]\naddress = \"127.0.0.1:7117\"\nfirst = 0\nlast = {last}\n");
    let files = [
        ("good.toml", format!("partitions = 4\n{}", store(3))),
        ("gap.toml", format!("partitions = 4\n{}", store(2))),
        ("small.toml", format!("partitions = 4\nmax_value = 1024\n{}", store(3))),
        ("syntax.toml", "partitions = x\n".into()),
        ("unknown.toml", format!("partitions = 4\nshards = 4\n{}", store(3))),
        ("names.toml", format!("partitions = 4\n{}", store(3)).replace("127.0.0.1", "redis1")),
        ("leases.toml", format!("partitions = 4\nlease_ms = 10\n{}", store(3))),
    ];
    for (name, text) in files {
        std::fs::write(directory.join(name), text).unwrap();
    }
    let tenant = "[[tenant]]\nid = 7\nsecret = \"07070707070707070707070707070707\"\n";
    let secret = format!("partitions = 4\n{}{tenant}", store(3));
    for (name, text, mode) in [
        ("secret.toml", &secret[..], 0o644),
        ("system.toml", &good_with_system(store(3)), 0o604),
        ("mine.toml", &secret, 0o640),
        ("others.toml", "", 0o644),
        ("two.word", "two words\n", 0o600),
        ("tokens.toml", "[[token]]\nname = 3\n", 0o600),
    ] {
        let path = directory.join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }
    directory
}

fn good_with_system(store: String) -> String {
    format!("partitions = 4\nsystem_secret = \"09090909090909090909090909090909\"\n{store}")
}
