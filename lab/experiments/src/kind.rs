//! Kinds of experiments: code that measures, made of a struct of parameters ([`Measure`]) or of a
//! point of a sweep, behind the few functions that an experiment calls whatever its kind is.

use anyhow::Context;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{
    Options, Report, Run,
    sweep::{self, Point, Shape},
};

/// What a kind of experiment measures: a struct of its parameters, beside the run with them. Its
/// `Deserialize` refuses fields that it does not have (`deny_unknown_fields`).
pub trait Measure: Serialize + DeserializeOwned {
    /// Whether one run goes through as many seeds as [`Options::seeds`] says.
    const TAKES_SEEDS: bool = false;

    /// What no machine has, so that it runs in the simulator only; none: it runs in the kernel's
    /// world as well.
    const TOO_LARGE: Option<&'static str> = None;

    /// Whether its data is in the backend that the options name.
    const HAS_BACKEND: bool = false;

    /// Checks ranges.
    ///
    /// # Errors
    /// The parameter, what it is, what it may be.
    fn check(&self) -> anyhow::Result<()>;

    /// What it needs and only the kernel's world has; none: it runs in the simulator as well.
    fn needs(&self, options: &Options) -> Option<&'static str> {
        Self::HAS_BACKEND.then(|| options.backend.needs()).flatten()
    }

    /// Runs it; adds what comes out to the report.
    ///
    /// # Errors
    /// A rig that cannot be built, a process that dies, an interruption. Nothing is left behind.
    fn run(&self, run: &Run<'_>, report: &mut Report) -> anyhow::Result<()>;
}

/// A kind of experiment; made of its [`Measure`], or of the [`Point`] of a sweep.
pub struct Kind {
    /// Its name, as files say it.
    pub(crate) name: &'static str,
    pub(crate) takes_seeds: bool,
    pub(crate) too_large: Option<&'static str>,
    /// Reads and checks parameters, and gives all of them.
    pub(crate) parameters: fn(&Input<'_>) -> anyhow::Result<Value>,
    pub(crate) needs: fn(&Input<'_>, &Options) -> anyhow::Result<Option<&'static str>>,
    pub(crate) run: fn(&Input<'_>, &Run<'_>, &mut Report) -> anyhow::Result<()>,
}

/// What a file gives its kind.
pub(crate) struct Input<'f> {
    /// Parameters, overlaid already.
    pub params: toml::Table,
    /// The section `[sweep]`, if there is one.
    pub sweep: Option<&'f Shape>,
}

/// The kind of experiments that are data.
pub(crate) const SWEEP: &str = "sweep";

impl Kind {
    /// The kind that measures this, under the name that files have for it.
    pub const fn of<M: Measure>(name: &'static str) -> Kind {
        Kind {
            name,
            takes_seeds: M::TAKES_SEEDS,
            too_large: M::TOO_LARGE,
            parameters: |given| Ok(serde_json::to_value(read::<M>(given)?)?),
            needs: |given, options| Ok(read::<M>(given)?.needs(options)),
            run: |given, run, report| read::<M>(given)?.run(run, report),
        }
    }

    /// The kind `sweep`, of such points.
    pub const fn sweep<P: Point>() -> Kind {
        Kind {
            name: SWEEP,
            takes_seeds: false,
            too_large: P::TOO_LARGE,
            parameters: |given| sweep::parameters::<P>(&given.params, given.shape()?),
            needs: |given, options| sweep::needs::<P>(&given.params, given.shape()?, options),
            run: |given, run, report| sweep::run::<P>(&given.params, given.shape()?, run, report),
        }
    }
}

impl Input<'_> {
    fn shape(&self) -> anyhow::Result<&Shape> {
        self.sweep.context("kind = \"sweep\": [sweep] is missing")
    }
}

fn read<M: Measure>(given: &Input<'_>) -> anyhow::Result<M> {
    let table = toml::Value::Table(given.params.clone());
    let parameters: M = table.try_into().context("parameters")?;
    parameters.check()?;
    Ok(parameters)
}
