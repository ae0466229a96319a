//! Experiments that are data: some systems, measured at each place of some axes, and how that is
//! told.
//!
//! What is measured is code: a [`Point`], a struct of parameters that says how its rack is built
//! and what is measured on it. All else stands in the experiment's file: which parameters are axes,
//! the order in which they are gone through, for which of them a rack is built anew, and what
//! becomes of the figures in rows, a table, a summary and plots.
//!
//! ```toml
//! kind = "sweep"
//!
//! [params]                # of the Point, but for those that are axes
//! load = 0.8
//! [params.axes]           # values of the others; a table has a `name`
//! system = ["none", "cached"]
//! write_ratio = [0.0, 0.5]
//! [quick.axes]            # fewer of them under --quick
//! write_ratio = [0.5]
//!
//! [sweep]
//! over = ["system", "write_ratio"]     # the outermost first
//! built_for = ["system"]               # each of these has its rack; unsaid: each point has
//! told_by = ["write_ratio", "system"]  # the order of rows, if it is another one
//! table = [                            # title, figure, and how it is written
//!     ["writes", "write_ratio", "percent"],
//!     ["system", "system"],
//!     ["req/s", "rate", "thousands"],
//! ]
//! [sweep.rows]                         # beside what the Point says and where it is
//! write_ratio = false
//! percent = ["write_ratio", "hundredths"]
//! [sweep.summary]
//! "gain_{write_ratio:hundredths}" = { of = "rate", over = { system = "none" } }
//! rate_max = { of = "rate", at = { system = "cached" }, fold = "most" }
//! [[sweep.plots]]
//! title = "Throughput over the part that writes"
//! y = "requests per second"
//! shape = "bars"
//! over = "write_ratio"
//! series = [{ of = "rate", by = "system" }]
//! ```
//!
//! Where something is told, a figure is named by its path in a row (`all.p50_us`) or by its name
//! aside, an axis by its own name.

mod columns;
mod format;
mod place;
mod plots;
mod points;
mod shape;
mod summary;
#[cfg(test)]
mod tests;

use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};
use text::table::Table;

pub use points::{MeasuredPoint, Points};
pub(crate) use shape::Shape;

use crate::{Options, Report, Run};
use place::Places;

/// Parameters of one point, of which axes give some; and how it is measured. Its `Deserialize`
/// refuses fields that it does not have (`deny_unknown_fields`).
pub trait Point: Serialize + DeserializeOwned {
    /// What no machine has, so that it runs in the simulator only; none: it runs in the kernel's
    /// world as well.
    const TOO_LARGE: Option<&'static str> = None;

    /// Whether its data is in the backend that the options name.
    const HAS_BACKEND: bool = false;

    /// What is built, and measured at one point or several.
    type Bench<'a>;

    /// Checks ranges.
    ///
    /// # Errors
    /// The parameter, what it is, what it may be.
    fn check(&self) -> anyhow::Result<()>;

    /// What it needs and only the kernel's world has; none: it runs in the simulator as well.
    fn needs(&self, options: &Options) -> Option<&'static str> {
        Self::HAS_BACKEND.then(|| options.backend.needs()).flatten()
    }

    /// Builds what is measured, for the first of the points that share it.
    ///
    /// # Errors
    /// It cannot be built.
    fn build<'a>(&self, run: &Run<'a>) -> anyhow::Result<Self::Bench<'a>>;

    /// Measures this point: what is told of it, most often one row of figures. `before` is what was
    /// measured already.
    ///
    /// # Errors
    /// A process that dies, an interruption.
    fn measure(
        &self,
        bench: &mut Self::Bench<'_>,
        run: &Run<'_>,
        before: &Points,
    ) -> anyhow::Result<Vec<Figures>>;

    /// Tells what no file can say, when all else is told. Called for the first point.
    ///
    /// # Errors
    /// What more there is cannot be measured.
    fn finish(&self, _: &Run<'_>, _: &Points, _: &mut Report) -> anyhow::Result<()> {
        Ok(())
    }
}

/// What was measured at one point.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// What its row has.
    row: Map<String, Value>,
    /// What is there for tables, plots and the summary only.
    aside: Map<String, Value>,
}

impl Figures {
    /// Those of a row: an object.
    pub fn new(row: Value) -> Figures {
        let row = match row {
            Value::Object(row) => row,
            _ => Map::new(),
        };
        let aside = Map::new();
        Figures { row, aside }
    }

    /// One more of the row.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Figures {
        self.row.insert(name.into(), value.into());
        self
    }

    /// One more that no row has.
    #[must_use]
    pub fn aside(mut self, name: &str, value: impl Into<Value>) -> Figures {
        self.aside.insert(name.into(), value.into());
        self
    }
}

/// All parameters, axes included, if those of each place are right.
pub(crate) fn parameters<P: Point>(params: &toml::Table, shape: &Shape) -> anyhow::Result<Value> {
    let places = Places::new(params, &shape.over)?;
    for at in places.all() {
        let point: P = places.read(&at)?;
        point.check()?;
    }
    let first = serde_json::to_value(places.read::<P>(&places.first())?)?;
    Ok(places.told(first))
}

/// As [`Point::needs`].
pub(crate) fn needs<P: Point>(
    params: &toml::Table,
    shape: &Shape,
    options: &Options,
) -> anyhow::Result<Option<&'static str>> {
    let places = Places::new(params, &shape.over)?;
    Ok(places.read::<P>(&places.first())?.needs(options))
}

/// Measures all points, and tells of them.
pub(crate) fn run<P: Point>(
    params: &toml::Table,
    shape: &Shape,
    run: &Run<'_>,
    report: &mut Report,
) -> anyhow::Result<()> {
    let places = Places::new(params, &shape.over)?;
    let mut points = Points::new(places.axes());
    let mut built: Option<(Vec<usize>, P::Bench<'_>)> = None;
    for at in places.all() {
        let point: P = places.read(&at)?;
        let of = at[..shape.built_for()].to_vec();
        let (_, bench) = match built.take() {
            Some((as_before, bench)) if as_before == of => built.insert((as_before, bench)),
            before => {
                // Names are free again when what had them is gone.
                drop(before);
                built.insert((of, point.build(run)?))
            }
        };
        for figures in point.measure(bench, run, &points)? {
            points.add(at.clone(), figures, &shape.rows);
        }
    }
    drop(built);
    if let Some(best) = &shape.best {
        points.keep_best(best);
    }
    points.sort_by(shape.told_by());
    tell(shape, run, &points, report);
    let first: P = places.read(&places.first())?;
    first.finish(run, &points, report)
}

fn tell(shape: &Shape, run: &Run<'_>, points: &Points, report: &mut Report) {
    let titles: Vec<&str> = shape.table.iter().map(|c| c.title.as_str()).collect();
    let mut table = Table::new(&titles);
    for point in points.all() {
        let cells = shape.table.iter();
        table.row(cells.map(|cell| cell.format.cell(point.get(&cell.of))));
        report.rows.push(point.row(&shape.rows));
    }
    report.text = table.render();
    if let Some(note) = &shape.note {
        report.text += &format!("\n{note}\n");
    }
    for (name, sum) in &shape.summary {
        sum.tell(name, points, report);
    }
    for plot in &shape.plots {
        plot.draw(run.name, points, report);
    }
}
