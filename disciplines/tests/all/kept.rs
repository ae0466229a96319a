//! Figures that were kept of runs beside what is claimed of such runs.

use std::{fs, path::Path};

use disciplines_experiments::experiments;
use experiments::World;
use serde_json::{Map, Value};

/// What was kept although it breaks a claim, until it is measured anew: the file, and the figure.
const BROKEN: [(&str, &str); 1] = [("madinc-users.json", "many_users_cached_share")];

/// The figures of a file, of each seed if there are several.
fn figures(kept: &Value) -> Vec<&Map<String, Value>> {
    let of_seeds = kept["seeds"]["figures"].as_object();
    let of_seeds = of_seeds.map(|seeds| seeds.values().filter_map(Value::as_object).collect());
    of_seeds.unwrap_or_else(|| kept["figures"].as_object().into_iter().collect())
}

#[test]
fn what_was_kept_does_not_break_what_is_claimed() {
    let all = experiments().unwrap();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/figures");
    let (mut broken, mut held) = (vec![], 0);
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|file| file.unwrap()).collect();
    files.sort_by_key(fs::DirEntry::file_name);
    for file in files {
        let kept: Value = serde_json::from_slice(&fs::read(file.path()).unwrap()).unwrap();
        let words: Vec<&str> = kept["command"].as_str().unwrap().split_whitespace().collect();
        let ["shortstop-lab", "run", name, options @ ..] = &words[..] else { continue };
        // Another discipline than the file's is claimed nothing of.
        if options.contains(&"--discipline") {
            continue;
        }
        let world = match options {
            [.., "--world", "sim"] => World::Sim,
            _ => World::Kernel,
        };
        let experiment = all.iter().find(|experiment| experiment.name == *name).unwrap();
        for figures in figures(&kept) {
            let (count, wrong) = experiment.hold_kept(figures, world, options.contains(&"--quick"));
            held += count;
            let file = file.file_name().into_string().unwrap();
            broken.extend(wrong.into_iter().map(|complaint| (file.clone(), complaint)));
        }
    }
    assert!(held > 100, "{held} figures were held against claims");
    let is_known = |(file, complaint): &(String, String)| {
        BROKEN.iter().any(|(of, name)| of == file && complaint.starts_with(&format!("{name} = ")))
    };
    let (known, news): (Vec<_>, Vec<_>) = broken.into_iter().partition(is_known);
    assert!(news.is_empty(), "{news:#?}");
    assert_eq!(known.len(), BROKEN.len(), "no longer broken: {known:#?}");
}
