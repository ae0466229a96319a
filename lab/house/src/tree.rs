//! The repository as the checks see it: every source file with its text, and of Rust files what was
//! read in them.

use std::{
    fs,
    path::{Path, PathBuf},
    thread,
};

use anyhow::{Context, anyhow};

use crate::facts::Facts;

/// The folders that hold sources.
const FOLDERS: &[&str] = &["bpf", "crates", "disciplines", "fuzz", "lab", "tools"];

/// Folders in them that hold none: what cargo built, what a fuzzer found.
const WITHOUT_SOURCES: &[&str] = &["target", "corpus"];

/// One text file.
pub struct Source {
    /// Where it is, from the repository's root, with `/` between folders.
    pub path: String,
    /// What stands in it.
    pub text: String,
    /// What was read in it, if it is Rust.
    pub rust: Option<Facts>,
}

/// All sources.
pub struct Tree {
    /// The repository's root.
    pub root: PathBuf,
    /// The files, by path.
    pub sources: Vec<Source>,
}

impl Tree {
    /// Reads the sources below `root`; fails where a file cannot be read or is no Rust that parses.
    pub fn read(root: &Path) -> anyhow::Result<Self> {
        Ok(Self { root: root.to_owned(), sources: read_all(root, &list_all(root)?)? })
    }

    /// The same without what Rust files have, for checks of texts alone: parsing takes seconds.
    #[cfg(test)]
    pub fn texts(root: &Path) -> anyhow::Result<Self> {
        let mut sources = Vec::new();
        for path in list_all(root)? {
            let found = text(root, &path)?;
            sources.extend(found.map(|(path, text)| Source { path, text, rust: None }));
        }
        sources.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(Self { root: root.to_owned(), sources })
    }

    /// The file at this path from the root, as an index into `sources`.
    pub fn find(&self, path: &str) -> Option<usize> {
        self.sources.binary_search_by(|source| source.path.as_str().cmp(path)).ok()
    }

    /// The Rust files with what was read in them.
    pub fn rust(&self) -> impl Iterator<Item = (&str, &Facts)> {
        self.sources.iter().filter_map(|source| Some((source.path.as_str(), source.rust.as_ref()?)))
    }
}

/// The files of all folders, in order.
fn list_all(root: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for folder in FOLDERS {
        list(&root.join(folder), &mut paths)?;
    }
    paths.sort();
    Ok(paths)
}

/// Adds the files below this folder to `paths`; a folder that does not exist has none.
fn list(folder: &Path, paths: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    let Ok(entries) = fs::read_dir(folder) else { return Ok(()) };
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        let kind = entry.file_type()?;
        if kind.is_dir() && !WITHOUT_SOURCES.iter().any(|without| name == *without) {
            list(&entry.path(), paths)?;
        } else if kind.is_file() {
            paths.push(entry.path());
        }
    }
    Ok(())
}

/// Reads and parses on as many threads as there are cores. Files are dealt out in turn, since large
/// ones lie together.
fn read_all(root: &Path, paths: &[PathBuf]) -> anyhow::Result<Vec<Source>> {
    let threads = thread::available_parallelism().map_or(1, |cores| cores.get());
    let mut sources = thread::scope(|scope| {
        let readers: Vec<_> = (0..threads)
            .map(|first| {
                let dealt = paths.iter().skip(first).step_by(threads);
                scope.spawn(move || {
                    dealt
                        .filter_map(|path| read(root, path).transpose())
                        .collect::<anyhow::Result<Vec<_>>>()
                })
            })
            .collect();
        readers
            .into_iter()
            .map(|reader| reader.join().map_err(|_| anyhow!("a reader panicked"))?)
            .collect::<anyhow::Result<Vec<_>>>()
    })?
    .into_iter()
    .flatten()
    .collect::<Vec<_>>();
    sources.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(sources)
}

/// The name and the text of one file; nothing if it is not text.
fn text(root: &Path, path: &Path) -> anyhow::Result<Option<(String, String)>> {
    let bytes = fs::read(path).with_context(|| format!("{}: cannot be read", path.display()))?;
    let Ok(text) = String::from_utf8(bytes) else { return Ok(None) };
    Ok(Some((path.strip_prefix(root)?.to_string_lossy().into_owned(), text)))
}

/// Reads one file; nothing if it is not text.
fn read(root: &Path, path: &Path) -> anyhow::Result<Option<Source>> {
    let Some((name, text)) = text(root, path)? else { return Ok(None) };
    let rust = match name.ends_with(".rs") {
        true => Some(Facts::read(&text).with_context(|| name.clone())?),
        false => None,
    };
    Ok(Some(Source { path: name, text, rust }))
}
