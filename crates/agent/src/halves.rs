//! The halves of disciplines that run beside the programs: they are told what happens here, and
//! what they ask for is done at once. Disciplines that share their programs have one half together.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    net::SocketAddr,
};

use api::proto::{FromSwitch, HalfMessage, HalfReport, from_switch::Body};
use dataplane::{Backing, Rows, TenantEntry};
use decide::{AgentAction, AgentHalf, Item, ItemKey, Registration};
use tokio::sync::mpsc::Sender;
use tracing::debug;
use wire::{Header, Packet};

use super::{
    AgentError, configurations::Configurations, courier::Requests, memory::Memory,
    served::ServedCluster, tell::send,
};

/// What halves work with.
pub(super) struct Switch<'a> {
    pub memory: &'a Memory,
    pub served: &'a ServedCluster,
    pub configurations: &'a Configurations,
    pub requests: &'a mut Requests,
    pub out: &'a Sender<FromSwitch>,
}

/// A map from the name that the maps of disciplines begin with.
type ByMaps<T> = BTreeMap<&'static str, T>;

/// All halves of a switch.
pub(super) struct Halves {
    at: Backing,
    all: ByMaps<Box<dyn AgentHalf>>,
    /// The half that knows each tenant, by tenant, and the tenant's place.
    known: BTreeMap<u32, (&'static str, u32)>,
    /// Maps that were looked into.
    maps: BTreeMap<&'static str, Rows>,
}

impl Halves {
    pub fn new(disciplines: &[Registration], at: Backing) -> Halves {
        let with_half = disciplines.iter().filter_map(|r| Some((r, r.agent?)));
        let made = with_half.map(|(r, make)| (r.maps_of, make()));
        Halves { at, all: made.collect(), known: BTreeMap::new(), maps: BTreeMap::new() }
    }

    /// Whether no half knows a tenant.
    pub fn know_nobody(&self) -> bool {
        self.known.is_empty()
    }

    /// Whether a half serves this tenant.
    pub fn serve(&self, served: &ServedCluster, tenant: u32) -> bool {
        self.half_of(served, tenant).is_some()
    }

    fn half_of(&self, served: &ServedCluster, tenant: u32) -> Option<&'static str> {
        let maps = served.tenants.get(&tenant)?.discipline?.maps_of;
        self.all.contains_key(maps).then_some(maps)
    }

    /// The setup may be another, and these configurations are in force.
    pub fn configured(
        &mut self,
        changed: &BTreeSet<u32>,
        switch: &mut Switch<'_>,
    ) -> Result<(), AgentError> {
        let known = self.known.iter();
        let gone = known
            .filter(|(tenant, (half, _))| self.half_of(switch.served, **tenant) != Some(*half));
        let gone: Vec<_> = gone.map(|(tenant, (half, _))| (*tenant, *half)).collect();
        for (tenant, half) in gone {
            self.known.remove(&tenant);
            self.tell(half, switch, |to, now_ns, out| to.left(now_ns, tenant, out));
        }
        if self.all.is_empty() {
            return Ok(());
        }
        for tenant in switch.served.tenants.keys().copied() {
            let half = self.half_of(switch.served, tenant);
            let configuration = switch.configurations.of(tenant);
            let (Some(half), Some(configuration)) = (half, configuration) else { continue };
            let Some(place) = TenantEntry::place(&self.at, tenant)? else { continue };
            let before = self.known.insert(tenant, (half, place));
            if changed.contains(&tenant) || before != Some((half, place)) {
                self.tell(half, switch, |to, now_ns, out| {
                    to.configured(now_ns, tenant, place, configuration, out);
                });
            }
        }
        Ok(())
    }

    /// Packets came.
    pub fn came(&mut self, came: &[(SocketAddr, Vec<u8>)], switch: &mut Switch<'_>) {
        if came.is_empty() || self.all.is_empty() {
            return;
        }
        let secret = switch.served.system_secret();
        for (from, datagram) in came {
            let Ok(packet) = Packet::decode(datagram) else { continue };
            let of = self.known.get(&packet.header.tenant);
            let half = of.map(|(half, _)| *half);
            if let Some(half) =
                half.filter(|_| packet.header.op.is_system() && packet.tag_is_valid(&secret))
            {
                self.tell(half, switch, |to, now_ns, out| {
                    to.packet(now_ns, *from, &packet, out);
                });
            }
        }
    }

    /// Time passed.
    pub fn tick(&mut self, switch: &mut Switch<'_>) {
        let all: Vec<&'static str> = self.all.keys().copied().collect();
        for half in all {
            self.tell(half, switch, |to, now_ns, out| to.tick(now_ns, out));
        }
    }

    /// The switch is to leave.
    pub fn leave(&mut self, switch: &mut Switch<'_>) {
        let all: Vec<&'static str> = self.all.keys().copied().collect();
        for half in all {
            self.tell(half, switch, |to, now_ns, out| to.leave(now_ns, out));
        }
    }

    /// Whether others would miss the switch, which is to leave.
    pub fn are_needed(&self) -> bool {
        self.all.values().any(|half| half.is_needed())
    }

    /// The control half sent a message.
    pub fn told(&mut self, message: &HalfMessage, switch: &mut Switch<'_>) {
        let tenant = message.tenant;
        if let Some(half) = self.half_of(switch.served, tenant) {
            self.tell(half, switch, |to, now_ns, out| {
                to.told(now_ns, tenant, &message.message, out);
            });
        }
    }

    /// Tells a half what happened, and does what it asks for; what comes of that it is told as
    /// well.
    fn tell(
        &mut self,
        name: &'static str,
        switch: &mut Switch<'_>,
        event: impl FnOnce(&mut dyn AgentHalf, u64, &mut Vec<AgentAction>),
    ) {
        let Some(half) = self.all.get_mut(name) else { return };
        let now_ns = switch.memory.now_ns();
        let mut more = vec![];
        event(&mut **half, now_ns, &mut more);
        let mut actions = VecDeque::from(more);
        while let Some(action) = actions.pop_front() {
            let mut more = vec![];
            match action {
                AgentAction::Send { to, header, key, value } => {
                    switch.send(to, header, &key, &value)
                }
                AgentAction::Look { map, key } => {
                    let value = look(&mut self.maps, &self.at, name, map, &key);
                    half.row(now_ns, map, &key, value.as_deref(), &mut more);
                }
                AgentAction::Walk { tenant, from, most } => {
                    walk(&mut **half, now_ns, switch, (tenant, from, most), &mut more);
                }
                AgentAction::Report { tenant, report } => switch.report(tenant, report),
            }
            actions.extend(more);
        }
    }
}

fn walk(
    half: &mut dyn AgentHalf,
    now_ns: u64,
    switch: &Switch<'_>,
    (tenant, from, most): (u32, u32, usize),
    out: &mut Vec<AgentAction>,
) {
    let (items, next) = switch.memory.walk(tenant, from, most);
    for (key, record) in items {
        let item = ItemKey { tenant, key };
        let Some(hash) = switch.served.hash_of(&item) else { continue };
        let item = Item { tenant, key: &item.key, hash, record: record.as_deref() };
        half.item(now_ns, item, out);
    }
    half.items_end(now_ns, tenant, next, out);
}

/// A row of a discipline's own map.
fn look(
    maps: &mut BTreeMap<&'static str, Rows>,
    at: &Backing,
    discipline: &str,
    map: &'static str,
    key: &[u8],
) -> Option<Vec<u8>> {
    if !maps.contains_key(map) {
        let opened = Rows::open(at, discipline, map);
        let opened = opened.inspect_err(|e| debug!("map {map}: {e}")).ok()?;
        maps.insert(map, opened);
    }
    maps.get(map)?.get(key).ok()?
}

impl Switch<'_> {
    fn send(&mut self, to: SocketAddr, header: Header, key: &[u8], value: &[u8]) {
        let item = ItemKey { tenant: header.tenant, key: key.to_vec().into() };
        let hash = match key.is_empty() {
            true => None,
            false => self.served.hash_of(&item),
        };
        let header = Header { key_hash: hash.unwrap_or_default(), ..header };
        let secret = self.served.system_secret();
        let packet = Packet::new(header, key, value);
        self.requests.send_for_half(to, &packet, &secret);
    }

    fn report(&self, tenant: u32, report: bytes::Bytes) {
        let discipline = self.served.tenants.get(&tenant).and_then(|t| t.discipline);
        if let Some(discipline) = discipline {
            let body =
                Body::Report(HalfReport { discipline: discipline.name.into(), tenant, report });
            send(self.out, body);
        }
    }
}
