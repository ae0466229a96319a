//! A row of the bench by its command, measured once: that it comes out, not what.

use std::path::Path;

use crate::programs::lab;

#[test]
fn a_row_names_its_sides_and_the_machine() {
    let name = format!("bench-{}.json", std::process::id());
    let json = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let row = "tenants_1024_over_1";
    let output =
        lab(&["bench", "--batches", "1", "--only", row, "--json"]).arg(&json).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let text = std::fs::read_to_string(&json).unwrap();
    std::fs::remove_file(&json).unwrap();
    let report: serde_json::Value = serde_json::from_str(&text).unwrap();
    let rows = report["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 1, "{text}");
    assert_eq!(rows[0]["key"], row);
    assert!(rows[0]["ratio"]["median"].as_f64().unwrap() > 0.0, "{text}");
    assert_eq!(rows[0]["figures"].as_array().unwrap().len(), 2, "{text}");
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    assert_eq!(report["host"]["kernel"], release.trim());
    assert!(report["host"]["cores"].as_u64().unwrap() > 0, "{text}");
}
