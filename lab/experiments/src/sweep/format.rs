//! How numbers and names are written in tables, plots and names.

use serde::Deserialize;
use serde_json::Value;
use text::table::{micros, percent, thousands};

/// How a figure is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// As it is.
    #[default]
    Text,
    /// A number with thousands separated.
    Thousands,
    /// A part of one as a percentage: `5.0 %`.
    Percent,
    /// A part of one in hundredths: `5`.
    Hundredths,
    /// Microseconds in a readable unit.
    Micros,
    /// Without decimals.
    Whole,
    /// With one decimal, two, four or six.
    #[serde(rename = ".1")]
    One,
    #[serde(rename = ".2")]
    Two,
    #[serde(rename = ".4")]
    Four,
    #[serde(rename = ".6")]
    Six,
    /// How requests spread over keys: `Zipf 0.99` of `zipf_0.99`.
    Distribution,
    /// A name as a part of another one: `near_store` of `near-store`.
    Key,
}

impl Format {
    /// The figure as text; none: there is no such figure, or it is no number where one is needed.
    pub fn text(self, value: Option<&Value>) -> Option<String> {
        let value = value?;
        let number = || value.as_f64();
        let name = || value.as_str();
        Some(match self {
            Format::Text => match (value, number()) {
                (Value::String(name), _) => name.clone(),
                (_, Some(number)) => number.to_string(),
                (Value::Null, None) => return None,
                _ => value.to_string(),
            },
            Format::Thousands => thousands(number()?),
            Format::Percent => percent(number()?),
            Format::Hundredths => format!("{:.0}", number()? * 100.0),
            Format::Micros => micros(number()?),
            Format::Whole => format!("{:.0}", number()?),
            Format::One => format!("{:.1}", number()?),
            Format::Two => format!("{:.2}", number()?),
            Format::Four => format!("{:.4}", number()?),
            Format::Six => format!("{:.6}", number()?),
            Format::Distribution => name()?.replace("zipf_", "Zipf "),
            Format::Key => name()?.replace('-', "_"),
        })
    }

    /// The figure in a table.
    pub fn cell(self, value: Option<&Value>) -> String {
        self.text(value).unwrap_or_else(|| "-".into())
    }

    /// What a row has of the figure: a number of hundredths stays a number.
    pub fn value(self, value: Option<&Value>) -> Value {
        match self {
            Format::Hundredths => value.and_then(Value::as_f64).map(|n| n * 100.0).into(),
            _ => self.text(value).into(),
        }
    }

    fn named(name: &str) -> Option<Format> {
        let name = serde::de::value::StrDeserializer::<serde::de::value::Error>::new(name);
        Format::deserialize(name).ok()
    }
}

/// Puts figures into a text, for each `{PATH}` or `{PATH:FORMAT}` in it; none: one of them is not
/// there.
pub fn fill<'v>(text: &str, find: impl Fn(&str) -> Option<&'v Value>) -> Option<String> {
    let mut parts = text.split('{');
    let mut filled = parts.next()?.to_owned();
    for part in parts {
        let (named, rest) = part.split_once('}')?;
        let (path, format) = match named.split_once(':') {
            Some((path, format)) => (path, Format::named(format)?),
            None => (named, Format::Text),
        };
        filled += &format.text(find(path))?;
        filled += rest;
    }
    Some(filled)
}
