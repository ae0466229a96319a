//! Pictures that experiments draw and documents show.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::Context;

use crate::{command::Command, document::Document};

/// Copies those that the document shows from where the commands that it names have left them; what
/// was not drawn now stays.
///
/// # Errors
/// A picture cannot be copied.
pub fn place(project: &Path, document: &Document) -> anyhow::Result<()> {
    for name in shown(&document.text) {
        if let Some(drawn) = drawn(project, document, name) {
            let to = project.join("docs/images").join(name);
            fs::copy(&drawn, &to).with_context(|| to.display().to_string())?;
        }
    }
    Ok(())
}

/// Where a picture is that one of the document's commands drew; a whole run rather than a
/// short one.
fn drawn(project: &Path, document: &Document, name: &str) -> Option<PathBuf> {
    let mut commands: Vec<Command> = document.commands().into_iter().collect();
    commands.sort_by_key(Command::is_quick);
    let of = |command: &Command| command.leavings(project).join(name);
    commands.iter().map(of).find(|at| at.exists())
}

/// The names of the pictures of `docs/images` that a text shows.
fn shown(text: &str) -> impl Iterator<Item = &str> {
    let links = text.split("images/").skip(1);
    links.filter_map(|link| link.split(')').next().filter(|name| name.ends_with(".svg")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A short run in the simulator would stand over the caption of a whole one.
    #[test]
    fn a_picture_is_of_a_run_that_its_document_names() {
        let dir = tempfile::tempdir().unwrap();
        let project = dir.path();
        let draw = |folder: &str, text: &str| {
            let folder = project.join("target/figures").join(folder);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("a.svg"), text).unwrap();
        };
        let placed = || fs::read_to_string(project.join("docs/images/a.svg")).unwrap();
        fs::create_dir_all(project.join("docs/images")).unwrap();
        fs::write(project.join("docs/images/a.svg"), "old").unwrap();
        let named = ["x --quick --world sim", "x"];
        let named = named.map(|words| format!("`shortstop-lab run {words}` {{a}}\n"));
        let document = Document {
            path: "x.md".into(),
            text: format!(
                "![a](docs/images/a.svg)\n<!-- figures\n{}-->\n<!-- end of figures -->\n",
                named.concat()
            ),
        };
        draw("other", "another's");
        place(project, &document).unwrap();
        assert_eq!(placed(), "old");
        draw("x-quick-world-sim", "short");
        place(project, &document).unwrap();
        assert_eq!(placed(), "short");
        draw("x", "whole");
        draw("x-quick-world-sim", "short again");
        place(project, &document).unwrap();
        assert_eq!(placed(), "whole");
    }

    #[test]
    fn pictures_are_those_that_are_linked() {
        let text = "![a](docs/images/a.svg) and ![b](../../docs/images/b-c.svg), [c](images/c.png)";
        assert_eq!(shown(text).collect::<Vec<_>>(), ["a.svg", "b-c.svg"]);
    }
}
