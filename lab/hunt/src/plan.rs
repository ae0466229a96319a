//! What a hunt does, as data: drawn from a seed, made smaller by `shrink`, and written to a file by
//! experiments, so that it can be run again.

use std::collections::BTreeMap;

use plan::roles::Room;
use rand::{Rng, RngExt, seq::IndexedRandom};
use seed::{SeededRng, rng};
use serde::{Deserialize, Serialize};

use crate::{Act, Deed, Habits};

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
    /// How much it remembers at most; none: as much as usual.
    #[serde(default)]
    pub room: Option<Room>,
    /// Whether its data is in a shard of a Redis Cluster.
    #[serde(default)]
    pub is_shard: bool,
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
    /// Whether those of a host have one number in the names of all tenants.
    #[serde(default)]
    pub same_ids: bool,
    /// Whether each host keeps copies of what its clients read.
    #[serde(default)]
    pub caches: bool,
}

impl Clients {
    /// How those of a host ask.
    pub fn habits(&self) -> Habits {
        Habits { pause_us: self.pause_us, same_ids: self.same_ids, caches: self.caches }
    }
}

/// Clients that send commands of Redis.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Commands {
    /// Clients of each store.
    pub each: u32,
    /// Longest pause between two commands of a client, in microseconds.
    pub pause_us: u64,
    /// Part of the commands that delete every key of the store.
    pub flushes: f64,
    /// Part of the commands that are transactions with a key that is watched.
    #[serde(default)]
    pub watches: f64,
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
pub struct HuntPlan {
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
    /// Clients that send commands of Redis, if there are any.
    #[serde(default)]
    pub commands: Option<Commands>,
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

impl HuntPlan {
    /// The plan of a seed.
    pub fn draw(seed: u64, disciplines: Disciplines, limits: Limits) -> HuntPlan {
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
            room: None,
            is_shard: false,
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
            same_ids: false,
            caches: false,
        };
        // Apart from those with commands, but for some: holds call copies back, too.
        let caches = seed % 10 == 3 || seed % 100 == 31;
        // Few keys that are read often: others are not worth a copy.
        let clients = match caches {
            true => Clients { caches, keys: clients.keys.min(3), pause_us: 1_000, ..clients },
            false => clients,
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
        let mut plan = HuntPlan {
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
            commands: None,
            faults,
            life,
            deeds: vec![],
            lasts_ms: rng.random_range(4_000..=10_000),
        };
        plan.draw_crowd(&names);
        let writes_back = plan.draw_write_back(&names);
        plan.draw_copies(disciplines);
        plan.bound_delays();
        let deeds = rng.random_range(0..=8);
        plan.deeds = (0..deeds).map(|_| plan.deed(&mut rng)).collect();
        if plan.has_copies_held(disciplines) {
            plan.draw_copies_deeds();
        }
        plan.draw_disks();
        plan.draw_terms(&names);
        plan.draw_identities();
        plan.draw_departures();
        if writes_back {
            plan.draw_write_back_deeds();
        }
        plan.draw_commands();
        plan.draw_remakes();
        plan.draw_slots();
        plan.deeds.sort_by_key(|deed| deed.at_ms);
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
        let (for_ms, act) = match rng.random_range(0..13) {
            0..3 => (short_ms * 3, Act::Kill { process: process(rng) }),
            3 | 4 => (for_ms, Act::Stop { process: process(rng) }),
            5 => (for_ms, Act::Suspend { machine: machines.choose(rng).expect("some").clone() }),
            6 => {
                let machine = (*switches.choose(rng).expect("some")).clone();
                (short_ms, Act::Reboot { machine })
            }
            7 => {
                // A host that loses its first link goes on with another address.
                let link = if self.has_second_links() && one_in(rng, 2) {
                    rng.random_range(0..self.clients.hosts as usize)
                } else {
                    rng.random_range(0..self.links().len())
                };
                (for_ms, Act::Cut { link })
            }
            10 => (short_ms, Act::Data { store: rng.random_range(0..self.stores.len()) }),
            9 if !self.tenants.is_empty() => {
                (0, Act::Rotate { tenant: self.tenants.choose(rng).expect("some").id })
            }
            11 => {
                let store = rng.random_range(0..self.stores.len());
                let lease_ms = rng.random_range(1000..=self.stores[store].lease_ms + 3_000);
                (short_ms, Act::Relend { store, lease_ms })
            }
            8 if !self.tenants.is_empty() => {
                let tenant = self.tenants.choose(rng).expect("some").id;
                let (quota, policy) = (rng.random_range(0..=4), rng.random_range(0..4));
                (0, Act::Move { tenant, quota, policy })
            }
            _ => {
                let machine = machines.choose(rng).expect("some").clone();
                (0, Act::SetWall { machine, by_ms: rng.random_range(-4_000..=4_000) })
            }
        };
        Deed { at_ms, for_ms, act }
    }

    /// In one plan of three switches leave in order, and come back soon or late. None that is given
    /// to another machine: that one has no tables already.
    fn draw_departures(&mut self) {
        let mut rng = rng(self.seed, "departures");
        if !one_in(&mut rng, 3) {
            return;
        }
        let replaced = |name: &String| {
            self.deeds.iter().any(|deed| match &deed.act {
                Act::Replace { machine } => machine == name,
                _ => false,
            })
        };
        let machines = self.machines();
        let may = |name: &&String| name.starts_with("switch") && !replaced(name);
        let switches: Vec<&String> = machines.iter().filter(may).collect();
        for _ in 0..rng.random_range(1..=3) {
            let Some(machine) = switches.choose(&mut rng) else { return };
            let at_ms = rng.random_range(0..self.lasts_ms);
            let for_ms = *[1, 100, 2_000].choose(&mut rng).expect("some");
            let act = Act::Leave { machine: (*machine).clone() };
            self.deeds.push(Deed { at_ms, for_ms, act });
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
        let relent = self.deeds.iter().filter_map(|deed| match deed.act {
            Act::Relend { lease_ms, .. } => Some(lease_ms),
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

#[cfg(test)]
mod tests;
