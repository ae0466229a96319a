//! How fast it is, for people to read: `cargo test --release -p store --test speed -- --ignored --nocapture`.

mod support;

use std::time::{Duration, Instant};

use store::{Config, Populate};
use support::{Client, Running};
use wire::{Header, Op, Packet, Secret};

#[test]
#[ignore = "prints times, checks none"]
fn reads_per_second() {
    let begun = Instant::now();
    let populate = Some(Populate {
        count: 1_000_000,
        value_len: 128,
    });
    let store = Running::start(Config {
        populate,
        ..support::loopback()
    });
    println!("started with 1,000,000 items after {:?}", begun.elapsed());
    let requests: Vec<Vec<u8>> = (0..65_536_u32)
        .map(|i| {
            let key = format!("key{:013}", i.wrapping_mul(7919) % 1_000_000);
            let mut header = Header::new(Op::ReadRequest);
            header.key_hash = Secret::NONE.key_hash(0, key.as_bytes());
            let mut bytes = Vec::new();
            Packet::new(header, key.as_bytes(), &[])
                .encode(&Secret::NONE, &mut bytes)
                .unwrap();
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
            socket.send(&requests[sent % requests.len()]).unwrap();
            sent += 1;
        }
        received = if socket.recv(&mut buffer).is_ok() {
            received + 1
        } else {
            sent
        };
    }
    let rate = received as f64 / begun.elapsed().as_secs_f64();
    let cpu_us = (cpu_ns() - cpu_before) as f64 / 1e3 / received as f64;
    println!(
        "{cpu_us:.2} us of the store's thread per read: {:.0} reads/s per core",
        1e6 / cpu_us
    );
    println!("{rate:.0} reads/s through one socket with 256 outstanding, client included");
}

/// What the store's thread has run so far, system calls included.
fn cpu_ns() -> u64 {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let read = |path: std::path::PathBuf| std::fs::read_to_string(path).unwrap_or_default();
    tasks
        .filter(|task| read(task.path().join("comm")).trim() == "store")
        .filter_map(|task| {
            read(task.path().join("schedstat"))
                .split(' ')
                .next()?
                .parse::<u64>()
                .ok()
        })
        .sum()
}
