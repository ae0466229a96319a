//! A fleet of gateways in the simulator: very many that want the same keys, first while all is
//! well, then while some are killed and others stand still. Is any read stale, how long do writes
//! of keys that all keep take, and how many messages is one of them?

mod application;

use std::{cell::RefCell, collections::BTreeSet, ops::Range, rc::Rc};

use anyhow::{Context, ensure};
use lab::interrupt;
use load::workload::Popularity;
use plan::{
    Plan, Site,
    roles::{Role, Store},
    shapes,
};
use rand::RngExt;
use serde::{Deserialize, Serialize};
use serde_json::json;
use sim::{Process, ProcessId, StoreHost, World};
use text::table::{Table, percent, thousands};

use crate::{
    Report, Run,
    applications::{percentile_ms, stale_in},
    params::{exponent, positive},
    rig::Rig,
};
use application::{Application, Habits, Record, WriteTime};
use history::Effect;

const SWITCH: &str = "switch";
const MS: u64 = 1_000_000;
const NS_PER_S: f64 = 1e9;
/// How long writes may take to be over once nothing is begun any more.
const END_NS: u64 = 5_000 * MS;
/// Until copies are back that a write has called back, and answer again.
const CALM_MS: u64 = 1_000;
/// Between two gateways that something is done to.
const FAULT_EVERY_MS: u64 = 500;
/// How long a killed one is away, and how long another stands still: longer than a lease.
const AWAY_MS: u64 = 300;
const STANDS_STILL_MS: u64 = 2_500;

/// Parameters of a fleet.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Fleet {
    /// Application hosts with a gateway each.
    gateways: u32,
    stores: u32,
    keys: u32,
    /// Keys that all want, the most popular ones: writes of them are measured.
    wanted: u32,
    /// Exponent of Zipf's law, by which keys are read and written.
    skew: f64,
    /// Length of values in bytes.
    value_len: usize,
    /// Reads per second of one host.
    reads_per_s: f64,
    /// Writes per second of all.
    writes_per_s: f64,
    /// Seconds while all is well, and while gateways are killed and stopped.
    calm_s: f64,
    faults_s: f64,
    /// Writes of each wanted key that are counted by the message, while nothing else is written.
    rounds: u32,
    /// Length of leases in milliseconds.
    lease_ms: u32,
    /// Whether gateways keep copies.
    copies: bool,
}

impl Fleet {
    pub fn check(&self) -> anyhow::Result<()> {
        exponent(self.skew)?;
        positive!(self, reads_per_s, writes_per_s, calm_s, faults_s)?;
        ensure!((2..=10_000).contains(&self.gateways), "fleet.gateways: 2 to 10000");
        ensure!((1..=256).contains(&self.stores), "fleet.stores: 1 to 256");
        ensure!((1..=self.keys).contains(&self.wanted), "fleet.wanted: 1 to fleet.keys");
        ensure!((8..=1024).contains(&self.value_len), "fleet.value_len: 8 to 1024 bytes");
        ensure!((100..=10_000).contains(&self.lease_ms), "fleet.lease_ms: 100 to 10000");
        Ok(())
    }

    /// Hosts and stores around one switch that only forwards.
    fn plan(&self) -> Plan {
        let hosts: Vec<String> = (1..=self.gateways).map(host).collect();
        let stores: Vec<String> = (1..=self.stores).map(store).collect();
        let links = [shapes::star(SWITCH, &hosts), shapes::star(SWITCH, &stores)].concat();
        let of_store = |name: &String| {
            let role = Role::Store(Store::of(name));
            Site::host(name, vec![role.into()])
        };
        let hosts = hosts.iter().map(|name| Site::host(name, vec![]));
        let sites = hosts.chain(stores.iter().map(of_store));
        Plan {
            sites: sites.chain([Site::switch(SWITCH, vec![])]).collect(),
            links,
            partitions: self.stores,
            is_open: true,
            lease_ms: self.lease_ms,
            lease_max_ms: self.lease_ms,
            ..Plan::default()
        }
    }

    fn habits(&self, number: u32) -> Habits {
        let writes_per_s = self.writes_per_s / f64::from(self.gateways);
        let requests_per_s = self.reads_per_s + writes_per_s;
        Habits {
            number,
            keys: self.keys,
            popularity: Popularity::Zipf(self.skew),
            value_len: self.value_len,
            requests_per_s,
            write_part: writes_per_s / requests_per_s,
            copies: self.copies,
        }
    }
}

fn host(number: u32) -> String {
    format!("gateway{number}")
}

fn store(number: u32) -> String {
    format!("store{number}")
}

/// What was seen of a fleet.
struct FleetRun<'a> {
    params: &'a Fleet,
    world: Rc<RefCell<World>>,
    gateways: Vec<ProcessId>,
    /// Writes every key once, and wanted ones when told to.
    writer: ProcessId,
}

/// What stores have counted so far, over all of them.
#[derive(Clone, Copy, Debug, Default)]
struct Messages {
    invalidations: u64,
    acks: u64,
}

pub(super) fn measure(params: &Fleet, run: &Run<'_>, report: &mut Report) -> anyhow::Result<()> {
    let rig = Rig::build(params.plan(), run.options.name.clone(), run)?;
    let fleet = FleetRun::start(params, &rig)?;
    run.progress.say("every key is written");
    fleet.write((0..params.keys).collect())?;
    fleet.start_gateways()?;
    run.progress.say(format!("{} gateways read", params.gateways));
    fleet.run_for(2 * CALM_MS)?;
    let calm_from_ns = fleet.now_ns();
    fleet.run_for((params.calm_s * 1000.0) as u64)?;
    let calm_to_ns = fleet.now_ns();
    run.progress.say("one write at a time");
    let most = fleet.one_at_a_time()?;
    run.progress.say("gateways are killed, and stand still");
    let faults_from_ns = fleet.now_ns();
    let (killed, stopped) = fleet.faults(run)?;
    let victims: BTreeSet<u32> = killed.iter().chain(&stopped).copied().collect();
    let faults_to_ns = fleet.now_ns();
    let record = fleet.end()?;
    let (local, operations) = (record.local, &record.operations);
    let reads = operations.iter().filter(|o| o.effect == Effect::Keep).count();
    let is_wanted = |write: &WriteTime| write.key < params.wanted;
    // Who stood still hears of nothing meanwhile, of its own writes neither.
    let is_well = |write: &WriteTime| !victims.contains(&write.client);
    let writes = [&record.writes[..], &record.open].concat();
    let calm = writes_within(&writes, calm_from_ns..calm_to_ns, is_wanted);
    let meanwhile = writes_within(&writes, faults_from_ns..faults_to_ns, is_well);
    let never_answered = record.open.iter().filter(|write| is_well(write)).count();
    let open = operations.iter().filter(|o| o.return_ns.is_none()).count();
    let stale = stale_in(operations);
    let share = |part: f64, all: f64| part / all.max(1.0);
    let local_share = share(local as f64, reads as f64);
    let held_by = held_by(most, params.gateways);
    let messages = most.invalidations + most.acks;
    for (name, value) in [
        ("write_p99_ms", percentile_ms(calm.clone(), 0.99)),
        ("write_max_ms", percentile_ms(meanwhile.clone(), 1.0)),
        ("local_share", local_share),
        ("held_by_share", held_by),
    ] {
        report.summarize(name, value);
    }
    for (name, count) in [
        ("stale_reads", (stale as u64) + record.torn),
        ("reads", reads as u64),
        ("reads_local", local),
        ("reads_unanswered", record.unanswered),
        ("writes_of_wanted_keys", calm.len() as u64),
        ("writes_meanwhile", meanwhile.len() as u64),
        ("writes_unknown", open as u64),
        ("writes_open", never_answered as u64),
        ("invalidations_per_write_max", most.invalidations),
        ("messages_per_write_max", messages),
        ("gateways_killed", killed.len() as u64),
        ("gateways_stopped", stopped.len() as u64),
    ] {
        report.count(name, count);
    }
    let mut table = Table::new(&["", "writes", "p50", "p99", "max"]);
    for (name, times) in [("keys that all keep", calm), ("gateways fail", meanwhile)] {
        let at = |part| percentile_ms(times.clone(), part);
        let ms = |part| format!("{:.2} ms", at(part));
        table.row([name.into(), times.len().to_string(), ms(0.5), ms(0.99), ms(1.0)]);
        report.rows.push(json!({
            "what": name,
            "writes": times.len(),
            "p50_ms": at(0.5),
            "p99_ms": at(0.99),
            "max_ms": at(1.0),
        }));
    }
    report.text = format!(
        "{}\n{} reads, {} of them from copies, {stale} stale. One write of a key that all keep: {} messages at most.\n\
         {} gateways were killed, {} stood still; the writes of that time are those of the others.\n",
        table.render(),
        thousands(reads as f64),
        percent(local_share),
        thousands(messages as f64),
        killed.len(),
        stopped.len(),
    );
    Ok(())
}

/// The part of the gateways that held a key, by the messages of one write of it: each that holds it
/// acknowledges, and what is sent again to one that is slow makes nobody hold it twice.
fn held_by(messages: Messages, gateways: u32) -> f64 {
    let holders = messages.invalidations.min(gateways.into());
    holders as f64 / f64::from(gateways).max(1.0)
}

/// How long those writes took that were wanted within a time, in nanoseconds.
fn writes_within(
    writes: &[WriteTime],
    time_ns: Range<u64>,
    are_those: impl Fn(&WriteTime) -> bool,
) -> Vec<u64> {
    let within = writes.iter().filter(|write| time_ns.contains(&write.wanted_ns));
    within.filter(|write| are_those(write)).map(|write| write.took_ns).collect()
}

impl<'a> FleetRun<'a> {
    /// All of it, of which only the writer runs.
    fn start(params: &'a Fleet, rig: &Rig) -> anyhow::Result<FleetRun<'a>> {
        let world = rig.world().context("a fleet is simulated")?;
        let cluster = rig.cluster(&[])?;
        let place = |on: u32, role: &str, habits: Habits| {
            let name = host(on);
            let mut world = world.borrow_mut();
            let machine = world.machine(&name).context("a host")?;
            let make = application::maker(cluster.clone(), habits);
            anyhow::Ok(world.place(machine, format!("{name}/{role}"), make))
        };
        let gateways = (1..=params.gateways).map(|n| place(n, "gateway", params.habits(n)));
        let gateways = gateways.collect::<Result<_, _>>()?;
        let quiet = Habits { requests_per_s: 0.0, copies: false, ..params.habits(0) };
        let writer = place(1, "writer", quiet)?;
        world.borrow_mut().start(writer)?;
        Ok(FleetRun { params, gateways, writer, world })
    }

    fn now_ns(&self) -> u64 {
        self.world.borrow().now_ns()
    }

    fn run_for(&self, ms: u64) -> anyhow::Result<()> {
        let until_ns = self.now_ns() + ms * MS;
        while self.now_ns() < until_ns {
            interrupt::check()?;
            let next_ns = until_ns.min(self.now_ns() + 10 * MS);
            self.world.borrow_mut().run_until(next_ns);
        }
        Ok(())
    }

    fn start_gateways(&self) -> anyhow::Result<()> {
        let mut world = self.world.borrow_mut();
        self.gateways.iter().try_for_each(|gateway| world.start(*gateway))
    }

    fn with<R>(
        &self,
        process: ProcessId,
        work: impl FnOnce(&mut Application) -> R,
    ) -> anyhow::Result<R> {
        let mut world = self.world.borrow_mut();
        let done = world.with(process, |application: &mut Application, _| work(application));
        done.context("an application that runs")
    }

    /// Writes these keys, each once, and waits until all are written.
    fn write(&self, keys: Vec<u32>) -> anyhow::Result<()> {
        let until_ns = self.now_ns() + END_NS;
        let mut world = self.world.borrow_mut();
        let told = world.with(self.writer, |writer: &mut Application, io| {
            writer.write(keys);
            writer.wake(io);
        });
        told.context("the writer")?;
        let writer = self.writer;
        world.run_while(MS, |world| {
            let has_written = world.get::<Application>(writer).is_none_or(Application::has_written);
            world.now_ns() < until_ns && !has_written
        });
        ensure!(world.now_ns() < until_ns, "writes are not over within {} s", END_NS / 1_000 / MS);
        Ok(())
    }

    fn messages(&self) -> Messages {
        let world = self.world.borrow();
        let mut sum = Messages::default();
        for (process, _) in world.processes() {
            if let Some(store) = world.get::<StoreHost>(process) {
                let counted = store.counters().keys;
                sum.invalidations += counted.invalidations;
                sum.acks += counted.acks;
            }
        }
        sum
    }

    /// Writes of wanted keys, one after the other, while nothing else is written: the messages of
    /// the one that took most.
    fn one_at_a_time(&self) -> anyhow::Result<Messages> {
        let set_writes = |part| {
            let mut gateways = self.gateways.iter();
            gateways.try_for_each(|one| self.with(*one, |one| one.set_write_part(part)))
        };
        set_writes(0.0)?;
        let mut most = Messages::default();
        for key in (0..self.params.rounds).flat_map(|_| 0..self.params.wanted) {
            self.run_for(CALM_MS)?;
            let before = self.messages();
            self.write(vec![key])?;
            let after = self.messages();
            let invalidations = after.invalidations - before.invalidations;
            let acks = after.acks - before.acks;
            if invalidations + acks > most.invalidations + most.acks {
                most = Messages { invalidations, acks };
            }
        }
        set_writes(self.params.habits(1).write_part)?;
        Ok(most)
    }

    /// Kills gateways and lets others stand still, one after another; which of them.
    fn faults(&self, run: &Run<'_>) -> anyhow::Result<(Vec<u32>, Vec<u32>)> {
        let mut rng = seed::rng(run.options.seed, "faults of gateways");
        let until_ns = self.now_ns() + (self.params.faults_s * NS_PER_S) as u64;
        let mut back: Vec<(u64, ProcessId, bool)> = vec![];
        let (mut killed, mut stopped) = (vec![], vec![]);
        while self.now_ns() < until_ns || !back.is_empty() {
            let now_ns = self.now_ns();
            let due = back.extract_if(.., |(at_ns, ..)| *at_ns <= now_ns);
            for (_, gateway, was_killed) in due {
                let mut world = self.world.borrow_mut();
                match was_killed {
                    true => world.start(gateway)?,
                    false => world.cont(gateway),
                }
            }
            let at = rng.random_range(0..self.gateways.len());
            let (number, gateway) = (at as u32 + 1, self.gateways[at]);
            if now_ns < until_ns && back.iter().all(|(_, other, _)| *other != gateway) {
                let mut world = self.world.borrow_mut();
                let was_killed = killed.len() <= stopped.len();
                let away_ms = match was_killed {
                    true => {
                        world.kill(gateway);
                        killed.push(number);
                        AWAY_MS
                    }
                    false => {
                        world.stop(gateway);
                        stopped.push(number);
                        STANDS_STILL_MS
                    }
                };
                back.push((now_ns + away_ms * MS, gateway, was_killed));
            }
            self.run_for(FAULT_EVERY_MS)?;
        }
        Ok((killed, stopped))
    }

    /// Ends it, once all writes are over; what everybody has seen.
    fn end(&self) -> anyhow::Result<Record> {
        let all = || self.gateways.iter().chain([&self.writer]);
        all().try_for_each(|one| self.with(*one, Application::stop))?;
        let until_ns = self.now_ns() + END_NS;
        self.world.borrow_mut().run_while(10 * MS, |world| {
            let writes = |one: &ProcessId| {
                world.get::<Application>(*one).is_some_and(|one| !one.has_written())
            };
            world.now_ns() < until_ns && all().any(writes)
        });
        let mut sum = Record::default();
        for one in all() {
            let now_ns = self.now_ns();
            sum.add(self.with(*one, |one| one.take_record(now_ns))?);
        }
        Ok(sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sent_again_is_held_once() {
        for (invalidations, expected) in [(0, 0.0), (90, 0.9), (100, 1.0), (101, 1.0)] {
            let messages = Messages { invalidations, acks: 0 };
            assert_eq!(held_by(messages, 100), expected);
        }
    }

    #[test]
    fn writes_are_those_that_were_wanted_within_the_time() {
        let write = |key, wanted_ns, took_ns| WriteTime { client: 0, key, wanted_ns, took_ns };
        let writes = [write(0, 9, 1), write(0, 10, 2), write(1, 15, 3), write(2, 15, 4)];
        let more = [write(0, 20, 5)];
        let all = [&writes[..], &more].concat();
        assert_eq!(writes_within(&all, 10..20, |write| write.key < 2), [2, 3]);
    }
}
