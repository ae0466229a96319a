//! One plan, carried out in a world of its own, and judged: the clients' record key by key, the
//! counters that must be 0, and the loans that may have lost something. `hunt` runs each seed with
//! it, `shrink` each smaller plan, and the disciplines' tests plans in which a rule is broken.

mod ground;

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

use anyhow::{Context, ensure};
use api::types::TenantSpec;
use history::{
    ClientRecord, ClientsConfig, CommandsConfig, Lives, Operation, Verdict, check_within,
};
use serde::{Deserialize, Serialize};
use sim::{AgentHost, ControlHost, KeptData, MachineId, Progress, Remains, StoreHost, World};
use wire::{Cluster, Secret};

use crate::{
    Act, Deed, Disciplines, ForbiddenCounts, Ground, HuntPlan, Tenant,
    caching::{HOLDERS, READS_FROM_HOLDERS},
    clients::{ClientsHost, maker},
    commands::{self, CommandClients, HOLDS, process_name},
    connection::stores,
    copies::is_of_replicas,
    deed::do_deeds,
    lost::gone_back,
    slots::Outsider,
    tenants::REFUSALS,
    write_back::{LOST, is_of_loans},
};

const MS: u64 = 1_000_000;
/// Until controller, agents and streams have found one another, at most.
const SETTLE_MS: u64 = 30_000;
/// How long what is under way may take after the clients have stopped.
const END_MS: u64 = 12_000;

/// A history that no single copy of the key could have given.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Violation {
    /// The key's number.
    pub key: u32,
    /// What it shows, as small as it could be made.
    pub history: Vec<Operation>,
}

/// Numbers of clients that send commands are above those of others.
const FIRST_OF_COMMANDS: u32 = 1_000;

/// Pasts of a key that may be possible at a time, else it is left undecided: some seconds of work.
const PASTS: usize = 4000;

/// The counter of a switch that says how many items it made by itself.
pub const PROBATION: &str = "probation";

/// What came of a plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Operations in the record.
    pub operations: u64,
    /// Reads that switches answered.
    pub cached: u64,
    /// Items that switches made by themselves, on probation.
    pub on_probation: u64,
    /// Reads that nobody answered.
    pub unanswered: u64,
    /// Keys of which so many writes have no known outcome that nobody can tell which pasts are
    /// possible.
    pub undecided: u64,
    /// Packets that arrived somewhere.
    pub packets: u64,
    /// Packets that switches took.
    pub switched: u64,
    /// How long it took in the world, in nanoseconds.
    pub world_ns: u64,
    /// A hash of everything that happened.
    pub trace: u64,
    /// How often each thing was done or went wrong.
    pub faults: BTreeMap<String, u64>,
    /// What stores counted of copies of other stores' keys.
    pub replicas: BTreeMap<String, u64>,
    /// What was counted of copies at the clients' side.
    pub holders: BTreeMap<String, u64>,
    /// What stores and switches counted of loans.
    pub loans: BTreeMap<String, u64>,
    /// Commands of Redis that clients sent and that were answered, by their kind; and what stores
    /// counted of holds.
    #[serde(default)]
    pub commands: BTreeMap<String, u64>,
    /// What must never have been counted, and was.
    pub never: ForbiddenCounts,
    /// The first key whose history is impossible, if one is.
    pub violation: Option<Violation>,
}

impl Outcome {
    /// What must not have come of it, in words; none: nothing.
    pub fn complaint(&self) -> Option<String> {
        let violation = self.violation.as_ref();
        let violation =
            violation.map(|v| format!("the history of key {} is not linearizable", v.key));
        let both: Vec<String> = violation.into_iter().chain(self.never.complaint()).collect();
        (!both.is_empty()).then(|| both.join("; "))
    }
}

/// A plan under way.
struct PlanRun<'a> {
    plan: &'a HuntPlan,
    world: World,
    never: ForbiddenCounts,
    /// What was done or refused, beside what the plan alone says: by its name.
    done: BTreeMap<String, u64>,
    /// Processes whose disks fail.
    disks_fail: BTreeSet<String>,
    /// What stores and switches counted of loans.
    loans: BTreeMap<String, u64>,
    /// What stores counted of copies of other stores' keys.
    replicas: BTreeMap<String, u64>,
    /// What stores counted of holds.
    holds: BTreeMap<String, u64>,
    holders: BTreeMap<String, u64>,
    /// Items that switches made by themselves.
    on_probation: u64,
    /// When the clients began, by the world's clock.
    begun_ns: u64,
    /// Copies of processes' files, until they are put back, by the processes' names.
    backups: BTreeMap<String, Remains>,
    /// The stores' data, in their order, where they are in shards of a Redis Cluster.
    shards: Vec<Option<KeptData>>,
    /// Whoever asks past the stores.
    outsider: Option<Outsider>,
}

/// What the controller is told of a tenant.
fn spec_of(tenant: &Tenant) -> TenantSpec {
    TenantSpec {
        id: Some(tenant.id),
        secret: Some(format!("{:032x}", u128::from(tenant.id) << 64 | 0x5ec7e7)),
        quota: tenant.quota,
        discipline: tenant.discipline.clone(),
        write_back_ms: tenant.write_back_ms,
        ..TenantSpec::default()
    }
}

/// Runs a plan from its beginning to its end.
///
/// # Errors
/// A plan that makes no sense; a part that gives up; a history that cannot be decided.
pub fn run(plan: &HuntPlan, disciplines: Disciplines) -> anyhow::Result<Outcome> {
    run_with(plan, disciplines, |_| {}, |_| {})
}

/// As [`run`]; `prepare` has the world before anything happened in it, `over` at its end.
///
/// # Errors
/// As [`run`].
pub(crate) fn run_with(
    plan: &HuntPlan,
    disciplines: Disciplines,
    prepare: impl FnOnce(&mut World),
    over: impl FnOnce(&World),
) -> anyhow::Result<Outcome> {
    wire::maps::seed_for_simulation(plan.seed);
    let mut running = PlanRun {
        plan,
        world: World::new(&plan.rack(), disciplines, plan.seed)?,
        never: ForbiddenCounts::default(),
        done: BTreeMap::new(),
        disks_fail: BTreeSet::new(),
        loans: BTreeMap::new(),
        replicas: BTreeMap::new(),
        holds: BTreeMap::new(),
        holders: BTreeMap::new(),
        on_probation: 0,
        begun_ns: 0,
        backups: BTreeMap::new(),
        shards: vec![],
        outsider: None,
    };
    let faults = running.world.plan().links.iter().filter_map(|link| link.fault.as_ref());
    faults.for_each(|fault| running.never.expect(fault));
    prepare(&mut running.world);
    running.settle()?;
    let cluster = running.create_tenants()?;
    running.run_for(u64::from(plan.longest_lease_ms()) * 3 / 2);
    running.start_clients(&cluster)?;
    running.begun_ns = running.world.now_ns();
    for (name, count) in do_deeds(&plan.deeds, &mut running)? {
        running.add(&name, count);
    }
    running.run_until_ms(plan.lasts_ms)?;
    running.end()?;
    let recorded = running.recorded()?;
    let outcome = running.judge(&recorded)?;
    over(&running.world);
    Ok(outcome)
}

impl PlanRun<'_> {
    fn run_for(&mut self, ms: u64) {
        let until_ns = self.world.now_ns() + ms * MS;
        self.world.run_until(until_ns);
    }

    /// Lets the parts find one another: until every switch is attached.
    fn settle(&mut self) -> anyhow::Result<()> {
        let control = self.process("control/control")?;
        let switches = self.world.plan().switches().count();
        let deadline_ns = self.world.now_ns() + SETTLE_MS * MS;
        self.world.run_while(20 * MS, |world| {
            let attached = world.get::<ControlHost>(control).map_or(0, |host| {
                let switches = host.core().view().switches();
                switches.iter().filter(|switch| switch.attached).count()
            });
            world.now_ns() < deadline_ns && attached < switches
        });
        ensure!(self.world.now_ns() < deadline_ns, "switches did not attach");
        self.run_for(200);
        Ok(())
    }

    /// Creates the tenants; returns the cluster as their clients know it.
    fn create_tenants(&mut self) -> anyhow::Result<Cluster> {
        let mut cluster = self.world.cluster().clone();
        let control = self.world.process("control/control").context("control")?;
        for tenant in &self.plan.tenants {
            let spec = spec_of(tenant);
            let secret = spec.secret.clone().unwrap_or_default();
            let made = self.world.with(control, |host: &mut ControlHost, io| {
                host.ask(io, |core, asked| core.create_tenant(asked, spec, Secret::NONE))
            });
            let made = made.context("the controller does not run")?;
            let view = made.map_err(|e| anyhow::anyhow!("tenant {}: {e:?}", tenant.id))?;
            cluster.tenants.push(wire::Tenant {
                hash_secret: view.hash_secret,
                write_back_ms: tenant.write_back_ms,
                ..wire::Tenant::new(tenant.id, secret)
            });
        }
        Ok(cluster)
    }

    fn start_clients(&mut self, cluster: &Cluster) -> anyhow::Result<()> {
        let HuntPlan { clients, .. } = self.plan;
        let lives = (clients.expiring > 0.0).then_some(Lives {
            part: clients.expiring,
            least_ms: 20,
            most_ms: 1_500,
            overdue_ms: self.longest_stand_ms(),
        });
        let mut first = None;
        for host in 0..clients.hosts {
            let config = ClientsConfig {
                cluster: cluster.clone(),
                seed: self.plan.seed,
                first: host * clients.each,
                clients: clients.each,
                keys: clients.keys,
                tenants: self.plan.asking(),
                longest_value: clients.longest_value,
                lives,
                plain: clients.plain,
            };
            let name = format!("client{}", host + 1);
            let machine = self.world.machine(&name).context("a client host")?;
            if clients.same_ids {
                let others = config.tenants.len().saturating_sub(1);
                self.add("client_ids_shared", others as u64);
            }
            if host == 0 {
                first = Some(config.clone());
            }
            let make = maker(config, stores, clients.habits());
            let name = format!("{name}/clients");
            let process = self.world.place(machine, name, make);
            self.world.start(process)?;
        }
        let Some(config) = first else { return Ok(()) };
        self.find_shards()?;
        self.outsider = Some(Outsider::new(&config));
        self.start_commands(&config)
    }

    fn find_shards(&mut self) -> anyhow::Result<()> {
        for (number, store) in (1..).zip(&self.plan.stores) {
            let process = self.process(&format!("store{number}/store"))?;
            let host = self.world.get::<StoreHost>(process).filter(|_| store.is_shard);
            self.shards.push(host.and_then(StoreHost::data));
        }
        Ok(())
    }

    /// How long a store may stand still, at most: what it holds lives for so much longer.
    fn longest_stand_ms(&self) -> u64 {
        let mut stands: BTreeMap<String, u64> = BTreeMap::new();
        for deed in &self.plan.deeds {
            let of = match &deed.act {
                Act::Kill { process: of } | Act::Stop { process: of } => of.clone(),
                Act::Suspend { machine: of } | Act::Halt { machine: of } => of.clone(),
                Act::Relend { store, .. } => format!("store{}", store + 1),
                _ => continue,
            };
            let machine = of.split('/').next().unwrap_or_default();
            if machine.starts_with("store") {
                *stands.entry(machine.into()).or_default() += deed.for_ms;
            }
        }
        stands.into_values().max().unwrap_or(0)
    }

    /// Something was done, or refused, so often.
    fn add(&mut self, name: &str, count: u64) {
        *self.done.entry(name.into()).or_default() += count;
    }

    fn process(&self, name: &str) -> anyhow::Result<sim::ProcessId> {
        let found = self.world.process(name);
        found.with_context(|| format!("{name}: there is no such process"))
    }

    fn machine(&self, name: &str) -> anyhow::Result<MachineId> {
        let found = self.world.machine(name);
        found.with_context(|| format!("{name}: there is no such machine"))
    }

    /// Takes down what a store that is about to lose it has counted.
    fn look_at_store(&mut self, process: sim::ProcessId) -> anyhow::Result<()> {
        if let Some(store) = self.world.get::<StoreHost>(process) {
            let counters = serde_json::to_value(store.counters())?;
            self.never.look_at(&counters);
            let all = counters.as_object().into_iter().flatten();
            for (name, count) in all {
                let to = match name.as_str() {
                    name if is_of_loans(name) => &mut self.loans,
                    name if is_of_replicas(name) => &mut self.replicas,
                    name if HOLDS.contains(&name) => &mut self.holds,
                    name if HOLDERS.contains(&name) => &mut self.holders,
                    name if REFUSALS.contains(&name) => &mut self.done,
                    _ => continue,
                };
                *to.entry(name.clone()).or_default() += count.as_u64().unwrap_or(0);
            }
        }
        Ok(())
    }

    /// Likewise a switch.
    fn look_at_switch(&mut self, machine: MachineId) -> anyhow::Result<()> {
        let counters = self.world.counters(machine)?;
        for (name, count) in counters.iter().filter(|(name, _)| is_of_loans(name)) {
            *self.loans.entry((*name).to_owned()).or_default() += count;
        }
        let mut begun = counters.iter().filter(|(name, _)| *name == PROBATION);
        self.on_probation += begun.next().map_or(0, |(_, count)| *count);
        self.never.look(counters);
        Ok(())
    }

    /// Everything goes again, and the clients come to an end.
    fn end(&mut self) -> anyhow::Result<()> {
        let deeds = self.plan.deeds.clone();
        for deed in &deeds {
            self.undo(deed)?;
        }
        for process in self.asking()? {
            self.world.with(process, |clients: &mut ClientsHost, _| clients.stop());
        }
        for process in self.commanding()? {
            self.world.with(process, |clients: &mut CommandClients, _| clients.stop());
        }
        let deadline_ns = self.world.now_ns() + END_MS * MS;
        let asking = self.asking()?;
        let commanding = self.commanding()?;
        self.world.run_while(20 * MS, |world| {
            let is_over =
                |p: &sim::ProcessId| world.get::<ClientsHost>(*p).is_none_or(ClientsHost::is_over);
            let has_stopped = |p: &sim::ProcessId| {
                world.get::<CommandClients>(*p).is_none_or(CommandClients::is_over)
            };
            let are_over = asking.iter().all(is_over) && commanding.iter().all(has_stopped);
            world.now_ns() < deadline_ns && !are_over
        });
        Ok(())
    }

    fn asking(&self) -> anyhow::Result<Vec<sim::ProcessId>> {
        let hosts = 1..=self.plan.clients.hosts;
        hosts.map(|i| self.process(&format!("client{i}/clients"))).collect()
    }

    /// Those that send commands of Redis.
    fn commanding(&self) -> anyhow::Result<Vec<sim::ProcessId>> {
        let stores = 1..=self.plan.stores.len() as u32;
        let stores = stores.filter(|_| self.plan.commands.is_some());
        stores.map(|store| self.process(&process_name(self.plan, store))).collect()
    }

    fn start_commands(&mut self, config: &ClientsConfig) -> anyhow::Result<()> {
        let Some(commands) = self.plan.commands else { return Ok(()) };
        for store in 1..=self.plan.stores.len() as u32 {
            let config = CommandsConfig {
                clients: ClientsConfig {
                    first: FIRST_OF_COMMANDS + store * commands.each,
                    clients: commands.each,
                    ..config.clone()
                },
                store: store as usize - 1,
                lent: self.plan.lent(),
                flushes: commands.flushes,
                watches: commands.watches,
            };
            let name = process_name(self.plan, store);
            let host = name.split('/').next().unwrap_or_default();
            let machine = self.world.machine(host).context("a client host")?;
            let store = self.process(&format!("store{store}/store"))?;
            let make = commands::maker(config, store, commands.pause_us);
            let process = self.world.place(machine, name, make);
            self.world.start(process)?;
        }
        Ok(())
    }

    fn recorded(&mut self) -> anyhow::Result<ClientRecord> {
        let mut all = ClientRecord::default();
        for process in self.asking()? {
            let hits = self.world.get::<ClientsHost>(process).map_or(0, ClientsHost::hits);
            *self.holders.entry(READS_FROM_HOLDERS.into()).or_default() += hits;
            let of =
                self.world.with(process, |clients: &mut ClientsHost, _| clients.take_recorded());
            all.add(of.context("the clients do not run")?);
        }
        for process in self.commanding()? {
            let of =
                self.world.with(process, |clients: &mut CommandClients, _| clients.take_recorded());
            all.add(of.context("the clients do not run")?);
        }
        all.add(self.outsider.take().map(Outsider::into_recorded).unwrap_or_default());
        for (process, name) in self.world.processes() {
            if let Some(agent) = self.world.get::<AgentHost>(process)
                && let Some(why) = agent.failed()
            {
                anyhow::bail!("{name}: {why}");
            }
        }
        let processes: Vec<_> = self.world.processes().map(|(process, _)| process).collect();
        for process in processes {
            self.look_at_store(process)?;
        }
        for machine in 0..self.world.plan().sites.len() as u32 {
            self.look_at_switch(MachineId(machine))?;
        }
        Ok(all)
    }

    fn judge(&self, recorded: &ClientRecord) -> anyhow::Result<Outcome> {
        let (mut violation, mut undecided) = (None, 0);
        let mut never = self.never.clone();
        // Unless both switches of a loan were lost, no write is.
        let lost = self.loans.get(LOST).copied().unwrap_or(0);
        let may_lose = self.plan.may_lose_loans() && (lost > 0 || self.plan.forgets_loans());
        if !self.plan.may_lose_loans() {
            never.add(LOST, lost);
        }
        for (key, operations) in recorded.by_key() {
            let Ok(verdict) = check_within(&operations, PASTS) else {
                undecided += 1;
                continue;
            };
            if let Verdict::Violation(at) = verdict {
                if may_lose && self.is_lent(key) {
                    let Some(history) = gone_back(&operations, &self.losses()) else { continue };
                    violation = Some(Violation { key, history });
                    break;
                }
                let history = history::shrink(&operations, at);
                violation = Some(Violation { key, history });
                break;
            }
        }
        let Progress { packets, now_ns, .. } = self.world.progress();
        Ok(Outcome {
            operations: recorded.operations.len() as u64,
            cached: recorded.from_switches(),
            on_probation: self.on_probation,
            unanswered: recorded.unanswered,
            undecided,
            packets,
            switched: self.world.programs().runs,
            world_ns: now_ns,
            trace: self.world.trace_hash(),
            faults: self.faults(),
            loans: self.loans.clone(),
            replicas: self.replicas.clone(),
            holders: self.holders.clone(),
            commands: self
                .holds
                .iter()
                .chain(&recorded.commands)
                .map(|(k, n)| (k.clone(), *n))
                .collect(),
            never,
            violation,
        })
    }

    /// Whether the key of this number may be lent at times.
    fn is_lent(&self, key: u32) -> bool {
        let asking = self.plan.asking();
        let tenant = asking.get((key / self.plan.clients.keys) as usize);
        let changed = |deed: &Deed| match &deed.act {
            Act::WriteBack { tenant: of, .. } => Some(of) == tenant,
            _ => false,
        };
        let mut tenants = self.plan.tenants.iter();
        tenants.any(|of| Some(&of.id) == tenant && of.write_back_ms > 0)
            || self.plan.deeds.iter().any(changed)
    }

    /// The times in which answered writes may be lost.
    fn losses(&self) -> Vec<Range<u64>> {
        let times = self.plan.losses_ms().into_iter();
        let at_ns = |ms: u64| self.begun_ns + ms * MS;
        times.map(|ms| at_ns(ms.start)..at_ns(ms.end)).collect()
    }

    fn faults(&self) -> BTreeMap<String, u64> {
        let mut faults = self.done.clone();
        let mut add = |name: &str, count| *faults.entry(name.into()).or_default() += count;
        for link in 0..self.world.plan().links.len() {
            for counts in self.world.link_counts(link) {
                add("lost", counts.lost);
                add("duplicated", counts.duplicated);
                add("reordered", counts.reordered);
                if self.plan.faults.flip > 0.0 {
                    add("flipped", counts.flipped);
                }
            }
        }
        faults
    }
}
