//! Tables for a terminal.

use text::table::Table;

/// Rows under a head.
pub fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let mut table = Table::plain(head);
    rows.iter().for_each(|row| table.row(row.iter().cloned()));
    table.render()
}

/// `yes` or `no`.
pub fn yes(is: bool) -> String {
    if is { "yes" } else { "no" }.into()
}
