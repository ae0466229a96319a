//! Tables for a terminal.

use text::table::{Table, bars, micros, thousands};

#[test]
fn columns_line_up() {
    let mut table = Table::new(&["name", "rate"]);
    table.row(["a".into(), "5".into()]);
    table.row(["long".into(), "1,000".into()]);
    assert_eq!(table.render(), "name   rate\n────  ─────\na         5\nlong  1,000\n");
}

#[test]
fn numbers_are_told_from_words_that_begin_with_a_digit() {
    // Numbers stand to the right.
    let line = |cell: &str| {
        let mut table = Table::plain(&["a title as long as that", "."]);
        table.row([cell.into(), ".".into()]);
        table.render().lines().nth(1).unwrap().to_string()
    };
    for number in ["5", "1,000", "-", "0.98", "96.1 %", "1.5 ms"] {
        assert!(line(number).starts_with(' '), "{number}");
    }
    for word in ["10.0.1.0/24", "2026-01-31 10:00", "5 of 10", "infinity"] {
        assert!(line(word).starts_with(word), "{word}");
    }
    let mut table = Table::plain(&["to", "cost"]);
    table.row(["10.0.1.0/24".into(), "5".into()]);
    assert_eq!(table.render(), "to           cost\n10.0.1.0/24     5\n");
}

#[test]
fn numbers_and_bars() {
    assert_eq!(thousands(1234567.4), "1,234,567");
    assert_eq!(thousands(999.0), "999");
    assert_eq!(micros(1500.0), "1.5 ms");
    assert_eq!(bars(&[0.0, 0.5, 1.0], 1.0, 10, 2), ["  █", " ██"]);
    assert_eq!(bars(&[1.0, 0.0], 1.0, 1, 1), ["▄"]);
}
