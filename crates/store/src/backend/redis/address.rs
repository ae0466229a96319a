//! Where Redis servers are, as `--backend` names them.

use std::time::Duration;

use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo, io::tcp::TcpSettings};

use crate::slot_map::NodeAddress;

/// The URLs as they are without TLS, which is all that `redis` reads here; and whether TLS is
/// meant.
pub(crate) fn plain_urls(urls: &str) -> anyhow::Result<(bool, Vec<String>)> {
    // A comma may stand in a URL, too.
    let urls = urls.replace(",redis", "\nredis");
    let secure = urls.split('\n').filter(|url| url.starts_with("rediss://")).count();
    anyhow::ensure!(
        secure == 0 || secure == urls.split('\n').count(),
        "--backend: expected rediss:// for all of the servers that one master may be at, or for none"
    );
    let plain = |url: &str| match url.strip_prefix("rediss://") {
        Some(rest) => format!("redis://{rest}"),
        None => url.to_string(),
    };
    Ok((secure > 0, urls.split('\n').map(plain).collect()))
}

/// The servers that are named, with the password.
pub(crate) fn addresses(
    urls: &[String],
    password: Option<&str>,
) -> redis::RedisResult<Vec<ConnectionInfo>> {
    urls.iter().map(|url| address(url, password)).collect()
}

/// The server of one URL, with the password.
pub(super) fn address(url: &str, password: Option<&str>) -> redis::RedisResult<ConnectionInfo> {
    // Given up, a connection takes along what has not arrived: behind a partition the system would
    // deliver a write much later, over those that were acknowledged since.
    let reset = TcpSettings::default().set_linger_time(Duration::ZERO);
    let info = url.into_connection_info()?.set_tcp_settings(reset);
    let Some(password) = password else {
        if info.redis_settings().password().is_some() {
            tracing::warn!(
                "the password in --backend can be read by every user of this machine: use --backend-password-file"
            );
        }
        return Ok(info);
    };
    let settings = info.redis_settings().clone().set_password(password);
    Ok(info.set_redis_settings(settings))
}

/// The node that is there; none by a Unix socket.
pub(super) fn node_at(at: &ConnectionAddr) -> Option<NodeAddress> {
    let ConnectionAddr::Tcp(host, port) = at else { return None };
    Some(NodeAddress { host: host.clone(), port: *port })
}
