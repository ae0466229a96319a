//! What a hunt does, as data: drawn from a seed, made smaller by `shrink`, and written to a file by
//! experiments, so that it can be run again.

use std::collections::BTreeMap;

use rand::{Rng, RngExt, seq::IndexedRandom};
use seed::{SeededRng, rng};
use serde::{Deserialize, Serialize};

/// How machines are linked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Shape {
    /// So many switches in a line, clients at the first, stores at the last.
    Line(u32),
    /// Two switches in a line, and a third one around the link between them.
    Detour,
    /// So many racks under a spine: clients in the first, stores in all of them in turn.
    Racks(u32),
}

/// What goes wrong on every link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Faults {
    /// Chance that a frame is lost.
    pub loss: f64,
    /// Chance that it comes twice.
    pub duplicate: f64,
    /// Chance that it is held back.
    pub reorder: f64,
    /// For how long at most, in milliseconds.
    pub reorder_ms: f64,
    /// Delay of a link in milliseconds.
    pub delay_ms: f64,
    /// Chance that a bit of it is flipped, on one of the links.
    pub flip: f64,
}

/// A store.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Store {
    /// Length of leases in milliseconds, as its copy of the cluster file has it.
    pub lease_ms: u32,
    /// How long what holds its data takes to answer, in microseconds; 0: no time.
    #[serde(default)]
    pub data_us: u64,
}

/// A tenant beside the open one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tenant {
    /// Its number.
    pub id: u32,
    /// Pages that it is guaranteed.
    pub quota: u32,
    /// What switches do for it.
    pub discipline: String,
    /// Write-back: how old an answered write may be that the store does not have, in milliseconds;
    /// 0: none.
    #[serde(default)]
    pub write_back_ms: u32,
}

/// What clients do.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Clients {
    /// Hosts with clients.
    pub hosts: u32,
    /// Clients on each.
    pub each: u32,
    /// Keys of each tenant.
    pub keys: u32,
    /// Longest pause between two operations of a client, in microseconds.
    pub pause_us: u64,
    /// Longest value in bytes.
    pub longest_value: usize,
    /// Part of the writes whose values live for a while only.
    pub expiring: f64,
    /// Whether each host has a second link, to another switch: when the first is cut, its address
    /// is another one.
    #[serde(default)]
    pub second_links: bool,
    /// Part of the operations that are reads and unconditional writes, half of each, whatever the
    /// others are.
    #[serde(default)]
    pub plain: f64,
}

/// One thing that is done to the system while clients ask.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "deed")]
pub enum Deed {
    /// A process is killed, and started again later.
    Kill {
        /// When, in milliseconds after the clients' start.
        at_ms: u64,
        /// Its name, `MACHINE/ROLE`.
        process: String,
        /// For how long.
        for_ms: u64,
    },
    /// A process stands still.
    Stop {
        /// When.
        at_ms: u64,
        /// Its name.
        process: String,
        /// For how long.
        for_ms: u64,
    },
    /// A machine is suspended.
    Suspend {
        /// When.
        at_ms: u64,
        /// Its name.
        machine: String,
        /// For how long.
        for_ms: u64,
    },
    /// A machine stands still with all of its clocks, as a virtual machine that is paused. No plan
    /// that is drawn has this: a switch that goes on after it may serve old values.
    Halt {
        /// When.
        at_ms: u64,
        /// Its name.
        machine: String,
        /// For how long.
        for_ms: u64,
    },
    /// A switch loses all of its tables, and starts again.
    Reboot {
        /// When.
        at_ms: u64,
        /// Its name.
        machine: String,
        /// For how long it is away.
        for_ms: u64,
    },
    /// A store is killed, and started again with another cluster file: its leases are longer,
    /// or shorter.
    Relend {
        /// When.
        at_ms: u64,
        /// Its place among the stores.
        store: usize,
        /// Length of its leases from then on, in milliseconds.
        lease_ms: u32,
        /// For how long it is away.
        for_ms: u64,
    },
    /// What holds a store's data dies, and runs again later with all of it.
    Data {
        /// When.
        at_ms: u64,
        /// The store's place.
        store: usize,
        /// For how long.
        for_ms: u64,
    },
    /// The disk of a process fails: what it says is not there may be there all the same.
    FailDisk {
        /// When.
        at_ms: u64,
        /// Its name.
        process: String,
        /// For how long.
        for_ms: u64,
    },
    /// A process's files are copied; later it is killed, and begins again with the copy.
    PutBack {
        /// When they are copied.
        at_ms: u64,
        /// Its name.
        process: String,
        /// How old the copy is when it is put back.
        for_ms: u64,
    },
    /// A tenant gets another secret. Its clients go on with theirs, which stays good beside the
    /// new one.
    Rotate {
        /// When.
        at_ms: u64,
        /// Which tenant.
        tenant: u32,
    },
    /// A link is cut, and mended later.
    Cut {
        /// When.
        at_ms: u64,
        /// Its place.
        link: usize,
        /// For how long.
        for_ms: u64,
    },
    /// A tenant's quota and policy change, so that its pages move.
    Move {
        /// When.
        at_ms: u64,
        /// Which tenant.
        tenant: u32,
        /// Its pages from then on.
        quota: u32,
        /// Its policy: place in the list of policies.
        policy: u8,
    },
    /// A tenant's write-back begins, ends, or has another bound.
    WriteBack {
        /// When.
        at_ms: u64,
        /// Which tenant.
        tenant: u32,
        /// The bound from then on, in milliseconds; 0: no write-back.
        bound_ms: u32,
    },
    /// A machine's wall clock is set.
    SetWall {
        /// When.
        at_ms: u64,
        /// Its name.
        machine: String,
        /// By so much.
        by_ms: i64,
    },
}

impl Deed {
    /// When it is done, in milliseconds after the clients' start.
    pub fn at_ms(&self) -> u64 {
        match self {
            Deed::Kill { at_ms, .. }
            | Deed::Stop { at_ms, .. }
            | Deed::Suspend { at_ms, .. }
            | Deed::Halt { at_ms, .. }
            | Deed::Reboot { at_ms, .. }
            | Deed::Relend { at_ms, .. }
            | Deed::Data { at_ms, .. }
            | Deed::FailDisk { at_ms, .. }
            | Deed::PutBack { at_ms, .. }
            | Deed::Rotate { at_ms, .. }
            | Deed::Cut { at_ms, .. }
            | Deed::Move { at_ms, .. }
            | Deed::WriteBack { at_ms, .. }
            | Deed::SetWall { at_ms, .. } => *at_ms,
        }
    }

    /// For how long, if it is undone then.
    pub fn lasts_ms(&self) -> Option<u64> {
        match self {
            Deed::Kill { for_ms, .. }
            | Deed::Stop { for_ms, .. }
            | Deed::Suspend { for_ms, .. }
            | Deed::Halt { for_ms, .. }
            | Deed::Reboot { for_ms, .. }
            | Deed::Relend { for_ms, .. }
            | Deed::PutBack { for_ms, .. }
            | Deed::Cut { for_ms, .. } => Some(*for_ms),
            Deed::Data { .. }
            | Deed::FailDisk { .. }
            | Deed::Rotate { .. }
            | Deed::Move { .. }
            | Deed::WriteBack { .. }
            | Deed::SetWall { .. } => None,
        }
    }

    /// What it is, in a word.
    pub fn name(&self) -> &'static str {
        match self {
            Deed::Kill { .. } => "killed",
            Deed::Stop { .. } => "stopped",
            Deed::Suspend { .. } => "suspended",
            Deed::Halt { .. } => "halted",
            Deed::Reboot { .. } => "rebooted",
            Deed::Relend { .. } => "leases_rewritten",
            Deed::Data { .. } => "data_restarted",
            Deed::FailDisk { .. } => "disks_failed",
            Deed::PutBack { .. } => "files_put_back",
            Deed::Rotate { .. } => "secrets_rotated",
            Deed::Cut { .. } => "cut",
            Deed::Move { .. } => "moved",
            Deed::WriteBack { .. } => "write_back_changed",
            Deed::SetWall { .. } => "wall_clock_set",
        }
    }
}

/// How machines' clocks differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Life {
    /// Largest drift of a clock, in millionths, either way.
    pub drift_ppm: f64,
    /// Largest difference of wall clocks in seconds, either way.
    pub wall_s: f64,
}

/// What tenants may choose from.
pub type Disciplines = &'static [decide::Registration];

/// What is drawn from.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Whether bits flip on the way.
    pub flips: bool,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { flips: true }
    }
}

/// One hunt, whole.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Decides all that is not said here.
    pub seed: u64,
    /// The machines.
    pub shape: Shape,
    /// Whether packets are IPv6.
    pub ipv6: bool,
    /// Stores, each on a host.
    pub stores: Vec<Store>,
    /// Pages of each switch.
    pub pages: u32,
    /// Most items of a tenant on a switch.
    pub items: usize,
    /// Length of a statistics window in milliseconds.
    pub window_ms: u32,
    /// What switches do for the open tenant; it is there if this is.
    pub open: Option<String>,
    /// Settings of disciplines that are not as usual, by `DISCIPLINE.NAME`.
    #[serde(default)]
    pub settings: BTreeMap<String, u32>,
    /// The other tenants.
    pub tenants: Vec<Tenant>,
    /// What clients do.
    pub clients: Clients,
    /// What goes wrong on links.
    pub faults: Faults,
    /// How clocks differ.
    pub life: Life,
    /// What is done, in order of time.
    pub deeds: Vec<Deed>,
    /// How long clients ask, in milliseconds.
    pub lasts_ms: u64,
}

/// One time in `n`.
pub(crate) fn one_in(rng: &mut impl Rng, n: u32) -> bool {
    rng.random_range(0..n) == 0
}

/// The longest value in bytes of a hunt in which some have parts: one hunt in three.
fn large_values(seed: u64) -> Option<usize> {
    let mut rng = rng(seed, "large values");
    one_in(&mut rng, 3).then(|| *[6 << 10, 64 << 10].choose(&mut rng).expect("some"))
}

impl Plan {
    /// The plan of a seed.
    pub fn draw(seed: u64, disciplines: Disciplines, limits: Limits) -> Plan {
        let mut rng = rng(seed, "plan");
        let names: Vec<&str> = disciplines
            .iter()
            .filter(|d| !d.object.is_empty() && d.items == decide::Items::Copies)
            .map(|d| d.name)
            .collect();
        let name = |rng: &mut SeededRng| (*names.choose(rng).expect("disciplines")).to_owned();
        let shape = match rng.random_range(0..6) {
            0 | 1 => Shape::Line(1),
            2 => Shape::Line(2),
            3 => Shape::Line(3),
            4 => Shape::Detour,
            _ => Shape::Racks(rng.random_range(2..=4)),
        };
        let stores = match rng.random_range(0..3) {
            0 => 1,
            1 => 2,
            _ => 3,
        };
        let leases = [1000, 1500, 2000, 3000];
        let stores = (0..stores).map(|_| Store {
            lease_ms: *leases.choose(&mut rng).expect("some"),
            data_us: *[0, 0, 200, 3_000].choose(&mut rng).expect("some"),
        });
        let stores: Vec<Store> = stores.collect();
        let quota = |rng: &mut SeededRng| rng.random_range(1..=3);
        let tenants = (0..rng.random_range(0..3)).map(|i| Tenant {
            id: 7 + i,
            quota: quota(&mut rng),
            discipline: name(&mut rng),
            write_back_ms: 0,
        });
        let tenants: Vec<Tenant> = tenants.collect();
        let open = (tenants.is_empty() || one_in(&mut rng, 2)).then(|| name(&mut rng));
        let clients = Clients {
            hosts: rng.random_range(1..=2),
            each: rng.random_range(2..=5),
            keys: rng.random_range(2..=12),
            pause_us: *[2_000, 10_000, 30_000].choose(&mut rng).expect("some"),
            longest_value: *[0, 60, 400, 1350].choose(&mut rng).expect("some"),
            expiring: if one_in(&mut rng, 3) { 0.4 } else { 0.0 },
            second_links: one_in(&mut rng, 2),
            plain: 0.0,
        };
        let clients = Clients {
            longest_value: large_values(seed).unwrap_or(clients.longest_value),
            ..clients
        };
        let quiet = one_in(&mut rng, 6);
        let chance = |rng: &mut SeededRng, most: f64| {
            if quiet || one_in(rng, 3) { 0.0 } else { rng.random::<f64>() * most }
        };
        let faults = Faults {
            loss: chance(&mut rng, 0.1),
            duplicate: chance(&mut rng, 0.1),
            reorder: chance(&mut rng, 0.2),
            reorder_ms: *[1.0, 20.0, 400.0].choose(&mut rng).expect("some"),
            delay_ms: *[0.01, 0.2, 2.0].choose(&mut rng).expect("some"),
            flip: if limits.flips { chance(&mut rng, 0.003) } else { 0.0 },
        };
        let life = Life { drift_ppm: chance(&mut rng, 400.0), wall_s: chance(&mut rng, 5.0) };
        let mut plan = Plan {
            seed,
            shape,
            ipv6: one_in(&mut rng, 4),
            stores,
            pages: rng.random_range(6..=12),
            items: rng.random_range(2..=16),
            window_ms: *[100, 250, 1000].choose(&mut rng).expect("some"),
            open,
            settings: BTreeMap::new(),
            tenants,
            clients,
            faults,
            life,
            deeds: vec![],
            lasts_ms: rng.random_range(4_000..=10_000),
        };
        let writes_back = plan.draw_write_back(&names);
        plan.draw_copies(disciplines);
        plan.bound_delays();
        let deeds = rng.random_range(0..=8);
        plan.deeds = (0..deeds).map(|_| plan.deed(&mut rng)).collect();
        if plan.has_copies_held(disciplines) {
            plan.draw_copies_deeds();
        }
        plan.draw_disks();
        if writes_back {
            plan.draw_write_back_deeds();
        }
        plan.deeds.sort_by_key(Deed::at_ms);
        plan
    }

    fn deed(&self, rng: &mut SeededRng) -> Deed {
        let at_ms = rng.random_range(0..self.lasts_ms);
        let short_ms = rng.random_range(1..=400);
        let for_ms = if one_in(rng, 2) { short_ms } else { rng.random_range(400..=6_000) };
        let machines = self.machines();
        let processes = self.processes();
        let process = |rng: &mut SeededRng| processes.choose(rng).expect("some").clone();
        let switches: Vec<&String> =
            machines.iter().filter(|name| name.starts_with("switch")).collect();
        match rng.random_range(0..13) {
            0..3 => Deed::Kill { at_ms, process: process(rng), for_ms: short_ms * 3 },
            3 | 4 => Deed::Stop { at_ms, process: process(rng), for_ms },
            5 => Deed::Suspend {
                at_ms,
                machine: machines.choose(rng).expect("some").clone(),
                for_ms,
            },
            6 => Deed::Reboot {
                at_ms,
                machine: (*switches.choose(rng).expect("some")).clone(),
                for_ms: short_ms,
            },
            7 => Deed::Cut {
                at_ms,
                // A host that loses its first link goes on with another address.
                link: if self.has_second_links() && one_in(rng, 2) {
                    rng.random_range(0..self.clients.hosts as usize)
                } else {
                    rng.random_range(0..self.links().len())
                },
                for_ms,
            },
            10 => Deed::Data {
                at_ms,
                store: rng.random_range(0..self.stores.len()),
                for_ms: short_ms,
            },
            9 if !self.tenants.is_empty() => {
                Deed::Rotate { at_ms, tenant: self.tenants.choose(rng).expect("some").id }
            }
            11 => {
                let store = rng.random_range(0..self.stores.len());
                Deed::Relend {
                    at_ms,
                    store,
                    lease_ms: rng.random_range(1000..=self.stores[store].lease_ms + 3_000),
                    for_ms: short_ms,
                }
            }
            8 if !self.tenants.is_empty() => Deed::Move {
                at_ms,
                tenant: self.tenants.choose(rng).expect("some").id,
                quota: rng.random_range(0..=4),
                policy: rng.random_range(0..4),
            },
            _ => Deed::SetWall {
                at_ms,
                machine: machines.choose(rng).expect("some").clone(),
                by_ms: rng.random_range(-4_000..=4_000),
            },
        }
    }

    /// A packet is never under way for as long as its sender may send again: then a store that
    /// restarted would take an old write for a new one, as `docs/coherence.md` says.
    fn bound_delays(&mut self) {
        let lease_ms = self.stores.iter().map(|store| store.lease_ms).min();
        // Clients give up after three quarters.
        let rest_ms = f64::from(lease_ms.unwrap_or(0)) / 4.0 * 0.8;
        let most_ms = rest_ms / f64::from(self.longest_path()) - self.faults.delay_ms;
        self.faults.reorder_ms = self.faults.reorder_ms.min(most_ms);
    }

    /// The longest lease that any store ever lends, in milliseconds.
    pub(crate) fn longest_lease_ms(&self) -> u32 {
        let relent = self.deeds.iter().filter_map(|deed| match deed {
            Deed::Relend { lease_ms, .. } => Some(*lease_ms),
            _ => None,
        });
        let first = self.stores.iter().map(|store| store.lease_ms);
        first.chain(relent).max().unwrap_or(0)
    }

    /// In whose names clients ask.
    pub fn asking(&self) -> Vec<u32> {
        let open = self.open.iter().map(|_| wire::TENANT_OPEN);
        open.chain(self.tenants.iter().map(|tenant| tenant.id)).collect()
    }
}
