//! `shortstop-lab up`, `exec` and `down` as a newcomer types them.

use std::process::Output;

use lab::{rack::unique_name, state::State};

use super::support::needs_root;
use crate::programs::lab;

fn typed(words: &[&str]) -> Output {
    lab(words).output().expect("it runs")
}

/// A lab by `lab up`, removed when dropped.
struct DetachedLab(String);

impl DetachedLab {
    fn rack() -> (DetachedLab, String) {
        let up = DetachedLab(unique_name());
        let output = typed(&["up", "rack", "--name", &up.0]);
        assert!(output.status.success(), "{output:?}");
        (up, String::from_utf8(output.stdout).unwrap())
    }

    fn exec(&self, host: &str, words: &[&str]) -> Output {
        typed(&[&["exec", host, "--name", &self.0, "--"], words].concat())
    }
}

impl Drop for DetachedLab {
    fn drop(&mut self) {
        typed(&["down", "--name", &self.0]);
    }
}

fn complaint(output: Output) -> String {
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && said.lines().count() == 1, "{said}");
    said
}

#[test]
fn what_lab_up_suggests_works_as_it_stands() {
    needs_root();
    let (up, said) = DetachedLab::rack();
    let name = up.0.clone();
    let suggested: Vec<Vec<&str>> = said
        .lines()
        // By whatever path it was called.
        .filter_map(|line| line.split_once("shortstop-lab "))
        .map(|(_, words)| words.split(' ').collect())
        .collect();
    assert_eq!(suggested.len(), 6, "{said}");
    for words in &suggested[..5] {
        let output = typed(words);
        assert!(output.status.success(), "{words:?}: {output:?}");
    }

    // `shortstop` is found by name inside, wherever it is called from.
    let script =
        format!("shortstop get --cluster /run/shortstop/lab/{name}.d/cluster.toml greeting");
    let output = up.exec("client2", &["sh", "-c", &script]);
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "hello\n");
    // The exit status is the command's own.
    assert_eq!(up.exec("client1", &["sh", "-c", "exit 7"]).status.code(), Some(7));

    let said = complaint(up.exec("client9", &["true"]));
    assert!(
        said.contains("client9") && said.contains("client1, client2, server, switch"),
        "{said}"
    );
    let said = complaint(up.exec("client1", &["no-such-program"]));
    assert!(said.contains("no-such-program"), "{said}");
    let said = complaint(typed(&["up", "rack", "--name", &name]));
    assert!(said.contains("one already") && said.contains(&format!("--name {name}")), "{said}");
    let said = complaint(typed(&["up", "no-such-topology"]));
    assert!(said.contains("no-such-topology") && said.contains("rack"), "{said}");

    let output = typed(&suggested[5]);
    assert!(output.status.success(), "{output:?}");
    assert!(State::load(&name).is_err() && !State::dir(&name).exists());
    let said = complaint(typed(&["down", "--name", &name]));
    assert!(said.contains(&name) && said.contains("lab list"), "{said}");
}

#[test]
fn with_several_labs_one_has_to_be_named() {
    needs_root();
    let ((first, _), (second, _)) = (DetachedLab::rack(), DetachedLab::rack());
    for words in [vec!["down"], vec!["exec", "client1", "--", "true"]] {
        let said = complaint(typed(&words));
        for part in [&first.0, &second.0, "--name"] {
            assert!(said.contains(part), "{words:?}: {said}");
        }
    }
    let list = String::from_utf8(typed(&["list"]).stdout).unwrap();
    assert!(list.contains(&first.0) && list.contains(&second.0), "{list}");
    assert!(first.exec("server", &["true"]).status.success());
    assert!(second.exec("server", &["true"]).status.success());
}
