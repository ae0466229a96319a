//! A peer that asks and never takes the answer gives its place back, whether it leaves it in TCP or
//! says by HTTP/2 that it takes none of it.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{Router, body::Body, routing::get};
use bytes::Bytes;
use control::serve::{Listen, RunningServer};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::oneshot,
};
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

/// A frame of HTTP/2 (RFC 9113, section 4.1).
fn frame(kind: u8, flags: u8, stream: u32, body: &[u8]) -> Vec<u8> {
    let mut frame = (body.len() as u32).to_be_bytes()[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(body);
    frame
}

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
/// Of a DATA or HEADERS frame: the last one.
const END_STREAM: u8 = 1;

/// Asks for this path as a peer who takes so many bytes of an answer, reads everything that comes,
/// and says that it is there whenever it is asked. Returns the bytes of the answer that came, and
/// whether they were all, once that is so or the connection has ended.
async fn ask(address: std::net::SocketAddr, path: &str, window: u32) -> (usize, bool) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let mut head = vec![0x82, 0x86, 0x04, path.len() as u8]; // GET, http, :path
    head.extend(path.as_bytes());
    head.extend(*b"\x01\x04here"); // :authority
    let mut settings = 4u16.to_be_bytes().to_vec(); // INITIAL_WINDOW_SIZE
    settings.extend(window.to_be_bytes());
    let end_headers = 4;
    let asked = [
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
        frame(SETTINGS, 0, 0, &settings),
        frame(HEADERS, END_STREAM | end_headers, 1, &head),
    ];
    stream.write_all(&asked.concat()).await.unwrap();
    let mut came = 0;
    let mut start = [0; 9];
    while stream.read_exact(&mut start).await.is_ok() {
        let length = u32::from_be_bytes([0, start[0], start[1], start[2]]);
        let mut body = vec![0; length as usize];
        if stream.read_exact(&mut body).await.is_err() {
            break;
        }
        let (kind, flags) = (start[3], start[4]);
        if kind == DATA {
            came += body.len();
        }
        if (kind == DATA || kind == HEADERS) && flags & END_STREAM != 0 {
            return (came, true);
        }
        let is_answer = flags & 1 != 0;
        if kind == PING && !is_answer {
            stream.write_all(&frame(PING, 1, 0, &body)).await.unwrap();
        }
    }
    (came, false)
}

#[tokio::test]
async fn who_says_that_it_takes_no_answer_is_disconnected() {
    const LONG: usize = 60_000;
    let long = || async { vec![b'x'; LONG] };
    let listen = Listen {
        unread_for: Duration::from_millis(200),
        stranger_for: PATIENCE * 2,
        ..Listen::on(loopback())
    };
    let app = |_| Router::new().route("/long", get(long));
    let server = RunningServer::start(&listen, app).await.unwrap();
    // Of nothing, of a part, and of all of it but the end.
    for window in [0, 1000, LONG as u32 - 1] {
        let asked = ask(server.address(), "/long", window);
        let (came, complete) = tokio::time::timeout(PATIENCE, asked).await.expect("an end");
        assert!(!complete && came == window as usize, "{came} bytes of {window}");
    }
    assert_eq!(ask(server.address(), "/long", LONG as u32).await, (LONG, true));
    server.stop().await;
}
