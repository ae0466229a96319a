//! Where the state lies, as `--state` says it.

use std::{fmt, path::PathBuf, str::FromStr};

/// Servers of one etcd cluster that can be named.
const SERVERS_MAX: usize = 16;
const PREFIX: &str = "/shortstop";
const PREFIX_MAX: usize = 128;

/// Where the state lies.
#[derive(Clone, Debug, PartialEq)]
pub enum Location {
    /// In the file `control.redb` of this directory.
    Directory(PathBuf),
    /// In etcd.
    Etcd(Servers),
}

/// Servers of an etcd cluster, and where our keys are there.
#[derive(Clone, Debug, PartialEq)]
pub struct Servers {
    /// `HOST:PORT` of each; at least one.
    pub(super) servers: Vec<String>,
    /// Begins with a slash and does not end with one.
    pub(super) prefix: String,
}

/// What is wrong with a `--state`.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error(
    "{text:?}: {reason}; expected a directory, or etcd://HOST:PORT[,HOST:PORT...][/PREFIX], for example etcd://127.0.0.1:2379{PREFIX}"
)]
pub struct LocationError {
    text: String,
    reason: String,
}

impl FromStr for Location {
    type Err = LocationError;

    fn from_str(text: &str) -> Result<Location, LocationError> {
        let parsed = match text.split_once("://") {
            None if text.is_empty() => Err("it is empty".into()),
            None => Ok(Location::Directory(text.into())),
            Some(("etcd", rest)) => Servers::parse(rest).map(Location::Etcd),
            Some((scheme, _)) => Err(format!("{scheme}:// is not known")),
        };
        parsed.map_err(|reason| LocationError {
            text: text.chars().take(256).collect(),
            reason,
        })
    }
}

impl Servers {
    fn parse(rest: &str) -> Result<Servers, String> {
        let (servers, prefix) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let servers: Vec<String> = servers.split(',').map(str::to_string).collect();
        if servers.len() > SERVERS_MAX {
            return Err(format!("more than {SERVERS_MAX} servers"));
        }
        servers.iter().try_for_each(|server| check_server(server))?;
        let prefix = match prefix.trim_end_matches('/') {
            "" => PREFIX,
            prefix => prefix,
        };
        let known = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
        if prefix.len() > PREFIX_MAX || !prefix.chars().all(known) || prefix.contains("//") {
            return Err(format!(
                "the prefix {prefix:?} is not of letters, digits, '.', '_', '-' and single '/', {PREFIX_MAX} at most"
            ));
        }
        Ok(Servers {
            servers,
            prefix: prefix.into(),
        })
    }
}

fn check_server(server: &str) -> Result<(), String> {
    let wrong = || Err(format!("{server:?} is not HOST:PORT"));
    let Some((host, port)) = server.rsplit_once(':') else {
        return wrong();
    };
    let host_fits = match host.strip_prefix('[').and_then(|h| h.strip_suffix(']')) {
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
        None => {
            let known = |c: char| c.is_ascii_alphanumeric() || ".-_".contains(c);
            !host.is_empty() && host.chars().all(known)
        }
    };
    match port.parse::<u16>() {
        Ok(1..) if host_fits => Ok(()),
        _ => wrong(),
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Location::Directory(path) => path.display().fmt(f),
            Location::Etcd(servers) => servers.fmt(f),
        }
    }
}

impl fmt::Display for Servers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "etcd://{}{}", self.servers.join(","), self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_url_is_a_directory() {
        for text in ["/var/lib/shortstop", "state", "./etcd:2379"] {
            assert_eq!(text.parse(), Ok(Location::Directory(text.into())));
        }
    }

    #[test]
    fn etcd_has_servers_and_a_prefix() {
        for (text, written) in [
            ("etcd://a:2379", "etcd://a:2379/shortstop"),
            ("etcd://a:2379/", "etcd://a:2379/shortstop"),
            (
                "etcd://10.0.0.1:1,[::1]:2,c-3.example:3/x/y/",
                "etcd://10.0.0.1:1,[::1]:2,c-3.example:3/x/y",
            ),
        ] {
            let location: Location = text.parse().unwrap();
            assert_eq!(location.to_string(), written);
            assert_eq!(written.parse(), Ok(location));
        }
    }

    #[test]
    fn what_is_wrong_is_named_in_one_line() {
        for (text, named) in [
            ("", "empty"),
            ("redis://a:1", "redis://"),
            ("etcds://a:1", "etcds://"),
            ("etcd://", "HOST:PORT"),
            ("etcd://a", "\"a\""),
            ("etcd://a:0", "\"a:0\""),
            ("etcd://a:1,", "\"\""),
            ("etcd://a:1,b:x/p", "\"b:x\""),
            ("etcd://user:word@a:1", "@"),
            ("etcd://[::g]:1", "[::g]"),
            ("etcd://a:1/x//y", "x//y"),
            ("etcd://a:1/x y", "x y"),
        ] {
            let error = text.parse::<Location>().unwrap_err().to_string();
            assert!(error.contains(named), "{error}");
            assert!(!error.contains('\n'), "{error}");
        }
    }
}
