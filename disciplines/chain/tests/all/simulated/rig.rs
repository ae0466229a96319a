//! Switches at a router in the simulator, with a controller and a client.

use std::{
    collections::{BTreeMap, VecDeque},
    net::IpAddr,
};

use api::types::{Policy, TenantSpec};
use chain::{NETCHAIN, NETCRAQ};
use decide::Registration;
use plan::{
    Plan, Site,
    roles::{Control, Role, Store, Switch, control_url},
    shapes,
};
use sim::{AgentHost, ControlHost, Process, ProcessId, World};
use wire::{Secret, Status};

use super::{
    MS, S, TENANT,
    client::{Asker, CLIENT, Command, Response, SECRET, write},
};

static DISCIPLINES: [Registration; 2] = [NETCRAQ, NETCHAIN];

pub struct Rig {
    pub world: World,
    pub client: ProcessId,
}

/// A switch takes no longer to leave.
const LEAVES_WITHIN_NS: u64 = 10 * S;

const HOSTS: [&str; 3] = ["control", "client1", "server1"];

/// Switches `switch1` and on by links 0 and on, and hosts, at a router of no discipline.
pub fn star(switches: u16) -> Plan {
    let switches: Vec<String> = (1..=switches).map(|n| format!("switch{n}")).collect();
    let mut plan = Plan { sites: vec![Site::switch("router", vec![])], ..Plan::default() };
    plan.sites.extend(switches.iter().map(|name| Site::switch(name, vec![])));
    plan.links = shapes::star("router", switches);
    plan.add_hosts("router", HOSTS.map(String::from));
    plan
}

/// Switches in a line, each known by the address that it has towards its own host: that by which it
/// asks others is another one.
pub fn line(switches: u16) -> Plan {
    let switches: Vec<String> = (1..=switches).map(|n| format!("switch{n}")).collect();
    let own = switches.iter().zip(HOSTS.iter().cycle());
    let own = own.flat_map(|(switch, host)| shapes::star(switch, [*host]));
    let hosts = HOSTS.map(|name| Site::host(name, vec![]));
    Plan {
        links: own.chain(shapes::line(&switches)).collect(),
        sites: switches.iter().map(|name| Site::switch(name, vec![])).chain(hosts).collect(),
        ..Plan::default()
    }
}

impl Rig {
    /// So many switches, which hang at a router with everybody else; a tenant with these options.
    pub fn new(discipline: &str, switches: u16, options: &[(&str, u32)]) -> Rig {
        Rig::seeded(discipline, switches, options, 1)
    }

    pub fn seeded(discipline: &str, switches: u16, options: &[(&str, u32)], seed: u64) -> Rig {
        Rig::shaped(discipline, (star(switches), switches), options, seed)
    }

    /// So many switches in a network of this shape.
    pub fn shaped(
        discipline: &str,
        (mut plan, switches): (Plan, u16),
        options: &[(&str, u32)],
        seed: u64,
    ) -> Rig {
        let url = || control_url("control");
        plan.seat(|name| match name {
            "control" => Some(Role::Control(Control::of(name))),
            "server1" => Some(Role::Store(Store { control: Some(url()), ..Store::of(name) })),
            _ => {
                let id = name.strip_prefix("switch")?.parse().unwrap();
                let (pages, no_probes) = (Some(16), true);
                Some(Role::Switch(Switch { pages, no_probes, ..Switch::of(id, name, url()) }))
            }
        });
        let plan = Plan { partitions: 8, lease_ms: 2000, lease_max_ms: 2000, ..plan };
        let mut world = World::new(&plan, &DISCIPLINES, seed).unwrap();
        world.run_until(S);
        let control = world.process("control/control").unwrap();
        let tenant = TenantSpec {
            id: Some(TENANT),
            quota: 8 * u32::from(switches),
            policy: Policy::EvenSplit,
            secret: Some(format!("{:032x}", u128::from_be_bytes(SECRET.0))),
            discipline: discipline.into(),
            options: options.iter().map(|(name, n)| ((*name).into(), *n)).collect(),
            ..TenantSpec::default()
        };
        let made = world.with(control, |host: &mut ControlHost, io| {
            host.ask(io, |core, asked| core.create_tenant(asked, tenant, Secret::NONE))
        });
        made.unwrap().unwrap();
        let addresses = (1..=switches).map(|n| {
            let machine = world.machine(&format!("switch{n}")).unwrap();
            IpAddr::from(world.network().address(machine.0).unwrap())
        });
        let addresses: Vec<IpAddr> = addresses.collect();
        let at = world.machine("client1").unwrap();
        let maker = Box::new(move |birth: sim::Birth| {
            let asker: Box<dyn Process> = Box::new(Asker {
                port: birth.port,
                client: CLIENT,
                switches: addresses.clone(),
                number: 0,
                routes: BTreeMap::new(),
                to_do: VecDeque::new(),
                request: 16,
                began_ns: 0,
                again_ns: 0,
                tries: 0,
                done: vec![],
            });
            Ok(asker)
        });
        let client = world.place(at, "client1/ask".into(), maker);
        world.start(client).unwrap();
        world.run_until(5 * S);
        Rig { world, client }
    }

    /// Does these, one after the other, within so long.
    pub fn ask(&mut self, all: &[Command], within_ms: u64) -> Vec<Response> {
        let begun = self.world.with(self.client, |asker: &mut Asker, io| {
            asker.done.clear();
            asker.to_do.extend(all.iter().cloned());
            asker.next(io);
        });
        begun.unwrap();
        let until = self.world.now_ns() + within_ms * MS;
        let client = self.client;
        self.world.run_while(MS, |world| {
            let asker: &Asker = world.get(client).unwrap();
            !asker.to_do.is_empty() && world.now_ns() < until
        });
        let asker: &Asker = self.world.get(client).unwrap();
        if asker.done.len() < all.len() {
            self.show();
        }
        asker.done.clone()
    }

    pub fn show(&self) {
        for n in 1.. {
            let Some(machine) = self.world.machine(&format!("switch{n}")) else { break };
            let counters = self.world.counters(machine).unwrap();
            let some: Vec<_> = counters.iter().filter(|(_, count)| *count > 0).collect();
            println!("switch{n}: {some:?}");
            let agent = self.world.process(&format!("switch{n}/agent")).unwrap();
            if let Some(agent) = self.world.get::<AgentHost>(agent) {
                println!("  {:?}", agent.failed());
            }
        }
        let control = self.world.process("control/control").unwrap();
        let control: &ControlHost = self.world.get(control).unwrap();
        println!("{:?}", control.core().view().tenant(TENANT, false));
        for switch in &control.core().view().status(std::time::Duration::ZERO).switches {
            println!("{switch:?}");
        }
        let asker: &Asker = self.world.get(self.client).unwrap();
        println!("{:?} {:?} {:?}", asker.number, asker.routes, asker.done);
    }
}

impl Rig {
    /// Switches by their place in the only chain, as the client knows it.
    pub fn members(&self) -> Vec<u32> {
        self.chains().swap_remove(0)
    }

    /// Those of each chain that the client knows, by the chains' numbers.
    pub fn chains(&self) -> Vec<Vec<u32>> {
        let asker: &Asker = self.world.get(self.client).unwrap();
        let routes = asker.routes.values();
        routes.map(|route| self.switches_of(route)).collect()
    }

    fn switches_of(&self, route: &chain_wire::Route) -> Vec<u32> {
        let members = route.members.iter();
        let machine = |n: u32| self.world.machine(&format!("switch{n}"));
        let is_at = |n: u32, at: &IpAddr| {
            let address = machine(n).and_then(|m| self.world.network().address(m.0));
            address.map(IpAddr::from) == Some(*at)
        };
        let number = |at: &IpAddr| (1..9).find(|n| is_at(*n, at)).unwrap();
        members.map(number).collect()
    }

    /// The longest that one of the switch's packets takes to be answered now, in milliseconds:
    /// reads and writes in turn.
    pub fn longest_ms(&mut self, rounds: usize) -> u64 {
        self.in_turn(&["k"], rounds, 20_000)
    }

    /// Writes each of these keys in turn, and reads it; the longest that one took, in milliseconds.
    fn in_turn(&mut self, keys: &[&'static str], rounds: usize, within_ms: u64) -> u64 {
        let key = |n: usize| keys[n % keys.len()];
        let all: Vec<Command> = (0..rounds)
            .flat_map(|n| [write(key(n), &n.to_string()), Command::Read(key(n), n % 3)])
            .collect();
        let done = self.ask(&all, within_ms);
        assert_eq!(done.len(), all.len());
        for (n, pair) in done.chunks(2).enumerate() {
            let read = (pair[1].status, &*pair[1].value, pair[1].version);
            assert_eq!(read, (Status::Ok, &*n.to_string(), pair[0].version));
        }
        done.iter().map(|d| d.ns / MS).max().unwrap_or(0)
    }
}

/// What happens to a member.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fault {
    /// Its agent alone.
    AgentKilled,
    /// It loses its power, and its tables with it.
    PoweredOff,
    /// Its link loses everything, and has its carrier.
    Silent,
    /// It is started anew at once, with empty tables.
    Restarted,
}

impl Rig {
    /// A member is detached in order, and gone once it may go; the longest that one of a client's
    /// packets took meanwhile and in the rounds after, in milliseconds.
    pub fn leaves(&mut self, switch: u32, rounds: usize) -> u64 {
        let name = format!("switch{switch}");
        let agent = self.world.process(&format!("{name}/agent")).unwrap();
        self.world.with(agent, |host: &mut AgentHost, io| host.leave(io)).unwrap();
        let until_ns = self.world.now_ns() + LEAVES_WITHIN_NS;
        let mut longest = 0;
        while !self.world.get::<AgentHost>(agent).unwrap().has_left() {
            assert!(self.world.now_ns() < until_ns, "{name} does not leave");
            longest = longest.max(self.longest_ms(1));
        }
        self.world.kill(agent);
        self.world.forget_tables(self.world.machine(&name).unwrap());
        longest.max(self.longest_ms(rounds))
    }

    /// A switch that left is there again, with empty tables.
    pub fn comes_back(&mut self, switch: u32) {
        let agent = self.world.process(&format!("switch{switch}/agent")).unwrap();
        self.world.start(agent).unwrap();
    }

    pub fn fails(&mut self, switch: u32, fault: Fault) {
        let name = format!("switch{switch}");
        let machine = self.world.machine(&name).unwrap();
        let agent = self.world.process(&format!("{name}/agent")).unwrap();
        match fault {
            Fault::AgentKilled => self.world.kill(agent),
            Fault::PoweredOff => self.world.power_off(machine),
            Fault::Silent => self.world.silence(switch as usize - 1, [true; 2]),
            Fault::Restarted => {
                self.world.kill(agent);
                self.world.forget_tables(machine);
                self.world.start(agent).unwrap();
            }
        }
    }

    pub fn recovers(&mut self, switch: u32, fault: Fault) {
        let name = format!("switch{switch}");
        let machine = self.world.machine(&name).unwrap();
        let agent = self.world.process(&format!("{name}/agent")).unwrap();
        match fault {
            Fault::AgentKilled => self.world.start(agent).unwrap(),
            Fault::PoweredOff => {
                self.world.power_on(machine);
                self.world.start(agent).unwrap();
            }
            Fault::Silent => self.world.silence(switch as usize - 1, [false; 2]),
            Fault::Restarted => {}
        }
    }

    pub fn pass(&mut self, ms: u64) {
        let now_ns = self.world.now_ns();
        self.world.run_until(now_ns + ms * MS);
    }
}

const KEYS: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];

impl Rig {
    /// What all keys of [`Rig::keys`] have.
    pub fn values(&mut self) -> Vec<String> {
        let done = self.ask(&KEYS.map(|key| Command::Read(key, 1)), 10_000);
        done.into_iter().map(|done| done.value).collect()
    }

    /// Writes and reads keys of all chains in turn; the longest that one took, in milliseconds.
    pub fn keys(&mut self, rounds: usize) -> u64 {
        self.in_turn(&KEYS, rounds, 60_000)
    }
}
