//! Every role leaves in order and comes back, in turn, while clients read and write: a switch is
//! detached, and stopped; a store, a gateway and a controller are stopped. With one of each, and
//! with two. Does any request fail, how long does a write take at most, and what is left behind?
//! Where there are two, also of keys that switches alone keep, both of them: of tenants that a
//! discipline's folder has ([`crate::tenants::Neighbour`]).
//!
//! A role that is alone is away until it is back: whoever needs it waits for that, and sends
//! again meanwhile.

mod layout;
mod left;
mod redis_clients;

use std::{
    collections::BTreeMap,
    marker::PhantomData,
    net::SocketAddr,
    process::Child,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use history::{ClientsConfig, Effect, Operation};
use lab::{interrupt, namespace, process, steered::Seat};
use plan::{client, control, server, switch};
use serde::{Deserialize, Serialize};
use serde_json::json;
use text::table::{Table, thousands};

use self::{layout::seats, left::Machine, redis_clients::Observations};
use crate::{
    Measure, Options, Report, Run,
    params::{keys, positive},
    rig::{Clients, Rig, TenantSpec},
    tenants::{Neighbour, Neighbours},
    verdict::judge,
};

const TENANT: u32 = 1;
const QUOTA: u32 = 24;
/// Where the gateway of a client host listens.
const GATEWAY: u16 = 6380;
/// How long something may take to be ready, or to end.
const PATIENCE: Duration = Duration::from_secs(20);

/// Restarts, beside whatever neighbours a build has.
#[derive(Serialize, Deserialize)]
#[serde(transparent, bound = "")]
pub struct Restarts<N> {
    parameters: Parameters,
    #[serde(skip)]
    of: PhantomData<N>,
}

/// Parameters of restarts.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Parameters {
    /// Keys that recording clients use.
    keys: usize,
    /// Recording clients on each client host.
    clients: u32,
    /// How often each of all leaves and comes back.
    rounds: usize,
    /// Clients ask for so long before, between and after, in seconds.
    calm_s: f64,
}

impl Parameters {
    fn check(&self) -> anyhow::Result<()> {
        keys(self.keys)?;
        ensure!(self.clients > 0, "clients = 0: at least one is needed");
        ensure!(self.rounds > 0, "rounds = 0: at least one is needed");
        positive!(self, calm_s)
    }
}

impl<N: Neighbours> Measure for Restarts<N> {
    fn check(&self) -> anyhow::Result<()> {
        self.parameters.check()
    }

    fn needs(&self, _: &Options) -> Option<&'static str> {
        Some("Redis and etcd")
    }

    /// With one of each, then with two.
    fn run(&self, run: &Run<'_>, report: &mut Report) -> anyhow::Result<()> {
        let mut all = Totals::default();
        let columns = ["of each", "what leaves", "slowest write", "slowest write by Redis clients"];
        let mut table = Table::new(&columns);
        for each in [1, 2] {
            // One switch alone would take along whatever is kept in switches.
            let neighbours = if each > 1 { N::all() } else { vec![] };
            let totals = measure(&self.parameters, each, &neighbours, run, report, &mut table)?;
            all.add(totals);
        }
        report.text = format!("{}\n{}", table.render(), report.text);
        report.summarize("slowest_write_ms", all.slowest_ms);
        for (name, count) in [
            ("failed_requests", all.failed),
            ("wrong_values", all.wrong),
            ("left_behind", all.left.len() as u64),
            ("operations", all.operations),
            ("reads_from_switches", all.from_switches),
        ] {
            report.count(name, count);
        }
        if !all.left.is_empty() {
            report.fails(format!("left behind: {}", all.left.join(", ")));
        }
        if all.wrong > 0 {
            report.fails(format!("{} values were not those that were written", all.wrong));
        }
        Ok(())
    }
}

/// What came of it.
#[derive(Default)]
struct Totals {
    slowest_ms: f64,
    failed: u64,
    wrong: u64,
    operations: u64,
    from_switches: u64,
    left: Vec<String>,
}

impl Totals {
    fn add(&mut self, other: Totals) {
        self.slowest_ms = self.slowest_ms.max(other.slowest_ms);
        self.failed += other.failed;
        self.wrong += other.wrong;
        self.operations += other.operations;
        self.from_switches += other.from_switches;
        self.left.extend(other.left);
    }
}

/// Something left, and came back.
struct Departure {
    what: String,
    /// From when to when, by the clock of the recording clients and by this process's.
    clock_ns: [u64; 2],
    time: [Instant; 2],
}

fn measure(
    params: &Parameters,
    each: usize,
    neighbours: &[&Neighbour],
    run: &Run<'_>,
    report: &mut Report,
    table: &mut Table,
) -> anyhow::Result<Totals> {
    // The clients first, so that they do not report the loss of everything else.
    let mut clients = Clients::default();
    let mut stage = Stage::build(each, run)?;
    let hosts: Vec<String> = (1..=each).map(client).collect();
    stage.rig.create_tenants(&[TenantSpec::new(TENANT, QUOTA, run.discipline)], &hosts)?;
    let cluster = stage.rig.cluster(&[TENANT])?;
    for (first, host) in (0..).step_by(params.clients as usize).zip(&hosts) {
        let config = clients_of(TENANT, cluster.clone(), first, params, run);
        stage.rig.clients(&mut clients, host, "clients", &config)?;
    }
    let mut beside = vec![];
    for (neighbour, id) in neighbours.iter().zip((TENANT + 1..).step_by(2)) {
        beside.push(invite(&mut stage.rig, neighbour, id, params, run)?);
    }
    let gateways = stage.gateway_addresses()?;
    let places = hosts.iter().map(|host| stage.rig.namespace(host));
    let places: Vec<String> = places.collect::<Result<_, _>>()?;
    let stop = AtomicBool::new(false);
    let (departures, seen) = std::thread::scope(|scope| {
        // Each begins at another gateway.
        let asks = |(n, place): (usize, &String)| {
            let (mut gateways, place, stop) = (gateways.clone(), place.clone(), &stop);
            gateways.rotate_left(n);
            let name = format!("redis-client-{n}");
            scope.spawn(move || redis_clients::ask(&place, &gateways, &name, stop))
        };
        let asking: Vec<_> = places.iter().enumerate().map(asks).collect();
        let departures = go_round(params, &mut stage, run);
        stop.store(true, Ordering::Relaxed);
        let seen = asking.into_iter().map(|one| one.join().expect("a client does not panic"));
        let seen: anyhow::Result<Vec<Observations>> = seen.collect();
        anyhow::Ok((departures?, seen?))
    })?;
    let mut recorded = clients.finish()?;
    // Each one's keys are other ones.
    for (number, clients) in (1..).zip(&mut beside) {
        let mut other = clients.finish()?;
        other.operations.iter_mut().for_each(|o| o.key += number * params.keys as u32);
        recorded.add(other);
    }
    judge(report, &recorded, params.keys * (1 + neighbours.len()))?;
    let left = stage.end(run)?;
    let unknown = recorded.operations.iter().filter(|o| o.return_ns.is_none()).count() as u64;
    let mut totals = Totals {
        failed: unknown + recorded.unanswered + seen.iter().map(|seen| seen.failed).sum::<u64>(),
        wrong: recorded.torn + seen.iter().map(|seen| seen.wrong).sum::<u64>(),
        operations: recorded.operations.len() as u64
            + seen.iter().map(|seen| seen.commands).sum::<u64>(),
        from_switches: recorded.from_switches(),
        left,
        ..Totals::default()
    };
    let all = Departure {
        what: "all the time".into(),
        clock_ns: [0, u64::MAX],
        time: departures
            .first()
            .zip(departures.last())
            .map_or([Instant::now(); 2], |(a, b)| [a.time[0] - PATIENCE, b.time[1] + PATIENCE]),
    };
    let mut slowest: BTreeMap<&str, [f64; 2]> = BTreeMap::new();
    for departure in departures.iter().chain([&all]) {
        let here = [slowest_ms(&recorded.operations, departure), slowest_of(&seen, departure)];
        let before = slowest.entry(&departure.what).or_default();
        *before = [before[0].max(here[0]), before[1].max(here[1])];
        totals.slowest_ms = totals.slowest_ms.max(here[0]).max(here[1]);
    }
    for (what, [stores, redis]) in slowest {
        let ms = |ms: f64| format!("{} ms", thousands(ms));
        table.row([each.to_string(), what.into(), ms(stores), ms(redis)]);
        report.rows.push(json!({
            "each": each, "what": what, "slowest_write_ms": stores, "slowest_redis_write_ms": redis,
        }));
    }
    Ok(totals)
}

/// Clients of a tenant on one host, numbered from `first` on.
fn clients_of(
    tenant: u32,
    cluster: wire::Cluster,
    first: u32,
    params: &Parameters,
    run: &Run<'_>,
) -> ClientsConfig {
    ClientsConfig {
        first,
        clients: params.clients,
        keys: params.keys as u32,
        plain: 0.5,
        ..ClientsConfig::new(cluster, vec![tenant], run.options.seed)
    }
}

/// A tenant whose keys are at no store, with its clients, which record what they see.
fn invite(
    rig: &mut Rig,
    neighbour: &Neighbour,
    id: u32,
    params: &Parameters,
    run: &Run<'_>,
) -> anyhow::Result<Clients> {
    // Once the second one's keys are written the first one serves, too: it was there before.
    rig.create_tenants(&[id, id + 1].map(|id| neighbour.tenant(id, QUOTA)), &[])?;
    let (host, name) = (client(1), format!("own-{id}"));
    let seat = Seat { host: &host, name: &name, cpu: None, nice: 0 };
    drop((neighbour.start)(rig, &seat, id + 1, run.options.seed)?);
    let config = clients_of(id, (neighbour.cluster)(rig, id)?, 0, params, run);
    let mut clients = Clients::default();
    let name = format!("own-clients-{id}");
    rig.clients_of(neighbour.clients, &mut clients, &host, &name, &config)?;
    Ok(clients)
}

/// The longest of the writes that were under way while something was gone, in milliseconds.
fn slowest_ms(operations: &[Operation], departure: &Departure) -> f64 {
    let [from_ns, to_ns] = departure.clock_ns;
    let writes = operations.iter().filter(|o| o.effect != Effect::Keep);
    let took = writes.filter_map(|o| Some((o.call_ns, o.return_ns?)));
    let meanwhile = took.filter(|(call_ns, return_ns)| *call_ns < to_ns && *return_ns > from_ns);
    meanwhile.map(|(call, back)| (back - call) as f64 / 1e6).fold(0.0, f64::max)
}

fn slowest_of(seen: &[Observations], departure: &Departure) -> f64 {
    let [from, to] = departure.time;
    let writes = seen.iter().flat_map(|seen| &seen.writes);
    let meanwhile = writes
        .filter(|(begun, ms)| *begun < to && *begun + Duration::from_secs_f64(ms / 1000.0) > from);
    meanwhile.map(|(_, ms)| *ms).fold(0.0, f64::max)
}

/// Everything leaves and comes back, so many times.
fn go_round(
    params: &Parameters,
    stage: &mut Stage,
    run: &Run<'_>,
) -> anyhow::Result<Vec<Departure>> {
    let calm = Duration::from_secs_f64(params.calm_s);
    let mut departures = vec![];
    stage.rig.wait(calm)?;
    for round in 1..=params.rounds {
        for (node, role) in seats(stage.each) {
            let ways: &[Way] = match role {
                "agent" => &[Way::Detach, Way::Stop],
                _ => &[Way::Stop],
            };
            for way in ways {
                let what = match way {
                    Way::Detach => "switch detached".into(),
                    Way::Stop => format!("{role} stopped"),
                };
                run.progress.say(format!("{} of each, round {round}: {node}: {what}", stage.each));
                let begun = (stage.rig.clock_ns(), Instant::now());
                stage.leave(&node, role, *way)?;
                stage.come_back(&node, role)?;
                let ended = (stage.rig.clock_ns(), Instant::now());
                let (clock_ns, time) = ([begun.0, ended.0], [begun.1, ended.1]);
                departures.push(Departure { what, clock_ns, time });
                stage.rig.wait(calm)?;
            }
        }
    }
    Ok(departures)
}

/// How something leaves.
#[derive(Clone, Copy)]
enum Way {
    Detach,
    Stop,
}

/// The rig, with the gateways, and what its switches' machines were like before.
struct Stage {
    each: usize,
    rig: Rig,
    gateways: BTreeMap<String, Child>,
    before: BTreeMap<String, Machine>,
}

impl Stage {
    fn build(each: usize, run: &Run<'_>) -> anyhow::Result<Stage> {
        run.parts.begin("gateway")?;
        let plan = layout::plan(run.discipline, each);
        let rig = Rig::build(plan, run.options.name.clone(), run)?;
        let (gateways, before) = (BTreeMap::new(), BTreeMap::new());
        let mut stage = Stage { each, rig, gateways, before };
        for n in 1..=each {
            stage.rig.start(&control(n), "control")?;
        }
        for n in 1..=each {
            let machine = left::look(&stage.rig.namespace(&switch(n))?)?;
            stage.before.insert(switch(n), machine);
            stage.rig.start(&switch(n), "agent")?;
        }
        stage.wait_for_switches()?;
        for n in 1..=each {
            stage.come_back(&client(n), "gateway")?;
        }
        Ok(stage)
    }

    fn wait_for_switches(&mut self) -> anyhow::Result<()> {
        let each = self.each;
        self.rig.wait_for("every switch to be attached to a controller", PATIENCE, |rig| {
            let Ok(status) = rig.status() else { return Ok(None) };
            let switches = status["switches"].as_array().map_or(&[][..], |all| all);
            let attached = switches.iter().filter(|switch| switch["attached"] == true).count();
            Ok((attached >= each).then_some(()))
        })
    }

    fn gateway_addresses(&self) -> anyhow::Result<Vec<SocketAddr>> {
        (1..=self.each).map(|n| self.gateway_address(&client(n))).collect()
    }

    fn gateway_address(&self, host: &str) -> anyhow::Result<SocketAddr> {
        let address = self.rig.topology().address_of(host).context("a host has an address")?;
        Ok((address, GATEWAY).into())
    }

    fn leave(&mut self, node: &str, role: &str, way: Way) -> anyhow::Result<()> {
        match (role, way) {
            ("gateway", _) => self.end_gateway(node),
            (_, Way::Stop) => self.rig.stop(node, role, libc::SIGTERM),
            (_, Way::Detach) => {
                self.detach(node)?;
                // Its agent has ended by itself; nobody waited for the process yet.
                self.rig.stop(node, role, libc::SIGTERM)
            }
        }
    }

    fn detach(&self, switch: &str) -> anyhow::Result<()> {
        let name = format!("{}-{switch}", self.rig.lab()?.name());
        let words = ["shortstop", "switch", "detach", "--name", &name].map(String::from);
        let done = process::command_in(&self.rig.namespace(switch)?, &words)?.output()?;
        ensure!(
            done.status.success(),
            "switch detach: {}",
            String::from_utf8_lossy(&done.stderr).trim()
        );
        Ok(())
    }

    fn come_back(&mut self, node: &str, role: &str) -> anyhow::Result<()> {
        if role == "gateway" {
            return self.start_gateway(node);
        }
        self.rig.start(node, role)?;
        if role == "control" { self.wait_for_switches() } else { Ok(()) }
    }

    fn start_gateway(&mut self, host: &str) -> anyhow::Result<()> {
        let address = self.gateway_address(host)?;
        let command = layout::gateway(address, &self.rig.file("cluster.toml")?);
        let place = self.rig.namespace(host)?;
        let child = process::launch(&process::Launch {
            namespace: &place,
            command: &command,
            log: &self.rig.file(&format!("{host}-gateway.log"))?,
            cpu: None,
            nice: 0,
            detached: false,
            piped: false,
        })?;
        self.gateways.insert(host.into(), child);
        let begun = Instant::now();
        loop {
            interrupt::check()?;
            match namespace::within(&place, || Ok(std::net::TcpStream::connect(address)?)) {
                Ok(_) => return Ok(()),
                Err(error) if begun.elapsed() > PATIENCE => return Err(error),
                Err(_) => std::thread::sleep(Duration::from_millis(2)),
            }
        }
    }

    fn end_gateway(&mut self, host: &str) -> anyhow::Result<()> {
        let mut child = self.gateways.remove(host).context("a gateway that runs")?;
        let id = process::ProcessId::of(child.id() as i32);
        id.into_iter().for_each(|id| id.signal(libc::SIGTERM));
        let begun = Instant::now();
        while child.try_wait()?.is_none() {
            if begun.elapsed() > PATIENCE {
                child.kill()?;
                child.wait()?;
                anyhow::bail!("the gateway of {host} does not end");
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }

    /// Ends all of it in order; what is left then.
    fn end(mut self, run: &Run<'_>) -> anyhow::Result<Vec<String>> {
        run.progress.say("ending in order, and looking for what is left");
        let all = seats(self.each);
        for (node, role) in &all {
            let way = if *role == "agent" { Way::Detach } else { Way::Stop };
            self.leave(node, role, way)?;
        }
        let lab = self.rig.lab()?.name().to_owned();
        let switches: Vec<String> = (1..=self.each).map(switch).collect();
        let files = switches.iter().flat_map(|switch| {
            [
                format!("/sys/fs/bpf/shortstop/{lab}-{switch}"),
                format!("/run/shortstop/switch-{lab}-{switch}.lock"),
                format!("/run/shortstop/switch-{lab}-{switch}.sock"),
            ]
        });
        let mut left = left::there(files.map(Into::into));
        for n in 1..=self.each {
            left.extend(left::there([self.rig.file(&format!("{}.sock", server(n)))?]));
        }
        for switch in &switches {
            let after = left::look(&self.rig.namespace(switch)?)?;
            let changed = left::changed(&self.before[switch], &after);
            left.extend(changed.into_iter().map(|what| format!("{switch}: {what}")));
        }
        Ok(left)
    }
}

#[cfg(test)]
mod tests {
    use history::Need;

    use super::*;

    #[test]
    fn the_slowest_write_is_of_those_under_way_meanwhile() {
        let at = |effect, call_ms: u64, return_ms: Option<u64>| Operation {
            client: 0,
            key: 0,
            call_ns: call_ms * 1_000_000,
            return_ns: return_ms.map(|ms| ms * 1_000_000),
            need: Need::Any,
            effect,
            lapse: None,
        };
        let operations = [
            at(Effect::Write(1), 0, Some(900)),
            at(Effect::Write(2), 995, Some(1_030)),
            at(Effect::Delete, 1_050, Some(1_150)),
            at(Effect::Keep, 1_000, Some(1_900)),
            at(Effect::Write(3), 1_060, None),
            at(Effect::Write(4), 1_100, Some(1_800)),
        ];
        let time = [Instant::now(); 2];
        let clock_ns = [1_000, 1_100].map(|ms| ms * 1_000_000);
        let departure = Departure { what: "store stopped".into(), clock_ns, time };
        assert_eq!(slowest_ms(&operations, &departure), 100.0);
    }
}
