//! The switches of a world: one real switch that is each of them in turn. What came of a packet
//! once is remembered.

use std::{collections::HashMap, sync::Arc};

use chain::{
    NETCRAQ,
    record::{KeyRecord, SessionRecord},
    state,
    view::View,
};
use dataplane::native::Mutant;
use decide::{AgentAction, Configuration, Item};
use harness::{Names, message::secret_of};

use super::{
    packets::{self, Destination, TENANT},
    real::{self, Moment, PLACE, Real, Scene},
};

/// A switch: where it is, under which view (none yet), with which tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Site {
    pub switch: u8,
    pub view: Option<u8>,
    pub tables: u32,
    pub stopped: Option<StoppedRun>,
}

/// A run that stands still on one CPU while others go on. What it has found so far follows from
/// what it began with, and what it finds next is in the tables by then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StoppedRun {
    view: u8,
    tables: u32,
    packet: u32,
    moment: u16,
    /// The tables at that moment.
    at_stop: u32,
}

/// A moment of a run: the tables, and what had left.
struct StopPoint {
    tables: u32,
    left: Vec<u32>,
}

pub struct Switches {
    views: Vec<View>,
    count: usize,
    real: Real,
    tables: Names,
    packets: Names,
    destinations: Vec<Option<Destination>>,
    ran: HashMap<(Site, u32, u64), (u32, Vec<u32>)>,
    moments: HashMap<(Site, u32, u64), Vec<StopPoint>>,
    ended: HashMap<(Site, u64), (u32, Vec<u32>)>,
    sent: HashMap<(Site, u64), Vec<u32>>,
    seen: HashMap<u32, TableContents>,
    /// Tables of a member, and of one that is still to be filled.
    fresh: [u32; 2],
}

/// What there is to see of tables.
#[derive(Clone, Copy, Debug)]
pub struct TableContents {
    /// The key and every session are filled under this number, or a later one.
    pub filled: u64,
    /// A write is there twice.
    pub twice: bool,
    /// The newest version of the key.
    pub last: u64,
    /// From this version on all are there; one behind the newest if none is.
    pub oldest: u64,
}

/// A switch that is about to get a packet.
fn scene<'a>(views: &'a [View], switch: u8, view: u8, bytes: &'a [u8], now_ns: u64) -> Scene<'a> {
    Scene { switch, view: (view, &views[usize::from(view)]), bytes, now_ns }
}

impl Switches {
    /// So many of them, with the key, which has room for `1 << shift` versions, and a session for
    /// each client.
    pub fn new(
        views: &[View],
        count: usize,
        clients: usize,
        shift: u8,
        mutant: Option<&Mutant>,
    ) -> Switches {
        let mut tables = Names::default();
        let real = Real::new(&views[0], clients, shift, mutant);
        let member = tables.number(&real.save()).0;
        real.empty(views[0].number, shift);
        let joiner = tables.number(&real.save()).0;
        Switches {
            views: views.to_vec(),
            count,
            real,
            tables,
            packets: Names::default(),
            destinations: vec![],
            ran: HashMap::new(),
            moments: HashMap::new(),
            ended: HashMap::new(),
            sent: HashMap::new(),
            seen: HashMap::new(),
            fresh: [joiner, member],
        }
    }

    /// Tables without a version of the key: of a member, or of one that is still to be filled.
    pub fn fresh(&self, is_member: bool) -> u32 {
        self.fresh[usize::from(is_member)]
    }

    /// A packet's number.
    pub fn packet(&mut self, frame: &[u8]) -> u32 {
        let (number, is_new) = self.packets.number(frame);
        if is_new {
            self.destinations.push(packets::destination(frame, self.count));
        }
        number
    }

    pub fn destination(&self, packet: u32) -> Option<Destination> {
        self.destinations[packet as usize]
    }

    pub fn frame(&self, packet: u32) -> Arc<[u8]> {
        self.packets.bytes(packet)
    }

    /// What a packet does to a switch, and what leaves it. Nothing, if it has no row.
    pub fn deliver(&mut self, site: &mut Site, packet: u32, now_ns: u64) -> Vec<u32> {
        let Some(view) = site.view else { return vec![] };
        let known = (*site, packet, now_ns);
        if let Some((tables, leaves)) = self.ran.get(&known) {
            site.tables = *tables;
            return leaves.clone();
        }
        let (tables, frame) = (self.tables.bytes(site.tables), self.frame(packet));
        let scene = scene(&self.views, site.switch, view, &tables, now_ns);
        let stopped = site.stopped.map(|stopped| self.tables.bytes(stopped.at_stop));
        let (bytes, leaves) = self.real.run(scene, &frame, stopped.as_deref());
        site.tables = self.tables.number(&bytes).0;
        let leaves = self.packets(&leaves);
        self.ran.insert(known, (site.tables, leaves.clone()));
        leaves
    }

    fn packets(&mut self, frames: &[Vec<u8>]) -> Vec<u32> {
        frames.iter().map(|frame| self.packet(frame)).collect()
    }

    /// At how many moments of a packet's way through a switch another CPU could come in.
    pub fn moments(&mut self, site: &Site, packet: u32, now_ns: u64) -> usize {
        let Some(view) = site.view else { return 0 };
        let known = (*site, packet, now_ns);
        if let Some(moments) = self.moments.get(&known) {
            return moments.len();
        }
        let (tables, frame) = (self.tables.bytes(site.tables), self.frame(packet));
        let scene = scene(&self.views, site.switch, view, &tables, now_ns);
        let (moments, leaves) = self.real.moments(scene, &frame);
        let leaves = self.packets(&leaves);
        let number = |moment: &Moment| StopPoint {
            tables: self.tables.number(&moment.bytes).0,
            left: leaves[..moment.left].to_vec(),
        };
        let moments: Vec<_> = moments.iter().map(number).collect();
        let count = moments.len();
        self.moments.insert(known, moments);
        count
    }

    /// A packet comes to a switch, and its run stops at that moment. What has left by then.
    pub fn stop(&mut self, site: &mut Site, packet: u32, now_ns: u64, moment: u16) -> Vec<u32> {
        let Some(view) = site.view else { return vec![] };
        self.moments(site, packet, now_ns);
        let point = &self.moments[&(*site, packet, now_ns)][usize::from(moment)];
        let (tables, left) = (point.tables, point.left.clone());
        site.stopped =
            Some(StoppedRun { view, tables: site.tables, packet, moment, at_stop: tables });
        site.tables = tables;
        left
    }

    /// The run that had stopped goes on to its end, in the tables as they are by now. What leaves.
    pub fn go_on(&mut self, site: &mut Site, now_ns: u64) -> Vec<u32> {
        let (Some(stopped), Some(view)) = (site.stopped, site.view) else { return vec![] };
        let known = (*site, now_ns);
        site.stopped = None;
        if let Some((tables, leaves)) = self.ended.get(&known) {
            site.tables = *tables;
            return leaves.clone();
        }
        let frame = self.frame(stopped.packet);
        let [began, then] = [stopped.tables, site.tables].map(|tables| self.tables.bytes(tables));
        let began = scene(&self.views, site.switch, stopped.view, &began, now_ns);
        let then = scene(&self.views, site.switch, view, &then, now_ns);
        let (bytes, leaves) = self.real.go_on(began, &frame, stopped.moment.into(), then);
        site.tables = self.tables.number(&bytes).0;
        let leaves = self.packets(&leaves);
        self.ended.insert(known, (site.tables, leaves.clone()));
        leaves
    }

    /// The same tables, in which the key has an item, or none.
    pub fn with_key(&mut self, tables: u32, has_key: bool) -> u32 {
        let bytes = self.real.with_key(&self.tables.bytes(tables), has_key);
        self.tables.number(&bytes).0
    }

    /// Whether the key has an item in these tables.
    pub fn has_key(&self, tables: u32) -> bool {
        Real::has_key(&self.tables.bytes(tables))
    }

    /// The first asks the second to confirm its view, and does so itself.
    pub fn confirm(&mut self, a: &mut Site, b: &mut Site, now_ns: u64) {
        let Some(view) = a.view else { return };
        let view = &self.views[usize::from(view)];
        let Some(beat) = packets::beat(a.switch, b.switch, view, now_ns) else { return };
        let beat = self.packet(&beat);
        if let Some(echo) = self.deliver(b, beat, now_ns).first()
            && let Some(back) = self.deliver(a, *echo, now_ns).first()
        {
            self.deliver(b, *back, now_ns);
        }
    }

    /// What a switch's agent that has just begun sends after a look at all that is there, but for
    /// beats.
    pub fn agent(&mut self, site: Site, now_ns: u64) -> Vec<u32> {
        let Some(view) = site.view else { return vec![] };
        if let Some(sent) = self.sent.get(&(site, now_ns)) {
            return sent.clone();
        }
        let mut out = vec![];
        let mut agent = NETCRAQ.agent.expect("it has one")();
        let configuration = Configuration {
            rows: vec![real::row(site.switch, &self.views[usize::from(view)])],
            ..Configuration::default()
        };
        agent.configured(now_ns, TENANT, PLACE, &configuration, &mut out);
        agent.tick(now_ns, &mut out);
        let tables = self.tables.bytes(site.tables);
        let (key, value) = (PLACE.to_ne_bytes(), &tables[..state::LEN]);
        agent.row(now_ns, state::MAP, &key, Some(value), &mut out);
        let is_walk = |action: &AgentAction| matches!(action, AgentAction::Walk { .. });
        let walks = out.iter().any(is_walk);
        out.clear();
        for (key, record) in self.real.found(&tables).into_iter().filter(|_| walks) {
            let item =
                Item { tenant: TENANT, key, hash: secret_of(TENANT).key_hash(TENANT, key), record };
            agent.item(now_ns, item, &mut out);
        }
        let sent = out.into_iter().filter_map(|action| self.of_agent(site, action));
        let frames: Vec<Vec<u8>> = sent.collect();
        let sent: Vec<u32> = frames.iter().map(|frame| self.packet(frame)).collect();
        self.sent.insert((site, now_ns), sent.clone());
        sent
    }

    fn of_agent(&self, site: Site, action: AgentAction) -> Option<Vec<u8>> {
        let AgentAction::Send { to, header, key, value } = action else { return None };
        let to = (0..self.count).find(|switch| packets::host(*switch) == to.ip())?;
        let from = site.switch.into();
        Some(packets::of_agent(from, to, header, &key, &value))
    }

    /// What there is to see of tables.
    pub fn look(&mut self, tables: u32) -> TableContents {
        if let Some(seen) = self.seen.get(&tables) {
            return *seen;
        }
        let bytes = self.tables.bytes(tables);
        let records = self.real.records(&bytes);
        let key = KeyRecord::decode(records[0].1).expect("a record");
        let sessions = records[1..].iter();
        let sessions = sessions.map(|(_, record)| SessionRecord::decode(record).expect("one"));
        let filled = sessions.map(|session| session.filled).min();
        let writes: Vec<_> = key.versions.iter().map(|v| (v.client, v.request)).collect();
        let mut oldest = key.last + 1;
        while oldest > 1 && key.version(oldest - 1).is_some() {
            oldest -= 1;
        }
        let seen = TableContents {
            filled: key.filled.min(filled.unwrap_or(u64::MAX)),
            twice: (1..writes.len()).any(|at| writes[..at].contains(&writes[at])),
            last: key.last,
            oldest,
        };
        self.seen.insert(tables, seen);
        seen
    }
}
