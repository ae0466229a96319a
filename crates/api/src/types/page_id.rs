//! How a page is named.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use utoipa::{PartialSchema, ToSchema};
use wire::SwitchId;

/// A page of cache memory: which switch, and which of its pages. As text `3/17`, also in JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PageId {
    /// The switch, 1 to 32767.
    pub switch: SwitchId,
    /// Index of the page on it, from 0.
    pub page: u32,
}

/// A text that names no page.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("page {0:?}: expected SWITCH/PAGE, as in 3/17")]
pub struct PageIdError(String);

impl fmt::Display for PageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.switch, self.page)
    }
}

impl FromStr for PageId {
    type Err = PageIdError;

    fn from_str(text: &str) -> Result<PageId, PageIdError> {
        let number = |part: &str| part.bytes().all(|b| b.is_ascii_digit()); // no sign
        text.split_once('/')
            .filter(|(switch, page)| number(switch) && number(page))
            .and_then(|(switch, page)| {
                Some(PageId {
                    switch: switch.parse().ok().filter(|id| *id != 0)?,
                    page: page.parse().ok()?,
                })
            })
            .ok_or_else(|| PageIdError(text.chars().take(40).collect()))
    }
}

impl Serialize for PageId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for PageId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<PageId, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl PartialSchema for PageId {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::schema::Schema> {
        utoipa::openapi::ObjectBuilder::new()
            .schema_type(utoipa::openapi::schema::Type::String)
            .description(Some("A page, as SWITCH/PAGE."))
            .pattern(Some("^[0-9]+/[0-9]+$"))
            .examples(["3/17"])
            .into()
    }
}

impl ToSchema for PageId {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_it_writes_and_nothing_else() {
        for (switch, page) in [(1, 0), (3, 17), (u16::MAX, u32::MAX)] {
            let id = PageId { switch, page };
            assert_eq!(id.to_string().parse(), Ok(id));
            let json = serde_json::to_string(&id).unwrap();
            assert_eq!(json, format!("\"{id}\""));
            assert_eq!(serde_json::from_str::<PageId>(&json).unwrap(), id);
        }
        let wrong = [
            "",
            "3",
            "/",
            "3/",
            "/17",
            "0/1",
            "65536/1",
            "3/-1",
            "+3/1",
            "3/4294967296",
            "3/1/2",
            "3 /1",
            "a/b",
        ];
        for text in wrong {
            let error = text.parse::<PageId>().unwrap_err().to_string();
            assert!(error.starts_with(&format!("page {text:?}: expected")), "{error}");
        }
        let long = "9".repeat(10_000).parse::<PageId>().unwrap_err().to_string();
        assert!(long.len() < 200, "{long}");
    }
}
