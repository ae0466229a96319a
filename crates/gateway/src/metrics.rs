//! What this gateway counts, for Prometheus: plain text by HTTP at `/metrics`.

use std::{fmt::Write, sync::Arc, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    time::timeout,
};

use crate::shared::GatewayState;

/// Longest request in bytes.
const MAX_REQUEST: usize = 8 << 10;
/// How long one may take, its answer included: the next one waits meanwhile.
const ANSWERED_WITHIN: Duration = Duration::from_secs(2);

/// Answers one request after the other, for as long as it is polled.
pub(crate) async fn serve(listener: TcpListener, shared: Arc<GatewayState>) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let _ = timeout(ANSWERED_WITHIN, answer(stream, &shared)).await;
            }
            // No descriptor is free, most likely.
            Err(_) => tokio::time::sleep(ANSWERED_WITHIN).await,
        }
    }
}

async fn answer(mut stream: TcpStream, shared: &GatewayState) -> std::io::Result<()> {
    let mut request = vec![];
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        let is_over = request.len() >= MAX_REQUEST || stream.read_buf(&mut request).await? == 0;
        if is_over {
            return Ok(());
        }
    }
    let is_ours =
        [&b"GET /metrics "[..], b"GET /metrics?"].iter().any(|it| request.starts_with(it));
    let (status, text) = match is_ours {
        true => ("200 OK", text(shared)),
        false => ("404 Not Found", "expected GET /metrics\n".into()),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        text.len()
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(text.as_bytes()).await?;
    stream.shutdown().await
}

fn text(shared: &GatewayState) -> String {
    let mut out = String::new();
    let mut one = |name: &str, kind: &str, value: u64| {
        let _ = writeln!(out, "# TYPE shortstop_gateway_{name} {kind}");
        let _ = writeln!(out, "shortstop_gateway_{name} {value}");
    };
    let (large, _) = shared.memory.used_and_total();
    one("connected_clients", "gauge", shared.connected() as u64);
    one("held_memory_bytes", "gauge", shared.held() as u64);
    one("backlog_memory_bytes", "gauge", shared.waiting_for_servers() as u64);
    one("large_requests_memory_bytes", "gauge", large as u64);
    one("max_memory_bytes", "gauge", shared.limits.memory_bytes as u64);
    for (name, count) in shared.counters.read() {
        one(name, "counter", count);
    }
    let _ = writeln!(out, "# TYPE shortstop_gateway_failed_calls counter");
    for of in shared.stats.read() {
        let (name, failed) = (&of.name, of.failed);
        let _ = writeln!(out, "shortstop_gateway_failed_calls{{command=\"{name}\"}} {failed}");
    }
    let _ = writeln!(out, "# TYPE shortstop_gateway_command_seconds histogram");
    for of in shared.stats.read() {
        let (name, mut sum) = (&of.name, 0);
        for (bucket, count) in of.took.iter().enumerate() {
            sum += count;
            let le = match bucket + 1 < of.took.len() {
                true => ((1u64 << bucket) as f64 / 1e6).to_string(),
                false => "+Inf".into(),
            };
            let _ = writeln!(
                out,
                "shortstop_gateway_command_seconds_bucket{{command=\"{name}\",le=\"{le}\"}} {sum}"
            );
        }
        let seconds = of.us as f64 / 1e6;
        let _ =
            writeln!(out, "shortstop_gateway_command_seconds_sum{{command=\"{name}\"}} {seconds}");
        let _ =
            writeln!(out, "shortstop_gateway_command_seconds_count{{command=\"{name}\"}} {sum}");
    }
    out
}
