//! Clients that come by TLS, until both sides believe each other.
//!
//! What a peer can make grow before that: what `rustls` keeps of a handshake that is not whole, 64
//! KiB at most. So there are so many handshakes at a time, and one that has begun earlier gives way
//! to a new one: who is in earnest needs milliseconds.

use std::{collections::VecDeque, net::SocketAddr, time::Duration};

use tls::Acceptor;
use tokio::{net::TcpStream, sync::oneshot, time::timeout};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

/// Handshakes at a time.
const HANDSHAKES: usize = 512;
/// How long each may take.
const SHAKES_WITHIN: Duration = Duration::from_secs(10);

/// Handshakes that are not over, as they began; what ends one is dropped here.
#[derive(Default)]
pub(super) struct Handshakes(VecDeque<oneshot::Sender<()>>);

impl Handshakes {
    /// Has a handshake take place with whoever came: the connection, or nothing.
    pub fn accept(
        &mut self,
        acceptor: &Acceptor,
        stream: TcpStream,
        peer: SocketAddr,
    ) -> impl Future<Output = Option<TlsStream<TcpStream>>> + use<> {
        self.0.retain(|ends| !ends.is_closed());
        if self.0.len() == HANDSHAKES {
            self.0.pop_front();
        }
        let (ends, ended) = oneshot::channel();
        self.0.push_back(ends);
        let acceptor = TlsAcceptor::from(acceptor.config());
        async move {
            let shaken = tokio::select! {
                shaken = timeout(SHAKES_WITHIN, acceptor.accept(stream)) => shaken,
                _ = ended => return None,
            };
            match shaken {
                Ok(Ok(stream)) => return Some(stream),
                Ok(Err(error)) => tracing::debug!("RESP port: {peer} is not believed: {error}"),
                Err(_) => tracing::debug!("RESP port: {peer} did not shake hands in time"),
            }
            None
        }
    }
}
