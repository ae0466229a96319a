//! Where Redis servers, or stores' RESP ports, are, and which partitions each of them has.

use std::str::FromStr;

/// Which Redis holds which partitions: `redis://HOST:PORT` for all of them,
/// `FIRST-LAST=redis://...` for some.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendAddress {
    /// First and last partition; `None`: all.
    pub partitions: Option<(u32, u32)>,
    /// `redis://HOST:PORT[/DB]`, by TLS `rediss://HOST:PORT[/DB]`, or `redis+unix:///PATH`.
    pub url: String,
}

impl FromStr for BackendAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<BackendAddress, String> {
        let fail = || {
            format!(
                "backend {text:?}: expected redis[s]://HOST:PORT[/DB] or redis+unix:///PATH, \
                 with FIRST-LAST= before it for some partitions only"
            )
        };
        let url = text.find("redis").ok_or_else(fail)?;
        let (range, url) = text.split_at(url);
        let schemes = ["redis://", "rediss://", "redis+unix://"];
        if !schemes.iter().any(|scheme| url.starts_with(scheme)) {
            return Err(fail());
        }
        let partitions = match range.strip_suffix('=') {
            None if range.is_empty() => None,
            None => return Err(fail()),
            Some(range) => {
                let (first, last) = range.split_once('-').unwrap_or((range, range));
                let range = first.parse().ok().zip(last.parse().ok());
                Some(range.filter(|(first, last)| first <= last).ok_or_else(fail)?)
            }
        };
        Ok(BackendAddress { partitions, url: url.into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        let parsed = |text: &str| text.parse::<BackendAddress>().ok();
        let address = |partitions, url: &str| Some(BackendAddress { partitions, url: url.into() });
        assert_eq!(parsed("redis://h:1"), address(None, "redis://h:1"));
        assert_eq!(parsed("0-31=redis+unix:///p"), address(Some((0, 31)), "redis+unix:///p"));
        assert_eq!(parsed("7=redis://h:1"), address(Some((7, 7)), "redis://h:1"));
        for bad in
            ["", "h:1", "3-1=redis://h:1", "x=redis://h:1", "0-1redis://h:1", "memcached://h:1"]
        {
            assert_eq!(parsed(bad), None, "{bad}");
        }
    }
}
