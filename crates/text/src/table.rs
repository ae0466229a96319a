//! Text tables and bars for a terminal.

/// A table: numbers to the right, words to the left.
#[derive(Clone, Debug, Default)]
pub struct Table {
    rows: Vec<Vec<String>>,
    ruled: bool,
}

impl Table {
    /// A table with these column titles over a line.
    pub fn new(titles: &[&str]) -> Table {
        Table { ruled: true, ..Table::plain(titles) }
    }

    /// A table with these column titles and no line under them.
    pub fn plain(titles: &[&str]) -> Table {
        Table { rows: vec![titles.iter().map(|t| t.to_string()).collect()], ruled: false }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// The table as text, ending in a line feed.
    pub fn render(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let cells = |c: usize| self.rows.iter().filter_map(move |row| row.get(c));
        let width = |c: usize| cells(c).map(|t| t.chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let numeric = |c: usize| self.rows.len() > 1 && cells(c).skip(1).all(|t| is_number(t));
        let right: Vec<bool> = (0..columns).map(numeric).collect();
        let mut text = String::new();
        for (i, row) in self.rows.iter().enumerate() {
            let cells = row.iter().enumerate().map(|(c, cell)| match right[c] {
                true => format!("{cell:>0$}", widths[c]),
                false => format!("{cell:<0$}", widths[c]),
            });
            text += cells.collect::<Vec<_>>().join("  ").trim_end();
            text.push('\n');
            if i == 0 && self.ruled {
                let rules = widths.iter().map(|w| "─".repeat(*w));
                text += &rules.collect::<Vec<_>>().join("  ");
                text.push('\n');
            }
        }
        text
    }
}

/// A number, with its unit behind it or none; or `-`, where there is none.
fn is_number(cell: &str) -> bool {
    let (number, unit) = cell.split_once(' ').unwrap_or((cell, ""));
    let is_finite = |digits: String| digits.parse().is_ok_and(f64::is_finite);
    cell == "-" || (is_finite(number.replace(',', "")) && !unit.contains(' '))
}

/// A number with thousands separated: `12,345`.
pub fn thousands(number: f64) -> String {
    let digits = format!("{:.0}", number.abs());
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if number < -0.5 { format!("-{text}") } else { text }
}

/// Microseconds in a readable unit.
pub fn micros(us: f64) -> String {
    if us >= 1000.0 { format!("{:.1} ms", us / 1000.0) } else { format!("{us:.0} us") }
}

/// A part of one as a percentage.
pub fn percent(part: f64) -> String {
    format!("{:.1} %", part * 100.0)
}

/// One column per value (neighbours are averaged where there are more than `width`), `height` lines
/// high, scaled to `top`.
pub fn bars(values: &[f64], top: f64, width: usize, height: usize) -> Vec<String> {
    const EIGHTHS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let group = values.len().div_ceil(width.max(1)).max(1);
    let columns: Vec<f64> =
        values.chunks(group).map(|c| c.iter().sum::<f64>() / c.len() as f64).collect();
    let level = |value: f64| {
        let part = if top > 0.0 { (value / top).clamp(0.0, 1.0) } else { 0.0 };
        (part * (height * 8) as f64).round() as usize
    };
    let line = |row: usize| {
        let below = row * 8;
        columns.iter().map(|v| EIGHTHS[level(*v).saturating_sub(below).min(8)]).collect()
    };
    (0..height).rev().map(line).collect()
}
