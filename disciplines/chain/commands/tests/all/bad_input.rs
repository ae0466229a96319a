//! Bad input of every kind, a row each: what the program says of it. The exit status is 2, for
//! nobody knows whether what was asked for could be.

use std::{
    fs::Permissions,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use lab::{process::product, testing::needs_root};

/// What is typed after `shortstop coord`, and what the line that answers must name.
const BAD: &[(&str, &[&str])] = &[
    ("get --cluster absent.toml --tenant 7 k", &["absent.toml", "No such file"]),
    ("get --cluster open.toml --tenant 7 k", &["open.toml", "[[switch]]", "--switch"]),
    ("get --cluster others.toml --tenant 7 k", &["others.toml", "0644", "chmod 600"]),
    ("get --cluster mine.toml --tenant 8 --switch 127.0.0.1:1 k", &["tenant 8", "cluster file"]),
    ("get --cluster mine.toml --tenant 7 --switch 127.0.0.1:x k", &["--switch", "127.0.0.1:x"]),
    (
        "get --cluster mine.toml --tenant 7 --switch 127.0.0.1:1 --timeout 100ms k",
        &["no answer", "127.0.0.1:1", "100 ms"],
    ),
    (
        "put --cluster mine.toml --tenant 7 --switch 127.0.0.1:1 --timeout 100ms k v",
        &["outcome unknown", "127.0.0.1:1"],
    ),
    (
        "put --cluster mine.toml --tenant 7 --switch 127.0.0.1:1 --state-dir open.toml k v",
        &["--state-dir open.toml", "this user's own"],
    ),
    (
        "lock --cluster mine.toml --tenant 7 --switch 127.0.0.1:1 --lease 10ms k",
        &["--lease 10ms", "100ms to 1d"],
    ),
    // Whether others have it is not known, which is another thing than that they have it.
    (
        "lock --cluster mine.toml --tenant 7 --switch 127.0.0.1:1 --timeout 100ms --wait 100ms k",
        &["no answer", "127.0.0.1:1"],
    ),
];

fn files() -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("coord-bad");
    std::fs::create_dir_all(&directory).unwrap();
    let open =
        "partitions = 4\n[[store]]\naddress = \"127.0.0.1:7117\"\nfirst = 0\nlast = 3\n".to_owned();
    let tenant = "[[tenant]]\nid = 7\nsecret = \"07070707070707070707070707070707\"\n";
    let secret = format!("{open}{tenant}");
    for (name, text, mode) in [
        ("open.toml", &open, 0o644),
        ("others.toml", &secret, 0o644),
        ("mine.toml", &secret, 0o600),
    ] {
        let path = directory.join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }
    directory
}

#[test]
fn bad_input_is_answered_with_a_line_that_names_it() {
    needs_root();
    let (directory, program) = (files(), product().unwrap());
    let mut wrong = String::new();
    for (line, expected) in BAD {
        let mut command = Command::new(&program);
        command.arg("coord").args(line.split(' ')).current_dir(&directory);
        let output = command.env_remove("SHORTSTOP_LOG").stdin(Stdio::null()).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        let names_all = expected.iter().all(|text| error.contains(text));
        let is_one_line = error.lines().count() == 1 && output.stdout.is_empty();
        if output.status.code() != Some(2) || !names_all || !is_one_line {
            let status = output.status;
            wrong += &format!("{line}\n  {status}, expected 2 and {expected:?} in: {error}\n");
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}
