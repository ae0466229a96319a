//! A scenario: the world, its tenant and its clients, and what is expected of them.

use std::collections::BTreeMap;

use api::types::{TenantChange, TenantSpec};
use dataplane::LoanCounts;
use decide::Registration;
use history::Verdict;
use plan::Plan;
use sim::{AgentHost, ControlHost, MachineId, Process, ProcessId, StoreHost, World};
use wire::{Cluster, Header, Secret, TENANT_OPEN};

use crate::client::{ClientHost, Deed, Outcome, Read};

/// A millisecond in nanoseconds.
pub(crate) const MS: u64 = 1_000_000;
/// Until controller, switches and stores have found one another, at most.
const SETTLE_MS: u64 = 30_000;
/// From one look at them to the next.
const SETTLE_NS: u64 = 20 * MS;
/// From one look at something else that is waited for to the next.
const LOOK_NS: u64 = MS / 20;
/// Longer than any deed of a client takes.
const PATIENCE_MS: u64 = 10_000;
/// The secret of a tenant that names none.
const SECRET: Secret = Secret([9; 16]);

/// A world in which a test does one thing after another. Machines are named as in the plan, clients
/// as the machines that they are on. What a test asks for and cannot be is a panic that says what.
pub struct Scenario {
    /// The world, for what has no word here.
    pub world: World,
    cluster: Cluster,
    tenant: u32,
    clients: BTreeMap<String, ProcessId>,
}

impl Scenario {
    /// The world of a plan: its switches are attached, and its stores take writes.
    pub fn of(plan: &Plan, disciplines: &'static [Registration]) -> Scenario {
        let world = World::new(plan, disciplines, 1).expect("a plan that is possible");
        let (cluster, tenant) = (world.cluster().clone(), TENANT_OPEN);
        let mut scenario = Scenario { world, cluster, tenant, clients: BTreeMap::new() };
        let switches = plan.nodes_of("agent").len();
        scenario.look(SETTLE_NS, SETTLE_MS, |scenario| {
            let control: &ControlHost = scenario.host("control/control");
            let attached = control.core().view().switches();
            attached.iter().filter(|switch| switch.attached).count() == switches
        });
        scenario.pass(u64::from(plan.lease_max_ms) * 3 / 2);
        scenario
    }

    // ---- tenants and clients

    /// A tenant is created, in whose name clients that come ask.
    #[must_use]
    pub fn for_tenant(mut self, spec: TenantSpec) -> Scenario {
        let secret = format!("{:032x}", u128::from_be_bytes(SECRET.0));
        let spec = TenantSpec { secret: Some(spec.secret.unwrap_or(secret)), ..spec };
        let own = spec.clone();
        let made = self.control(|host, io| {
            host.ask(io, |core, asked| core.create_tenant(asked, spec, Secret::NONE))
        });
        let view = made.expect("a tenant that is possible");
        self.tenant = view.id;
        self.cluster.tenants.push(wire::Tenant {
            hash_secret: view.hash_secret,
            write_back_ms: own.write_back_ms,
            ..wire::Tenant::new(view.id, own.secret.unwrap_or_default())
        });
        self
    }

    /// The tenant is changed.
    pub fn change(&mut self, change: TenantChange) {
        let tenant = self.tenant;
        let changed = self.control(|host, io| {
            host.ask(io, |core, asked| core.change_tenant(asked, tenant, change))
        });
        changed.expect("a change that is possible");
    }

    /// The tenant is removed.
    pub fn remove_tenant(&mut self) {
        let tenant = self.tenant;
        let removed =
            self.control(|host, io| host.ask(io, |core, asked| core.remove_tenant(asked, tenant)));
        removed.expect("it is there");
    }

    fn control<R>(&mut self, ask: impl FnOnce(&mut ControlHost, &mut sim::Io<'_>) -> R) -> R {
        let control = self.process("control/control");
        self.world.with(control, ask).expect("the controller runs")
    }

    /// The client on a machine, which is there from its first deed on.
    fn client(&mut self, at: &str) -> ProcessId {
        if let Some(client) = self.clients.get(at) {
            return *client;
        }
        let id = self.clients.len() as u32 + 1;
        let (cluster, tenant) = (self.cluster.clone(), self.tenant);
        let make = Box::new(move |birth: sim::Birth| {
            Ok(Box::new(ClientHost::new(&birth, id, &cluster, tenant)?) as Box<dyn Process>)
        });
        let machine = self.machine(at);
        let client = self.world.place(machine, format!("{at}/client"), make);
        self.world.start(client).expect("a tenant's client");
        self.clients.insert(at.to_owned(), client);
        client
    }

    /// A client begins a deed, of which [`Scenario::outcome`] tells.
    pub fn begin(&mut self, at: &str, deed: Deed, key: &str) -> u64 {
        let client = self.client(at);
        let begin = |host: &mut ClientHost, io: &mut sim::Io<'_>| host.begin(deed, key, io);
        self.world.with(client, begin).expect("a client")
    }

    /// What came of a deed; none: nothing so far.
    pub fn outcome(&self, at: &str, call: u64) -> Option<&Outcome> {
        let client: &ClientHost = self.host(&format!("{at}/client"));
        client.outcome(call)
    }

    /// A client does something, and time passes until it is done.
    pub fn ask(&mut self, at: &str, deed: Deed, key: &str) -> Outcome {
        let call = self.begin(at, deed, key);
        self.until(PATIENCE_MS, |scenario| scenario.outcome(at, call).is_some());
        self.outcome(at, call).cloned().expect("it was waited for")
    }

    /// A client writes a short value; its number.
    pub fn write(&mut self, at: &str, key: &str) -> u64 {
        let wrote = self.ask(at, Deed::Write(0), key);
        wrote.expect("the write is answered").expect("a number")
    }

    /// A client reads; the number that it finds.
    pub fn read(&mut self, at: &str, key: &str) -> Option<u64> {
        self.ask(at, Deed::Read, key).expect("the read is answered")
    }

    /// The reads of a client that were answered, in this order.
    pub fn reads(&self, at: &str) -> &[Read] {
        self.host::<ClientHost>(&format!("{at}/client")).reads()
    }

    /// Sends a packet to the first store by hand, and lets time pass until it is answered.
    pub fn by_hand(&mut self, at: &str, header: Header, key: &str, value: &[u8]) -> Header {
        let client = self.client(at);
        let to = self.cluster.stores[0].address;
        let secrets = self.cluster.secrets_of(self.tenant).expect("the tenant's");
        let key_hash = secrets.hash.key_hash(self.tenant, key.as_bytes());
        let header = Header { tenant: self.tenant, key_hash, ..header };
        let sent = self.world.with(client, |host: &mut ClientHost, io| {
            host.send(header, key, value, to, io);
            host.heard().len()
        });
        let before = sent.expect("a client");
        let name = format!("{at}/client");
        let heard = |scenario: &Scenario| scenario.host::<ClientHost>(&name).heard().to_vec();
        self.until(PATIENCE_MS, |scenario| heard(scenario).len() > before);
        heard(self)[before]
    }

    // ---- time

    /// So many milliseconds pass.
    pub fn pass(&mut self, ms: u64) {
        self.world.run_until(self.world.now_ns() + ms * MS);
    }

    /// Time passes until something holds, for so many milliseconds at most.
    pub fn until(&mut self, most_ms: u64, holds: impl Fn(&Scenario) -> bool) {
        self.look(LOOK_NS, most_ms, holds);
    }

    fn look(&mut self, every_ns: u64, most_ms: u64, holds: impl Fn(&Scenario) -> bool) {
        let ends_ns = self.world.now_ns() + most_ms * MS;
        while !holds(self) {
            let now_ns = self.world.now_ns();
            assert!(now_ns < ends_ns, "what was waited for {most_ms} ms did not come");
            self.world.run_until(now_ns + every_ns);
        }
    }

    // ---- what there is to see

    /// The machine of this name.
    pub fn machine(&self, name: &str) -> MachineId {
        self.world.machine(name).unwrap_or_else(|| panic!("{name}: no machine of the plan"))
    }

    /// The process of this name, `MACHINE/ROLE`.
    pub fn process(&self, name: &str) -> ProcessId {
        self.world.process(name).unwrap_or_else(|| panic!("{name}: no process of the plan"))
    }

    /// The process of this name, which must live and be of this kind.
    pub fn host<P: Process>(&self, name: &str) -> &P {
        let found = self.world.get(self.process(name));
        found.unwrap_or_else(|| panic!("{name}: it does not run, or is something else"))
    }

    /// What a store has counted in this life.
    pub fn store(&self, machine: &str) -> store::Counters {
        self.host::<StoreHost>(&format!("{machine}/store")).counters()
    }

    /// What a store tells about itself.
    pub fn status(&self, machine: &str) -> store::Status {
        let store: &StoreHost = self.host(&format!("{machine}/store"));
        store.status(self.world.clock(self.machine(machine)).monotonic_ns)
    }

    /// What a switch has counted under this name.
    pub fn switch(&self, machine: &str, counter: &str) -> u64 {
        let counters = self.world.counters(self.machine(machine)).expect("they can be read");
        let found = counters.iter().find(|(name, _)| *name == counter);
        found.unwrap_or_else(|| panic!("{machine}: it counts no {counter}")).1
    }

    /// What a switch has of keys that are lent.
    pub fn loans(&self, machine: &str) -> LoanCounts {
        let agent: &AgentHost = self.host(&format!("{machine}/agent"));
        LoanCounts::of(agent.switch()).expect("its records")
    }

    /// That one copy of each key could have told clients what they were told.
    pub fn judge(&self) {
        let mut keys: BTreeMap<String, Vec<history::Operation>> = BTreeMap::new();
        for client in self.clients.keys() {
            let client: &ClientHost = self.host(&format!("{client}/client"));
            for (key, mut operations) in client.history() {
                keys.entry(key).or_default().append(&mut operations);
            }
        }
        for (key, operations) in keys {
            match history::check(&operations).expect("few enough to decide") {
                Verdict::Linearizable => {}
                Verdict::Violation(at) => {
                    let cut = history::shrink(&operations, at);
                    panic!("{key}: not linearizable: {cut:#?}");
                }
            }
        }
    }
}
