//! Files and variables that hold secrets: read if nobody else may read them.

use std::{
    fs::{File, Metadata},
    io::Read,
    os::unix::fs::MetadataExt,
    path::Path,
};

use anyhow::{Context, bail};
use wire::Cluster;

/// Longest file of one word in bytes.
const WORD_FILE_MAX: u64 = 4096;
/// What no file with a secret may allow: writing by its group, anything by others.
const OTHERS: u32 = 0o027;

/// The text of a cluster file and what it says. One with secrets may be read by its owner and group
/// only.
///
/// # Errors
/// One line that names the file, and what was expected of it.
pub fn cluster(path: &Path) -> anyhow::Result<(String, Cluster)> {
    let name = format!("--cluster {}", path.display());
    let mut file = File::open(path).with_context(|| format!("{name}: cannot read it"))?;
    let mut text = String::new();
    file.read_to_string(&mut text).with_context(|| format!("{name}: cannot read it"))?;
    let cluster = Cluster::parse(&text).with_context(|| name.clone())?;
    if !cluster.tenants.is_empty() || cluster.system_secret.is_some() {
        check_mode(&file.metadata()?, path, &format!("{name} holds secrets"))?;
    }
    Ok((text, cluster))
}

/// The word that a file holds, or else a variable of the environment.
///
/// # Errors
/// One line that names the file, and what was expected of it.
pub fn word(
    file: Option<&Path>,
    what: &str,
    option: &str,
    variable: &str,
) -> anyhow::Result<Option<String>> {
    let text = match file {
        Some(path) => {
            let name = format!("{what} file {}", path.display());
            let mut file = File::open(path).with_context(|| name.clone())?;
            check_mode(&file.metadata()?, path, &name)?;
            let mut text = String::new();
            file.by_ref().take(WORD_FILE_MAX).read_to_string(&mut text).with_context(|| name)?;
            text
        }
        None => match std::env::var(variable) {
            Ok(text) => text,
            Err(_) => return Ok(None),
        },
    };
    let word = text.trim();
    if word.is_empty() || word.chars().any(|c| !c.is_ascii_graphic()) {
        bail!("the {what} ({option} or {variable}): expected one word");
    }
    Ok(Some(word.into()))
}

/// The password of a Redis.
///
/// # Errors
/// As [`word`].
pub fn backend_password(file: Option<&Path>) -> anyhow::Result<Option<String>> {
    word(file, "password", "--backend-password-file", "SHORTSTOP_BACKEND_PASSWORD")
}

/// Warns of a private key that others may read. It is used all the same: secrets that a cluster
/// mounts into a container have that mode.
pub fn warn_of_key(path: &Path, option: &str) {
    let mode = std::fs::metadata(path).map_or(0, |file| file.mode() & 0o777);
    if mode & OTHERS != 0 {
        tracing::warn!(
            "{option} {0}: its mode is {mode:04o}, so others may read this private key; do `chmod 600 {0}`",
            path.display()
        );
    }
}

fn check_mode(file: &Metadata, path: &Path, name: &str) -> anyhow::Result<()> {
    let mode = file.mode() & 0o777;
    if mode & OTHERS != 0 {
        bail!(
            "{name}: its mode is {mode:04o}, so others may read it or its group may write it; do `chmod 600 {}`",
            path.display()
        );
    }
    Ok(())
}
