//! A switch in a loan: what store, clients and the other switch send it, and what it sends.

use dataplane::{NO_DISCIPLINE, TenantEntry};
use harness::{
    Message, Run, Seen, Switch, Verdict, World,
    message::secret_of,
    switch::{in_this_process, tenant},
    world::TERM,
};
use wire::{Epoch, Flags, Header, Op, Packet, Secret, Status};

/// Anybody's: no secret, and nothing is ever lent.
pub const OPEN: u32 = 0;
/// Its keys may be lent.
pub const SIGNED: u32 = 7;
/// Its keys may not.
pub const PLAIN: u32 = 8;
/// Its secret is being changed: [`ALSO`] is accepted beside its own.
pub const ROTATING: u32 = 9;
/// Not in the switch's table.
pub const UNKNOWN: u32 = 12;
pub const ALSO: Secret = Secret([0xa1; 16]);

pub const KEY: &[u8] = b"key0000000000042";
/// What is lent, in this version.
pub const V: &[u8] = &[b'v'; 128];
pub const VERSION: u64 = 77 << 32;
pub const BASE: u64 = VERSION + 1000;
/// The life of the loan.
pub const L: u16 = 0x1eaf;
/// The switches of a loan.
pub const X: u16 = Switch::ID;
pub const Y: u16 = 9;

pub fn tenants() -> Vec<TenantEntry> {
    let lends = |id| TenantEntry {
        write_back: true,
        ..tenant(id, NO_DISCIPLINE)
    };
    vec![
        lends(OPEN),
        lends(SIGNED),
        tenant(PLAIN, NO_DISCIPLINE),
        TenantEntry {
            also_secret: ALSO,
            ..lends(ROTATING)
        },
        tenant(wire::TENANT_SYSTEM, NO_DISCIPLINE),
    ]
}

/// A switch of this number, with the store's lease.
pub fn switch(id: u16) -> World {
    let world = World::new(&[], &tenants());
    world.switch.table.set_identity(id, 1_000);
    let mut reply = world.lease_reply(TERM, 600_000, 0);
    reply.header.epoch = Epoch::new(id, 0);
    world.send_as("lease_renewed", reply);
    world
}

/// What a packet led to, but for where it goes.
pub struct Out {
    pub run: Run,
}

impl Out {
    /// What came out, its checksums and lengths right.
    pub fn seen(&self) -> Seen {
        let seen = Seen::read(&self.run.frame).expect("right checksums");
        assert_eq!(seen.trailer, 0, "bytes behind the datagram");
        assert!(seen.checksum != 0, "it has a checksum");
        seen
    }

    /// Header and value, signed with `secret`, nothing behind the value.
    pub fn packet(&self, secret: Secret) -> (Header, Vec<u8>) {
        let seen = self.seen();
        let packet = Packet::decode(&seen.payload).expect("a packet of ours");
        assert!(packet.tag_is_valid(&secret), "the tag of {packet:?}");
        let used = wire::HEADER_LEN + packet.key.len() + packet.value.len();
        assert_eq!(seen.payload.len(), used, "padding");
        (packet.header, packet.value.to_vec())
    }

    /// Likewise of what switches and stores say to each other.
    pub fn system(&self) -> (Header, Vec<u8>) {
        self.packet(system())
    }

    pub fn header(&self) -> Header {
        Packet::decode(&self.seen().payload).expect("ours").header
    }
}

pub fn system() -> Secret {
    secret_of(wire::TENANT_SYSTEM)
}

/// Sends a packet, which must move just these counters, once each.
pub fn send(w: &World, message: &Message, counts: &[&str]) -> Out {
    send_frame(w, &message.frame().bytes(), counts)
}

pub fn send_frame(w: &World, frame: &[u8], counts: &[&str]) -> Out {
    let run = w.switch.run(frame, None);
    let moved: Vec<&str> = run.moved.keys().copied().collect();
    let mut wanted = counts.to_vec();
    wanted.sort_unstable();
    assert_eq!(moved, wanted);
    assert!(run.moved.values().all(|by| *by == 1));
    Out { run }
}

/// The store prepares a loan at a switch: `owner`, or the other one is.
pub fn prepare(w: &World, tenant: u32, switch: u16, owner: bool, life: u16) -> Message {
    let mut lend = Message::from_store(Op::LendRequest, tenant, KEY).epoch(Epoch::new(switch, 0));
    lend.header.life = life;
    lend.header.node = if switch == X { Y } else { X };
    lend.header.flags = if owner { Flags::GRANT } else { Flags::NONE };
    lend.header.request = w.slot(false).into();
    lend.header.client = BASE;
    lend.header.version = VERSION;
    lend
}

/// It begins the loan that was prepared under that epoch.
pub fn begin(w: &World, tenant: u32, prepared: Epoch, owner: bool, life: u16) -> Message {
    let lend = prepare(w, tenant, prepared.switch(), owner, life).epoch(prepared);
    if owner { lend.value(V) } else { lend }
}

/// The epoch under which a loan was prepared.
pub fn prepared(w: &World, message: &Message) -> Epoch {
    let (header, _) = send(w, message, &["lend"]).system();
    assert_eq!((header.op, header.status), (Op::LendReply, Status::Ok));
    assert!(header.epoch.number() > 0);
    header.epoch
}

/// Lends the tenant's key to a switch under that life.
pub fn lend(w: &World, tenant: u32, switch: u16, owner: bool, life: u16) -> Epoch {
    let epoch = prepared(w, &prepare(w, tenant, switch, owner, life));
    let (header, _) = send(w, &begin(w, tenant, epoch, owner, life), &["lend"]).system();
    assert_eq!((header.status, header.epoch), (Status::Ok, epoch));
    epoch
}

/// A client's write that names the loan's life.
pub fn write(tenant: u32, number: u64, value: &[u8]) -> Message {
    let mut write = Message::write(tenant, KEY, value).numbered(number);
    write.header.life = L;
    write
}

/// The store asks what was kept; `seal`: and the loan ends.
pub fn take(tenant: u32, switch: u16, life: u16, seal: bool, has: u64) -> Message {
    let mut take = Message::from_store(Op::TakeRequest, tenant, KEY)
        .epoch(Epoch::new(switch, 0))
        .version(has)
        .padded(1300);
    take.header.life = life;
    take.header.flags = if seal { Flags::GRANT } else { Flags::NONE };
    (take.header.client, take.header.request) = (0, 0);
    take
}

/// Runs a story in the kernel and in this process.
pub fn in_both(story: fn()) {
    story();
    in_this_process(story);
}

pub fn went_back(out: &Out, asked: &Message) {
    assert_eq!(out.run.verdict, Verdict::Tx);
    let seen = out.seen();
    assert_eq!((seen.from, seen.to), (asked.to, asked.from));
}
