//! How much memory a gateway takes that keeps copies, over what `--cache` says: of values of all
//! lengths, while twice as much is asked for as can be kept, and somebody reads through many more
//! keys once.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use lab::{interrupt, namespace, rack::Lab};
use plan::topology::ProcessSpec;
use redis::Connection;
use wire::mixed;

use crate::{
    gateway::listens,
    report::{Report, Side, Target::AtMost},
    status,
    words::words,
};

/// Its row.
pub const MEMORY: &str = "gateway_memory_over_cache";
const MOST: f64 = 1.3;

const NAME: &str = "kept";
const PORT: u16 = 6381;
/// The gateway's `--cache`, in MiB.
const CACHE_MIB: usize = 32;
/// What is read again and again, over what can be kept.
const OFFERED: usize = 2;
/// Lengths of values lie between two powers of 2, as many below each power as below the next.
const SHORTEST_POWER: u64 = 4;
const LONGEST_POWER: u64 = 17;
/// The share of `--cache` from which on it counts as full, and how long that may take.
const FULL: f64 = 0.9;
const FULL_WITHIN: Duration = Duration::from_secs(60);
/// Keys that are read once, and the length of their values.
const SCANNED: usize = 20_000;
const SCANNED_LEN: usize = 1 << 10;
/// Commands under way at a time.
const AT_ONCE: usize = 32;

/// A key with the length of its value.
struct SizedKey {
    name: String,
    len: usize,
}

/// Keys with values of all lengths that come to so many bytes.
fn of_all_lengths(bytes: usize) -> Vec<SizedKey> {
    let (mut keys, mut sum) = (vec![], 0);
    while sum < bytes {
        let drawn = mixed(keys.len() as u64);
        let power = SHORTEST_POWER + drawn % (LONGEST_POWER - SHORTEST_POWER);
        let len = ((1 << power) + (drawn >> 32) % (1 << power)) as usize;
        keys.push(SizedKey { name: format!("kept:{}", keys.len()), len });
        sum += len;
    }
    keys
}

fn write(connection: &mut Connection, keys: &[SizedKey]) -> anyhow::Result<()> {
    for keys in keys.chunks(AT_ONCE) {
        let mut commands = redis::pipe();
        for key in keys {
            commands.set(&key.name, vec![b'v'; key.len]).ignore();
        }
        commands.query::<()>(connection)?;
    }
    Ok(())
}

fn read(connection: &mut Connection, keys: &[SizedKey]) -> anyhow::Result<()> {
    for keys in keys.chunks(AT_ONCE) {
        let mut commands = redis::pipe();
        for key in keys {
            commands.get(&key.name);
        }
        let values: Vec<Vec<u8>> = commands.query(connection)?;
        for (key, value) in keys.iter().zip(values) {
            ensure!(value.len() == key.len, "{} has {} bytes", key.name, value.len());
        }
    }
    Ok(())
}

/// Bytes of copies that the gateway has by its own count, and all that it says of them.
fn kept(connection: &mut Connection) -> anyhow::Result<(f64, String)> {
    let text: String = redis::cmd("INFO").arg("gateway").query(connection)?;
    let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("local_")).collect();
    let bytes = lines.iter().find_map(|line| line.strip_prefix("local_bytes:"));
    let bytes = bytes.context("INFO gateway has no local_bytes")?;
    Ok((bytes.trim().parse().context("local_bytes")?, lines.join(", ")))
}

/// What the gateway's memory has grown by at most, in MiB; from within its namespace.
fn grown(gateway: i32) -> anyhow::Result<f64> {
    let memory = |name| status::number(format!("/proc/{gateway}"), name);
    let client = redis::Client::open(format!("redis://127.0.0.1:{PORT}"))?;
    let mut connection = client.get_connection()?;
    let keys = of_all_lengths(OFFERED * (CACHE_MIB << 20));
    let scanned: Vec<SizedKey> = (0..SCANNED)
        .map(|number| SizedKey { name: format!("scanned:{number}"), len: SCANNED_LEN })
        .collect();
    let before = memory("VmRSS")?;
    write(&mut connection, &keys)?;
    write(&mut connection, &scanned)?;
    let (full, began) = (FULL * (CACHE_MIB << 20) as f64, Instant::now());
    loop {
        read(&mut connection, &keys)?;
        interrupt::check()?;
        let (bytes, said) = kept(&mut connection)?;
        if bytes >= full {
            break;
        }
        // A cache that is not full says nothing about its bound.
        ensure!(began.elapsed() < FULL_WITHIN, "the gateway does not keep {full} bytes: {said}");
    }
    read(&mut connection, &scanned)?;
    read(&mut connection, &keys)?;
    Ok((memory("VmHWM")? - before) as f64 / 1024.0)
}

/// Adds the row, by a gateway of its own in this lab at `client`, whose store has its RESP port at
/// `{dir}/resp` and the address `store`.
///
/// # Errors
/// The gateway does not start, answers with an error, or does not keep what it may.
pub fn measure(
    report: &mut Report,
    lab: &mut Lab,
    client: &str,
    store: &str,
) -> anyhow::Result<()> {
    let command = format!(
        "shortstop gateway --server {{address:{store}}} --resp redis+unix://{{dir}}/resp \
         --listen 127.0.0.1:{PORT} --cache {CACHE_MIB}MiB"
    );
    lab.start(client, &ProcessSpec::new(NAME, words(&command)), false)?;
    listens(lab, client, PORT)?;
    let name = format!("{client}-{NAME}");
    let gateway = lab.process(&name).context(name)?.pid;
    let grown = namespace::within(&lab.namespace(client), || grown(gateway))?;
    let sides = [Side::new("grown by", &[grown]), Side::new("--cache", &[CACHE_MIB as f64])];
    report.ratio(MEMORY, AtMost(MOST), "MiB", sides);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_between_their_bounds_and_come_to_what_is_asked_for() {
        let keys = of_all_lengths(1 << 24);
        let lengths = 1 << SHORTEST_POWER..1 << LONGEST_POWER;
        assert!(keys.iter().all(|key| lengths.contains(&key.len)));
        let short = keys.iter().filter(|key| key.len < 1 << 10).count();
        assert!((keys.len() / 3..keys.len() * 2 / 3).contains(&short), "{short}");
        let sum: usize = keys.iter().map(|key| key.len).sum();
        assert!((1 << 24..(1 << 24) + (1 << LONGEST_POWER)).contains(&sum));
    }
}
