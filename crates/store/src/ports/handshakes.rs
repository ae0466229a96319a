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
pub(super) struct Handshakes {
    begun: VecDeque<oneshot::Sender<()>>,
    /// What the port is called in the log.
    port: &'static str,
}

impl Handshakes {
    /// There are none at a port of this name.
    pub fn new(port: &'static str) -> Handshakes {
        Handshakes { begun: VecDeque::new(), port }
    }

    /// Has a handshake take place with whoever came: the connection, or nothing.
    pub fn accept(
        &mut self,
        acceptor: &Acceptor,
        stream: TcpStream,
        peer: SocketAddr,
    ) -> impl Future<Output = Option<TlsStream<TcpStream>>> + use<> {
        self.begun.retain(|ends| !ends.is_closed());
        if self.begun.len() == HANDSHAKES {
            self.begun.pop_front();
        }
        let (ends, ended) = oneshot::channel();
        self.begun.push_back(ends);
        let acceptor = TlsAcceptor::from(acceptor.config());
        let port = self.port;
        async move {
            let shaken = tokio::select! {
                shaken = timeout(SHAKES_WITHIN, acceptor.accept(stream)) => shaken,
                _ = ended => return None,
            };
            match shaken {
                Ok(Ok(stream)) => return Some(stream),
                Ok(Err(error)) => tracing::debug!("{port}: {peer} is not believed: {error}"),
                Err(_) => tracing::debug!("{port}: {peer} did not shake hands in time"),
            }
            None
        }
    }
}
