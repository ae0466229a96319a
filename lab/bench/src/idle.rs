//! What is taken where nothing is asked: how often a process that has nothing to do is woken, and
//! the gateway's memory for connections on which nothing is said. Then, on the same rack, its
//! memory for [copies](kept).

use std::{fs, net::TcpStream, time::Duration};

use anyhow::{Context, ensure};
use lab::{
    interrupt, namespace,
    rack::{Lab, unique_name},
};
use plan::{
    Line, Plan,
    topology::{ProcessSpec, Topology},
};

use crate::{
    Options, gateway, kept,
    report::{Report, Side, Target::AtMost},
    status,
    words::words,
};

/// Each process with the name of its row.
const WAKEUPS: [(&str, &str); 4] = [
    ("gateway", "gateway_wakeups_per_s"),
    ("store", "store_wakeups_per_s"),
    ("agent", "switch_wakeups_per_s"),
    ("control", "controller_wakeups_per_s"),
];
const MOST_WAKEUPS: f64 = 10.0;
const BYTES: &str = "bytes_per_idle_connection";
const MOST_BYTES: f64 = 4096.0;

/// How long each is watched, so many times.
const WATCHED: Duration = Duration::from_secs(5);
const TIMES: usize = 6;
/// Leases are as long as users have them unless they say otherwise: each is renewed three times in
/// its length.
const LEASE_MS: u32 = 2000;
/// Connections on which nothing is said. The gateway that takes them takes as many by default.
const CONNECTIONS: usize = 10_000;
const GATEWAY_PORT: u16 = 6380;

/// A line of one switch whose store has a Redis behind it, and a gateway at the client's.
fn topology(options: &Options) -> anyhow::Result<Topology> {
    let line = Line::of(1, 24, options.discipline.name);
    let leased = Plan { lease_ms: LEASE_MS, lease_max_ms: LEASE_MS, ..line.plan() };
    // So that the gateways, which have no tenant, are granted copies.
    let plan = Plan { is_open: true, ..leased };
    let mut topology = plan.topology()?;
    let (client, server) = (plan::client(1), plan::server(1));
    let redis =
        "redis-server --port 0 --unixsocket {dir}/redis.sock --save  --appendonly no --dir {dir}";
    let redis = ProcessSpec {
        ready: Some("{dir}/redis.sock".into()),
        ..ProcessSpec::new("redis", words(redis))
    };
    let gateway = format!(
        "shortstop gateway --server {{address:{server}}} --resp redis+unix://{{dir}}/resp \
         --backend redis+unix://{{dir}}/redis.sock --listen 127.0.0.1:{GATEWAY_PORT}"
    );
    for host in &mut topology.hosts {
        if host.name == server {
            for store in host.processes.iter_mut().filter(|process| process.name == "store") {
                store.command.extend(words("--backend redis+unix://{dir}/redis.sock"));
                store.command.extend(words("--resp unix:{dir}/resp"));
            }
            host.processes.insert(0, redis.clone());
        } else if host.name == client {
            host.processes.push(ProcessSpec::new("gateway", words(&gateway)));
        }
    }
    Ok(topology)
}

/// Times that a process's threads went to sleep of their own, which is how often they were woken.
fn wakeups(pid: i32) -> anyhow::Result<u64> {
    let mut all = 0;
    for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
        all += status::number(thread?.path(), "voluntary_ctxt_switches")?;
    }
    Ok(all)
}

/// Bytes of memory that a process has all to itself.
fn memory(pid: i32) -> anyhow::Result<u64> {
    Ok(status::number(format!("/proc/{pid}"), "RssAnon")? << 10)
}

fn pids(lab: &Lab) -> anyhow::Result<Vec<i32>> {
    let nodes = [plan::client(1), plan::server(1), plan::switch(1), plan::control(1)];
    let processes = WAKEUPS.iter().zip(nodes).map(|((name, _), node)| {
        let name = format!("{node}-{name}");
        lab.process(&name).map(|process| process.pid).context(name)
    });
    processes.collect()
}

fn watch(report: &mut Report, pids: &[i32]) -> anyhow::Result<()> {
    let all = || pids.iter().map(|pid| wakeups(*pid)).collect::<anyhow::Result<Vec<u64>>>();
    let mut counts = vec![all()?];
    for _ in 0..TIMES {
        std::thread::sleep(WATCHED);
        interrupt::check()?;
        counts.push(all()?);
    }
    for (at, (_, key)) in WAKEUPS.iter().enumerate() {
        let rates: Vec<f64> = counts
            .windows(2)
            // A thread that has ended takes its count along.
            .map(|pair| pair[1][at].saturating_sub(pair[0][at]) as f64 / WATCHED.as_secs_f64())
            .collect();
        let once = Side::new("a second", &vec![1.0; rates.len()]);
        report.ratio(key, AtMost(MOST_WAKEUPS), "", [Side::new("wakeups", &rates), once]);
    }
    Ok(())
}

/// Opens connections until the gateway has as many as it takes, says something on each, and
/// returns what they came to.
fn connect(gateway: i32) -> anyhow::Result<f64> {
    use std::io::{Read, Write};
    let before = memory(gateway)?;
    let mut streams = Vec::with_capacity(CONNECTIONS);
    for number in 0..CONNECTIONS {
        let stream = TcpStream::connect(("127.0.0.1", GATEWAY_PORT));
        let mut stream = stream.with_context(|| format!("connection {number}"))?;
        // One that was never used would show nothing: buffers have to be given back.
        stream.write_all(b"PING\r\n")?;
        let mut reply = [0; 7];
        stream.read_exact(&mut reply)?;
        ensure!(&reply == b"+PONG\r\n", "connection {number}: {reply:?}");
        streams.push(stream);
    }
    Ok(memory(gateway)?.saturating_sub(before) as f64 / CONNECTIONS as f64)
}

/// Measures the rows and adds them to the report. Left out where there is no Redis.
///
/// # Errors
/// No privilege, or a process that does not start.
pub fn measure(options: &Options, report: &mut Report, say: &impl Fn(&str)) -> anyhow::Result<()> {
    let mut keys: Vec<&str> = WAKEUPS.iter().map(|(_, key)| *key).collect();
    keys.extend([BYTES, kept::MEMORY]);
    if !options.wants(&keys) {
        return Ok(());
    }
    if !gateway::has_redis() {
        say("idle rows left out: there is no redis-server");
        return Ok(());
    }
    say("watching a rack that has nothing to do");
    let mut lab = Lab::create(&unique_name(), topology(options)?, false)?;
    lab.start_all(false)?;
    let pids = pids(&lab)?;
    watch(report, &pids)?;
    say("opening connections that say nothing");
    let bytes = namespace::within(&lab.namespace(&plan::client(1)), || connect(pids[0]))?;
    let sides = [Side::new("bytes", &[bytes]), Side::new("a connection", &[1.0])];
    report.ratio(BYTES, AtMost(MOST_BYTES), "", sides);
    say("keeping copies of values of all lengths");
    kept::measure(report, &mut lab, &plan::client(1), &plan::server(1))
}
