//! How busy the machine is, which decides what measured speeds say.

use std::{fs, thread::available_parallelism};

/// Processes that ran, or waited for a CPU or a disk, on average over the last minute; none: the
/// system does not say.
pub(crate) fn load_average() -> Option<f64> {
    parse(&fs::read_to_string("/proc/loadavg").ok()?)
}

fn parse(line: &str) -> Option<f64> {
    line.split_whitespace().next()?.parse().ok()
}

/// What to make of a speed that was claimed and missed, by the load average when the run began
/// and when it had ended.
pub(crate) fn advice(began: Option<f64>, ended: Option<f64>) -> String {
    let said = |load: Option<f64>| load.map_or("unknown".into(), |load| format!("{load:.1}"));
    let cpus = available_parallelism().map_or(1, usize::from);
    format!(
        "that is about speed, and other work takes some: the load average of this machine, with {cpus} CPUs, was {} when the run began and {} at its end; run it again when the machine is idle",
        said(began),
        said(ended)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_load_of_the_last_minute_is_read() {
        for (line, expected) in
            [("11.02 9.40 3.31 4/512 1234\n", Some(11.02)), ("", None), ("x 1", None)]
        {
            assert_eq!(parse(line), expected, "{line:?}");
        }
        assert!(load_average().is_some());
    }

    #[test]
    fn advice_says_the_loads_and_what_to_do() {
        let advice = advice(Some(11.02), None);
        for part in ["was 11.0 when", "unknown at its end", "again when the machine is idle"] {
            assert!(advice.contains(part), "{advice}");
        }
    }
}
