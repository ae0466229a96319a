//! What the kernel tells of a process or a thread, in its `status` file.

use std::{fs, path::Path};

use anyhow::Context;

/// The number behind `name` in the `status` of this folder of `/proc`; of memory in KiB.
///
/// # Errors
/// There is no such process or thread, or it has no such line.
pub fn number(folder: impl AsRef<Path>, name: &str) -> anyhow::Result<u64> {
    let text = fs::read_to_string(folder.as_ref().join("status"))?;
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let word = line.and_then(|line| line.split_whitespace().next());
    word.with_context(|| format!("{name} of {}", folder.as_ref().display()))?
        .parse()
        .with_context(|| name.to_owned())
}
