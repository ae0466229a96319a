//! The lab of the hunt: its processes and clients, as a world that deeds are done to.

use std::{
    collections::{BTreeMap, VecDeque},
    io::ErrorKind,
    net::{Ipv4Addr, SocketAddr, TcpStream},
    time::{Duration, Instant},
};

use ::hunt::{Act, Deed, Ground, do_deeds};
use anyhow::{Context, bail};
use history::{ClientRecord, ClientsConfig, Lives};
use lab::{interrupt, link::Counts, namespace, process::command_in};
use wire::Cluster;

use super::{
    CLIENTS, Coherence, LENT, PROCESSES, REROUTED, TENANTS,
    addresses::Movable,
    commands::{self, Gateway},
    disciplines,
    layout::{CLIENT_HOSTS, CONTROL, FIRST, SERVERS, SWITCHES, controller, plan},
    turns::{PLACES, turn},
};
use crate::{
    Run,
    rig::{Clients, Ownership, PageRow, Rig, TenantSpec},
};

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
    /// What the clients of Redis ask through, while there are any.
    gateway: Option<Gateway>,
    rig: Rig,
    discipline: String,
    /// How often each thing went wrong, by its name.
    pub faults: BTreeMap<String, u64>,
    /// Turns so far.
    pub turns: u32,
    /// Since when this one goes on, but for the time that its deeds have taken.
    turn_began: Instant,
    items: usize,
    pages: Vec<PageRow>,
    pub ownership: Ownership,
    looked: Instant,
    movable: Vec<Movable>,
    /// Whether the next controller takes half of the items.
    halves: bool,
    /// Where the first switch sent what is for the server before a link was cut.
    usual_hop: Option<String>,
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
            gateway: None,
            rig: Rig::build(plan, run.options.name.clone(), run)?,
            discipline: run.discipline.into(),
            faults: BTreeMap::new(),
            turns: 0,
            turn_began: Instant::now(),
            items: params.items,
            pages: vec![],
            ownership: Ownership::default(),
            looked: Instant::now(),
            movable: vec![],
            halves: false,
            usual_hop: None,
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
                ..TenantSpec::new(*id, PLACES[0], discipline.name)
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
                if first == 0 {
                    let gateway = commands::start(&mut hunt.rig, &mut hunt.clients, &config)?;
                    hunt.gateway = Some(gateway);
                }
            }
        }
        Ok(hunt)
    }

    /// The next turn: a client's address moves, and what is next in turn goes wrong, `at_ms` from
    /// now.
    ///
    /// # Errors
    /// What was killed does not start again.
    pub fn next_turn(&mut self, at_ms: u64) -> anyhow::Result<()> {
        let number = self.turns;
        self.turns += 1;
        self.turn_began = Instant::now();
        self.movable[number as usize % CLIENT_HOSTS.len()].move_on(&self.rig)?;
        self.add("addresses_moved", 1);
        for (name, count) in do_deeds(&turn(number, at_ms), self)? {
            self.add(&name, count);
        }
        Ok(())
    }

    fn add(&mut self, name: &str, count: u64) {
        *self.faults.entry(name.into()).or_default() += count;
    }

    /// Kills a store, and writes leases of another length into the cluster file, for its next life.
    /// The longest one stays in the file.
    fn relend(&mut self, server: &str, lease_ms: u32) -> anyhow::Result<()> {
        self.rig.stop(server, "store", libc::SIGKILL)?;
        let file = self.rig.file("cluster.toml")?;
        let mut cluster = Cluster::parse(&std::fs::read_to_string(&file)?)?;
        cluster.lease_ms = lease_ms;
        cluster.lease_max_ms = cluster.lease_max_ms.max(lease_ms);
        Ok(std::fs::write(&file, cluster.to_toml())?)
    }

    /// Starts what was killed. Every other controller takes half as many items.
    fn start(&mut self, process: &str) -> anyhow::Result<()> {
        let (node, role) = names(process)?;
        if node != CONTROL {
            return self.rig.start(node, role);
        }
        let items = if self.halves { self.items.div_ceil(2) } else { self.items };
        self.halves = !self.halves;
        self.rig.start_as(CONTROL, &controller(&self.discipline, items))
    }

    fn signal(&self, process: &str, signal: i32) -> anyhow::Result<()> {
        let (node, role) = names(process)?;
        self.rig.signal(node, role, signal);
        Ok(())
    }

    /// Changes a tenant's pages, if a controller is there to be asked; whether it did it.
    fn change(&mut self, deed: &Deed) -> anyhow::Result<bool> {
        let (tenant, change) = deed.change().context("a tenant's change")?;
        let is_unplaced = change.quota == Some(0);
        let changed = self.rig.change_tenant(tenant, change);
        match &changed {
            Ok(()) => self.add("unplaced_tenants", is_unplaced.into()),
            Err(error) => tracing::info!("a page move was not possible: {error:#}"),
        }
        self.look_at_pages();
        Ok(changed.is_ok())
    }

    /// Notes which pages have changed hands since the last look.
    pub fn look_at_pages(&mut self) {
        let Ok(pages) = self.rig.pages() else { return };
        if !self.pages.is_empty() {
            self.add("page_moves", moved(&self.pages, &pages));
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

    /// Cuts the link between the two switches of the line, and lets the network find another way.
    fn cut(&mut self, link: usize) -> anyhow::Result<()> {
        let server = self.server()?;
        self.usual_hop = self.next_hop(server);
        let (usual, cut) = (self.usual_hop.clone(), Instant::now());
        self.rig.set_link(link, false)?;
        let installed = self.wait_for_hop(server, cut, |now| now != usual.as_deref())?;
        let rerouted = match installed {
            Some(installed) => self
                .wait_for_answer(server, cut)?
                .map(|reached| RerouteTimes { installed, reached }),
            None => None,
        };
        self.rerouted.push(rerouted);
        self.add(REROUTED, installed.is_some().into());
        Ok(())
    }

    /// Mends it, and lets the network find the usual way again.
    fn mend(&mut self, link: usize) -> anyhow::Result<()> {
        let (server, usual, mended) = (self.server()?, self.usual_hop.clone(), Instant::now());
        self.rig.set_link(link, true)?;
        let back = self.wait_for_hop(server, mended, |now| now == usual.as_deref())?;
        self.add(REROUTED, back.is_some().into());
        Ok(())
    }

    /// Whom the link that is cut leads to.
    fn server(&self) -> anyhow::Result<Ipv4Addr> {
        self.rig.topology().address_of(SERVERS[0]).context("a server without an address")
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
        self.add("evictions", self.evictions());
        let all = self.clients.finish()?;
        self.gateway = None;
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
                self.add("lost", way.lost);
                self.add("duplicated", way.duplicated);
                self.add("reordered", way.reordered);
                self.add("flipped", way.flipped);
            }
        }
        Ok(all)
    }
}

impl Ground for Hunt {
    fn run_until_ms(&mut self, at_ms: u64) -> anyhow::Result<()> {
        let until = Duration::from_millis(at_ms);
        while let Some(left) = until.checked_sub(self.turn_began.elapsed()) {
            interrupt::check()?;
            self.look_at_owners();
            std::thread::sleep(left.min(LOOK_EVERY));
        }
        Ok(())
    }

    fn carry_out(&mut self, deed: &Deed) -> anyhow::Result<bool> {
        let begun = Instant::now();
        let mut is_done = true;
        match &deed.act {
            Act::Kill { process } => {
                let (node, role) = names(process)?;
                if node == CONTROL {
                    self.add("evictions", self.evictions());
                }
                self.rig.stop(node, role, libc::SIGKILL)?;
            }
            Act::Stop { process } => self.signal(process, libc::SIGSTOP)?,
            Act::Reboot { machine } => {
                self.rig.stop(machine, "agent", libc::SIGKILL)?;
                self.rig.forget_tables(machine);
            }
            Act::Relend { store, lease_ms } => self.relend(SERVERS[*store], *lease_ms)?,
            Act::Data { store } => self.rig.restart(SERVERS[*store], "redis")?,
            Act::Rotate { tenant } => {
                self.rig.console()?.ask(&["tenant", "rotate", &tenant.to_string()])?;
            }
            Act::Cut { link } => self.cut(*link)?,
            Act::Move { .. } => is_done = self.change(deed)?,
            _ => bail!("{}: namespaces have nothing like it", deed.name()),
        }
        self.turn_began += begun.elapsed();
        Ok(is_done)
    }

    fn undo(&mut self, deed: &Deed) -> anyhow::Result<()> {
        let begun = Instant::now();
        match &deed.act {
            Act::Kill { process } => self.start(process)?,
            Act::Stop { process } => self.signal(process, libc::SIGCONT)?,
            Act::Reboot { machine } => self.rig.boot(machine)?,
            Act::Relend { store, .. } => self.rig.start(SERVERS[*store], "store")?,
            Act::Cut { link } => self.mend(*link)?,
            _ => {}
        }
        self.turn_began += begun.elapsed();
        Ok(())
    }
}

/// The node of a process, and its name there.
fn names(process: &str) -> anyhow::Result<(&str, &str)> {
    let names = process.split_once('/');
    names.with_context(|| format!("{process:?} names no process: expected NODE/ROLE"))
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
