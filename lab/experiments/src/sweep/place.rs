//! Where points are: their axes, and the parameters at each place.

use anyhow::{Context, ensure};
use serde::de::DeserializeOwned;
use serde_json::Value;

/// An axis and the names of its places.
#[derive(Clone, Debug)]
pub struct Axis {
    pub name: String,
    pub labels: Vec<Value>,
}

/// All places, and what is the same at each.
pub struct Places {
    params: toml::Table,
    /// Axes with their values, the outermost first.
    axes: Vec<(String, Vec<toml::Value>)>,
    /// As the file has them.
    given: toml::Table,
}

/// The parameter that has the axes' values.
const AXES: &str = "axes";

impl Places {
    /// The places of `params`, with axes over these parameters, the outermost first.
    ///
    /// # Errors
    /// An axis without values, or values of what is no axis.
    pub fn new(params: &toml::Table, over: &[String]) -> anyhow::Result<Places> {
        let mut params = params.clone();
        let given = match params.remove(AXES) {
            Some(toml::Value::Table(given)) => given,
            _ => toml::Table::new(),
        };
        for name in given.keys() {
            ensure!(
                over.contains(name),
                "{AXES}.{name}: no axis of this experiment, which are {over:?}"
            );
        }
        let axis = |name: &String| {
            let values = given.get(name).and_then(toml::Value::as_array).cloned();
            let values = values.filter(|values| !values.is_empty());
            let values =
                values.with_context(|| format!("{AXES}.{name}: a list of values is expected"))?;
            Ok((name.clone(), values))
        };
        let axes = over.iter().map(axis).collect::<anyhow::Result<_>>()?;
        Ok(Places { params, axes, given })
    }

    /// The axes with what their places are called.
    pub fn axes(&self) -> Vec<Axis> {
        let axis = |(name, values): &(String, Vec<toml::Value>)| Axis {
            name: name.clone(),
            labels: values.iter().map(label).collect(),
        };
        self.axes.iter().map(axis).collect()
    }

    /// The first place.
    pub fn first(&self) -> Vec<usize> {
        vec![0; self.axes.len()]
    }

    /// Every place, as the number of its value on each axis.
    pub fn all(&self) -> Vec<Vec<usize>> {
        let mut all = vec![vec![]];
        for (_, values) in &self.axes {
            let longer = all.iter().flat_map(|at: &Vec<usize>| {
                (0..values.len()).map(|value| [&at[..], &[value]].concat())
            });
            all = longer.collect();
        }
        all
    }

    /// The parameters at a place.
    ///
    /// # Errors
    /// One that does not exist, or has the wrong type.
    pub fn read<P: DeserializeOwned>(&self, at: &[usize]) -> anyhow::Result<P> {
        let mut params = self.params.clone();
        let mut place = vec![];
        for ((name, values), value) in self.axes.iter().zip(at) {
            let value = &values[*value];
            place.push(format!("{name} = {}", label(value)));
            let former = params.insert(name.clone(), value.clone());
            ensure!(former.is_none(), "{name} is an axis: its values are {AXES}.{name}");
        }
        let params = toml::Value::Table(params).try_into();
        params.with_context(|| format!("parameters at {}", place.join(", ")))
    }

    /// The parameters of some place, with the axes' values instead of its own.
    pub fn told(&self, mut params: Value) -> Value {
        if let Value::Object(params) = &mut params {
            params.retain(|name, _| self.axes.iter().all(|(axis, _)| axis != name));
            let axes = serde_json::to_value(&self.given).unwrap_or_default();
            params.insert(AXES.into(), axes);
        }
        params
    }
}

/// What a value is called: by the `name` in it, or as it is.
fn label(value: &toml::Value) -> Value {
    let name = value.get("name").unwrap_or(value);
    serde_json::to_value(name).unwrap_or_default()
}
