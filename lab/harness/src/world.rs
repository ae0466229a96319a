//! A switch with a discipline and its tenants, and shorthands for bringing it into a state.

use std::collections::HashMap;

use dataplane::{Cells, Object, PARAMETERS, Place, TenantEntry, cells_needed, cells_needed_given};
use wire::{Epoch, Flags, KeyHash, Op, Packet, Status};

use crate::{
    Message, SeenFrame, Switch,
    message::{address, secret_of},
};

pub const TERM: u64 = 1_700_000_000;

const NEVER_MIND_MS: u32 = 600_000;

pub struct World {
    pub switch: Switch,
    cells: Cells,
    places: HashMap<(u32, Vec<u8>), Place>,
}

impl World {
    /// With these objects loaded, for these tenants.
    pub fn new(objects: &[Object], tenants: &[TenantEntry]) -> World {
        let switch = Switch::load(objects, tenants);
        World { switch, cells: Cells::new(4), places: HashMap::new() }
    }

    /// Makes these the switch's tenants.
    pub fn install(&self, tenants: &[TenantEntry]) {
        TenantEntry::install(self.switch.backing(), tenants).expect("tenants");
    }

    /// Gives tenants other parameter words.
    pub fn set_parameters(&self, words: &[(u32, [u32; PARAMETERS])]) {
        let home = &self.switch.backing();
        TenantEntry::set_parameters(home, words).expect("tenants");
    }

    /// Sends a packet that is part of the set-up.
    pub fn send(&self, message: Message) {
        self.switch.run(&message.frame().bytes(), None);
    }

    /// As [`World::send`], and `counter` must say that it took effect.
    pub fn send_as(&self, counter: &str, message: Message) {
        let run = self.switch.run(&message.frame().bytes(), None);
        assert_eq!(run.moved.get(counter), Some(&1), "set-up: {message:?} {:?}", run.moved);
    }

    /// The lease's slot of the store at `10.0.0.2` or `fd00::2`.
    pub fn slot(&self, ipv6: bool) -> u16 {
        let store = std::net::SocketAddr::new(address(ipv6, 2), wire::PORT);
        self.switch.leases.slot_of(store).expect("a free slot")
    }

    /// A lease reply to a request of `age_ms` ago, and at least of a second ago: programs look at a
    /// clock that is as old as the last tick, which an emulated machine may have missed for long.
    pub fn lease_reply(&self, term: u64, lease_ms: u32, age_ms: u64) -> Message {
        let mut reply = Message::lease(Op::LeaseReply, Switch::ID, self.slot(false));
        reply.header.version = self.switch.leases.now_ns() - age_ms.max(1000) * 1_000_000;
        reply.header.expiry_ms = lease_ms;
        reply.header.client = term;
        reply
    }

    /// The store's lease, in this term, for longer than the test takes.
    pub fn lease(&self, term: u64) {
        self.send_as("lease_renewed", self.lease_reply(term, NEVER_MIND_MS, 0));
    }

    /// On a page of the tenant, or on one that is nobody's and becomes its own.
    fn take(&mut self, tenant: u32, cells: u8) -> Option<Place> {
        let place = self.cells.take(tenant, cells);
        place.or_else(|| {
            let mut pages = 0..self.switch.table.pages();
            let page = pages.find(|page| self.cells.owner(*page).is_none())?;
            self.cells.set_owner(page, Some(tenant));
            self.cells.take(tenant, cells)
        })
    }

    /// An entry without a value, with room for one of `value_len` bytes.
    pub fn entry_hashed(&mut self, tenant: u32, hash: KeyHash, key: &[u8], value_len: usize) {
        let cells = cells_needed(key.len(), value_len).expect("fits an item");
        let place = self.take(tenant, cells).expect("room");
        let slot = self.slot(false);
        self.switch.table.insert(tenant, hash, key, slot, place).expect("a free slot");
        self.places.insert((tenant, key.into()), place);
    }

    pub fn entry(&mut self, tenant: u32, key: &[u8], value_len: usize) {
        let hash = secret_of(tenant).key_hash(tenant, key);
        self.entry_hashed(tenant, hash, key, value_len);
    }

    /// An entry with a given record, with cells for one of `room` bytes.
    pub fn given(&mut self, tenant: u32, key: &[u8], record: &[u8], room: usize) -> Place {
        let hash = secret_of(tenant).key_hash(tenant, key);
        self.given_hashed(tenant, hash, key, record, room)
    }

    /// Likewise under another hash than the key's.
    pub fn given_hashed(
        &mut self,
        tenant: u32,
        hash: KeyHash,
        key: &[u8],
        record: &[u8],
        room: usize,
    ) -> Place {
        let cells = cells_needed_given(key.len(), room).expect("fits an item");
        let place = self.take(tenant, cells).expect("room");
        self.switch.table.insert_given(tenant, hash, key, record, place).expect("a free slot");
        self.places.insert((tenant, key.into()), place);
        place
    }

    /// The epoch that the entry's value would be granted for.
    pub fn epoch(&self, tenant: u32, key: &[u8]) -> Epoch {
        let place = self.places[&(tenant, key.to_vec())];
        self.switch.table.wants_value(place, 0).expect("an entry without a value")
    }

    /// A fetch reply that fills the entry.
    pub fn grant(&self, tenant: u32, key: &[u8], value: &[u8]) -> Message {
        Message::grant(Op::FetchReply, tenant, key, value, self.epoch(tenant, key))
    }

    /// A lease, an entry, a value.
    pub fn cached(&mut self, tenant: u32, key: &[u8], value: &[u8]) {
        self.lease(TERM);
        self.entry(tenant, key, value.len());
        self.send_as("grant_installed", self.grant(tenant, key, value));
    }

    /// Lends the key to this switch under this life, with this value in version 77; switch 9 is to
    /// keep what is written.
    pub fn lent(&self, tenant: u32, key: &[u8], value: &[u8], life: u16) {
        let mut lend =
            Message::from_store(Op::LendRequest, tenant, key).epoch(Epoch::new(Switch::ID, 0));
        lend.header.life = life;
        lend.header.node = 9;
        lend.header.flags = Flags::GRANT;
        lend.header.request = self.slot(false).into();
        lend.header.version = 77;
        let prepared = self.switch.run(&lend.frame().bytes(), None);
        let seen = SeenFrame::read(&prepared.frame).expect("right checksums");
        let reply = Packet::decode(&seen.payload).expect("ours").header;
        assert_eq!((reply.op, reply.status), (Op::LendReply, Status::Ok));
        self.send_as("lend", lend.epoch(reply.epoch).value(value));
    }

    /// Ends that loan.
    pub fn seal(&self, tenant: u32, key: &[u8], life: u16) {
        let mut take =
            Message::from_store(Op::TakeRequest, tenant, key).epoch(Epoch::new(Switch::ID, 0));
        take.header.life = life;
        take.header.flags = Flags::GRANT;
        self.send_as("take", take.padded(1300));
    }

    /// Overwrites a field of an item's header, as time or another CPU would.
    pub fn poke_item(&self, tenant: u32, key: &[u8], field: ItemField, bytes: &[u8]) {
        let place = self.places[&(tenant, key.to_vec())];
        let at = usize::from(place.cell) * 64 + field as usize;
        self.switch.poke("pages", place.page, at, bytes);
    }

    /// Lets the time to live of a value pass, and some more.
    pub fn outlive(&self, tenant: u32, key: &[u8]) {
        let long_ago =
            self.switch.leases.now_ns() - 3_600_000_000_000.min(self.switch.leases.now_ns() / 2);
        self.poke_item(tenant, key, ItemField::ExpiryNs, &long_ago.to_ne_bytes());
        self.poke_item(tenant, key, ItemField::EpochNs, &long_ago.to_ne_bytes());
    }

    /// Leaves a tenant that has asked for as much as it may no more time, however long the
    /// test takes.
    pub fn over_rate(&self, tenant: u32) {
        let next_ns = self.next_ns(tenant);
        assert!(next_ns > 0, "tenant {tenant} has asked for nothing");
        let next_ns = next_ns + u64::from(NEVER_MIND_MS) * 1_000_000;
        self.switch.poke("tenants", tenant, NEXT_NS, &next_ns.to_ne_bytes());
    }

    /// When the tenant's next request would conform to its rate.
    pub fn next_ns(&self, tenant: u32) -> u64 {
        let entry = self.switch.backing().element("tenants", tenant).expect("it is there");
        u64::from_ne_bytes(entry[NEXT_NS..][..8].try_into().expect("8 bytes"))
    }

    /// Lets the store's lease pass.
    pub fn outlive_lease(&self) {
        const UNTIL_NS: usize = 16;
        let past = (self.switch.leases.now_ns() - 1_000_000_000).to_ne_bytes();
        self.switch.poke("leases", self.slot(false).into(), UNTIL_NS, &past);
    }
}

/// In `struct tenant` of `bpf/maps.h`.
const NEXT_NS: usize = 48;

/// Offsets in `struct item` of `bpf/table.h`.
#[derive(Clone, Copy)]
pub enum ItemField {
    Seq = 0,
    ExpiryNs = 24,
    EpochNs = 32,
}
