//! Takes connections, as many as are allowed, and gives each a task.

use std::{future::Future, sync::Arc, time::Duration};

use tokio::{
    io::AsyncWriteExt,
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
    time::timeout,
};

use crate::{
    resp::connection::Connection,
    shared::GatewayState,
    strings::{data::Data, session::Session},
};

/// After an error of accept (no file descriptor is free) it is tried again so much later.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);

/// When it stops, connections may take so long to end.
const STOPS_WITHIN: Duration = Duration::from_secs(5);

/// Serves until `stop` is done. Then it takes no connection any more, answers what it has been
/// sent, and ends the connections.
pub(crate) async fn serve<D: Data>(
    listener: TcpListener,
    data: Arc<D>,
    shared: Arc<GatewayState>,
    stop: impl Future<Output = ()>,
) {
    tokio::pin!(stop);
    let mut connections = JoinSet::new();
    let (leave, leaves) = watch::channel(false);
    let mut id = 0;
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next() => {
                shared.set_connected(connections.len());
                continue;
            }
            () = &mut stop => break,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_AGAIN).await;
                continue;
            }
        };
        if connections.len() >= shared.limits.connections {
            shared.counters.rejected_connections.add_one();
            refuse(stream);
            continue;
        }
        shared.counters.total_connections_received.add_one();
        id += 1;
        let session = Session::new(id, peer);
        let connection = Connection::new(session, data.clone(), shared.clone());
        let leaves = leaves.clone();
        connections.spawn(async move {
            let mut stream = stream;
            let _ = stream.set_nodelay(true);
            let (read, write) = stream.split();
            if let Err(error) = connection.serve(read, write, leaves).await {
                tracing::debug!(%peer, %error, "connection ended");
            }
        });
        shared.set_connected(connections.len());
    }
    drop(listener);
    let _ = leave.send(true);
    let all = async { while connections.join_next().await.is_some() {} };
    if timeout(STOPS_WITHIN, all).await.is_err() {
        tracing::warn!("{} connections did not end in time", connections.len());
    }
}

/// Says why, as far as that is possible without waiting.
fn refuse(mut stream: TcpStream) {
    use futures_util::FutureExt;
    let line = b"-ERR max number of clients reached\r\n";
    let _ = stream.write_all(line).now_or_never();
}
