//! Switches that are a chain, without a link between them: what leaves one for another one's
//! address comes in there.

mod carry;
mod look;
mod messages;
mod places;

use std::{
    cell::{Cell, RefCell},
    net::SocketAddr,
};

use chain::{
    NETCRAQ,
    record::{SessionRecord, new_key},
    state::{FORMER_AT, PEER, PEERS_AT},
    view::{Chain, Member, Protocol, SLOTS, View, no_room_row},
};
use chain_wire::session_key;
use dataplane::{NO_DISCIPLINE, Object, Rows, Sizes, TenantEntry};
pub use harness::Message;
use harness::{Switch, World, message::address, switch::tenant};
pub use wire::{Epoch, Flags, Header, KeyHash, Op, Packet, Secret, Status};

pub(crate) use self::places::in_both;
pub use std::net::IpAddr;

pub use self::{
    messages::{session_hash, version},
    places::run_in_both,
};

pub const TENANT: u32 = 7;
pub const KEY: &[u8] = b"key0000000000042";
/// What becomes the tenant's, in [`Net::change_secret`].
pub const NEW_SECRET: Secret = Secret([0xa1; 16]);
/// Where clients are.
pub const CLIENT_HOST: u8 = 8;
pub const CLIENT: u64 = 0xc11e_0001;
/// Longer than a row takes; on a machine that was just started less, for a lease from the first
/// nanosecond of its clock has to be over.
const LEASE_MS: u64 = 60_000;
const LIFE: u64 = 1_000;
const FIRST: u64 = 1 << 48 | 5;

/// A packet that came to nobody's address here.
#[derive(Clone, Debug)]
pub struct Arrival {
    pub from: SocketAddr,
    pub to: SocketAddr,
    pub header: Header,
    pub value: Vec<u8>,
    /// Whether the tenant signed it.
    pub is_signed: bool,
}

/// What a packet is: which switch is to get it, what it says.
pub struct Hop<'a> {
    pub to: Option<usize>,
    pub packet: &'a Packet<'a>,
}

type Loses = Box<dyn FnMut(&Hop<'_>) -> bool>;

pub struct Net {
    pub switches: Vec<World>,
    pub view: View,
    pub six: bool,
    /// Packets pass the switches between, and clients are at the first one's end.
    pub in_line: bool,
    pub counted: RefCell<Vec<(usize, &'static str, u64)>>,
    /// Which switches had a packet, each time, since a test last looked; also their own that
    /// went round.
    pub had: RefCell<Vec<usize>>,
    /// Packets that were left to the kernel since the last one was sent.
    pub passed: Cell<usize>,
    loses: RefCell<Option<Loses>>,
    next: Cell<u64>,
}

pub fn tenants() -> Vec<TenantEntry> {
    vec![tenant(TENANT, NETCRAQ.number), tenant(wire::TENANT_SYSTEM, NO_DISCIPLINE)]
}

/// The tenant's place in arrays.
pub const PLACE: u32 = 0;

impl Net {
    /// So many switches in one chain, in this order, all of whose leases hold.
    pub fn new(switches: usize, protocol: Protocol) -> Net {
        Net::with(switches, protocol, false)
    }

    pub fn with(switches: usize, protocol: Protocol, six: bool) -> Net {
        Net::make(switches, switches, protocol, six, Switch::send_round_on_roads)
    }

    /// As [`Net::ready`], but for tests of what switches have in the end: none of them knows the
    /// way to another.
    pub fn off_roads(switches: usize, shift: u8) -> Net {
        let net = Net::make(switches, switches, Protocol::NetCraq, false, Switch::send_round);
        net.with_items(shift)
    }

    /// So many switches, the first so many of which are a chain.
    pub fn with_members(switches: usize, members: usize) -> Net {
        Net::make(switches, members, Protocol::NetCraq, false, Switch::send_round_on_roads)
    }

    fn make(
        switches: usize,
        members: usize,
        protocol: Protocol,
        six: bool,
        send_round: fn(&Switch),
    ) -> Net {
        let in_chain = members;
        let object =
            || Object { number: NETCRAQ.number, ..Object::of(&NETCRAQ, Sizes { pages: 4 }) };
        let make = |slot: usize| {
            let w = World::new(&[object()], &tenants());
            send_round(&w.switch);
            w.switch.poke("config", 0, LIFE_AT, &life_of(slot).to_ne_bytes());
            w
        };
        let switches: Vec<World> = (0..switches).map(make).collect();
        let up_ms = switches[0].switch.leases.now_ns() / 1_000_000;
        let mut members = [None; SLOTS];
        for (slot, _) in switches.iter().enumerate() {
            members[slot] = Some(Member {
                address: host(slot, six),
                switch: 100 + slot as u16,
                life: life_of(slot),
            });
        }
        let slots = (0..in_chain as u8).collect();
        let net = Net {
            switches,
            view: View {
                number: FIRST,
                tenant: TENANT,
                slot: None,
                protocol,
                is_relaxed: false,
                life: 0,
                purge_below: 0,
                lease_ms: LEASE_MS.min(up_ms / 2) as u32,
                members,
                chains: vec![chain(slots)],
            },
            six,
            in_line: false,
            counted: RefCell::default(),
            had: RefCell::default(),
            passed: Cell::default(),
            loses: RefCell::default(),
            next: Cell::new(1),
        };
        let all: Vec<usize> = (0..in_chain).collect();
        net.configure(&all);
        net.confirm(&all);
        net.settle(&all);
        net
    }

    /// A chain with a key and the client's session on each member.
    pub fn ready(switches: usize, shift: u8) -> Net {
        Net::ready_for(switches, shift, Protocol::NetCraq)
    }

    pub fn ready_for(switches: usize, shift: u8, protocol: Protocol) -> Net {
        Net::new(switches, protocol).with_items(shift)
    }

    /// With a key and the client's session on each switch.
    fn with_items(mut self, shift: u8) -> Net {
        for slot in 0..self.switches.len() {
            self.put_key(slot, shift);
            self.put_session(slot);
        }
        self
    }

    pub fn put_key(&mut self, slot: usize, shift: u8) {
        self.put_new(slot, shift, self.view.number);
    }

    pub fn put_new(&mut self, slot: usize, shift: u8, filled: u64) {
        let record = new_key(0, filled, shift).expect("a record");
        self.switches[slot].given(TENANT, KEY, &record, record.len());
    }

    pub fn put_session(&mut self, slot: usize) {
        let record = SessionRecord::new(CLIENT, self.view.number, self.view.number).encode();
        self.switches[slot].given(TENANT, &session_key(CLIENT), &record, record.len());
    }

    /// From now on nobody has a secret.
    pub fn know_no_secrets(&self) {
        self.change_tenants(|entry| TenantEntry { secret: Secret::NONE, ..entry });
    }

    /// From now on the tenant has another secret, and its clients' own is accepted as well, or not.
    pub fn change_secret(&self, is_accepted: bool) {
        let also = |entry: &TenantEntry| if is_accepted { entry.secret } else { Secret::NONE };
        self.change_tenants(|entry| match entry.id {
            TENANT => TenantEntry { secret: NEW_SECRET, also_secret: also(&entry), ..entry },
            _ => entry,
        });
    }

    fn change_tenants(&self, change: impl Fn(TenantEntry) -> TenantEntry) {
        let changed: Vec<TenantEntry> = tenants().into_iter().map(change).collect();
        for w in &self.switches {
            TenantEntry::install(w.switch.backing(), &changed).expect("room for tenants");
        }
    }

    /// Writes the view into these switches.
    pub fn configure(&self, slots: &[usize]) {
        for &slot in slots {
            let view = View { slot: Some(slot as u8), life: life_of(slot), ..self.view.clone() };
            let row = view.row().expect("a possible view");
            let rows = Rows::open(self.switches[slot].switch.backing(), "chain", &row.map);
            let rows = rows.expect("a map");
            rows.write(&row.key, &row.value).expect("a row");
        }
    }

    /// There is no room for the key or session with this hash at a switch; none: for any.
    pub fn has_no_room(&self, slot: usize, hash: Option<KeyHash>) {
        let row = no_room_row(TENANT, hash);
        let rows = Rows::open(self.switches[slot].switch.backing(), "chain", &row.map);
        rows.expect("a map").write(&row.key, &row.value).expect("a row");
    }

    /// Each of these confirms the view to each other one.
    pub fn confirm(&self, slots: &[usize]) {
        for &from in slots {
            for &to in slots {
                if from < to {
                    assert!(self.send(self.beat(from, to)).is_empty());
                }
            }
        }
    }

    /// So long passes that nothing is held back for.
    pub fn settle(&self, slots: &[usize]) {
        for &slot in slots {
            self.send(self.read(slot));
            let mut state = self.state(slot);
            // Adopted long ago, and granted nothing under other numbers.
            state[8..16].copy_from_slice(&1u64.to_ne_bytes());
            state[FORMER_AT..FORMER_AT + 8].fill(0);
            for peer in state[PEERS_AT..].chunks_exact_mut(PEER) {
                if peer[16..24] != self.view.number.to_ne_bytes() {
                    peer[24..32].fill(0);
                }
            }
            self.set_state(slot, &state);
        }
    }
}

const LIFE_AT: usize = 32;

pub fn life_of(slot: usize) -> u64 {
    LIFE + slot as u64
}

/// Where a switch is.
pub fn host(slot: usize, six: bool) -> IpAddr {
    address(six, 2 + slot as u8)
}

pub fn chain(slots: Vec<u8>) -> Chain {
    Chain { slots, filling: false, fill_number: 0 }
}
