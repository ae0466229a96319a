//! The machines and links of a plan.

use plan::{
    Clocks, Site,
    roles::{self, Control, Data, Role, Switch, control_url},
    shapes,
    topology::{Fault, Link},
};
use rand::RngExt;

use crate::{HuntPlan, Shape, Store};

/// Where the controller runs.
const CONTROL: &str = "control";
/// Partitions of each store.
const PARTITIONS: u32 = 4;
/// Writes of a key within a second from which on it is lent: clients are few and slow here.
const LEND_FROM: u32 = 8;

/// The number of a machine of this name, from 1 on; of a switch that is its id.
pub(crate) fn number_of(name: &str) -> usize {
    name.trim_start_matches(|c: char| !c.is_ascii_digit()).parse().unwrap_or(1)
}

impl HuntPlan {
    fn switches(&self) -> u32 {
        match self.shape {
            Shape::Line(switches) => switches,
            Shape::Detour => 3,
            // One per rack, and the spine.
            Shape::Racks(racks) => racks + 1,
        }
    }

    /// The switch that the store of this number is at; from 1, as in its name.
    fn switch_of_store(&self, store: u32) -> u32 {
        match self.shape {
            Shape::Line(switches) => switches,
            Shape::Detour => 2,
            Shape::Racks(racks) => (store + 1) % racks + 1,
        }
    }

    /// The switch that the client host of this number is at: hosts see one another's writes past
    /// their own switch.
    fn switch_of_client(&self, host: u32) -> u32 {
        match (host, self.shape) {
            (1, _) => 1,
            (_, Shape::Line(switches)) => switches,
            (_, Shape::Detour) => 3,
            (_, Shape::Racks(_)) => 2,
        }
    }

    /// Whether each client host has two links.
    pub(crate) fn has_second_links(&self) -> bool {
        self.clients.second_links && self.switches() > 1
    }

    /// Whether a host that loses this link has another one.
    pub(crate) fn has_another(&self, link: usize) -> bool {
        self.has_second_links() && link < self.clients.hosts as usize
    }

    /// Links between a client and a store that are farthest apart, the detour included.
    pub(crate) fn longest_path(&self) -> u32 {
        match self.shape {
            Shape::Line(switches) => switches + 1,
            Shape::Detour | Shape::Racks(_) => 4,
        }
    }

    /// Names of all machines: clients, stores, the controller's, switches.
    pub(crate) fn machines(&self) -> Vec<String> {
        let numbered = |name: &'static str, n: u32| (1..=n).map(move |i| format!("{name}{i}"));
        numbered("client", self.clients.hosts)
            .chain(numbered("store", self.stores.len() as u32))
            .chain([CONTROL.into()])
            .chain(numbered("switch", self.switches()))
            .collect()
    }

    /// Names of all processes that can be killed.
    pub(crate) fn processes(&self) -> Vec<String> {
        let role = |machine: String| {
            let role = match machine.trim_end_matches(|c: char| c.is_ascii_digit()) {
                "client" => "clients",
                "store" => "store",
                "switch" => "agent",
                _ => "control",
            };
            format!("{machine}/{role}")
        };
        self.machines().into_iter().map(role).collect()
    }

    /// How many links come after those between switches: the clients' second ones.
    pub(crate) fn second_links(&self) -> usize {
        let hosts = self.clients.hosts as usize;
        if self.has_second_links() { hosts } else { 0 }
    }

    /// Links by the names of their ends.
    pub(crate) fn links(&self) -> Vec<[String; 2]> {
        let switch = |n: u32| format!("switch{n}");
        let clients = (1..=self.clients.hosts)
            .map(|i| [format!("client{i}"), switch(self.switch_of_client(i))]);
        let stores = (0..self.stores.len() as u32)
            .map(|i| [format!("store{}", i + 1), switch(self.switch_of_store(i))]);
        let control = [[CONTROL.to_owned(), switch(1)]];
        let between: Vec<Link> = match self.shape {
            Shape::Line(switches) => {
                shapes::line(&(1..=switches).map(switch).collect::<Vec<String>>())
            }
            Shape::Detour => shapes::detour(["switch1", "switch2", "switch3"]),
            Shape::Racks(racks) => shapes::star(&switch(racks + 1), (1..=racks).map(switch)),
        };
        let between = between.into_iter().map(|link| link.ends);
        let hosts = 1..=self.clients.hosts;
        let second = hosts.filter(|_| self.has_second_links()).map(|i| {
            let other = self.switch_of_client(i) % self.switches() + 1;
            [format!("client{i}"), switch(other)]
        });
        clients.chain(stores).chain(control).chain(between).chain(second).collect()
    }

    /// The rack that it describes.
    pub(crate) fn rack(&self) -> plan::Plan {
        let mut rng = seed::rng(self.seed, "clocks");
        let mut sites = vec![];
        for name in self.machines() {
            let number = number_of(&name);
            let mut within = |most: f64| (rng.random::<f64>() * 2.0 - 1.0) * most;
            let clocks = Clocks {
                uptime_ns: 1_000_000_000 * (10 + number as u64),
                wall_ahead_ns: (within(self.life.wall_s) * 1e9) as i64,
                drift_ppm: within(self.life.drift_ppm),
            };
            let site = if name.starts_with("switch") {
                Site::switch(&name, vec![self.agent(number as u16, &name).into()])
            } else if name.starts_with("store") {
                Site::host(&name, vec![self.store(&name, self.stores[number - 1]).into()])
            } else if name == CONTROL {
                Site::host(&name, vec![self.control().into()])
            } else {
                Site::host(&name, vec![])
            };
            sites.push(Site { clocks, ..site });
        }
        let ends = self.links();
        // One link only: two bits that flip in one packet may leave its checksum as it is.
        let flips = seed::rng(self.seed, "flips").random_range(0..ends.len());
        let links = ends.into_iter().enumerate().map(|(number, ends)| Link {
            fault: Some(self.fault(number == flips)),
            ..Link::between(ends)
        });
        let usual = plan::Plan::default();
        // What clients go by: the file as it was at first.
        let lease_ms = self.stores.iter().map(|store| store.lease_ms).max();
        plan::Plan {
            sites,
            links: links.collect(),
            partitions: PARTITIONS * self.stores.len() as u32,
            is_open: self.open.is_some(),
            is_signed: self.open.is_none(),
            tells_racks: matches!(self.shape, Shape::Racks(_)),
            lease_ms: lease_ms.unwrap_or(usual.lease_ms),
            lease_max_ms: self.longest_lease_ms(),
            ..usual
        }
    }

    fn fault(&self, flips: bool) -> Fault {
        let faults = &self.faults;
        Fault {
            loss: faults.loss,
            duplicate: faults.duplicate,
            reorder: faults.reorder,
            reorder_ms: faults.reorder_ms,
            delay_ms: faults.delay_ms,
            flip: if flips { faults.flip } else { 0.0 },
            seed: 0,
        }
    }

    fn agent(&self, id: u16, name: &str) -> Role {
        let pages = Some(self.pages);
        Role::Switch(Switch { pages, ..Switch::of(id, name, control_url(CONTROL)) })
    }

    fn control(&self) -> Role {
        Role::Control(Control {
            discipline: self.open.clone(),
            window_ms: Some(self.window_ms),
            max_items: Some(self.items),
            settings: self.settings.clone(),
            ..Control::of(CONTROL)
        })
    }

    /// The store of a host, whose data outlives it.
    pub(crate) fn store(&self, host: &str, store: Store) -> Role {
        let mut role = roles::Store::of(host);
        if self.ipv6 {
            role.listen = format!("[{{address6:{host}}}]:{}", wire::PORT);
        }
        Role::Store(roles::Store {
            control: Some(control_url(CONTROL)),
            data: match store.data_us {
                us if store.is_shard => Data::Shard(us * 1_000),
                0 => Data::Kept,
                us => Data::Remote(us * 1_000),
            },
            lease_ms: Some(store.lease_ms),
            lend_from: Some(LEND_FROM),
            room: store.room,
            ..role
        })
    }
}
