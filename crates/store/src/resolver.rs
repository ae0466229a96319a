//! What names mean: the system's resolver, or another in its place.

use std::{
    fmt, io,
    net::{SocketAddr, ToSocketAddrs},
    sync::Arc,
    thread,
};

use tokio::sync::oneshot;

type LookupFunction = dyn Fn(&str, u16) -> io::Result<Vec<SocketAddr>> + Send + Sync;

/// Tells which addresses a name means, each with the port that is asked for with it.
#[derive(Clone)]
pub struct Resolver(Arc<LookupFunction>);

impl Resolver {
    /// One that asks this. It may take as long as it likes.
    pub fn new(
        look_up: impl Fn(&str, u16) -> io::Result<Vec<SocketAddr>> + Send + Sync + 'static,
    ) -> Resolver {
        Resolver(Arc::new(look_up))
    }

    /// Begins to look a name up. It is done in a thread of its own: the system's resolver may hang
    /// for longer than a process has to end, and a runtime waits for what its own threads do.
    pub(crate) fn ask(
        &self,
        name: &str,
        port: u16,
    ) -> oneshot::Receiver<io::Result<Vec<SocketAddr>>> {
        let (answer, answered) = oneshot::channel();
        let (look_up, name) = (self.0.clone(), name.to_string());
        let asks = move || drop(answer.send(look_up(&name, port)));
        if let Err(error) = thread::Builder::new().name("resolver".into()).spawn(asks) {
            tracing::debug!("a name cannot be looked up: {error}");
        }
        answered
    }
}

impl Default for Resolver {
    /// The system's.
    fn default() -> Resolver {
        Resolver::new(|name, port| Ok((name, port).to_socket_addrs()?.collect()))
    }
}

impl fmt::Debug for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Resolver")
    }
}
