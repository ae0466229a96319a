//! A peer that asks and never reads the answer gives its place back.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{Router, body::Body, routing::get};
use bytes::Bytes;
use control::serve::{Listen, RunningServer};
use tokio::{io::AsyncWriteExt, net::TcpStream, sync::oneshot};
use tokio_stream::StreamExt;

use super::harness::{PATIENCE, loopback};

#[tokio::test]
async fn who_never_reads_an_answer_is_disconnected() {
    let (given_up, was_given_up) = oneshot::channel::<()>();
    let given_up = Arc::new(Mutex::new(Some(given_up)));
    // An answer without end; what tells of its end goes with it.
    let endless = move || {
        let given_up = given_up.lock().unwrap().take();
        async move {
            let chunks = tokio_stream::iter(std::iter::repeat(Bytes::from_static(&[b'x'; 65536])));
            Body::from_stream(chunks.map(move |chunk| {
                let _ = &given_up;
                Ok::<_, std::io::Error>(chunk)
            }))
        }
    };
    let app = |_| Router::new().route("/endless", get(endless));
    let listen = Listen {
        unread_for: Duration::from_millis(200),
        stranger_for: PATIENCE * 2,
        ..Listen::on(loopback())
    };
    let server = RunningServer::start(&listen, app).await.unwrap();
    let mut stream = TcpStream::connect(server.address()).await.unwrap();
    stream.write_all(b"GET /endless HTTP/1.1\r\nhost: here\r\n\r\n").await.unwrap();
    let ended = tokio::time::timeout(PATIENCE, was_given_up).await;
    assert!(ended.is_ok(), "its connection is still there");
    drop(stream);
    server.stop().await;
}
