//! How an experiment's mechanism is turned off: the section `[idle]` of its file, by which it runs
//! under `--idle`.

use anyhow::ensure;
use serde::Deserialize;

/// What differs then.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Idle {
    /// What runs in the place of the discipline that the experiment is about: `none` does nothing
    /// but forward.
    pub discipline: Option<String>,
    /// Parameters, on top of those of whatever run it is.
    pub params: toml::Table,
    /// Why there is nothing to turn off.
    pub why_never: Option<String>,
}

impl Idle {
    /// Checks that it says how, or why not.
    ///
    /// # Errors
    /// It says both, or neither.
    pub fn check(&self) -> anyhow::Result<()> {
        let turns_off = self.discipline.is_some() || !self.params.is_empty();
        ensure!(
            turns_off != self.why_never.is_some(),
            "[idle]: either discipline and [idle.params] say how the mechanism is turned off, or why_never says \
             that there is none"
        );
        Ok(())
    }
}
