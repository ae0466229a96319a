//! Pictures that experiments draw and documents show.

use std::{fs, path::Path};

use anyhow::Context;

use crate::document::Document;

/// Copies those that the document shows from where the last run left them; what was not drawn now stays.
///
/// # Errors
/// A picture cannot be copied.
pub fn place(project: &Path, document: &Document) -> anyhow::Result<()> {
    for name in shown(&document.text) {
        let drawn = project.join("target/figures").join(name);
        if drawn.exists() {
            let to = project.join("docs/images").join(name);
            fs::copy(&drawn, &to).with_context(|| to.display().to_string())?;
        }
    }
    Ok(())
}

/// The names of the pictures of `docs/images` that a text shows.
fn shown(text: &str) -> impl Iterator<Item = &str> {
    let links = text.split("images/").skip(1);
    links.filter_map(|link| link.split(')').next().filter(|name| name.ends_with(".svg")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures_are_those_that_are_linked() {
        let text = "![a](docs/images/a.svg) and ![b](../../docs/images/b-c.svg), [c](images/c.png)";
        assert_eq!(shown(text).collect::<Vec<_>>(), ["a.svg", "b-c.svg"]);
    }
}
