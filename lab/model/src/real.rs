//! The data plane's C on one key: a switch's state goes into its tables, a packet meets its
//! programs, the state comes out.
//!
//! Each thread has one switch, with the tables that a switch has; what of them a packet about the
//! key can change is [`State`], a hundred bytes, so that a world of several switches can be copied,
//! compared and hashed.

use std::{
    cell::RefCell,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use dataplane::{
    Leases, Object, Place, Sizes, Table, TenantEntry,
    native::{self, Clock, Cpu, Fib, Frame, Memory, Program, Route, Verdict},
};
use decide::Registration;
use wire::{Epoch, Header, KeyHash, Op, Packet, Secret, TENANT_OPEN, TENANT_SYSTEM};

use crate::BrokenRule;

/// Sixteen bytes, two whole words.
const KEY: &[u8] = b"the only key is ";
/// Of the item's header; the key follows, then the value.
const HEADER: usize = 48;
const VALUE_AT: usize = HEADER + KEY.len();
/// Where the item lies.
const PLACE: Place = Place { page: 0, cell: 0, cells: 2 };
/// Offsets in `struct config` and `struct lease`.
const EPOCH_AT: usize = 64;
const UNTIL_AT: usize = 16;
/// In `struct item`, and in `struct blanks`: threshold, next and end; then the blanks.
const FLAGS_AT: usize = 5;
const BLANK_AT: usize = 64;

const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const STORE: Ipv4Addr = Ipv4Addr::new(10, 0, 1, 1);
/// The ports towards clients and stores.
const PORTS: [(u32, &str); 2] = [(1, "clients"), (2, "stores")];
/// Room for a reply in the place of a request: nobody's reply is larger, for want of a secret.
const PADDING: usize = 16;

/// An item as it lies in memory, up to its key; and its value, which is one byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Entry {
    header: [u8; HEADER],
    value: [u8; 8],
}

impl Entry {
    const EMPTY: Entry = Entry { header: [0; HEADER], value: [0; 8] };

    /// Cells that are to be an item.
    fn blank() -> Entry {
        let mut entry = Entry::EMPTY;
        entry.header[FLAGS_AT] = PLACE.cells;
        entry
    }

    /// Whether it has a value for its epoch.
    pub fn is_valid(&self) -> bool {
        self.header[8] & 1 == 1
    }

    /// Its epoch's number.
    pub fn epoch(&self) -> u64 {
        self.word(8) >> 1
    }

    /// Of the value.
    pub fn version(&self) -> u64 {
        self.word(16)
    }

    fn word(&self, at: usize) -> u64 {
        let bytes = self.header[at..].first_chunk();
        u64::from_ne_bytes(*bytes.expect("48 bytes"))
    }
}

/// What a switch remembers of the key, of the store's lease, and of epochs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct State {
    pub id: u16,
    /// Rule 1: numbers given out so far.
    pub epoch: u64,
    /// Until when the lease holds in nanoseconds, and its floor.
    until_and_floor: [u64; 2],
    term: u32,
    pub entry: Option<Entry>,
    /// Whether its agent has given it a blank, so that a read makes an entry where there is none.
    pub blank: bool,
    /// Whether it has left: the store's lease has no slot here.
    gone: bool,
}

impl State {
    /// A switch that knows of nothing and has given out so many numbers.
    pub fn new(id: u16, epoch: u64) -> State {
        State {
            id,
            epoch,
            until_and_floor: [0; 2],
            term: 0,
            entry: None,
            blank: false,
            gone: false,
        }
    }

    /// Whether it has left.
    pub fn is_gone(&self) -> bool {
        self.gone
    }

    /// Its lease ends, and no answer of the store makes one hold; its term.
    pub fn give_up(&mut self) -> u64 {
        self.gone = true;
        self.until_and_floor[0] = 0;
        u64::from(std::mem::take(&mut self.term))
    }

    /// The lease has a slot again.
    pub fn come_back(&mut self) {
        self.gone = false;
    }
}

/// What became of a packet.
#[derive(Debug)]
pub enum PacketOutcome {
    /// It went on, with this header.
    Forward(Header),
    /// It came back as this, with this value.
    Back(Header, Option<u8>),
    /// It ended there.
    Ends,
}

struct Real {
    discipline: &'static str,
    switch: Arc<native::Switch>,
    cpu: Cpu,
    config: Memory,
    lease: Memory,
    bucket: Memory,
    page: Memory,
    blanks: Memory,
    /// Where in its bucket the entry's slot is, and what it holds.
    slot_at: usize,
    slot: [u8; 8],
    table: Table,
    clock: Arc<AtomicU64>,
    key_hash: KeyHash,
    lease_slot: u16,
    frame: Frame,
}

thread_local! {
    static REAL: RefCell<Option<Real>> = const { RefCell::new(None) };
}

/// What this thread runs from now on: a discipline's programs, with a rule broken or none.
pub fn prepare(discipline: &'static Registration, broken: Option<BrokenRule>) {
    let (switch, store) = match broken {
        None => (None, None),
        Some(BrokenRule::Switch(mutant)) => (Some(mutant), None),
        Some(BrokenRule::Store(mutant)) => (None, Some(mutant)),
    };
    store::mutants::choose(store);
    REAL.with_borrow_mut(|real| {
        if real.as_ref().is_none_or(|real| real.discipline != discipline.name) {
            *real = Some(Real::new(discipline));
        }
        real.as_ref().expect("just made").switch.set_mutant(switch);
    });
}

fn with<R>(work: impl FnOnce(&mut Real) -> R) -> R {
    REAL.with_borrow_mut(|real| work(real.as_mut().expect("prepared")))
}

/// Runs a packet about the key through the switch; `from_store`: it comes from there.
pub fn run(
    state: &mut State,
    header: Header,
    value: &[u8],
    from_store: bool,
    now_ns: u64,
) -> PacketOutcome {
    with(|real| {
        real.put(state);
        let out = real.packet(header, value, from_store, now_ns);
        real.take(state);
        out
    })
}

/// The agent makes an entry without a value.
pub fn insert(state: &mut State, now_ns: u64) {
    with(|real| {
        real.put(state);
        real.clock.store(now_ns, Relaxed);
        real.table
            .insert(TENANT_OPEN, real.key_hash, KEY, real.lease_slot, PLACE)
            .expect("the state had no entry");
        state.entry = Some(Entry::EMPTY);
        real.take(state);
    });
}

/// The epoch under which the agent asks for the value; `None` if there is nothing to ask for.
pub fn fetch(state: &mut State, now_ns: u64) -> Option<Epoch> {
    let [_, floor] = state.until_and_floor;
    state.entry.as_ref()?;
    with(|real| {
        real.put(state);
        real.clock.store(now_ns, Relaxed);
        let epoch = real.table.wants_value(PLACE, floor);
        real.take(state);
        epoch
    })
}

/// Everything goes out by the other port.
struct OtherPortRoutes;

impl Fib for OtherPortRoutes {
    fn route(&self, _: IpAddr, to: IpAddr, _: u16, _: u32) -> Route {
        Route::By { port: if to == IpAddr::from(CLIENT) { 1 } else { 2 }, from: [2; 6], to: [4; 6] }
    }
}

impl Real {
    fn new(discipline: &'static Registration) -> Real {
        let sizes = Sizes { pages: 1 };
        let objects = [Object::of(discipline, sizes)];
        let clock = Arc::new(AtomicU64::new(0));
        let shown = Clock::Set(clock.clone());
        let switch = native::Switch::new("model", &objects, sizes, 1, shown)
            .expect("the discipline has native code")
            .routed(Box::new(OtherPortRoutes));
        for (index, name) in PORTS {
            switch.add_port(index, name).expect("room for ports");
        }
        let tenant = |id, discipline| TenantEntry {
            // Nothing is reported.
            parameters: [u32::MAX - 1, 0],
            ..TenantEntry::new(id, Secret::NONE, discipline)
        };
        let tenants = [
            tenant(TENANT_OPEN, discipline.number),
            tenant(TENANT_SYSTEM, dataplane::NO_DISCIPLINE),
        ];
        TenantEntry::install(&switch, &tenants).expect("room for tenants");
        let table = Table::open(&switch).expect("every switch has tables");
        let leases = Leases::open(&switch).expect("every switch has leases");
        let store = SocketAddr::from((STORE, wire::PORT));
        let lease_slot = leases.slot_of(store).expect("room for a lease");
        let key_hash = Secret::NONE.key_hash(TENANT_OPEN, KEY);
        let slot = table
            .insert(TENANT_OPEN, key_hash, KEY, lease_slot, PLACE)
            .expect("the table is empty");
        let tenant = TenantEntry::place(&switch, TENANT_OPEN).expect("the table of tenants");
        let memory = |table, index| switch.memory(table, index).expect("every switch has it");
        let bucket = memory("buckets", slot / 8);
        let slot_at = (slot as usize % 8) * 8;
        Real {
            discipline: discipline.name,
            cpu: Cpu::of(&switch, 0),
            config: memory("config", 0),
            lease: memory("leases", u32::from(lease_slot)),
            page: memory("pages", PLACE.page),
            blanks: memory("probation", tenant.expect("it is there")),
            slot: bucket.read(slot_at),
            bucket,
            slot_at,
            table,
            clock,
            key_hash,
            lease_slot,
            frame: Frame::default(),
            switch,
        }
    }

    fn put(&self, state: &State) {
        self.config.write(0, &u32::from(state.id).to_ne_bytes());
        self.config.write(EPOCH_AT, &state.epoch.to_ne_bytes());
        let [until, floor] = state.until_and_floor;
        self.lease.write(UNTIL_AT, &until.to_ne_bytes());
        self.lease.write(UNTIL_AT + 8, &floor.to_ne_bytes());
        self.lease.write(UNTIL_AT + 16, &state.term.to_ne_bytes());
        let slot = state.entry.map_or([0; 8], |_| self.slot);
        self.bucket.write(self.slot_at, &slot);
        // Without an entry too: what another state left in the cells is no part of this one.
        let nothing = if state.blank { Entry::blank() } else { Entry::EMPTY };
        let entry = state.entry.unwrap_or(nothing);
        let is_blank = u32::from(state.blank && state.entry.is_none());
        // From the first read on; none taken; so many given.
        let ring = [1, 0, is_blank].map(u32::to_ne_bytes).concat();
        self.blanks.write(0, &ring);
        self.blanks.write(BLANK_AT, &[0; 8]);
        self.page.write(0, &entry.header);
        self.page.write(HEADER, KEY);
        self.page.write(VALUE_AT, &entry.value);
    }

    fn take(&self, state: &mut State) {
        let word = |memory: &Memory, at| u64::from_ne_bytes(memory.read(at));
        state.epoch = word(&self.config, EPOCH_AT);
        state.until_and_floor = [UNTIL_AT, UNTIL_AT + 8].map(|at| word(&self.lease, at));
        state.term = u32::from_ne_bytes(self.lease.read(UNTIL_AT + 16));
        if self.blanks.read::<4>(BLANK_AT + 4) != [0; 4] {
            state.entry = Some(Entry::EMPTY);
            state.blank = false;
        }
        if let Some(entry) = &mut state.entry {
            entry.header = self.page.read(0);
            entry.value = self.page.read(VALUE_AT);
            // How often it was locked; that nobody holds it now is what matters.
            let locks: [u8; 4] = *entry.header.first_chunk().expect("48 bytes");
            assert_eq!(u32::from_ne_bytes(locks) & 1, 0, "an item is left locked");
            entry.header[..4].fill(0);
        }
    }

    fn packet(
        &mut self,
        header: Header,
        value: &[u8],
        from_store: bool,
        now_ns: u64,
    ) -> PacketOutcome {
        let key = if header.op.has_key() { KEY } else { &[] };
        let mut header = Header { key_hash: self.key_hash, ..header };
        if header.tenant == TENANT_SYSTEM {
            header.request = self.lease_slot.into();
        }
        let mut payload = Vec::with_capacity(128);
        Packet::new(header, key, value)
            .encode(&Secret::NONE, &mut payload)
            .expect("a key and one byte");
        payload.resize(payload.len() + PADDING, 0);
        write_frame(&mut self.frame, &payload, from_store);
        let ingress = if from_store { 2 } else { 1 };
        let verdict = self.cpu.run(Program::Entry, &mut self.frame, ingress, now_ns);
        let packet = || Packet::decode(&self.frame.bytes()[HEADERS..]).expect("it was one before");
        match verdict {
            Verdict::To(_) => PacketOutcome::Forward(packet().header),
            Verdict::Back => {
                let packet = packet();
                PacketOutcome::Back(packet.header, packet.value.first().copied())
            }
            Verdict::Drop => PacketOutcome::Ends,
            other => {
                panic!("{other:?} of {header:?}: expected it to be forwarded, answered or taken")
            }
        }
    }
}

/// Ethernet, IPv4 and UDP.
const HEADERS: usize = 14 + 20 + 8;

fn write_frame(frame: &mut Frame, payload: &[u8], from_store: bool) {
    let bytes = frame.resize(HEADERS + payload.len());
    bytes.fill(0);
    bytes[12] = 8;
    let (ip, udp) = bytes[14..].split_at_mut(20);
    ip[0] = 0x45;
    ip[2..4].copy_from_slice(&((28 + payload.len()) as u16).to_be_bytes());
    (ip[8], ip[9]) = (64, 17);
    let (from, to) = if from_store { (STORE, CLIENT) } else { (CLIENT, STORE) };
    ip[12..16].copy_from_slice(&from.octets());
    ip[16..20].copy_from_slice(&to.octets());
    udp[..2].copy_from_slice(&wire::PORT.to_be_bytes());
    udp[2..4].copy_from_slice(&wire::PORT.to_be_bytes());
    udp[4..6].copy_from_slice(&((8 + payload.len()) as u16).to_be_bytes());
    udp[8..].copy_from_slice(payload);
    let pseudo = [&bytes[26..34], &[0, 17], &bytes[38..40]].concat();
    let check = checksum(&[&pseudo, &bytes[34..]].concat());
    bytes[40..42].copy_from_slice(&check.to_be_bytes());
}

fn checksum(bytes: &[u8]) -> u16 {
    let word = |pair: &[u8]| u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0));
    let sum: u32 = bytes.chunks(2).map(word).sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    !((sum & 0xffff) + (sum >> 16)) as u16
}

/// (X, e) of a packet to or from switch X.
pub fn lease_header(op: Op, switch: u16) -> Header {
    let mut header = Header::new(op);
    header.tenant = TENANT_SYSTEM;
    header.epoch = Epoch::new(switch, 0);
    header
}
