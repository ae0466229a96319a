//! A switch with kvswitch, stores that it knows, and what goes round in it.

use std::net::IpAddr;

use dataplane::{NO_DISCIPLINE, Object, Rows, Sizes, Tallies, TenantEntry};
pub use harness::Message;
pub use harness::World;
use harness::{
    SeenFrame, Switch, Verdict,
    frame::MAC_THERE,
    message::address,
    story::{Story, check},
    switch::{ROAD_MAC, mac_on_road, on_roads, tenant},
    world::ItemField,
};
use kvswitch::{
    parameters,
    record::Replicas,
    servers::{self, Server},
};
pub use wire::{Epoch, Flags, Header, NODE_ALL, Op, Packet};

/// Anybody's: no secret.
pub const OPEN: u32 = 0;
/// With a secret.
pub const SIGNED: u32 = 7;
/// Its writes go home only.
pub const ALONE: u32 = 8;
/// Its secret is being changed: [`ALSO`] is accepted beside its own.
pub const ROTATING: u32 = 11;
/// Of a switch at the top of a rack.
pub const TOP: u32 = 12;
/// Of a switch above others.
pub const ABOVE: u32 = 13;
/// May ask once a second.
pub const SLOW: u32 = 14;
pub const ALSO: wire::Secret = wire::Secret([0xa1; 16]);

pub const KEY: &[u8] = b"key0000000000042";
pub const THRESHOLD: u32 = 4;
pub const KVSWITCH: u32 = 3;
/// As in `bpf/recirculate.h`.
const RECIRCULATION_MAC: [u8; 6] = [0x02, 0x73, 0x68, 0x6f, 0x72, 0x74];

/// Stores by holder id: [`HOME`] is where requests go; `A`, `B` and `C` are others, `SIX` has an
/// IPv6 address, nobody knows the Ethernet address of `END`.
pub const HOME: u16 = 0x8000;
pub const A: u16 = 0x8001;
pub const B: u16 = 0x8002;
pub const C: u16 = 0x8003;
pub const SIX: u16 = 0x8004;
pub const END: u16 = 0x8007;

/// The last part of a store's address; its tally is this less 2.
fn host_of(holder: u16) -> u8 {
    (holder & 0xff) as u8 + 2
}

const ALL: [u32; 7] = [OPEN, SIGNED, ALONE, ROTATING, TOP, ABOVE, SLOW];

pub fn tenants() -> Vec<TenantEntry> {
    let with = |id, fan_out| TenantEntry {
        parameters: parameters::words(THRESHOLD, fan_out),
        ..tenant(id, KVSWITCH)
    };
    vec![
        with(OPEN, true),
        with(SIGNED, true),
        with(ALONE, false),
        TenantEntry { also_secret: ALSO, ..with(ROTATING, true) },
        TenantEntry {
            parameters: [THRESHOLD, parameters::FAN_OUT | parameters::ON_TOP],
            ..tenant(TOP, KVSWITCH)
        },
        TenantEntry {
            parameters: [THRESHOLD, parameters::FAN_OUT | parameters::TWO_CHOICES],
            ..tenant(ABOVE, KVSWITCH)
        },
        TenantEntry { rate: 1, ..with(SLOW, true) },
        tenant(wire::TENANT_SYSTEM, NO_DISCIPLINE),
    ]
}

pub fn world() -> World {
    let object =
        Object { number: KVSWITCH, ..Object::of(&kvswitch::REGISTRATION, Sizes { pages: 4 }) };
    let w = World::new(&[object], &tenants());
    for tenant in ALL {
        for holder in [HOME, A, B, C, SIX, END] {
            tell(&w, tenant, holder);
        }
    }
    w
}

fn tell(w: &World, tenant: u32, holder: u16) {
    tell_at(w, tenant, holder, address(holder == SIX, host_of(holder)));
}

/// The tenant's store is there.
pub fn tell_at(w: &World, tenant: u32, holder: u16, address: IpAddr) {
    let row = server_at(holder, address).row(tenant);
    let rows = Rows::open(w.switch.backing(), "kvswitch", &row.map).expect("a map");
    rows.write(&row.key, &row.value).expect("a row");
}

/// A store as records have it.
pub fn server_at(holder: u16, address: IpAddr) -> Server {
    Server { holder, address, place: u16::from(host_of(holder)) - 2 }
}

/// Makes the key hot: these replicas, these turns after them, and all of them valid. Addresses are
/// IPv6 if the first replica is [`SIX`].
pub fn hot_key(w: &mut World, tenant: u32, key: &[u8], replicas: &[u16], again: &[u16]) {
    hot_from(w, tenant, key, HOME, replicas, again);
}

/// The same of a key whose reads come to that store: its home, or else the rack's entry for it.
pub fn hot_from(
    w: &mut World,
    tenant: u32,
    key: &[u8],
    home: u16,
    replicas: &[u16],
    again: &[u16],
) {
    let is_ipv6 = replicas.first() == Some(&SIX);
    let server = |holder| server_at(holder, address(is_ipv6, host_of(holder)));
    let record = Replicas {
        home: server(home),
        is_entry: home != HOME,
        replicas: replicas.iter().copied().map(server).collect(),
        again: again.into(),
        valid: replicas.into(),
    };
    let record = record.encode().expect("a record");
    w.given(tenant, key, &record, record.len());
}

pub fn hot(w: &mut World, replicas: &[u16], again: &[u16]) {
    hot_key(w, SIGNED, KEY, replicas, again);
}

/// Somebody changes the item.
pub fn busy(w: &World) {
    w.poke_item(SIGNED, KEY, ItemField::Seq, &1u32.to_ne_bytes());
}

pub fn read() -> Message {
    Message::read(SIGNED, KEY).padded(129)
}

pub fn write() -> Message {
    Message::write(SIGNED, KEY, b"a value of an odd length!").expiry_ms(5_000)
}

/// A store's word that its replica may be read.
pub fn confirms(holder: u16) -> Message {
    confirms_of(SIGNED, holder)
}

/// A store's word that it has none any more.
pub fn drops(holder: u16) -> Message {
    confirms(holder).with(|drop| drop.header.op = Op::ReplicaDrop)
}

/// The same of another tenant's key.
pub fn confirms_of(tenant: u32, holder: u16) -> Message {
    let mut confirm = Message::from_store(Op::ReplicaConfirm, tenant, KEY)
        .epoch(Epoch::new(holder, 12))
        .version(77);
    (confirm.from, confirm.to) = (confirm.to, confirm.from);
    confirm.from.set_ip(address(false, host_of(holder)));
    confirm
}

/// A frame that leaves.
#[derive(Clone, Copy)]
pub enum Leaves {
    /// As it came in, one hop on.
    AsItIs,
    /// As it came in, but without the stamp that claimed to be this switch's.
    Disowned,
    /// For that store, as a read in its name.
    To(u16),
    /// Home, with word that replicas are sent it too.
    ToAll,
    /// For that store, as an update.
    Update(u16),
    /// As it came in, byte for byte: the kernel's.
    Untouched,
    /// As it is for the store, and then the kernel's: nobody knows its Ethernet address.
    Kernels(u16),
    /// Likewise as an update.
    KernelsUpdate(u16),
    /// Home, with an epoch of this switch's, and with GRANT or without.
    Stamped { grant: bool },
    /// Home, with an epoch of this switch's and GRANT, beside word that replicas were sent it too.
    StampedToAll,
    /// Back to the client with this value.
    Answered(&'static [u8]),
}

/// A packet that comes in, what leaves in this order, and every counter that moves, once for
/// each time.
pub type Step = (fn(&World) -> Message, &'static [Leaves], &'static [&'static str]);

/// What a write of a key with as many replicas counts.
pub const ALONE_HOME: &[&str] = &["write", "write_invalidated", "forward"];
pub const WITH_TWO: &[&str] = &[
    "write",
    "write_invalidated",
    "forward",
    "replica_round",
    "replica_update",
    "forward",
    "replica_round",
    "replica_update",
    "forward",
];
pub const WITH_THREE: &[&str] = &[
    "write",
    "write_invalidated",
    "forward",
    "replica_round",
    "replica_update",
    "forward",
    "replica_round",
    "replica_update",
    "forward",
    "replica_round",
    "replica_update",
    "forward",
];

/// A story.
pub struct Row {
    name: &'static str,
    given: fn(&mut World),
    steps: &'static [Step],
    loads: &'static [(u16, u64, u64)],
}

impl Row {
    /// A story of this name, on a switch that nothing has come to, and in which no store is sent
    /// anything.
    pub const fn of(name: &'static str) -> Row {
        Row { name, given: |_| {}, steps: &[], loads: &[] }
    }

    /// What brings the switch into a state.
    pub const fn given(mut self, given: fn(&mut World)) -> Row {
        self.given = given;
        self
    }

    /// What happens.
    pub const fn steps(mut self, steps: &'static [Step]) -> Row {
        self.steps = steps;
        self
    }

    /// By holder: requests and updates sent to it and replies that came from it; all others have
    /// none. Updates are those of the steps.
    pub const fn loads(mut self, loads: &'static [(u16, u64, u64)]) -> Row {
        self.loads = loads;
        self
    }
}

impl Leaves {
    /// The host that it is for, and its header.
    fn wanted(self, asked: &Message) -> (u8, Header) {
        let home = match asked.to.ip() {
            IpAddr::V4(v4) => v4.octets()[3],
            IpAddr::V6(v6) => v6.octets()[15],
        };
        let payload = asked.payload();
        let was = Packet::decode(&payload).expect("as sent").header;
        let of = |holder, op, flags| Header { node: holder, op, flags, ..was };
        match self {
            Leaves::AsItIs | Leaves::Untouched => (home, was),
            Leaves::Disowned => {
                (home, Header { epoch: Epoch::NONE, flags: was.flags.without(Flags::GRANT), ..was })
            }
            Leaves::ToAll => (home, of(NODE_ALL, was.op, was.flags)),
            Leaves::Stamped { grant: true } => (home, of(0, was.op, was.flags.with(Flags::GRANT))),
            Leaves::Stamped { grant: false } => {
                (home, of(0, was.op, was.flags.without(Flags::GRANT)))
            }
            Leaves::StampedToAll => (home, of(NODE_ALL, was.op, was.flags.with(Flags::GRANT))),
            Leaves::Answered(_) => unreachable!("it goes back"),
            Leaves::To(holder) | Leaves::Kernels(holder) => {
                (host_of(holder), of(holder, was.op, was.flags))
            }
            Leaves::KernelsUpdate(holder) => Leaves::Update(holder).wanted(asked),
            Leaves::Update(holder) if was.op == Op::DeleteRequest => {
                (host_of(holder), of(holder, Op::ReplicaUpdate, was.flags.with(Flags::ALL)))
            }
            Leaves::Update(holder) => {
                let update = of(holder, Op::ReplicaUpdate, was.flags);
                (host_of(holder), update)
            }
        }
    }

    fn check(self, asked: &Message, frame: &[u8], hops: u8) {
        let seen = SeenFrame::read(frame).expect("right checksums");
        if let Leaves::Answered(value) = self {
            return check_answer(asked, &seen, value);
        }
        let (host, wanted) = self.wanted(asked);
        assert_eq!((seen.from, seen.to.port()), (asked.from, asked.to.port()));
        assert_eq!(seen.to.ip(), address(asked.to.is_ipv6(), host), "where to");
        assert_eq!((seen.vlan, seen.trailer), (asked.vlan, 0));
        assert_eq!(seen.checksum != 0, asked.checksum, "whether it has a sum");
        if let Leaves::Kernels(_) | Leaves::KernelsUpdate(_) | Leaves::Untouched = self {
            // The kernel drops what is for another Ethernet address than came in with it.
            let came = if hops > 1 { RECIRCULATION_MAC } else { MAC_THERE };
            assert_eq!((seen.hop_limit, seen.to_mac), (asked.hop_limit + 1 - hops, came));
        } else {
            assert_eq!(seen.hop_limit, asked.hop_limit - hops);
            assert_eq!((seen.from_mac, seen.to_mac), (ROAD_MAC, mac_on_road(host)));
        }
        let packet = Packet::decode(&seen.payload).expect("a packet of ours");
        let tag = packet.header.tag;
        let mut epoch = wanted.epoch;
        if let Leaves::Stamped { .. } | Leaves::StampedToAll = self {
            epoch = packet.header.epoch;
            assert_eq!(epoch.switch(), Switch::ID, "whose epoch");
        }
        assert_eq!(packet.header, Header { tag, epoch, ..wanted });
        assert_eq!(packet.tag_is_valid(&asked.secret), asked.spoil == 0, "tag");
        let payload = asked.payload();
        let before = Packet::decode(&payload).expect("as sent");
        assert_eq!((packet.key, packet.value), (before.key, before.value));
        let used = wire::HEADER_LEN + packet.key.len() + packet.value.len();
        assert_eq!(seen.payload.len() - used, asked.padding, "padding");
    }
}

/// The switch's own answer to a read.
fn check_answer(asked: &Message, seen: &SeenFrame, value: &[u8]) {
    assert_eq!((seen.from, seen.to), (asked.to, asked.from));
    let packet = Packet::decode(&seen.payload).expect("a packet of ours");
    let header = packet.header;
    assert!(packet.tag_is_valid(&asked.secret), "tag");
    assert_eq!((header.op, header.flags), (Op::ReadReply, Flags::CACHED));
    assert_eq!((header.epoch, header.node), (Epoch::new(Switch::ID, 0), 0));
    assert_eq!((packet.value, header.version), (value, 77));
}

/// Tells one step.
pub fn run_step(w: &World, number: usize, (packet, leaves, counts): &Step) {
    let asked = packet(w);
    let mut moved: Vec<(&str, u64)> = vec![];
    let mut frame = asked.frame().bytes();
    let mut rounds = 0;
    let mut goes_on = true;
    while goes_on {
        let run = match rounds {
            0 => w.switch.run(&frame, None),
            _ => w.switch.run_round(&frame),
        };
        let only_round = run.moved.contains_key("recirculate");
        goes_on = only_round || run.moved.contains_key("replica_round");
        moved.extend(run.moved);
        if only_round {
            frame = run.frame;
            continue;
        }
        if run.verdict == Verdict::Drop {
            break;
        }
        let what = leaves.get(rounds).unwrap_or_else(|| panic!("step {number}: {moved:?}"));
        rounds += 1;
        println!("step {number}, round {rounds}: {moved:?}");
        what.check(&asked, &run.frame, rounds as u8);
        frame = run.frame;
    }
    assert_eq!(rounds, leaves.len(), "step {number}: what leaves, {moved:?}");
    let mut moved: Vec<&str> =
        moved.into_iter().flat_map(|(name, by)| std::iter::repeat_n(name, by as usize)).collect();
    let mut wanted = counts.to_vec();
    moved.sort_unstable();
    wanted.sort_unstable();
    assert_eq!(moved, wanted, "step {number}: counters");
}

impl Story for Row {
    fn name(&self) -> &str {
        self.name
    }

    fn run(&self) {
        let mut w = world();
        w.switch.send_round_on_roads();
        (self.given)(&mut w);
        for (number, step) in self.steps.iter().enumerate() {
            run_step(&w, number, step);
        }
        let tallies = Tallies::open(w.switch.backing()).expect("tallies");
        let all = ALL.map(|tenant| tallies.read(tenant));
        let all: Vec<_> = all.into_iter().map(|of| of.unwrap().unwrap()).collect();
        for store in 0..servers::EACH as usize {
            let mut loads = self.loads.iter();
            let load = loads.find(|(holder, ..)| usize::from(host_of(*holder)) == store + 2);
            let (sent, replied) = load.map_or((0, 0), |(_, sent, replied)| (*sent, *replied));
            let sum = |first: usize| all.iter().map(|of| of[first + store]).sum::<u64>();
            let (word, updates) = (sum(servers::LOADS), sum(servers::UPDATES));
            let is = (updates + (word & 0xffff_ffff), word >> 32);
            assert_eq!(is, (sent, replied), "load of store {store}");
            let leave = self.steps.iter().flat_map(|(_, leaves, _)| *leaves);
            let its = leave.filter(
                |leaves| matches!(leaves, Leaves::Update(to) | Leaves::KernelsUpdate(to) if usize::from(host_of(*to)) == store + 2),
            );
            assert_eq!(updates, its.count() as u64, "updates of store {store}");
        }
    }
}

/// Tells stories where there are ways to all stores.
pub fn check_on_roads(rows: &'static [Row]) {
    on_roads(move || check(rows));
}

/// A number of a switch that is not this one's, and this one's.
pub const ELSEWHERE: u16 = Switch::ID + 1;
