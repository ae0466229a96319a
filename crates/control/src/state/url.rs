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
    /// `None` for connections that are not encrypted.
    pub(super) tls: Option<TlsFiles>,
}

/// PEM files for TLS.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct TlsFiles {
    /// Certificates of those who may have signed the servers' certificates.
    pub(super) ca: PathBuf,
    /// Our certificate and its key, for servers that ask for one.
    pub(super) own: Option<(PathBuf, PathBuf)>,
}

/// What is wrong with a `--state`.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error(
    "{text:?}: {reason}; expected a directory, or etcd://HOST:PORT[,HOST:PORT...][/PREFIX], or with TLS etcds://HOST:PORT[,HOST:PORT...][/PREFIX]?ca=FILE[&cert=FILE&key=FILE]"
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
            Some(("etcd", rest)) => Servers::parse(rest, None).map(Location::Etcd),
            Some(("etcds", rest)) => match rest.split_once('?') {
                Some((rest, files)) => TlsFiles::parse(files)
                    .and_then(|files| Servers::parse(rest, Some(files)))
                    .map(Location::Etcd),
                None => Err("it does not say ca=FILE".into()),
            },
            Some((scheme, _)) => Err(format!("{scheme}:// is not known")),
        };
        parsed.map_err(|reason| LocationError { text: text.chars().take(256).collect(), reason })
    }
}

impl Servers {
    fn parse(rest: &str, tls: Option<TlsFiles>) -> Result<Servers, String> {
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
        Ok(Servers { servers, prefix: prefix.into(), tls })
    }
}

impl TlsFiles {
    fn parse(text: &str) -> Result<TlsFiles, String> {
        let (mut ca, mut cert, mut key) = (None, None, None);
        for part in text.split('&') {
            let place = match part.split_once('=') {
                Some(("ca", file)) => (&mut ca, file),
                Some(("cert", file)) => (&mut cert, file),
                Some(("key", file)) => (&mut key, file),
                _ => return Err(format!("{part:?} is not ca=FILE, cert=FILE or key=FILE")),
            };
            if place.1.is_empty() || place.0.replace(PathBuf::from(place.1)).is_some() {
                return Err(format!("{part:?} names no file, or a second one"));
            }
        }
        let own = match (cert, key) {
            (None, None) => None,
            (Some(cert), Some(key)) => Some((cert, key)),
            _ => return Err("cert=FILE and key=FILE go together".into()),
        };
        let ca = ca.ok_or("it does not say ca=FILE")?;
        Ok(TlsFiles { ca, own })
    }
}

fn check_server(server: &str) -> Result<(), String> {
    let wrong = || Err(format!("{server:?} is not HOST:PORT"));
    let Some((host, port)) = server.rsplit_once(':') else { return wrong() };
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
        let scheme = if self.tls.is_some() { "etcds" } else { "etcd" };
        write!(f, "{scheme}://{}{}", self.servers.join(","), self.prefix)?;
        let Some(files) = &self.tls else { return Ok(()) };
        write!(f, "?ca={}", files.ca.display())?;
        match &files.own {
            Some((cert, key)) => write!(f, "&cert={}&key={}", cert.display(), key.display()),
            None => Ok(()),
        }
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
            ("etcds://a:2379/x?ca=/a.pem", "etcds://a:2379/x?ca=/a.pem"),
            ("etcds://a:2379?key=k&cert=c&ca=a", "etcds://a:2379/shortstop?ca=a&cert=c&key=k"),
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
            ("etcds://a:1", "does not say ca="),
            ("etcds://a:1?cert=c&key=k", "does not say ca="),
            ("etcds://a:1?ca=a&key=k", "go together"),
            ("etcds://a:1?ca=a&ca=b", "\"ca=b\""),
            ("etcds://a:1?ca=a&x", "\"x\""),
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
