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
use harness::{Snapshots, message::secret_of, switch::tenant};

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
    config: Memory,
    rows: Rows,
    table: Table,
    items: Vec<Item>,
    /// The row that is written: of which switch and view.
    row: Option<(u8, u8)>,
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
        let mut items = vec![];
        for (key, record) in records(first.number, first.number, clients, shift) {
            let place = Place {
                page: 0,
                cell: items.len() as u16 * u16::from(CELLS_OF_ITEM),
                cells: CELLS_OF_ITEM,
            };
            let hash = secret_of(TENANT).key_hash(TENANT, &key);
            let slot = table.insert_given(TENANT, hash, &key, &record, place);
            slot.expect("room in the table");
            items.push(Item { key, place, record_len: record.len() });
        }
        let mut parts = vec![("chain_states", PLACE, 0..state::LEN)];
        parts.extend(items.iter().map(|item| {
            let at = usize::from(item.place.cell) * CELL;
            let len = item.before() + item.record_len;
            ("pages", item.place.page, at..at + len)
        }));
        Real {
            switch: Snapshots::of(&switch, &parts),
            config,
            rows: Rows::open(&switch, "chain", view::MAP).expect("a map"),
            table,
            items,
            row: None,
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
        let mut bytes = self.switch.save();
        bytes[STATE_LOCK..STATE_LOCK + 4].fill(0);
        let mut at = state::LEN;
        for (number, item) in self.items.iter().enumerate() {
            assert_eq!(bytes[at] & 1, 0, "an item is left locked");
            bytes[at..at + 4].fill(0);
            let record = at + item.before();
            if number == 0 {
                // Always long ago: so what waits for that may happen, and where it does not, that
                // is as a loss.
                bytes[record + RECORD_TIMES..record + RECORD_TIMES + 8].fill(0);
            }
            at = record + item.record_len;
        }
        bytes
    }

    /// Keys and records in saved bytes, the key's first, then the sessions.
    pub fn records<'a>(&'a self, bytes: &'a [u8]) -> Vec<(&'a [u8], &'a [u8])> {
        let mut rest = &bytes[state::LEN..];
        let mut records = vec![];
        for item in &self.items {
            let (its, behind) = rest.split_at(item.before() + item.record_len);
            records.push((&item.key[..], &its[item.before()..]));
            rest = behind;
        }
        records
    }

    /// What leaves that switch, whose tables are these bytes, when a packet comes in.
    pub fn run(
        &mut self,
        switch: u8,
        view: (u8, &View),
        bytes: &[u8],
        packet: &[u8],
        now_ns: u64,
    ) -> Vec<Vec<u8>> {
        let (number, view) = view;
        if self.row.replace((switch, number)) != Some((switch, number)) {
            let row = row(switch, view);
            self.config.write(LIFE_AT, &(LIFE + u64::from(switch)).to_ne_bytes());
            self.rows.write(&row.key, &row.value).expect("a row");
        }
        self.switch.restore(bytes);
        self.switch.run(packet, now_ns)
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
