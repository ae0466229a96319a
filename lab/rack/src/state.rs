//! What a lab leaves on disk while it lives, so that somebody else can clean up after it.
//!
//! One file per lab, `/run/shortstop/lab/NAME.json`, written before anything is made and removed
//! after everything is gone. A lab whose owner is dead and that was not meant to outlive it is
//! stale; whoever starts or ends a lab removes stale ones first.

use std::{
    fs,
    io::Write,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::{Context, bail};
use plan::topology::Topology;
use serde::{Deserialize, Serialize};

use crate::{
    namespace,
    process::{ProcessId, product},
};

/// Where labs keep their state.
pub const ROOT: &str = "/run/shortstop/lab";

/// Everything needed to remove a lab.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct State {
    /// The lab's name.
    pub name: String,
    /// Who made it.
    pub owner: ProcessId,
    /// Whether it is meant to outlive its owner (`lab up`).
    pub detached: bool,
    /// Full names of its namespaces.
    pub namespaces: Vec<String>,
    /// Full names of its switches, as pinned.
    pub switches: Vec<String>,
    /// Its processes, by `host-process`.
    pub processes: Vec<(String, ProcessId)>,
    /// How it looks.
    pub topology: Topology,
}

impl State {
    fn path(name: &str) -> PathBuf {
        Path::new(ROOT).join(format!("{name}.json"))
    }

    /// The lab's directory: sockets, logs, state of its processes.
    pub fn dir(name: &str) -> PathBuf {
        Path::new(ROOT).join(format!("{name}.d"))
    }

    /// The namespace of a node.
    pub fn namespace_of(lab: &str, node: &str) -> String {
        format!("ss-{lab}-{node}")
    }

    /// Writes the file anew, in one step.
    ///
    /// # Errors
    /// The directory cannot be written; it needs root.
    pub fn save(&self) -> anyhow::Result<()> {
        let path = Self::path(&self.name);
        let draft = path.with_extension("draft");
        let text = serde_json::to_string_pretty(self)?;
        // The topology's files stand in it, secrets included.
        let _ = fs::remove_file(&draft);
        let file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft);
        file.and_then(|mut file| file.write_all(text.as_bytes()))
            .and_then(|()| fs::rename(&draft, &path))
            .with_context(|| format!("{}: the lab needs root to write there", path.display()))
    }

    /// Claims a name: fails if a lab of this name is there.
    ///
    /// # Errors
    /// The name is taken, or the directory cannot be written.
    pub fn create(&self) -> anyhow::Result<()> {
        fs::create_dir_all(ROOT).with_context(|| format!("{ROOT}: the lab needs root"))?;
        let path = Self::path(&self.name);
        if let Err(error) = fs::File::create_new(&path) {
            let name = &self.name;
            if error.kind() == std::io::ErrorKind::AlreadyExists {
                bail!(
                    "lab {name}: there is one already; `shortstop-lab down --name {name}` removes it"
                );
            }
            return Err(error).with_context(|| path.display().to_string());
        }
        self.save()
    }

    /// Reads one lab's state.
    ///
    /// # Errors
    /// No such lab, or a file that cannot be read.
    pub fn load(name: &str) -> anyhow::Result<State> {
        let path = Self::path(name);
        let text = match fs::read_to_string(&path) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                bail!("lab {name}: there is none; `shortstop-lab list` names those there are")
            }
            read => read.with_context(|| path.display().to_string())?,
        };
        serde_json::from_str(&text).with_context(|| format!("{}: damaged", path.display()))
    }

    /// All labs that have a state file.
    pub fn all() -> Vec<State> {
        let Ok(entries) = fs::read_dir(ROOT) else { return vec![] };
        entries
            .flatten()
            .filter_map(|entry| {
                let name = entry.file_name().into_string().ok()?;
                State::load(name.strip_suffix(".json")?).ok()
            })
            .collect()
    }

    /// Whether nobody looks after this lab any more.
    pub fn is_stale(&self) -> bool {
        !self.detached && !self.owner.is_alive()
    }

    /// Removes everything of this lab, going on past failures; what could not be removed is said in
    /// the log.
    pub fn remove(&self) {
        let processes: Vec<ProcessId> = self.processes.iter().map(|(_, id)| *id).collect();
        ProcessId::end_all(&processes, Duration::from_secs(2));
        self.detach_switches();
        for name in &self.namespaces {
            // Whatever was started inside by hand goes too: it would keep the namespace
            // alive unseen.
            let inside = Command::new("ip").args(["netns", "pids", name]).output();
            let inside: Vec<ProcessId> = inside
                .map(|out| String::from_utf8_lossy(&out.stdout).into_owned())
                .unwrap_or_default()
                .lines()
                .filter_map(|line| ProcessId::of(line.trim().parse().ok()?))
                .collect();
            ProcessId::end_all(&inside, Duration::from_millis(500));
            if Path::new("/run/netns").join(name).exists()
                && let Err(error) = namespace::ip(&["netns", "del", name])
            {
                tracing::warn!("lab {}: {error:#}", self.name);
            }
        }
        for switch in &self.switches {
            // What an agent that was killed leaves.
            for kind in ["lock", "sock"] {
                let left = format!("/run/shortstop/switch-{switch}.{kind}");
                let _ = fs::remove_file(left);
            }
        }
        let _ = fs::remove_dir_all(Self::dir(&self.name));
        let _ = fs::remove_file(Self::path(&self.name));
    }

    pub(crate) fn detach_switches(&self) {
        for switch in &self.switches {
            let pins = Path::new("/sys/fs/bpf/shortstop").join(switch);
            if !pins.exists() {
                continue;
            }
            if let Ok(binary) = product() {
                let _ = Command::new(binary)
                    .args(["switch", "detach", "--name", switch])
                    .stdin(Stdio::null())
                    .stdout(Stdio::null())
                    .stderr(Stdio::null())
                    .status();
            }
            // Unlinking a pin lets go of it, whoever made it.
            let _ = fs::remove_dir_all(&pins);
        }
    }

    /// Removes every stale lab; returns their names.
    pub fn remove_stale() -> Vec<String> {
        let stale: Vec<State> = Self::all().into_iter().filter(Self::is_stale).collect();
        stale.iter().for_each(State::remove);
        stale.into_iter().map(|state| state.name).collect()
    }
}
