//! Where Redis servers, or stores' ports for clients, are, and which partitions each of them has.

use std::str::FromStr;

/// Which server holds which partitions: `redis://HOST:PORT` for all of them,
/// `FIRST-LAST=redis://...` for some.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendAddress {
    /// First and last partition; `None`: all.
    pub partitions: Option<(u32, u32)>,
    /// `redis://HOST:PORT[/DB]`, by TLS `rediss://HOST:PORT[/DB]`, or `redis+unix:///PATH`. Of a
    /// memcached port: `memcached://HOST:PORT`, `memcacheds://HOST:PORT`, `memcached+unix:///PATH`.
    pub url: String,
}

impl FromStr for BackendAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<BackendAddress, String> {
        parsed(text, "redis").ok_or_else(|| {
            format!(
                "backend {text:?}: expected redis[s]://HOST:PORT[/DB] or redis+unix:///PATH, \
                 with FIRST-LAST= before it for some partitions only"
            )
        })
    }
}

impl BackendAddress {
    /// A store's memcached port.
    ///
    /// # Errors
    /// What is wrong, and what was expected.
    pub fn of_memcached(text: &str) -> Result<BackendAddress, String> {
        parsed(text, "memcached").ok_or_else(|| {
            format!(
                "memcached port {text:?}: expected memcached[s]://HOST:PORT or memcached+unix:///PATH, \
                 with FIRST-LAST= before it for some partitions only"
            )
        })
    }
}

/// An address whose scheme is this one, its secure form, or that of a Unix socket.
fn parsed(text: &str, scheme: &str) -> Option<BackendAddress> {
    let (range, url) = text.split_at(text.find(scheme)?);
    let behind = url.strip_prefix(scheme)?;
    if !["://", "s://", "+unix://"].iter().any(|end| behind.starts_with(end)) {
        return None;
    }
    let partitions = match range.strip_suffix('=') {
        None if range.is_empty() => None,
        None => return None,
        Some(range) => {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let range = first.parse().ok().zip(last.parse().ok());
            Some(range.filter(|(first, last)| first <= last)?)
        }
    };
    Some(BackendAddress { partitions, url: url.into() })
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
        let memcached = |text: &str| BackendAddress::of_memcached(text).ok();
        for url in ["memcached://h:1", "memcacheds://h:1", "memcached+unix:///p"] {
            assert_eq!(memcached(url), address(None, url));
            assert_eq!(memcached(&format!("0-3={url}")), address(Some((0, 3)), url));
        }
        for bad in ["h:1", "redis://h:1", "memcachedx://h:1", "0-=memcached://h:1"] {
            assert_eq!(memcached(bad), None, "{bad}");
        }
    }
}
