//! Switches that are a chain, without a link between them: what leaves one for another one's address comes in there.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    net::{IpAddr, SocketAddr},
};

use bytes::Bytes;
use chain::{
    NETCRAQ,
    packets::{Beat, BeatKind, Peer},
    record::{KeyRecord, SessionRecord, Version, new_key},
    view::{Chain, Member, Protocol, SLOTS, View},
};
use dataplane::{NO_DISCIPLINE, Object, Rows, Sizes, TenantEntry};
pub use harness::Message;
use harness::{
    Seen, Verdict, World,
    message::{address, secret_of},
    switch::{in_this_process, on_roads, tenant},
};
use wire::chain::{Ask, Route, session_key};
pub use wire::{Epoch, Flags, Header, Op, Packet, Status};

pub const TENANT: u32 = 7;
pub const KEY: &[u8] = b"key0000000000042";
/// Where clients are.
pub const CLIENT_HOST: u8 = 8;
const CLIENT: u64 = 0xc11e_0001;
const LEASE_MS: u32 = 600_000;
const LIFE: u64 = 1_000;
const FIRST: u64 = 1 << 48 | 5;

/// A packet that came to nobody's address here.
#[derive(Clone, Debug)]
pub struct Came {
    pub from: SocketAddr,
    pub to: SocketAddr,
    pub header: Header,
    pub value: Vec<u8>,
    /// Whether the tenant signed it.
    pub is_signed: bool,
}

/// What a packet is: which switch is to get it, what it says.
pub struct Going<'a> {
    pub to: Option<usize>,
    pub packet: &'a Packet<'a>,
}

type Loses = Box<dyn FnMut(&Going<'_>) -> bool>;

pub struct Net {
    pub switches: Vec<World>,
    pub view: View,
    pub six: bool,
    pub counted: RefCell<Vec<(usize, &'static str, u64)>>,
    loses: RefCell<Option<Loses>>,
    next: Cell<u64>,
}

pub fn tenants() -> Vec<TenantEntry> {
    vec![
        tenant(TENANT, NETCRAQ.number),
        tenant(wire::TENANT_SYSTEM, NO_DISCIPLINE),
    ]
}

thread_local! {
    /// Switches in the kernel that no test has now: loading one takes as long as many tests.
    static IDLE: RefCell<Option<Vec<World>>> = const { RefCell::new(None) };
}

/// Runs tests in the kernel and in this process.
pub fn in_both(tests: &'static [(&'static str, fn())]) {
    on_roads(move || {
        IDLE.set(Some(vec![]));
        for (name, test) in tests {
            println!("{name}, in the kernel");
            test();
        }
        IDLE.set(None);
        for (name, test) in tests {
            println!("{name}, in this process");
            in_this_process(*test);
        }
    });
}

fn idle_switch() -> Option<World> {
    IDLE.with_borrow_mut(|idle| idle.as_mut()?.pop())
}

impl Drop for Net {
    fn drop(&mut self) {
        if std::thread::panicking() || IDLE.with_borrow(Option::is_none) {
            return;
        }
        for w in self.switches.drain(..) {
            let at = w.switch.backing();
            for held in w.switch.table.scan() {
                w.switch.table.evict(held.slot);
            }
            let rows = Rows::open(&at, "chain", chain::view::MAP).expect("a map");
            rows.delete(&TENANT.to_ne_bytes()).expect("a row");
            let state = vec![0; STATE];
            at.set_element("chain_states", PLACE, &state)
                .expect("writable");
            for set in 0..1024 {
                let bytes = at.element("chain_watches", set).expect("an element");
                if bytes.iter().any(|byte| *byte != 0) {
                    let zeros = vec![0; bytes.len()];
                    at.set_element("chain_watches", set, &zeros)
                        .expect("writable");
                }
            }
            w.switch.table.next_window();
            IDLE.with_borrow_mut(|idle| idle.as_mut().expect("there").push(w));
        }
    }
}

const STATE: usize = 576;
/// The tenant's place in arrays.
const PLACE: u32 = 0;

impl Net {
    /// So many switches in one chain, in this order, all of whose leases hold.
    pub fn new(switches: usize, protocol: Protocol) -> Net {
        Net::with(switches, protocol, false)
    }

    pub fn with(switches: usize, protocol: Protocol, six: bool) -> Net {
        Net::make(switches, switches, protocol, six)
    }

    /// So many switches, the first so many of which are a chain.
    pub fn with_members(switches: usize, members: usize) -> Net {
        Net::make(switches, members, Protocol::NetCraq, false)
    }

    fn make(switches: usize, members: usize, protocol: Protocol, six: bool) -> Net {
        let in_chain = members;
        let object = || Object {
            number: NETCRAQ.number,
            ..Object::of(&NETCRAQ, Sizes { pages: 4 })
        };
        let make = |slot: usize| {
            let w = idle_switch().unwrap_or_else(|| {
                let w = World::new(&[object()], &tenants());
                w.switch.send_round_on_roads();
                w
            });
            w.switch
                .poke("config", 0, LIFE_AT, &life_of(slot).to_ne_bytes());
            w
        };
        let switches: Vec<World> = (0..switches).map(make).collect();
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
                life: 0,
                purge_below: 0,
                lease_ms: LEASE_MS,
                members,
                chains: vec![chain(slots)],
            },
            six,
            counted: RefCell::default(),
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
        let mut net = Net::new(switches, protocol);
        for slot in 0..switches {
            net.put_key(slot, shift);
            net.put_session(slot);
        }
        net
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

    /// Writes the view into these switches.
    pub fn configure(&self, slots: &[usize]) {
        for &slot in slots {
            let view = View {
                slot: Some(slot as u8),
                life: life_of(slot),
                ..self.view.clone()
            };
            let row = view.row().expect("a possible view");
            let rows = Rows::open(self.switches[slot].switch.backing(), "chain", &row.map);
            let rows = rows.expect("a map");
            rows.write(&row.key, &row.value).expect("a row");
        }
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
            for peer in state[64..].chunks_exact_mut(32) {
                if peer[16..24] != self.view.number.to_ne_bytes() {
                    peer[24..32].fill(0);
                }
            }
            self.set_state(slot, &state);
        }
    }

    /// The lease that one has of the other passes.
    pub fn outlive(&self, slot: usize, of: usize) {
        let mut state = self.state(slot);
        state[64 + 32 * of + 8..][..8].copy_from_slice(&1u64.to_ne_bytes());
        self.set_state(slot, &state);
    }

    pub fn state(&self, slot: usize) -> Vec<u8> {
        let at = self.switches[slot].switch.backing();
        at.element("chain_states", PLACE).expect("an element")
    }

    fn set_state(&self, slot: usize, state: &[u8]) {
        let at = self.switches[slot].switch.backing();
        at.set_element("chain_states", PLACE, state)
            .expect("writable");
    }

    /// What a switch has of the key.
    pub fn record(&self, slot: usize) -> KeyRecord {
        KeyRecord::decode(&self.bytes(slot, KEY)).expect("a record")
    }

    pub fn session(&self, slot: usize) -> SessionRecord {
        let bytes = self.bytes(slot, &session_key(CLIENT));
        SessionRecord::decode(&bytes).expect("a record")
    }

    fn bytes(&self, slot: usize, key: &[u8]) -> Vec<u8> {
        let table = &self.switches[slot].switch.table;
        let held = table.scan().into_iter().find(|held| held.key == key);
        table.given(held.expect("an item").place).expect("quiet")
    }

    /// Last and clean version at each switch.
    pub fn versions(&self) -> Vec<(u64, u64)> {
        let all: Vec<usize> = (0..self.switches.len()).collect();
        self.versions_of(&all)
    }

    pub fn versions_of(&self, slots: &[usize]) -> Vec<(u64, u64)> {
        let of = |slot: &usize| {
            let record = self.record(*slot);
            (record.last, record.clean)
        };
        slots.iter().map(of).collect()
    }

    /// The number of the client's next write, in the next of its places.
    pub fn request(&self) -> u64 {
        let n = self.next.get();
        self.next.set(n + 1);
        (n / 16 + 1) * 16 + n % 16
    }

    fn request_of(&self, op: Op, to: usize) -> Message {
        let mut message = Message::from_client(op, TENANT, KEY).epoch(Epoch(self.view.number));
        message.header.client = CLIENT;
        message.from.set_ip(address(self.six, CLIENT_HOST));
        message.to = SocketAddr::new(host(to, self.six), wire::PORT);
        message
    }

    pub fn write(&self, to: usize, value: &[u8]) -> Message {
        self.write_if(to, value, None)
    }

    pub fn write_if(&self, to: usize, value: &[u8], condition: Option<u64>) -> Message {
        let ask = Ask {
            session: session_hash(),
            condition: condition.unwrap_or(0),
        };
        let value = [&ask.encode()[..], value].concat();
        let message = self
            .request_of(Op::ChainWrite, to)
            .value(&value)
            .numbered(self.request());
        let padded = message.padded(144);
        match condition {
            Some(_) => padded.flags(Flags::COMPARE),
            None => padded,
        }
    }

    pub fn delete(&self, to: usize) -> Message {
        self.write(to, b"").flags(Flags::ALL)
    }

    pub fn read(&self, at: usize) -> Message {
        self.request_of(Op::ChainRead, at)
            .numbered(wire::chain::READ_BIT | self.request())
            .padded(200)
    }

    pub fn beat(&self, from: usize, to: usize) -> Message {
        let beat = Beat {
            kind: BeatKind::Beat,
            from: from as u8,
            to: to as u8,
            t_from_ns: self.switches[from].switch.leases.now_ns(),
            t_to_ns: 0,
            life: life_of(from),
        };
        let mut message = Message::from_client(Op::PeerSignal, TENANT, b"").value(&beat.encode());
        message.header.key_hash = Default::default();
        message.header.epoch = Epoch(self.view.number);
        message.header.node = from as u16 + 1;
        message.from = SocketAddr::new(host(from, self.six), 50_000);
        message.to = SocketAddr::new(host(to, self.six), wire::PORT);
        message
    }

    /// What an agent of that switch says to another one.
    pub fn says(&self, from: usize, to: usize, peer: Peer, version: u64, value: &[u8]) -> Message {
        let value = [&peer.encode()[..], value].concat();
        let mut message = Message::from_client(Op::PeerMessage, TENANT, KEY)
            .value(&value)
            .version(version)
            .epoch(Epoch(self.view.number));
        message.header.node = from as u16 + 1;
        message.from = SocketAddr::new(host(from, self.six), 50_000);
        message.to = SocketAddr::new(host(to, self.six), wire::PORT);
        message
    }

    /// From now on packets between switches are lost of which this says so.
    pub fn lose(&self, loses: impl FnMut(&Going<'_>) -> bool + 'static) {
        *self.loses.borrow_mut() = Some(Box::new(loses));
    }

    pub fn lose_nothing(&self) {
        *self.loses.borrow_mut() = None;
    }

    fn slot_of(&self, to: SocketAddr) -> Option<usize> {
        let mut slots = 0..self.switches.len();
        slots.find(|slot| host(*slot, self.six) == to.ip())
    }

    /// Sends a packet to the switch of its address; what comes of it in all of them, until nothing moves, and leaves for others.
    pub fn send(&self, message: Message) -> Vec<Came> {
        let at = self.slot_of(message.to).expect("a switch's address");
        self.send_by(at, message)
    }

    /// Likewise to another switch than the one that it is for.
    pub fn send_by(&self, at: usize, message: Message) -> Vec<Came> {
        self.counted.borrow_mut().clear();
        let mut coming = VecDeque::from([(at, message.frame().bytes(), false)]);
        let mut came = vec![];
        let mut steps = 0;
        while let Some((slot, frame, is_round)) = coming.pop_front() {
            steps += 1;
            assert!(steps < 200, "it never ends: {:?}", self.counted.borrow());
            let switch = &self.switches[slot].switch;
            let run = match is_round {
                true => switch.run_round(&frame),
                false => switch.run(&frame, None),
            };
            let moved = |name| run.moved.contains_key(name);
            println!("{slot}: {:?} {:?}", run.verdict, run.moved);
            let mut counted = self.counted.borrow_mut();
            counted.extend(run.moved.iter().map(|(name, by)| (slot, *name, *by)));
            drop(counted);
            if run.verdict == Verdict::Drop {
                continue;
            }
            if moved("recirculate") {
                coming.push_back((slot, run.frame, true));
                continue;
            }
            if moved("order_round") {
                coming.push_back((slot, run.frame.clone(), true));
            }
            let seen = Seen::read(&run.frame).expect("right checksums");
            self.route(slot, seen, run.frame, &mut coming, &mut came);
        }
        came
    }

    fn route(
        &self,
        from: usize,
        seen: Seen,
        frame: Vec<u8>,
        coming: &mut VecDeque<(usize, Vec<u8>, bool)>,
        came: &mut Vec<Came>,
    ) {
        let packet = Packet::decode(&seen.payload).expect("a packet of ours");
        let is_system = packet.header.op.is_system();
        assert_eq!(seen.trailer, 0);
        // What a switch sends to itself is its agent's.
        let to = self.slot_of(seen.to).filter(|to| *to != from);
        let secret = secret_of(if is_system {
            wire::TENANT_SYSTEM
        } else {
            TENANT
        });
        let is_signed = packet.tag_is_valid(&secret);
        let going = Going {
            to,
            packet: &packet,
        };
        if let Some(loses) = &mut *self.loses.borrow_mut()
            && loses(&going)
        {
            println!("   lost: {:?}", packet.header);
            return;
        }
        match to {
            Some(to) => coming.push_back((to, frame, false)),
            None => came.push(Came {
                from: seen.from,
                to: seen.to,
                header: packet.header,
                value: packet.value.into(),
                is_signed,
            }),
        }
    }

    /// Sends a request to which one answer comes.
    pub fn ask(&self, message: Message) -> Came {
        let request = message.header.request;
        let mut came = self.send(message);
        assert_eq!(came.len(), 1, "{came:?} {:?}", self.counted.borrow());
        let came = came.remove(0);
        assert_eq!(
            came.to,
            SocketAddr::new(address(self.six, CLIENT_HOST), 40_001)
        );
        assert_eq!((came.header.request, came.is_signed), (request, true));
        assert!(came.header.flags.has(Flags::CACHED));
        assert_eq!(came.header.epoch, Epoch(self.view.number));
        came
    }

    /// How often a counter moved since the last packet was sent.
    pub fn count(&self, name: &str) -> u64 {
        let counted = self.counted.borrow();
        let its = counted.iter().filter(|(_, counter, _)| *counter == name);
        its.map(|(_, _, by)| by).sum()
    }

    /// A route as the answer says it.
    pub fn route_in(&self, came: &Came) -> Route {
        assert_eq!(came.header.status, Status::Moved);
        Route::decode(&came.value).expect("a route")
    }
}

const LIFE_AT: usize = 32;

fn life_of(slot: usize) -> u64 {
    LIFE + slot as u64
}

/// Where a switch is.
pub fn host(slot: usize, six: bool) -> IpAddr {
    address(six, 2 + slot as u8)
}

pub fn chain(slots: Vec<u8>) -> Chain {
    Chain {
        slots,
        filling: false,
        fill_number: 0,
    }
}

pub fn session_hash() -> u64 {
    secret_of(TENANT)
        .key_hash(TENANT, &session_key(CLIENT))
        .low()
}

/// A version as the client's write of that request made it.
pub fn version(seq: u64, request: u64, value: &'static [u8]) -> Version {
    Version {
        seq,
        accepted: FIRST,
        client: CLIENT,
        request,
        session: session_hash(),
        value: Some(Bytes::from_static(value)),
    }
}
