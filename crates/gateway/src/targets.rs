//! Where the gateway's upstreams are: the store's RESP port, and the Redis behind it, from their
//! URLs.

use std::net::ToSocketAddrs;

use anyhow::{Context, bail};
use redis::{ConnectionAddr, IntoConnectionInfo};

use crate::loops::{Target, stream::Place};

/// What a URL leads to: `redis://[USER[:PASSWORD]@]HOST:PORT` or `redis+unix:///PATH`. A name is
/// looked up now.
///
/// # Errors
/// It is no such URL, or the name has no address.
pub(crate) fn target(option: &str, url: &str, password: Option<&str>) -> anyhow::Result<Target> {
    let info = url
        .into_connection_info()
        .map_err(|error| anyhow::anyhow!("{option}: its address cannot be read: {error}"))?;
    let settings = info.redis_settings();
    if settings.db() != 0 {
        bail!("{option} {url}: the database must be 0");
    }
    let place = match info.addr() {
        ConnectionAddr::Tcp(host, port) => {
            let mut addresses = (host.as_str(), *port)
                .to_socket_addrs()
                .with_context(|| format!("{option} {host}:{port}"))?;
            Place::Tcp(addresses.next().with_context(|| format!("{option} {host}: no address"))?)
        }
        ConnectionAddr::Unix(path) => Place::Unix(path.clone()),
        _ => bail!("{option}: expected redis://HOST:PORT or redis+unix:///PATH"),
    };
    let password = password.or(settings.password());
    let user = settings.username().map(String::from);
    let login = password.map(|password| (user, password.to_string()));
    let role = if option == "--resp" { "the store" } else { "the backend" };
    Ok(Target { role, name: format!("{option} {}", info.addr()), place, login })
}
