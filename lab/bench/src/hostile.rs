//! What a client of the gateway notices of others who mean no good: some never read their answers,
//! some never end their commands, some send commands of as many words as there may be.

use std::{
    io::{ErrorKind, Read, Write},
    net::TcpStream,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};

use crate::{
    gateway::key,
    report::{Report, Side, Target::AtMost},
    status,
};

/// Name of the row of latencies.
pub const P99: &str = "gateway_p99_beside_hostile_over_alone";
/// Name of the row of memory.
pub const MEMORY: &str = "gateway_memory_beside_hostile_over_bound";

/// Of each kind.
const HOSTILE: usize = 20;
/// Words of the longest commands.
const WORDS: usize = 65_536;
/// GETs by which a latency is measured, one at a time.
const ASKED: usize = 4_000;
/// How often they try to go on, and how much each says then at most.
const AGAIN: Duration = Duration::from_millis(5);
const SAID_BYTES: usize = 64 << 10;

/// A connection of one who means no good: what it says again and again.
struct HostileClient {
    stream: TcpStream,
    says: Vec<u8>,
    at: usize,
    /// It begins again at the end, or never comes to its end.
    repeats: bool,
}

impl HostileClient {
    fn connect(port: u16, says: Vec<u8>, repeats: bool) -> anyhow::Result<HostileClient> {
        let stream = TcpStream::connect(("127.0.0.1", port)).context("a hostile client")?;
        stream.set_nonblocking(true)?;
        Ok(HostileClient { stream, says, at: 0, repeats })
    }

    /// Says more, if that is taken. False: it was sent away.
    fn go_on(&mut self) -> bool {
        let mut said = 0;
        while said < SAID_BYTES {
            if self.at == self.says.len() {
                if !self.repeats {
                    return true;
                }
                self.at = 0;
            }
            let rest = &self.says[self.at..];
            match self.stream.write(&rest[..rest.len().min(SAID_BYTES)]) {
                Ok(len) => (self.at, said) = (self.at + len, said + len),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
                Err(_) => return false,
            }
        }
        true
    }
}

fn never_reads() -> Vec<u8> {
    let name = String::from_utf8_lossy(&key(1)).into_owned();
    format!("*2\r\n$3\r\nGET\r\n${}\r\n{name}\r\n", name.len()).repeat(100).into_bytes()
}

fn never_ends() -> Vec<u8> {
    let mut says = b"*3\r\n$3\r\nSET\r\n$4\r\nhalf\r\n$1048576\r\n".to_vec();
    says.resize(says.len() + (600 << 10), b'x');
    says
}

fn of_many_words() -> Vec<u8> {
    let mut says = format!("*{WORDS}\r\n$6\r\nEXISTS\r\n").into_bytes();
    says.extend(b"$2\r\nab\r\n".repeat(WORDS - 1));
    says.truncate(says.len() - 3);
    says
}

/// 99 in 100 GETs take no longer than this, in microseconds.
fn p99(port: u16) -> anyhow::Result<f64> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).context("the gateway")?;
    stream.set_nodelay(true)?;
    let name = String::from_utf8(key(2))?;
    let question = format!("*2\r\n$3\r\nGET\r\n${}\r\n{name}\r\n", name.len());
    let mut buffer = [0; 4096];
    let mut times = Vec::with_capacity(ASKED);
    for _ in 0..ASKED {
        let asked = Instant::now();
        stream.write_all(question.as_bytes())?;
        let len = stream.read(&mut buffer)?;
        ensure!(buffer[..len].starts_with(b"$"), "{}", String::from_utf8_lossy(&buffer[..len]));
        times.push(asked.elapsed());
    }
    times.sort_unstable();
    Ok(times[ASKED * 99 / 100].as_secs_f64() * 1e6)
}

fn resident(pid: i32) -> anyhow::Result<f64> {
    Ok(status::number(format!("/proc/{pid}"), "VmHWM")? as f64 / 1024.0)
}

/// Asks the gateway alone and beside hostile clients in turn; from within the client's namespace.
/// `bound_mib` is its `--max-memory`.
///
/// # Errors
/// The gateway ends, or answers with an error.
pub fn measure(
    report: &mut Report,
    (port, pid): (u16, i32),
    bound_mib: f64,
    batches: usize,
) -> anyhow::Result<()> {
    let before = resident(pid)?;
    let (mut alone, mut beside) = (vec![], vec![]);
    for _ in 0..batches {
        alone.push(p99(port)?);
        let kinds = [(never_reads(), true), (never_ends(), false), (of_many_words(), false)];
        let mut clients = vec![];
        for (says, repeats) in kinds {
            for _ in 0..HOSTILE {
                clients.push(HostileClient::connect(port, says.clone(), repeats)?);
            }
        }
        let done = AtomicBool::new(false);
        let measured = std::thread::scope(|scope| {
            let hostile = scope.spawn(|| -> anyhow::Result<()> {
                while !done.load(Relaxed) {
                    for client in &mut clients {
                        if !client.go_on() {
                            let says = std::mem::take(&mut client.says);
                            *client = HostileClient::connect(port, says, client.repeats)?;
                        }
                    }
                    std::thread::sleep(AGAIN);
                }
                Ok(())
            });
            let measured = p99(port);
            done.store(true, Relaxed);
            hostile.join().expect("it does not panic")?;
            measured
        })?;
        beside.push(measured);
    }
    let sides = [Side::new("beside hostile clients", &beside), Side::new("alone", &alone)];
    report.ratio(P99, AtMost(2.0), "us", sides);
    let sides = [
        Side::new("most memory", &[resident(pid)?]),
        Side::new("what it had before and --max-memory", &[before + bound_mib]),
    ];
    report.ratio(MEMORY, AtMost(1.0), "MiB", sides);
    Ok(())
}
