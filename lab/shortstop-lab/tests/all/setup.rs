//! `tools/setup` between programs that install nothing.

use std::{
    fs::{self, Permissions},
    os::unix::{
        fs::PermissionsExt,
        process::{CommandExt, ExitStatusExt},
    },
    path::Path,
    process::{Command, ExitStatus},
};

/// Runs it where everything is missing and `apt-get install` is this line of a shell.
fn set_up(dir: &Path, install: &str) -> ExitStatus {
    let apt_get = format!("[ \"$1\" = update ] || {{ {install}; }}");
    for (name, text) in [("apt-get", &apt_get[..]), ("dpkg-query", "exit 1")] {
        let path = dir.join(name);
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
    }
    let project = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    Command::new("env")
        .args(["--default-signal=HUP,INT,TERM", "tools/setup", "lab"])
        .current_dir(project)
        .env("PATH", format!("{}:/usr/sbin:/usr/bin:/sbin:/bin", dir.display()))
        .env("CARGO_HOME", dir)
        .env("POLICY_RC_D", dir.join("policy"))
        .process_group(0)
        .status()
        .unwrap()
}

/// Left behind, it would keep every service of the machine from being started for good.
#[test]
fn a_setup_that_is_interrupted_leaves_no_policy_behind() {
    let dir = tempfile::tempdir().unwrap();
    let policy = dir.path().join("policy");
    for (signal, status) in [("INT", 130), ("TERM", 143), ("HUP", 129)] {
        let install = format!("[ -x {} ] && kill -s {signal} 0", policy.display());
        let ended = set_up(dir.path(), &install);
        assert_eq!((ended.code(), policy.exists()), (Some(status), false), "{signal}: {ended}");
    }
    // One that has no time for that: the next run does.
    let ended = set_up(dir.path(), "kill -s KILL 0");
    assert_eq!((ended.signal(), policy.exists()), (Some(9), true));
    set_up(dir.path(), "exit 1");
    assert!(!policy.exists());
    let own = "#!/bin/sh\nexit 101\n";
    fs::write(&policy, own).unwrap();
    set_up(dir.path(), "kill -s INT 0");
    assert_eq!(fs::read_to_string(&policy).unwrap(), own);
}
