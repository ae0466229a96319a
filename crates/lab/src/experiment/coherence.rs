//! Everything goes wrong at once, and no client may notice: two switches in a line, a path around the first, faulty links,
//! and processes that are killed in turn. What the clients saw must be linearizable, key by key.

use std::{
    io::Read,
    net::SocketAddr,
    os::unix::net::UnixStream,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use serde::Serialize;
use serde_json::Value;
use wire::{Cluster, PORT};

use super::{Experiment, Options, Params, Report, recorders::Recorders, verdict::judge};
use crate::{
    history::{ClientsConfig, Recorded},
    interrupt,
    process::command_in,
    progress::Progress,
    rack::{Lab, unique_name},
    topology::{Fault, Link, Node, ProcessSpec, Topology},
};

/// The shortest lease that a store gives: the sooner it takes writes after a restart.
const LEASE_MS: u64 = 1000;
/// Client processes on each of the two client hosts, and clients in each.
const PROCESSES: u32 = 2;
const CLIENTS: u32 = 4;
/// Operations of the full run and of the quick one.
const OPERATIONS: [u64; 2] = [100_000, 20_000];
/// Kills of the full run and of the quick one: each kind comes four times, or at least once.
const KILLS: [u32; 2] = [16, 5];
/// Seconds after which the run ends whatever it has come to.
const PATIENCE_S: [u64; 2] = [600, 30];
/// Between one kill and the next.
const KILL_EVERY: Duration = Duration::from_millis(1500);
/// The switch that one client host goes around, and the one on every path.
const FIRST: &str = "switch1";
const SECOND: &str = "switch2";
const SERVER: &str = "server";

/// How often each thing went wrong.
#[derive(Clone, Debug, Default, Serialize)]
struct Faults {
    lost: u64,
    duplicated: u64,
    reordered: u64,
    killed_store: u64,
    killed_switch: u64,
    rebooted_switch: u64,
    killed_controller: u64,
    evictions: u64,
}

/// Runs the experiment.
pub fn run(
    experiment: &Experiment,
    params: &Params,
    options: &Options,
    progress: &Progress,
) -> anyhow::Result<Report> {
    let quick = usize::from(options.quick);
    let mut report = Report::new(&experiment.name, options, params)?;
    progress.say("building two switches in a line and a path around the first");
    let mut hunt = Hunt::new(experiment, params, options)?;
    let (wanted, patience) = (OPERATIONS[quick], Duration::from_secs(PATIENCE_S[quick]));
    let begun = Instant::now();
    let mut next_kill = Instant::now() + KILL_EVERY;
    loop {
        interrupt::check()?;
        let operations = hunt.recorders.operations()?;
        if hunt.round >= KILLS[quick] && operations >= wanted || begun.elapsed() > patience {
            break;
        }
        progress.say(format!(
            "{operations} of {wanted} operations, {} kills",
            hunt.round
        ));
        if Instant::now() >= next_kill {
            hunt.kill_next()?;
            next_kill = Instant::now() + KILL_EVERY;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let seconds = begun.elapsed().as_secs_f64();
    let recorded = hunt.finish()?;
    progress.say(format!("checking {} operations", recorded.operations.len()));
    let checked = Instant::now();
    judge(&mut report, &recorded, params.keys)?;
    let faults = &hunt.faults;
    let open = recorded
        .operations
        .iter()
        .filter(|o| o.return_ns.is_none())
        .count();
    report
        .summary
        .insert("operations".into(), recorded.operations.len().into());
    report
        .summary
        .insert("faults".into(), serde_json::to_value(faults)?);
    report.summary.insert("outcome_unknown".into(), open.into());
    report
        .summary
        .insert("reads_from_switches".into(), recorded.cached.into());
    report
        .summary
        .insert("torn_values".into(), recorded.torn.into());
    report
        .summary
        .insert("reads_unanswered".into(), recorded.unanswered.into());
    report.summarize("seconds", seconds);
    report.summarize("check_seconds", checked.elapsed().as_secs_f64());
    report.text += &tell(faults);
    Ok(report)
}

fn tell(faults: &Faults) -> String {
    format!(
        "\nframes lost {}, duplicated {}, reordered {}; killed: store {}, switch agent {} (and rebooted {}), controller {}; \
         evictions {}\n",
        faults.lost,
        faults.duplicated,
        faults.reordered,
        faults.killed_store,
        faults.killed_switch,
        faults.rebooted_switch,
        faults.killed_controller,
        faults.evictions,
    )
}

/// The lab while it is hunted.
struct Hunt {
    recorders: Recorders,
    lab: Lab,
    faults: Faults,
    /// Kills so far.
    round: u32,
    items: usize,
}

impl Hunt {
    fn new(experiment: &Experiment, params: &Params, options: &Options) -> anyhow::Result<Hunt> {
        let mut topology = layout(options.seed);
        let address = topology
            .address_of(SERVER)
            .context("a server without an address")?;
        let cluster = Cluster::single(SocketAddr::new(address.into(), PORT), 4);
        topology
            .files
            .insert("cluster.toml".into(), cluster.to_toml());
        for node in topology.hosts.iter_mut().chain(&mut topology.switches) {
            node.processes = processes(&node.name, experiment, params.items);
        }
        let name = options.name.clone().unwrap_or_else(unique_name);
        let mut lab = Lab::create(&name, topology, false)?;
        lab.start_all(false)?;
        interrupt::wait_for("the store to take writes", Duration::from_secs(30), || {
            Ok(takes_writes(&lab).filter(|takes| *takes).map(drop))
        })?;
        let mut hunt = Hunt {
            recorders: Recorders::default(),
            lab,
            faults: Faults::default(),
            round: 0,
            items: params.items,
        };
        for (i, host) in ["client1", "client2"].iter().enumerate() {
            for process in 0..PROCESSES {
                let first = (i as u32 * PROCESSES + process) * CLIENTS;
                let config = ClientsConfig {
                    cluster: cluster.clone(),
                    seed: options.seed,
                    first,
                    clients: CLIENTS,
                    keys: params.keys as u32,
                    tenants: vec![],
                    lease_ms: LEASE_MS,
                };
                let name = format!("clients{process}");
                hunt.recorders.start(&mut hunt.lab, host, &name, &config)?;
            }
        }
        Ok(hunt)
    }

    /// kill -9 and a new start: store, a switch's agent, controller, the other switch with all its tables, and again.
    fn kill_next(&mut self) -> anyhow::Result<()> {
        let kind = self.round % 4;
        self.round += 1;
        match kind {
            0 => {
                self.lab.restart(SERVER, "store", libc::SIGKILL)?;
                self.faults.killed_store += 1;
            }
            1 => {
                let switch = if self.round % 8 == 2 { FIRST } else { SECOND };
                self.lab.restart(switch, "agent", libc::SIGKILL)?;
                self.faults.killed_switch += 1;
            }
            2 => {
                self.faults.evictions += self.evictions();
                self.lab.stop(SECOND, "control", libc::SIGKILL)?;
                let mut spec = self.lab.spec(SECOND, "control")?;
                let items = if self.round % 8 == 3 {
                    self.items.div_ceil(2)
                } else {
                    self.items
                };
                // The command ends with the limit.
                if let Some(limit) = spec.command.last_mut() {
                    *limit = items.to_string();
                }
                self.lab.start(SECOND, &spec, false)?;
                self.faults.killed_controller += 1;
            }
            _ => {
                let switch = if self.round % 8 == 4 { SECOND } else { FIRST };
                self.lab.stop(switch, "agent", libc::SIGKILL)?;
                self.lab.forget_switch(switch);
                let spec = self.lab.spec(switch, "agent")?;
                // The kernel lets go of an unpinned program a little later; until then the agent refuses to start.
                let begun = Instant::now();
                while let Err(error) = self.lab.start(switch, &spec, false) {
                    ensure!(begun.elapsed() < Duration::from_secs(5), error);
                }
                self.faults.killed_switch += 1;
                self.faults.rebooted_switch += 1;
            }
        }
        Ok(())
    }

    /// Evictions that the running controller has asked for; 0 if it does not say.
    fn evictions(&self) -> u64 {
        let command = words(&["shortstop", "control", "status", "--json"]);
        let asked = command_in(&self.lab.namespace(SECOND), &command)
            .and_then(|mut command| Ok(command.output()?));
        let status: Value = asked
            .ok()
            .and_then(|o| serde_json::from_slice(&o.stdout).ok())
            .unwrap_or_default();
        let switches = status["switches"].as_array().cloned().unwrap_or_default();
        switches
            .iter()
            .filter_map(|s| s["counters"]["evicts_asked"].as_u64())
            .sum()
    }

    /// Stops the clients, then the links; returns what the clients recorded.
    fn finish(&mut self) -> anyhow::Result<Recorded> {
        self.faults.evictions += self.evictions();
        let all = self.recorders.finish()?;
        for link in 1..=self.lab.topology().links.len() {
            self.lab.stop("fault", &link.to_string(), libc::SIGTERM)?;
            let log = std::fs::read_to_string(self.lab.dir().join(format!("fault-{link}.log")))?;
            let counts: Value = log
                .lines()
                .last()
                .and_then(|l| serde_json::from_str(l).ok())
                .unwrap_or_default();
            for way in counts.as_array().into_iter().flatten() {
                let count = |name: &str| way[name].as_u64().unwrap_or(0);
                self.faults.lost += count("lost");
                self.faults.duplicated += count("duplicated");
                self.faults.reordered += count("reordered");
            }
        }
        Ok(all)
    }
}

fn takes_writes(lab: &Lab) -> Option<bool> {
    let mut stream = UnixStream::connect(lab.dir().join("store.sock")).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    let status: Value = serde_json::from_str(&text).ok()?;
    status["takes_writes"].as_bool()
}

/// client1 - switch1 - switch2 - server, and client2 - switch2: around the first switch.
fn layout(seed: u64) -> Topology {
    let node = |name: &&str| Node {
        name: name.to_string(),
        processes: vec![],
    };
    let ends = [
        (FIRST, SECOND),
        (SECOND, SERVER),
        ("client1", FIRST),
        ("client2", SECOND),
    ];
    let link = |(i, (a, b)): (usize, &(&str, &str))| Link {
        ends: [a.to_string(), b.to_string()],
        addresses: None,
        fault: Some(Fault {
            loss: 0.05,
            duplicate: 0.02,
            reorder: 0.05,
            reorder_ms: 3.0,
            delay_ms: 0.0,
            seed: seed.wrapping_mul(31).wrapping_add(i as u64),
        }),
        mtu: 1500,
    };
    Topology {
        hosts: [SERVER, "client1", "client2"].iter().map(node).collect(),
        switches: [SECOND, FIRST].iter().map(node).collect(),
        links: ends.iter().enumerate().map(link).collect(),
        ..Topology::default()
    }
}

fn words(text: &[&str]) -> Vec<String> {
    text.iter().map(|word| word.to_string()).collect()
}

fn process(name: &str, command: Vec<String>, ready: Option<&str>) -> ProcessSpec {
    ProcessSpec {
        name: name.into(),
        command,
        cpu: None,
        nice: 0,
        ready: ready.map(String::from),
        settled: None,
        autostart: true,
    }
}

fn processes(node: &str, experiment: &Experiment, items: usize) -> Vec<ProcessSpec> {
    let agent = |id: &str| {
        let mut command = words(&["shortstop", "switch", "--id", id, "{interfaces}"]);
        let control = format!("http://{{address:{SECOND}}}:{}", 7118);
        command.extend(words(&["--mode", "generic", "--control", &control]));
        let (name, state) = (format!("{{lab}}-{node}"), format!("{{dir}}/{node}"));
        command.extend(words(&["--name", &name, "--state-dir", &state]));
        process(
            "agent",
            command,
            Some(&format!("/sys/fs/bpf/shortstop/{name}")),
        )
    };
    match node {
        SERVER => {
            // Data must outlive the store: a real server behind it.
            let redis =
                "redis-server --port 0 --unixsocket {dir}/data --save  --appendonly no --dir {dir}";
            let redis = redis.split(' ').map(String::from).collect();
            let mut store = words(&["shortstop", "store", "--listen"]);
            store.push(format!("{{address:{SERVER}}}:{PORT}"));
            store.extend(words(&["--cluster", "{dir}/cluster.toml"]));
            store.extend(words(&["--backend", "redis+unix://{dir}/data"]));
            store.extend(words(&["--lease-ms", &LEASE_MS.to_string()]));
            store.extend(words(&["--status-socket", "{dir}/store.sock"]));
            vec![
                process("redis", redis, Some("{dir}/data")),
                process("store", store, Some("{dir}/store.sock")),
            ]
        }
        SECOND => {
            let mut control = words(&["shortstop", "control", "--cluster", "{dir}/cluster.toml"]);
            control.extend(words(&[
                "--state",
                "{dir}/control",
                "--listen",
                "0.0.0.0:7118",
            ]));
            control.extend(words(&["--insecure", "--window-ms", "200"]));
            control.extend(words(&["--discipline", &experiment.discipline]));
            let mut first = control.clone();
            first.extend(words(&["--max-items", &items.to_string()]));
            vec![agent("2"), process("control", first, None)]
        }
        FIRST => vec![agent("1")],
        _ => vec![],
    }
}
