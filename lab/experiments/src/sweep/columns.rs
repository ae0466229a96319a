//! Columns of rows and of the table: which figures they have, and how these are written.

use serde::Deserialize;

use super::format::Format;

/// A column of rows.
#[derive(Clone, Deserialize)]
#[serde(untagged)]
pub enum Column {
    /// Whether an axis is one.
    Shown(bool),
    /// A figure as it is, under another name.
    As(String),
    /// A figure in another form.
    Of(String, Format),
}

/// A column of the table.
#[derive(Clone, Deserialize)]
#[serde(from = "CellSpec")]
pub struct Cell {
    pub title: String,
    pub of: String,
    pub format: Format,
}

/// Title and figure, and how it is written.
#[derive(Deserialize)]
#[serde(untagged)]
enum CellSpec {
    Text(String, String),
    Formed(String, String, Format),
}

impl From<CellSpec> for Cell {
    fn from(spec: CellSpec) -> Cell {
        let (title, of, format) = match spec {
            CellSpec::Text(title, of) => (title, of, Format::Text),
            CellSpec::Formed(title, of, format) => (title, of, format),
        };
        Cell { title, of, format }
    }
}
