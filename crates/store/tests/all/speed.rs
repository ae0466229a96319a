//! How fast it is, for people to read:
//! `cargo test --release -p store --test all -- --ignored --nocapture`.

use std::time::{Duration, Instant};

use wire::{Header, Op, Packet, Secret};

use super::support::{self, Client, StoreThread};

/// Items that are there from the start.
const ITEMS: u32 = 1_000_000;

#[test]
#[ignore = "prints times, checks none"]
fn requests_per_second() {
    let begun = Instant::now();
    let store = StoreThread::populated(support::loopback(), ITEMS.into(), 128);
    println!("started with {ITEMS} items after {:?}", begun.elapsed());
    run(&store, "read", Op::ReadRequest, &[]);
    Client::to(store.address).write(b"key0000000000000", &[7; 128]);
    run(&store, "write", Op::WriteRequest, &[7; 128]);
}

/// Asks for two seconds, with 256 requests outstanding.
fn run(store: &StoreThread, name: &str, op: Op, value: &[u8]) {
    let mut requests: Vec<Vec<u8>> = (0..65_536_u32)
        .map(|i| {
            let key = format!("key{:013}", i.wrapping_mul(7919) % ITEMS);
            let mut header = Header::new(op);
            header.key_hash = Secret::NONE.key_hash(0, key.as_bytes());
            let mut bytes =
                Packet::new(header, key.as_bytes(), value).to_bytes(&Secret::NONE).unwrap();
            bytes.resize(64 + 16 + 128, 0);
            bytes
        })
        .collect();
    let cpu_before = cpu_ns();
    let socket = Client::to(store.address).socket;
    let (mut sent, mut received, mut buffer) = (0, 0, [0; 2048]);
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(2) {
        while sent < received + 256 {
            let at = sent % requests.len();
            // The request's number: a write that has the same as another is not carried out again.
            requests[at][16..24].copy_from_slice(&(sent as u64).to_be_bytes());
            socket.send(&requests[at]).unwrap();
            sent += 1;
        }
        received = if socket.recv(&mut buffer).is_ok() { received + 1 } else { sent };
    }
    let rate = received as f64 / begun.elapsed().as_secs_f64();
    let cpu_us = (cpu_ns() - cpu_before) as f64 / 1e3 / received as f64;
    println!(
        "{cpu_us:.2} us of the store's thread per {name}: {:.0} {name}s/s per core",
        1e6 / cpu_us
    );
    println!("{rate:.0} {name}s/s through one socket with 256 outstanding, client included");
}

/// What the store's thread has run so far, system calls included.
fn cpu_ns() -> u64 {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let read = |path: std::path::PathBuf| std::fs::read_to_string(path).unwrap_or_default();
    tasks
        .filter(|task| read(task.path().join("comm")).trim() == "store")
        .filter_map(|task| {
            read(task.path().join("schedstat")).split(' ').next()?.parse::<u64>().ok()
        })
        .sum()
}
