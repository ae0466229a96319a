//! Where Redis servers are, as `--backend` names them.

use std::time::Duration;

use anyhow::{anyhow, bail};
use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo, io::tcp::TcpSettings};
use text::url::without_login;

use crate::slot_map::NodeAddress;

/// The highest number of a database that Redis can have.
const DATABASE_MOST: i64 = i32::MAX as i64;

/// The servers that `urls` names, separated by commas, with the password; and whether they are
/// reached by TLS. `option` is what they were given as.
pub(crate) fn addresses(
    option: &str,
    urls: &str,
    password: Option<&str>,
) -> anyhow::Result<(bool, Vec<ConnectionInfo>)> {
    // A comma may stand in a URL, too.
    let urls = urls.replace(",redis", "\nredis");
    let secure = urls.split('\n').filter(|url| url.starts_with("rediss://")).count();
    anyhow::ensure!(
        secure == 0 || secure == urls.split('\n').count(),
        "{option}: expected rediss:// for all of the servers that one master may be at, or for none"
    );
    let all = urls.split('\n').map(|url| address(option, url, password));
    Ok((secure > 0, all.collect::<Result<_, _>>()?))
}

/// The server of one URL, with the password.
pub(super) fn address(
    option: &str,
    url: &str,
    password: Option<&str>,
) -> anyhow::Result<ConnectionInfo> {
    // Without TLS, which is all that `redis` reads here.
    let plain = match url.strip_prefix("rediss://") {
        Some(rest) => format!("redis://{rest}"),
        None => url.to_string(),
    };
    let info = plain.into_connection_info().map_err(|error| {
        let shown = without_login(url);
        anyhow!(
            "{option} {shown}: expected redis[s]://HOST:PORT[/DB] or redis+unix:///PATH ({error})"
        )
    })?;
    let database = info.redis_settings().db();
    if !(0..=DATABASE_MOST).contains(&database) {
        let shown = without_login(url);
        bail!(
            "{option} {shown}: database {database}: expected redis[s]://HOST:PORT[/DB] with 0 to {DATABASE_MOST}"
        );
    }
    // Given up, a connection takes along what has not arrived: behind a partition the system would
    // deliver a write much later, over those that were acknowledged since.
    let reset = TcpSettings::default().set_linger_time(Duration::ZERO);
    let info = info.set_tcp_settings(reset);
    let Some(password) = password else {
        if info.redis_settings().password().is_some() {
            tracing::warn!(
                "the password in {option} can be read by every user of this machine: use --backend-password-file"
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
