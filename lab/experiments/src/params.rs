//! Groups of parameters that several kinds of experiments have.

use anyhow::ensure;
use load::workload::{KEY_LEN, Popularity};
use serde::{Deserialize, Serialize};
use wire::Lengths;

/// The distributions that are measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Distributions {
    /// Whether the uniform one is.
    pub uniform: bool,
    /// Exponents of Zipf's.
    pub thetas: Vec<f64>,
}

impl Default for Distributions {
    fn default() -> Distributions {
        Distributions { uniform: true, thetas: vec![0.9, 0.95, 0.99] }
    }
}

impl Distributions {
    /// All of them, in order.
    pub fn all(&self) -> Vec<Popularity> {
        let uniform = self.uniform.then_some(Popularity::Uniform);
        uniform.into_iter().chain(self.thetas.iter().map(|t| Popularity::Zipf(*t))).collect()
    }

    /// Checks ranges.
    ///
    /// # Errors
    /// The parameter, what it is, what it may be.
    pub fn check(&self) -> anyhow::Result<()> {
        self.thetas.iter().try_for_each(|theta| exponent(*theta))
    }
}

/// How requests spread over keys, as files have it and rows say it: `uniform`, or `zipf_0.99`.
pub mod by_name {
    use load::workload::Popularity;
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    /// Writes the name.
    ///
    /// # Errors
    /// As whoever writes.
    pub fn serialize<S: Serializer>(popularity: &Popularity, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&popularity.name())
    }

    /// Reads the name.
    ///
    /// # Errors
    /// It is none.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Popularity, D::Error> {
        let name = String::deserialize(from)?;
        let theta = name.strip_prefix("zipf_").and_then(|theta| theta.parse().ok());
        match theta {
            Some(theta) => {
                super::exponent(theta).map(|()| Popularity::Zipf(theta)).map_err(D::Error::custom)
            }
            None if name == Popularity::Uniform.name() => Ok(Popularity::Uniform),
            None => Err(D::Error::custom(format!(
                "{name:?}: uniform, or zipf_ and its exponent, is expected"
            ))),
        }
    }
}

/// Tenants' keys, and the switches that they share.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Tenancy {
    /// Number of keys of each tenant, 16 bytes each.
    pub keys: usize,
    /// Length of values in bytes.
    pub value_len: usize,
    /// Guaranteed pages of each tenant.
    pub quota: u32,
    /// Pages of each switch.
    pub pages: u32,
    /// Length of the controller's statistics windows in milliseconds.
    pub window_ms: u32,
    /// Options added to the controllers' command line.
    pub control_args: Vec<String>,
    /// Options added to the switches' command line.
    pub switch_args: Vec<String>,
}

impl Default for Tenancy {
    fn default() -> Tenancy {
        Tenancy {
            keys: 1000,
            value_len: 128,
            quota: 25,
            pages: 600,
            window_ms: 500,
            control_args: vec![],
            switch_args: vec![],
        }
    }
}

impl Tenancy {
    /// Checks ranges.
    ///
    /// # Errors
    /// The parameter, what it is, what it may be.
    pub fn check(&self) -> anyhow::Result<()> {
        keys(self.keys)?;
        value_len(self.value_len)?;
        let Tenancy { quota, pages, window_ms, .. } = self;
        ensure!((1..=32_768).contains(pages), "pages = {pages}: 1 to 32768 are possible");
        ensure!(quota <= pages, "quota = {quota}: more than a switch has pages ({pages})");
        ensure!((100..=60_000).contains(window_ms), "window_ms = {window_ms}: 100 to 60000");
        Ok(())
    }
}

/// Checks a number of keys.
///
/// # Errors
/// What it is, what it may be.
pub fn keys(keys: usize) -> anyhow::Result<()> {
    ensure!((1..=100_000_000).contains(&keys), "keys = {keys}: 1 to 100000000 are possible");
    Ok(())
}

/// Checks a length of values in bytes.
///
/// # Errors
/// What it is, what it may be.
pub fn value_len(len: usize) -> anyhow::Result<()> {
    let longest = wire::max_value(KEY_LEN);
    ensure!((1..=longest).contains(&len), "value_len = {len}: 1 to {longest}");
    Ok(())
}

/// Checks a part of requests or the like, both ends included, by name.
///
/// # Errors
/// What it is, what it may be.
pub fn ratio(name: &str, ratio: f64) -> anyhow::Result<()> {
    ensure!((0.0..=1.0).contains(&ratio), "{name}: {ratio} is not within 0 to 1");
    Ok(())
}

/// Checks an exponent of Zipf's law.
///
/// # Errors
/// What it is, what it may be.
pub fn exponent(theta: f64) -> anyhow::Result<()> {
    ensure!((0.0..=10.0).contains(&theta), "theta: {theta} is not within 0 to 10");
    Ok(())
}

/// As the function of this name, of fields of parameters under their own names.
#[macro_export]
macro_rules! positive {
    ($of:expr, $($name:ident),+ $(,)?) => {
        $crate::params::positive([$((stringify!($name), $of.$name)),+])
    };
}
pub use crate::positive;

/// Checks rates, times and factors, by name.
///
/// # Errors
/// The parameter and what it is.
pub fn positive<const N: usize>(all: [(&str, f64); N]) -> anyhow::Result<()> {
    for (name, value) in all {
        ensure!(value > 0.0 && value < 1e9, "{name} = {value}: must be positive");
    }
    Ok(())
}

/// Checks parts of one, both ends excluded, by name.
///
/// # Errors
/// The parameter and what it is.
pub fn part<const N: usize>(all: [(&str, f64); N]) -> anyhow::Result<()> {
    for (name, value) in all {
        ensure!(value > 0.0 && value < 1.0, "{name} = {value}: between 0 and 1");
    }
    Ok(())
}

/// Short and long values of production traces, in bytes, as OrbitCache's paper has them.
const SHORT: usize = 64;
const LONG: usize = 1024;

/// Lengths of the values of such a trace, of which the part `short` has short ones, and of which
/// the part `cacheable` is what a cache of values of `fits` bytes and less may have. A short value
/// that is not (its key would be too long) has one byte more than fits: keys of the lab are all of
/// 16 bytes. Of long values none fits.
pub fn lengths_of_trace(cacheable: f64, short: f64, fits: usize) -> Lengths {
    let fitting = cacheable.min(short);
    let parts = [(SHORT, fitting), (fits + 1, short - fitting), (LONG, 1.0 - short)];
    let mix = parts.into_iter().filter(|(_, part)| *part > 0.0);
    Lengths::Mix { mix: mix.collect(), salt: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_checked_by_name() {
        let said = |result: anyhow::Result<()>| result.unwrap_err().to_string();
        let wrong = [
            (said(keys(0)), "keys = 0"),
            (said(value_len(100_000)), "value_len = 100000"),
            (said(exponent(11.0)), "11"),
            (said(positive([("rate", 1.0), ("step_s", 0.0)])), "step_s = 0"),
            (said(part([("loss", 1.0)])), "loss = 1"),
        ];
        for (said, expected) in wrong {
            assert!(said.contains(expected), "{said:?} should name {expected:?}");
        }
    }
}
