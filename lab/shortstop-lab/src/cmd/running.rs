//! Labs that run, for the commands that work in one.

use anyhow::{bail, ensure};
use lab::state::State;

/// The lab of this name, or the only one that is up.
///
/// # Errors
/// There is none, or more than one.
pub fn choose(name: Option<&str>) -> anyhow::Result<State> {
    if let Some(name) = name {
        return State::load(name);
    }
    // One that was left up comes before what an experiment runs meanwhile.
    let (mut labs, others): (Vec<State>, Vec<State>) =
        State::all().into_iter().partition(|lab| lab.detached);
    if labs.is_empty() {
        labs = others.into_iter().filter(|lab| lab.owner.is_alive()).collect();
    }
    labs.sort_by(|a, b| a.name.cmp(&b.name));
    match labs.len() {
        0 => bail!("no lab is up; `shortstop-lab up rack` makes one"),
        1 => Ok(labs.remove(0)),
        _ => {
            let names: Vec<&str> = labs.iter().map(|lab| lab.name.as_str()).collect();
            bail!("several labs are up ({}): choose one with --name", names.join(", "))
        }
    }
}

/// Fails for whoever may not make namespaces, or enter them.
///
/// # Errors
/// This is not root.
pub fn need_root() -> anyhow::Result<()> {
    // The effective user decides what may be done to namespaces.
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let uid = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    let effective = uid.and_then(|line| line.split_whitespace().nth(1));
    ensure!(effective == Some("0"), "a lab makes network namespaces: run it as root");
    Ok(())
}
