//! Clients that send commands, on sockets.

use std::{
    io::{BufRead, Write},
    time::Duration,
};

use redis::Value;
use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpStream, UnixStream},
    time::timeout,
};

use super::{CommandRecorder, CommandReplies, CommandsConfig};
use crate::{
    ClientRecord,
    client::now_ns,
    until_told::{Progress, run_until_told},
};

/// How long an answer may take; its question is open then, and the connection given up.
const PATIENCE: Duration = Duration::from_secs(10);
/// Before a client whose connection was lost tries again.
const AGAIN: Duration = Duration::from_millis(20);

/// What a process of clients that send commands does.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CommandClientsConfig {
    /// What they ask.
    pub commands: CommandsConfig,
    /// Whom: `ADDR:PORT`, or the path of a Unix socket.
    pub server: String,
    /// Longest pause between two commands of a client, in microseconds.
    pub pause_us: u64,
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

async fn connect(server: &str) -> anyhow::Result<Box<dyn Stream>> {
    if server.contains('/') {
        return Ok(Box::new(UnixStream::connect(server).await?));
    }
    let stream = TcpStream::connect(server).await?;
    stream.set_nodelay(true)?;
    Ok(Box::new(stream))
}

/// Runs clients until `input` ends; writes the number of operations every tenth of a second and
/// what was recorded at last, each as a line of JSON.
///
/// # Errors
/// Nobody reads the output.
pub fn command_clients(
    config: &CommandClientsConfig,
    input: impl BufRead + Send + 'static,
    output: impl Write,
) -> anyhow::Result<()> {
    run_until_told(input, output, async |progress| {
        let clients = &config.commands.clients;
        let numbers = clients.first..clients.first + clients.clients;
        let recorders = numbers.filter_map(|number| CommandRecorder::new(&config.commands, number));
        let begin = |recorder| tokio::spawn(record(recorder, config.clone(), progress.clone()));
        Ok(recorders.map(begin).collect())
    })
}

/// One client, until it is stopped.
async fn record(
    mut recorder: CommandRecorder,
    config: CommandClientsConfig,
    progress: Progress,
) -> ClientRecord {
    let mut connection = None;
    let mut pauses = 0u64;
    while !progress.is_stopped() {
        let Some(stream) = &mut connection else {
            match connect(&config.server).await {
                Ok(stream) => connection = Some(stream),
                Err(_) => tokio::time::sleep(AGAIN).await,
            }
            continue;
        };
        let asked = recorder.next(now_ns()).clone();
        let answer = timeout(PATIENCE, ask(stream, &asked.bytes, asked.replies)).await;
        let (replies, goes_on) = match answer {
            Ok(Ok((replies, goes_on))) => (Some(replies), goes_on),
            _ => (None, false),
        };
        progress.count(recorder.told(replies, now_ns()));
        if !goes_on {
            connection = None;
        }
        // Spread: they need not be drawn.
        pauses = pauses.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let pause_us = (pauses >> 16) % (config.pause_us + 1);
        tokio::time::sleep(Duration::from_micros(pause_us)).await;
    }
    recorder.into_recorded()
}

/// Asks one thing; its replies, and whether the connection can be used again.
async fn ask(
    stream: &mut Box<dyn Stream>,
    bytes: &[u8],
    count: usize,
) -> anyhow::Result<(Vec<Value>, bool)> {
    stream.write_all(bytes).await?;
    let (mut replies, mut room) = (CommandReplies::default(), vec![0; 64 << 10]);
    loop {
        let len = stream.read(&mut room).await?;
        anyhow::ensure!(len > 0, "the connection was lost");
        replies.take(&room[..len])?;
        if let Some(whole) = replies.whole(count) {
            return Ok((whole, true));
        }
        if let Some(refused) = replies.refused() {
            return Ok((refused, false));
        }
    }
}
