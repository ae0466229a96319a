//! Where the gateway's upstreams are: the store's RESP or memcached port, and the Redis behind it,
//! from their URLs.

use std::net::SocketAddr;

use anyhow::{Context, anyhow, bail};
use redis::{ConnectionAddr, IntoConnectionInfo};
use tls::{Connector, rustls::pki_types::ServerName};

use crate::{
    loops::{Target, stream::Place, stream::Trust},
    names::Names,
};

/// What a URL leads to: `redis://[USER[:PASSWORD]@]HOST:PORT`, `rediss://...` for TLS, or
/// `redis+unix:///PATH`; or the same of `memcached`. A name is looked up now, and again by `names`.
///
/// # Errors
/// It is no such URL, or the name has no address.
pub(crate) fn target(
    option: &str,
    url: &str,
    password: Option<&str>,
    connector: &Connector,
    names: &Names,
) -> anyhow::Result<Target> {
    // `redis` reads addresses of Redis, and, built without TLS, no secure ones.
    let behind = url.strip_prefix("memcached").or(url.strip_prefix("redis")).unwrap_or(url);
    let (secure, plain) = match behind.strip_prefix("s://") {
        Some(rest) => (true, format!("redis://{rest}")),
        None => (false, format!("redis{behind}")),
    };
    let shown = text::url::without_login(url);
    let kind = if url.starts_with("memcached") { "memcached[s]" } else { "redis[s]" };
    let info = plain.into_connection_info().map_err(|error| {
        let error = error.to_string().replace("Redis URL", "it");
        anyhow!("{option} {shown}: expected {kind}://HOST:PORT ({error})")
    })?;
    let settings = info.redis_settings();
    let database = settings.db();
    if !(0..=i64::from(i32::MAX)).contains(&database) {
        bail!("{option} {shown}: database {database}: expected 0 to {}", i32::MAX);
    }
    if settings.password().is_some() && password.is_none() {
        tracing::warn!(
            "the password in {option} can be read by every user of this machine: use --backend-password-file"
        );
    }
    let (mut trust, mut named) = (None, None);
    let place = match info.addr() {
        ConnectionAddr::Tcp(host, port) => {
            // An address of version 6 stands in brackets.
            let host = host.trim_start_matches('[').trim_end_matches(']');
            if secure {
                let name = ServerName::try_from(host.to_string()).with_context(|| {
                    format!("{option} {host}: no name that a certificate can be for")
                })?;
                trust = Some(Trust { connector: connector.clone(), name });
            }
            match host.parse() {
                Ok(ip) => Place::Tcp(SocketAddr::new(ip, *port)),
                Err(_) => {
                    let found = names.named(host, *port);
                    let found = found.with_context(|| format!("{option} {host}:{port}"))?;
                    let now = found.now();
                    named = Some(found);
                    Place::Tcp(now)
                }
            }
        }
        ConnectionAddr::Unix(path) => Place::Unix(path.clone()),
        _ => bail!("{option}: expected redis[s]://HOST:PORT or redis+unix:///PATH"),
    };
    let password = password.or(settings.password());
    let user = settings.username().map(String::from);
    let login = password.map(|password| (user, password.to_string()));
    let role = if option == "--backend" { "the backend" } else { "the store" };
    Ok(Target {
        role,
        name: format!("{option} {}", info.addr()),
        place,
        named,
        trust,
        login,
        database,
    })
}
