//! How TCP connections are prepared: each ends, too, if the host at its other end has vanished
//! without a word, as one without power does, or one behind a firewall that has forgotten the
//! connection.

use std::{io, time::Duration};

use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;

/// A server whose host says nothing for so long is asked whether it is there, and again twice.
const SERVER_ABSENT_AFTER: Duration = Duration::from_secs(10);
/// A client that says nothing for so long is asked whether it is there, as by a Redis.
const CLIENT_ABSENT_AFTER: Duration = Duration::from_secs(300);

/// Prepares a connection to a server. Given up, it takes along what has not arrived: behind a
/// partition the system would deliver a command much later, over what was answered since.
///
/// # Errors
/// Those of the system.
pub(crate) fn to_server(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_zero_linger()?;
    let asks = TcpKeepalive::new().with_time(SERVER_ABSENT_AFTER).with_retries(2);
    let socket = SockRef::from(stream);
    socket.set_tcp_keepalive(&asks.with_interval(SERVER_ABSENT_AFTER / 2))?;
    // Of what was sent and is not acknowledged.
    socket.set_tcp_user_timeout(Some(2 * SERVER_ABSENT_AFTER))
}

/// Prepares a client's connection. It may wait for what is others', as a blocking command does, and
/// so say nothing for long.
///
/// # Errors
/// Those of the system.
pub(crate) fn from_client(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let asks = TcpKeepalive::new().with_time(CLIENT_ABSENT_AFTER);
    SockRef::from(stream).set_tcp_keepalive(&asks.with_interval(CLIENT_ABSENT_AFTER / 3))
}
