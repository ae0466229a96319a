//! Tables for a terminal.

/// Rows under a head, columns as wide as their widest entry; numbers to the right.
pub fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        rows.iter()
            .filter_map(|row| row.get(column))
            .map(|cell| cell.chars().count())
            .chain([head[column].chars().count()])
            .max()
            .unwrap_or(0)
    };
    let number = |column: usize| {
        !rows.is_empty()
            && rows.iter().all(|row| {
                let cell = row.get(column).map_or("", String::as_str);
                cell == "-" || cell.parse::<f64>().is_ok()
            })
    };
    let shape: Vec<(usize, bool)> = (0..head.len()).map(|c| (width(c), number(c))).collect();
    let line = |cells: Vec<&str>| {
        let cells: Vec<String> = cells
            .iter()
            .zip(&shape)
            .map(|(cell, (width, number))| match number {
                true => format!("{cell:>width$}"),
                false => format!("{cell:<width$}"),
            })
            .collect();
        cells.join("  ").trim_end().to_string() + "\n"
    };
    let mut out = line(head.to_vec());
    for row in rows {
        out += &line(row.iter().map(String::as_str).collect());
    }
    out
}

/// `yes` or `no`.
pub fn yes(is: bool) -> String {
    if is { "yes" } else { "no" }.into()
}
