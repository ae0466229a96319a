//! The one real switch, with the key and the clients' sessions.

use std::sync::{Arc, atomic::AtomicU64};

use chain::{
    NETCRAQ,
    record::{SessionRecord, new_key},
    state,
    view::{self, View},
};
use dataplane::{
    NO_DISCIPLINE, Object, Place, Rows, Sizes, Table, TenantEntry,
    native::{self, Clock, Memory, Mutant},
};
use harness::{SavedParts, Snapshots, message::secret_of, switch::tenant};

use chain_wire::session_key;

use super::packets::{KEY, LIFE, TENANT, client_id, slot_in};

/// The tenant's place in arrays.
pub const PLACE: u32 = 0;
/// What stands before an item's key.
const ITEM_HEADER: usize = 48;
const CELL: usize = 64;
const CELLS_OF_ITEM: u8 = 32;
/// In the state: the count that it is locked by.
const STATE_LOCK: usize = 28;
/// In a key's record: since when it is dirty, and when somebody was told so last.
const RECORD_TIMES: usize = 48;
const LIFE_AT: usize = 32;
/// Bytes of a slot of the lookup table.
const SLOT: usize = 8;

/// An item, the key's first.
struct Item {
    key: Vec<u8>,
    place: Place,
    record_len: usize,
}

impl Item {
    /// Bytes before its record.
    fn before(&self) -> usize {
        ITEM_HEADER + self.key.len().next_multiple_of(8)
    }
}

pub struct Real {
    switch: Snapshots,
    row: WrittenRow,
    table: Table,
    items: Vec<Item>,
    /// What leads to the key's item.
    slot: [u8; SLOT],
}

/// The row that the switch goes by.
struct WrittenRow {
    config: Memory,
    rows: Rows,
    /// Of which switch and view.
    is_of: Option<(u8, u8)>,
}

impl WrittenRow {
    fn write(&mut self, switch: u8, (number, view): (u8, &View)) {
        if self.is_of.replace((switch, number)) != Some((switch, number)) {
            let row = row(switch, view);
            self.config.write(LIFE_AT, &(LIFE + u64::from(switch)).to_ne_bytes());
            self.rows.write(&row.key, &row.value).expect("a row");
        }
    }
}

/// What a switch is when a packet comes in: which one, its view with its number, its tables.
#[derive(Clone, Copy)]
pub struct Scene<'a> {
    pub switch: u8,
    pub view: (u8, &'a View),
    pub bytes: &'a [u8],
    pub now_ns: u64,
}

/// A moment of a packet's way through the programs: the tables' bytes, and how many frames had
/// left.
pub struct Moment {
    pub bytes: Vec<u8>,
    pub left: usize,
}

impl Real {
    /// A member of that view, where each key has room for `1 << shift` versions.
    pub fn new(first: &View, clients: usize, shift: u8, mutant: Option<&Mutant>) -> Real {
        let sizes = Sizes { pages: 1 };
        let object = Object { number: NETCRAQ.number, ..Object::of(&NETCRAQ, sizes) };
        let clock = Clock::Set(Arc::new(AtomicU64::new(0)));
        let switch = native::Switch::new("model", &[object], sizes, 1, clock);
        let switch = Snapshots::ports(switch.expect("native code"));
        switch.set_mutant(mutant);
        let tenants = [tenant(TENANT, NETCRAQ.number), tenant(wire::TENANT_SYSTEM, NO_DISCIPLINE)];
        TenantEntry::install(&switch, &tenants).expect("room for tenants");
        let config = switch.memory("config", 0).expect("every switch has it");
        let table = Table::open(&switch).expect("every switch has tables");
        let (mut items, mut slots) = (vec![], vec![]);
        for (key, record) in records(first.number, first.number, clients, shift) {
            let place = Place {
                page: 0,
                cell: items.len() as u16 * u16::from(CELLS_OF_ITEM),
                cells: CELLS_OF_ITEM,
            };
            let hash = secret_of(TENANT).key_hash(TENANT, &key);
            let slot = table.insert_given(TENANT, hash, &key, &record, place);
            slots.push(slot.expect("room in the table") as usize);
            items.push(Item { key, place, record_len: record.len() });
        }
        let mut parts = vec![("chain_states", PLACE, 0..state::LEN)];
        parts.extend(items.iter().map(|item| {
            let at = usize::from(item.place.cell) * CELL;
            let len = item.before() + item.record_len;
            ("pages", item.place.page, at..at + len)
        }));
        let (bucket, at) = (slots[0] / Table::BUCKET_SLOTS, slots[0] % Table::BUCKET_SLOTS * SLOT);
        parts.push(("buckets", bucket as u32, at..at + SLOT));
        let slot = switch.memory("buckets", bucket as u32).expect("every switch has it");
        Real {
            slot: slot.read(at),
            switch: Snapshots::of(&switch, &parts),
            row: WrittenRow {
                config,
                rows: Rows::open(&switch, "chain", view::MAP).expect("a map"),
                is_of: None,
            },
            table,
            items,
        }
    }

    /// Makes it one that has nothing yet of what others have.
    pub fn empty(&self, number: u64, shift: u8) {
        let clients = self.items.len() - 1;
        let records = records(number, 0, clients, shift);
        for (item, (_, record)) in self.items.iter().zip(records) {
            let done = self.table.set_given(item.place, &record);
            assert!(done.expect("quiet"), "of the same length");
        }
    }

    /// The tables' bytes, without what only says how often and when they were changed.
    pub fn save(&self) -> Vec<u8> {
        self.plain(self.switch.save(), None)
    }

    /// The bytes of tables without what only says how often and when they were changed. A run that
    /// stopped when they were `stopped` has to find whether they were since, and no more.
    fn plain(&self, mut bytes: Vec<u8>, stopped: Option<&[u8]>) -> Vec<u8> {
        let items = self.starts();
        for at in items.iter().copied().chain([STATE_LOCK]) {
            let count = |bytes: &[u8]| u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("4"));
            let now = count(&bytes);
            let plain = match stopped.map(count) {
                Some(was) if was == now => was,
                Some(was) => was + 2,
                None => 0,
            };
            assert_eq!(now & 1, plain & 1, "it is left locked");
            bytes[at..at + 4].copy_from_slice(&plain.to_ne_bytes());
        }
        for (number, at) in items.into_iter().enumerate() {
            if number == 0 {
                // Always long ago: so what waits for that may happen, and where it does not, that
                // is as a loss.
                let record = at + self.items[0].before();
                bytes[record + RECORD_TIMES..record + RECORD_TIMES + 8].fill(0);
            }
        }
        bytes
    }

    /// Where each item begins in saved bytes.
    fn starts(&self) -> Vec<usize> {
        let next = |at: &mut usize, item: &Item| {
            let start = *at;
            *at += item.before() + item.record_len;
            Some(start)
        };
        self.items.iter().scan(state::LEN, next).collect()
    }

    /// Keys and records in saved bytes, the key's first, then the sessions.
    pub fn records<'a>(&'a self, bytes: &'a [u8]) -> Vec<(&'a [u8], &'a [u8])> {
        let of = |(item, start): (&'a Item, usize)| {
            (&item.key[..], &bytes[start + item.before()..][..item.record_len])
        };
        self.items.iter().zip(self.starts()).map(of).collect()
    }

    /// Likewise what an agent finds of them; no record where a program keeps the item locked.
    pub fn found<'a>(&'a self, bytes: &'a [u8]) -> Vec<(&'a [u8], Option<&'a [u8]>)> {
        let is_locked = self.starts().into_iter().map(|start| bytes[start] & 1 == 1);
        let all = self.records(bytes).into_iter().zip(is_locked);
        let all = all.map(|((key, record), is_locked)| (key, (!is_locked).then_some(record)));
        all.skip(usize::from(!Real::has_key(bytes))).collect()
    }

    /// Whether the key has an item.
    pub fn has_key(bytes: &[u8]) -> bool {
        bytes[bytes.len() - SLOT..] != [0; SLOT]
    }

    /// The same bytes, and the key has an item, or none.
    pub fn with_key(&self, bytes: &[u8], has_key: bool) -> Vec<u8> {
        let mut bytes = bytes.to_vec();
        let at = bytes.len() - SLOT;
        bytes[at..].copy_from_slice(if has_key { &self.slot } else { &[0; SLOT] });
        bytes
    }

    /// What leaves a switch when a packet comes in, and what its tables are then. Another packet's
    /// run may have `stopped` there, when they were these.
    pub fn run(
        &mut self,
        scene: Scene<'_>,
        packet: &[u8],
        stopped: Option<&[u8]>,
    ) -> (Vec<u8>, Vec<Vec<u8>>) {
        self.row.write(scene.switch, scene.view);
        self.switch.restore(scene.bytes);
        let leaves = self.switch.run(packet, scene.now_ns);
        (self.plain(self.switch.save(), stopped), leaves)
    }

    /// Every moment of that at which another CPU could come in, and all that leaves.
    pub fn moments(&mut self, scene: Scene<'_>, packet: &[u8]) -> (Vec<Moment>, Vec<Vec<u8>>) {
        self.row.write(scene.switch, scene.view);
        // The first packet of a tenant has moments of its own: its CPU learns the tenant.
        self.switch.run(packet, scene.now_ns);
        self.switch.restore(scene.bytes);
        let mut seen = vec![];
        let moment = |parts: &SavedParts, left| seen.push((parts.save(), left));
        let leaves = self.switch.run_with(packet, scene.now_ns, moment);
        let moment = |(bytes, left): (Vec<u8>, _)| {
            let bytes = self.plain(bytes.clone(), Some(&bytes));
            Moment { bytes, left }
        };
        (seen.into_iter().map(moment).collect(), leaves)
    }

    /// What the tables are and what leaves after that moment, if the switch is `then` by it.
    pub fn go_on(
        &mut self,
        began: Scene<'_>,
        packet: &[u8],
        at: usize,
        then: Scene<'_>,
    ) -> (Vec<u8>, Vec<Vec<u8>>) {
        self.row.write(began.switch, began.view);
        self.switch.restore(began.bytes);
        let (row, mut moments, mut left_before) = (&mut self.row, 0, 0);
        let moment = |parts: &SavedParts, left| {
            if moments == at {
                row.write(then.switch, then.view);
                parts.restore(then.bytes);
                left_before = left;
            }
            moments += 1;
        };
        let mut leaves = self.switch.run_with(packet, began.now_ns, moment);
        assert!(moments > at, "it goes another way than before");
        leaves.drain(..left_before);
        (self.save(), leaves)
    }
}

/// A view as it is told one of its members.
pub fn row(switch: u8, view: &View) -> decide::Row {
    let life = LIFE + u64::from(switch);
    let view = View { slot: slot_in(view, switch), life, ..view.clone() };
    view.row().expect("a possible view")
}

fn records(number: u64, filled: u64, clients: usize, shift: u8) -> Vec<(Vec<u8>, Vec<u8>)> {
    let key = new_key(0, filled, shift).expect("a record");
    let session = |client| {
        let record = SessionRecord::new(client_id(client), number, filled);
        (session_key(client_id(client)).to_vec(), record.encode().to_vec())
    };
    let sessions = (0..clients).map(session);
    std::iter::once((KEY.to_vec(), key.to_vec())).chain(sessions).collect()
}
