//! Keys are where servers and proxies that run today put them, by their own answers: a Redis says
//! the slot of each key, twemproxy puts keys into memcached servers in which they are looked for,
//! and of libmemcached there is a record of where it looks.

use std::{
    collections::BTreeSet,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
};

use anyhow::{Context, ensure};
use lab::{interrupt, port};
use serde::{Deserialize, Serialize};
use serde_json::json;
use text::table::{Table, thousands};
use wire::{Cluster, KeyHasher, TENANT_OPEN, cluster_slot, partition_of};

use crate::{
    Measure, Options, Report, Run,
    loopback::{Directory, Process, printed, stream},
};

/// Distributions and hashes of twemproxy, and hash tags.
const POOLS: [(&str, &str, &str); 8] = [
    ("ketama", "fnv1a_64", ""),
    ("ketama", "md5", "{}"),
    ("ketama", "one_at_a_time", ""),
    ("modula", "fnv1_64", ""),
    ("modula", "crc32a", "{}"),
    ("modula", "crc32", ""),
    ("ketama", "fnv1_32", ""),
    ("ketama", "fnv1a_32", ""),
];
/// Servers of a pool, by their weights.
const WEIGHTS: [u32; 4] = [1, 2, 1, 5];
/// Keys that are asked for in a row.
const IN_A_ROW: u32 = 500;
/// By `memcached_generate_hash` of libmemcached 1.1.4.
const LIBMEMCACHED: &str = include_str!("../../../../crates/wire/src/scheme/libmemcached.json");

/// Parameters of where keys lie.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Placement {
    /// Keys whose slots a Redis says, and as many in the pools of twemproxy together.
    keys: u32,
}

impl Measure for Placement {
    fn check(&self) -> anyhow::Result<()> {
        ensure!(self.keys >= 1000, "keys = {}: at least 1000 are needed", self.keys);
        Ok(())
    }

    fn needs(&self, _: &Options) -> Option<&'static str> {
        Some("Redis, memcached and twemproxy")
    }

    fn run(&self, run: &Run<'_>, report: &mut Report) -> anyhow::Result<()> {
        let directory = Directory::of_run(run.name)?;
        let mut table = Table::new(&["by", "keys", "misplaced"]);
        let (mut keys, mut misplaced) = (0, 0);
        let mut note = |by: String, places: Places| {
            table.row([by.clone(), thousands(places.keys.into()), thousands(places.wrong.into())]);
            report.rows.push(json!({ "by": by, "keys": places.keys, "misplaced": places.wrong }));
            keys += u64::from(places.keys);
            misplaced += u64::from(places.wrong);
        };
        run.progress.say("slots");
        note("CLUSTER KEYSLOT of Redis".into(), slots(&directory, self.keys)?);
        for (distribution, hash, hash_tag) in POOLS {
            interrupt::check()?;
            run.progress.say(format!("twemproxy, {distribution} {hash}"));
            let each = self.keys / POOLS.len() as u32;
            let places = twemproxy(&directory, [distribution, hash, hash_tag], each)?;
            note(format!("twemproxy, {distribution} {hash} {hash_tag}").trim_end().into(), places);
        }
        for row in serde_json::from_str::<Vec<Record>>(LIBMEMCACHED)? {
            note(format!("libmemcached, {} of {}", row.scheme, row.servers.len()), row.places()?);
        }
        report.text = table.render();
        report.count("keys", keys);
        report.count("misplaced", misplaced);
        Ok(())
    }
}

/// Keys, and how many of them we look for elsewhere than they are.
struct Places {
    keys: u32,
    wrong: u32,
}

/// Keys with hash tags, whole and not, and with bytes that are no text.
fn slot_key(at: u32) -> Vec<u8> {
    match at % 5 {
        0 => format!("user:{{{at}}}:name").into_bytes(),
        1 => format!("{{{{{at}}}x{{}}").into_bytes(),
        2 => [&at.to_le_bytes()[..], b"\r\n\0{}"].concat(),
        3 => format!("a{{}}b{{{at}}}").into_bytes(),
        _ => format!("key:{at:012}").into_bytes(),
    }
}

fn slots(directory: &Directory, keys: u32) -> anyhow::Result<Places> {
    let (port, bus) = (port::free(), port::free().to_string());
    let text = port.to_string();
    let words = ["--port", &text, "--cluster-port", &bus, "--bind", "127.0.0.1", "--save", ""];
    let path = directory.0.display().to_string();
    let words = [&words[..], &["--cluster-enabled", "yes", "--dir", &path]].concat();
    let _redis = Process::server("redis-server", &words, port)?;
    let mut lines = BufReader::new(stream(port)?);
    let mut wrong = 0;
    for first in (0..keys).step_by(IN_A_ROW as usize) {
        let row = first..keys.min(first + IN_A_ROW);
        let mut bytes = vec![];
        for key in row.clone().map(slot_key) {
            write!(bytes, "*3\r\n$7\r\nCLUSTER\r\n$7\r\nKEYSLOT\r\n${}\r\n", key.len())?;
            bytes.extend_from_slice(&key);
            bytes.extend_from_slice(b"\r\n");
        }
        lines.get_mut().write_all(&bytes)?;
        for key in row.map(slot_key) {
            let mut line = String::new();
            lines.read_line(&mut line)?;
            let slot: u32 = line.trim_end().strip_prefix(':').context("a number")?.parse()?;
            wrong += u32::from(cluster_slot(&key) != slot);
        }
    }
    Ok(Places { keys, wrong })
}

/// The hasher and the partitions of the cluster file that is written for a pool.
fn pool(words: &[&str], servers: &[String]) -> anyhow::Result<(KeyHasher, u32)> {
    let servers: Vec<&str> = servers.iter().map(String::as_str).collect();
    let words = [&["cluster", "pool"], words, &servers].concat();
    hasher_of(&printed(&words)?)
}

fn hasher_of(cluster_file: &str) -> anyhow::Result<(KeyHasher, u32)> {
    let cluster = Cluster::parse(cluster_file)?;
    let hasher = cluster.secrets_of(TENANT_OPEN).context("tenant 0")?.hash;
    Ok((hasher, cluster.partitions))
}

fn pool_key(at: u32) -> String {
    format!("k\u{e9}y:{{{}}}:{at}", at % 700)
}

/// Has twemproxy put keys into servers, and looks for them where the pool's cluster file says.
fn twemproxy(
    directory: &Directory,
    [distribution, hash, hash_tag]: [&str; 3],
    keys: u32,
) -> anyhow::Result<Places> {
    let mut servers = vec![];
    let mut names = vec![];
    for weight in WEIGHTS {
        let port = port::free();
        let words = ["-l", "127.0.0.1", "-p", &port.to_string(), "-u", "root"];
        servers.push((Process::server("memcached", &words, port)?, port));
        names.push(format!("127.0.0.1:{port}:{weight}"));
    }
    let proxy = port::free();
    let listed: String = names.iter().map(|name| format!("   - {name}\n")).collect();
    let tag = match hash_tag {
        "" => String::new(),
        tag => format!("  hash_tag: \"{tag}\"\n"),
    };
    let text = format!(
        "pool:\n  listen: 127.0.0.1:{proxy}\n  hash: {hash}\n{tag}  distribution: {distribution}\n  \
         auto_eject_hosts: false\n  servers:\n{listed}"
    );
    let file = directory.0.join(format!("{proxy}.yml"));
    std::fs::write(&file, text)?;
    let (file, stats) = (file.display().to_string(), port::free().to_string());
    let words = ["-c", &file, "-a", "127.0.0.1", "-s", &stats];
    let _proxy = Process::server("nutcracker", &words, proxy)?;
    let scheme = format!("twemproxy-{distribution}");
    let words = ["--scheme", &scheme, "--digest", hash];
    let tag = ["--hash-tag", hash_tag];
    let tag = if hash_tag.is_empty() { &[][..] } else { &tag[..] };
    let (hasher, partitions) = pool(&[&words[..], tag].concat(), &names)?;

    let mut lines = BufReader::new(stream(proxy)?);
    let mut here: Vec<TcpStream> =
        servers.iter().map(|(_, port)| stream(*port)).collect::<Result<_, _>>()?;
    let mut wrong = 0;
    for first in (0..keys).step_by(IN_A_ROW as usize) {
        let row = first..keys.min(first + IN_A_ROW);
        let set = |at| format!("set {} 0 0 1\r\nx\r\n", pool_key(at));
        lines.get_mut().write_all(row.clone().map(set).collect::<String>().as_bytes())?;
        for _ in row.clone() {
            let mut line = String::new();
            lines.read_line(&mut line)?;
            ensure!(line.trim_end() == "STORED", "twemproxy answered {line:?}");
        }
        let mut wanted: Vec<BTreeSet<String>> = vec![BTreeSet::new(); here.len()];
        for key in row.map(pool_key) {
            let partition = partition_of(hasher.key_hash(TENANT_OPEN, key.as_bytes()), partitions);
            wanted[partition as usize].insert(key);
        }
        for (server, wanted) in here.iter_mut().zip(wanted) {
            wrong += wanted.len() as u32 - found(server, &wanted)?;
        }
    }
    Ok(Places { keys, wrong })
}

/// How many of keys a memcached server has.
fn found(server: &mut TcpStream, keys: &BTreeSet<String>) -> anyhow::Result<u32> {
    if keys.is_empty() {
        return Ok(0);
    }
    let names: Vec<&str> = keys.iter().map(String::as_str).collect();
    server.write_all(format!("get {}\r\n", names.join(" ")).as_bytes())?;
    let mut answer = vec![];
    while !answer.ends_with(b"END\r\n") {
        let mut piece = [0; 4096];
        let len = server.read(&mut piece)?;
        ensure!(len > 0, "memcached has gone");
        answer.extend_from_slice(&piece[..len]);
    }
    let lines = answer.split(|byte| *byte == b'\n');
    Ok(lines.filter(|line| line.starts_with(b"VALUE ")).count() as u32)
}

/// Where libmemcached looks for keys.
#[derive(Deserialize)]
struct Record {
    scheme: String,
    servers: Vec<(String, u32)>,
    /// Of each key its server's place, one digit each, to the base of 16.
    places: String,
}

impl Record {
    fn places(&self) -> anyhow::Result<Places> {
        // The names count, and nobody is there.
        let here = |at: usize| format!("127.0.0.1:{}", 20_001 + at);
        let weights = self.servers.iter().map(|(_, weight)| weight).enumerate();
        let listed: Vec<String> =
            weights.map(|(at, weight)| format!("{}:{weight}", here(at))).collect();
        let words: Vec<&str> = listed.iter().map(String::as_str).collect();
        let words = [&["cluster", "pool", "--scheme", &self.scheme][..], &words].concat();
        let mut text = printed(&words)?;
        for (at, (name, _)) in self.servers.iter().enumerate() {
            let there = format!("name = \"{name}\"");
            text = text.replace(&format!("name = \"{}\"", here(at)), &there);
        }
        let (hasher, partitions) = hasher_of(&text)?;
        let mut wrong = 0;
        for (at, place) in self.places.chars().enumerate() {
            let key = if at % 4 == 0 { format!("k\u{e9}y{at}") } else { format!("key{at}") };
            let found = partition_of(hasher.key_hash(TENANT_OPEN, key.as_bytes()), partitions);
            wrong += u32::from(Some(found) != place.to_digit(16));
        }
        Ok(Places { keys: self.places.len() as u32, wrong })
    }
}
