//! The lab of the hunt: its processes and clients, and what is done to them.

use std::{
    collections::{BTreeMap, VecDeque},
    io::ErrorKind,
    net::{Ipv4Addr, SocketAddr, TcpStream},
    time::{Duration, Instant},
};

use anyhow::Context;
use history::{ClientRecord, ClientsConfig, Lives};
use lab::{interrupt, link::Counts, namespace, process::command_in};
use wire::Cluster;

use super::{
    CLIENTS, Coherence, FLIPPED, Faults, LENT, PROCESSES, REROUTED, TENANTS,
    addresses::Movable,
    disciplines,
    layout::{CLIENT_HOSTS, CONTROL, CUT, FIRST, SECOND, SERVERS, SWITCHES, controller, plan},
};
use crate::{
    Run,
    rig::{Clients, Ownership, PageRow, Policy, Rig, TenantSpec},
};

/// What page moves go through: quota and policy. With none of its own a tenant leaves every switch.
const PLACES: [(u32, Policy); 5] = [
    (2, Policy::NearClient),
    (3, Policy::NearStore),
    (0, Policy::EvenSplit),
    (1, Policy::EvenSplit),
    (2, Policy::Measured),
];
/// Lengths of leases in milliseconds that the cluster file has, from one store's start to the next.
const LEASES: [u32; 3] = [1500, 2000, 1000];
/// How long what stands still does so: longer than the longest lease.
const STAND_STILL: Duration = Duration::from_millis(2300);
/// The longest value in bytes. Most fit one packet, some have a few parts, a few have up to 64.
const LONGEST_VALUE: usize = 64 << 10;
/// A part of the values lives for a while only. Redis counts their lives, and stands still
/// for nobody.
const LIVES: Lives = Lives { part: 0.15, least_ms: 50, most_ms: 1500, overdue_ms: 100 };
/// How old an answered write of the tenant with write-back may be that its store does not have, in
/// milliseconds.
const WRITE_BACK_MS: u32 = 200;
/// Part of the operations that are reads and writes without a condition, of which switches may
/// answer both.
const PLAIN: f64 = 0.5;
/// How long another way to the server may take to be found; the hunt goes on without one.
const REROUTE: Duration = Duration::from_secs(4);
/// How long one try to reach the server takes. Some are lost with their frames: the next one
/// is soon.
const REACH: Duration = Duration::from_millis(40);
/// A port where nobody listens: its refusal has come all the way.
const NOBODY: u16 = 9;
/// Between two looks at who owns what.
const LOOK_EVERY: Duration = Duration::from_millis(300);

/// The lab while it is hunted.
pub(super) struct Hunt {
    // The clients first, so that they do not report the loss of everything else.
    pub clients: Clients,
    rig: Rig,
    discipline: String,
    pub faults: Faults,
    /// Faults so far.
    pub round: u32,
    items: usize,
    pages: Vec<PageRow>,
    pub ownership: Ownership,
    looked: Instant,
    movable: Vec<Movable>,
    /// From each cut until the first switch had another way, and until the client behind it reached
    /// the server again; none: not within the time that it may take.
    pub rerouted: Vec<Option<RerouteTimes>>,
}

/// After a link was cut.
#[derive(Clone, Copy, Debug)]
pub(super) struct RerouteTimes {
    /// The first switch has another way.
    pub installed: Duration,
    /// A packet went to the server and its answer came back.
    pub reached: Duration,
}

impl Hunt {
    /// Builds the lab, creates the tenants and starts the clients.
    ///
    /// # Errors
    /// The lab cannot be built, a process does not start, or a tenant is refused.
    pub fn new(params: &Coherence, run: &Run<'_>) -> anyhow::Result<Hunt> {
        let plan = plan(run.discipline, params.items, params.flip, run.options.seed);
        let mut hunt = Hunt {
            clients: Clients::default(),
            rig: Rig::build(plan, run.options.name.clone(), run)?,
            discipline: run.discipline.into(),
            faults: Faults::default(),
            round: 0,
            items: params.items,
            pages: vec![],
            ownership: Ownership::default(),
            looked: Instant::now(),
            movable: vec![],
            rerouted: vec![],
        };
        for host in CLIENT_HOSTS {
            hunt.movable.push(Movable::new(&hunt.rig, host)?);
        }
        hunt.rig.console()?.ask(&["route", "on"])?;
        let named: Vec<u32> =
            (TENANTS.iter().copied()).filter(|id| *id != wire::TENANT_OPEN).collect();
        let tenants: Vec<TenantSpec> = (TENANTS.iter().zip(disciplines(run)))
            .filter(|(id, _)| **id != wire::TENANT_OPEN)
            .map(|(id, discipline)| TenantSpec {
                write_back_ms: if LENT.contains(id) { WRITE_BACK_MS } else { 0 },
                ..TenantSpec::new(*id, PLACES[0].0, discipline.name)
            })
            .collect();
        let hosts = CLIENT_HOSTS.map(String::from);
        hunt.rig.create_tenants(&tenants, &hosts)?;
        let cluster = hunt.rig.cluster(&named)?;
        for (i, host) in CLIENT_HOSTS.iter().enumerate() {
            for process in 0..PROCESSES {
                let first = (i as u32 * PROCESSES + process) * CLIENTS;
                let config = ClientsConfig {
                    cluster: cluster.clone(),
                    seed: run.options.seed,
                    first,
                    clients: CLIENTS,
                    keys: params.keys as u32,
                    tenants: TENANTS[..TENANTS.len() - i].to_vec(),
                    longest_value: LONGEST_VALUE,
                    lives: Some(LIVES),
                    plain: PLAIN,
                };
                let name = format!("clients{process}");
                hunt.rig.clients(&mut hunt.clients, host, &name, &config)?;
            }
        }
        Ok(hunt)
    }

    /// Moves pages and a client's address, and does the next of: kill a store, a switch's agent,
    /// the controller, the other switch with all of its tables, a Redis (each is started again),
    /// cut a link, let a store and clients stand still.
    ///
    /// # Errors
    /// What was killed does not start again.
    pub fn next_fault(&mut self) -> anyhow::Result<()> {
        const KINDS: u32 = 7;
        let round = self.round;
        self.round += 1;
        // Every other time around, the other one of two.
        let other = ((round / KINDS) % 2) as usize;
        let server = SERVERS[(round / KINDS) as usize % SERVERS.len()];
        self.move_pages(round);
        self.movable[round as usize % CLIENT_HOSTS.len()].move_on(&self.rig)?;
        self.faults.add("moved_addresses", 1);
        match round % KINDS {
            0 => self.kill_store(server, (round / KINDS) as usize)?,
            1 => {
                self.rotate_secrets(round / KINDS)?;
                let switch = [FIRST, SECOND][other];
                self.rig.restart(switch, "agent")?;
                self.faults.add("killed_switch", 1);
            }
            2 => self.kill_controller(other == 1)?,
            3 => self.reboot([SECOND, FIRST][other])?,
            4 => {
                self.rig.restart(server, "redis")?;
                self.faults.add("killed_redis", 1);
            }
            5 => self.cut_link()?,
            _ => self.stand_still(server, CLIENT_HOSTS[other])?,
        }
        Ok(())
    }

    /// Kills a store, writes leases of another length into the cluster file, and starts it again.
    /// The longest one stays in the file.
    fn kill_store(&mut self, server: &str, time: usize) -> anyhow::Result<()> {
        let lease_ms = LEASES[time % LEASES.len()];
        self.rig.stop(server, "store", libc::SIGKILL)?;
        let file = self.rig.file("cluster.toml")?;
        let mut cluster = Cluster::parse(&std::fs::read_to_string(&file)?)?;
        cluster.lease_ms = lease_ms;
        cluster.lease_max_ms = cluster.lease_max_ms.max(lease_ms);
        std::fs::write(&file, cluster.to_toml())?;
        self.rig.start(server, "store")?;
        self.faults.add("killed_store", 1);
        self.faults.add("leases_rewritten", 1);
        Ok(())
    }

    /// The first time, gives each tenant another secret. Its clients go on with theirs, which stays
    /// good beside the new one.
    fn rotate_secrets(&mut self, time: u32) -> anyhow::Result<()> {
        let named = TENANTS.iter().filter(|id| **id != wire::TENANT_OPEN);
        for id in named.filter(|_| time == 0) {
            let id = id.to_string();
            self.rig.console()?.ask(&["tenant", "rotate", &id])?;
            self.faults.add("rotated_secrets", 1);
        }
        Ok(())
    }

    /// Stops a store, and clients of one host, for longer than a lease.
    fn stand_still(&mut self, server: &str, clients: &str) -> anyhow::Result<()> {
        let stopped = [(server, "store"), (clients, "clients0")];
        for signal in [libc::SIGSTOP, libc::SIGCONT] {
            for (host, role) in stopped {
                self.rig.signal(host, role, signal);
            }
            if signal == libc::SIGSTOP {
                self.rig.wait(STAND_STILL)?;
            }
        }
        self.faults.add("stopped_store", 1);
        self.faults.add("stopped_clients", 1);
        Ok(())
    }

    fn kill_controller(&mut self, with_fewer_items: bool) -> anyhow::Result<()> {
        self.faults.add("evictions", self.evictions());
        self.rig.stop(CONTROL, "control", libc::SIGKILL)?;
        let items = if with_fewer_items { self.items.div_ceil(2) } else { self.items };
        let control = controller(&self.discipline, items);
        self.rig.start_as(CONTROL, &control)?;
        self.faults.add("killed_controller", 1);
        Ok(())
    }

    fn reboot(&mut self, switch: &str) -> anyhow::Result<()> {
        self.rig.reboot(switch)?;
        self.faults.add("rebooted_switch", 1);
        Ok(())
    }

    /// Gives each tenant another quota and policy, if a controller is there to be asked.
    fn move_pages(&mut self, round: u32) {
        let named = TENANTS.iter().filter(|id| **id != wire::TENANT_OPEN);
        for (i, id) in named.enumerate() {
            let (quota, policy) = PLACES[(round as usize + i) % PLACES.len()];
            match self.rig.change_tenant(*id, quota, policy) {
                Ok(()) => self.faults.add("unplaced_tenants", (quota == 0).into()),
                Err(error) => tracing::info!("a page move was not possible: {error:#}"),
            }
        }
        self.look_at_pages();
    }

    /// Notes which pages have changed hands since the last look.
    pub fn look_at_pages(&mut self) {
        let Ok(pages) = self.rig.pages() else {
            return;
        };
        if !self.pages.is_empty() {
            self.faults.add("page_moves", moved(&self.pages, &pages));
        }
        self.pages = pages;
    }

    /// Compares what the controller says with the switches' memory, if the last time is long
    /// enough ago.
    pub fn look_at_owners(&mut self) {
        if self.looked.elapsed() < LOOK_EVERY {
            return;
        }
        let switches = SWITCHES.map(|(id, name)| (id, name.to_owned()));
        self.ownership.look(&self.rig, &switches);
        self.looked = Instant::now();
    }

    /// Cuts the link between the two switches of the line, lets the network find another way, and
    /// mends it.
    fn cut_link(&mut self) -> anyhow::Result<()> {
        let server = self.rig.topology().address_of(SERVERS[0]);
        let server = server.context("a server without an address")?;
        let usual = self.next_hop(server);
        let cut = Instant::now();
        self.rig.set_link(CUT, false)?;
        let installed = self.wait_for_hop(server, cut, |now| now != usual.as_deref())?;
        let rerouted = match installed {
            Some(installed) => self
                .wait_for_answer(server, cut)?
                .map(|reached| RerouteTimes { installed, reached }),
            None => None,
        };
        self.rerouted.push(rerouted);
        let mended = Instant::now();
        self.rig.set_link(CUT, true)?;
        let back = self.wait_for_hop(server, mended, |now| now == usual.as_deref())?;
        let ways = [installed, back].iter().flatten().count();
        self.faults.add(REROUTED, ways as u64);
        Ok(())
    }

    /// Waits until the first switch has a way to an address that is as it should be; returns how
    /// long after `since`; none: that took too long.
    fn wait_for_hop(
        &self,
        address: Ipv4Addr,
        since: Instant,
        is_right: impl Fn(Option<&str>) -> bool,
    ) -> anyhow::Result<Option<Duration>> {
        while since.elapsed() < REROUTE {
            interrupt::check()?;
            let now = self.next_hop(address);
            if now.is_some() && is_right(now.as_deref()) {
                return Ok(Some(since.elapsed()));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(None)
    }

    /// Waits until the client behind the first switch is answered by a host; returns how long
    /// after `since`.
    fn wait_for_answer(
        &self,
        address: Ipv4Addr,
        since: Instant,
    ) -> anyhow::Result<Option<Duration>> {
        let to = SocketAddr::new(address.into(), NOBODY);
        namespace::within(&self.rig.namespace(CLIENT_HOSTS[0])?, || {
            while since.elapsed() < REROUTE {
                interrupt::check()?;
                let tried = TcpStream::connect_timeout(&to, REACH);
                let answered = |e: std::io::Error| e.kind() == ErrorKind::ConnectionRefused;
                if tried.err().is_none_or(answered) {
                    return Ok(Some(since.elapsed()));
                }
            }
            Ok(None)
        })
    }

    /// Where the first switch sends what is for this address.
    fn next_hop(&self, address: Ipv4Addr) -> Option<String> {
        let words = ["ip", "route", "get", &address.to_string()].map(String::from);
        let output = command_in(&self.rig.namespace(FIRST).ok()?, &words).ok()?.output().ok()?;
        next_hop_of(&String::from_utf8_lossy(&output.stdout))
    }

    /// What stores and switches have counted of this about loans and copies in stores, when it has
    /// come to an end.
    pub fn counted(&self, name: &str) -> u64 {
        self.rig.counted(name)
    }

    /// Evictions that the running controller has asked for; 0 if it does not say.
    fn evictions(&self) -> u64 {
        let status = self.rig.status();
        let status = status.unwrap_or_default();
        let switches = status["switches"].as_array().cloned().unwrap_or_default();
        switches.iter().filter_map(|s| s["counters"]["evicts_asked"].as_u64()).sum()
    }

    /// Stops the clients, then the links; returns what the clients recorded.
    ///
    /// # Errors
    /// A record that cannot be read, of the clients or of a link.
    pub fn finish(&mut self) -> anyhow::Result<ClientRecord> {
        self.faults.add("evictions", self.evictions());
        let all = self.clients.finish()?;
        let switches = SWITCHES.map(|(_, name)| name);
        self.rig.look_at_counted(&SERVERS, &switches);
        for link in 0..self.rig.topology().links.len() {
            let log = std::fs::read_to_string(self.rig.end_link(link)?)?;
            let counts: [Counts; 2] = log
                .lines()
                .last()
                .and_then(|line| serde_json::from_str(line).ok())
                .with_context(|| format!("what link {link} did to its frames: {log:?}"))?;
            for way in counts {
                self.faults.add("lost", way.lost);
                self.faults.add("duplicated", way.duplicated);
                self.faults.add("reordered", way.reordered);
                self.faults.add(FLIPPED, way.flipped);
            }
        }
        Ok(all)
    }
}

/// The address after `via`, or the interface of a neighbour.
fn next_hop_of(route: &str) -> Option<String> {
    let mut words: VecDeque<&str> = route.split_whitespace().collect();
    while let Some(word) = words.pop_front() {
        if word == "via" || word == "dev" {
            return words.pop_front().map(String::from);
        }
    }
    None
}

/// Pages whose holder is another one, or that have one now and had none, or the other way around.
fn moved(before: &[PageRow], after: &[PageRow]) -> u64 {
    let holders = |rows: &[PageRow]| -> BTreeMap<(u16, u32), Option<u32>> {
        let holder = |row: &PageRow| ((row.switch, row.page), row.holder());
        rows.iter().map(holder).collect()
    };
    let (before, after) = (holders(before), holders(after));
    let changed =
        after.iter().filter(|(place, holder)| before.get(place).copied().flatten() != **holder);
    changed.count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moves_are_changes_of_holders() {
        let row = |page, tenant, kind: &str| PageRow {
            switch: 1,
            page,
            tenant,
            kind: kind.into(),
            items: 0,
        };
        let before = [row(0, Some(7), "own"), row(1, None, "free")];
        assert_eq!(moved(&before, &before), 0);
        let after = [row(0, Some(7), "leaving"), row(1, Some(8), "own")];
        assert_eq!(moved(&before, &after), 2);
        assert_eq!(moved(&after, &[row(0, None, "free"), row(1, Some(8), "lent")]), 0);
    }

    #[test]
    fn a_next_hop_is_read_from_what_ip_says() {
        let text = "10.0.2.1 via 10.0.1.253 dev eth0 src 10.0.1.254 uid 0 \n    cache \n";
        assert_eq!(next_hop_of(text).as_deref(), Some("10.0.1.253"));
        let near = "10.0.1.253 dev eth0 src 10.0.1.254 uid 0";
        assert_eq!(next_hop_of(near).as_deref(), Some("eth0"));
        assert_eq!(next_hop_of("RTNETLINK answers: Network is unreachable"), None);
    }
}
