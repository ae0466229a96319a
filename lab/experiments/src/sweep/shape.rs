//! What an experiment's file says of how it is measured and told.

use std::collections::BTreeMap;

use anyhow::ensure;
use serde::Deserialize;

use super::{
    columns::{Cell, Column},
    plots::Plot,
    points::Best,
    summary::Sum,
};

/// The section `[sweep]` of a file.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Shape {
    /// Parameters that are axes, the outermost first.
    pub over: Vec<String>,
    /// The first of these, for each of which a bench is built; none: for each point.
    built_for: Option<Vec<String>>,
    /// The axes by which points are told, the one that changes least first; none: as they are
    /// measured.
    told_by: Option<Vec<String>>,
    /// Which points along an axis are told of; none: all.
    pub best: Option<Best>,
    /// What rows have beside what was measured, or instead.
    #[serde(default)]
    pub rows: BTreeMap<String, Column>,
    /// The table's columns.
    pub table: Vec<Cell>,
    /// What is said below the table.
    pub note: Option<String>,
    /// Numbers of the summary by their names, in which `{PATH}` stands for a figure of the point.
    #[serde(default)]
    pub summary: BTreeMap<String, Sum>,
    #[serde(default)]
    pub plots: Vec<Plot>,
}

impl Shape {
    /// Checks that axes are named where they have to be.
    ///
    /// # Errors
    /// What is none, and where.
    pub fn check(&self) -> anyhow::Result<()> {
        let over = &self.over;
        if let Some(built_for) = &self.built_for {
            ensure!(
                over.starts_with(built_for),
                "sweep.built_for = {built_for:?}: the first of sweep.over, {over:?}, are expected"
            );
        }
        let best = self.best.iter().map(|best| &best.along);
        for axis in self.told_by.iter().flatten().chain(best) {
            ensure!(
                over.contains(axis),
                "sweep: {axis} is told by, and is none of sweep.over, {over:?}"
            );
        }
        Ok(())
    }

    /// How many of the axes have a bench for each of their values.
    pub fn built_for(&self) -> usize {
        let of = self.built_for.as_ref();
        of.map_or(self.over.len(), Vec::len)
    }

    /// Places of the axes by which points are told, in [`Shape::over`].
    pub fn told_by(&self) -> Option<Vec<usize>> {
        let place = |axis: &String| self.over.iter().position(|other| other == axis);
        self.told_by.as_ref().map(|axes| axes.iter().filter_map(place).collect())
    }
}
