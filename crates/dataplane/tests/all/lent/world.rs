//! A switch in a loan: what store, clients and the other switch send it, and what it sends.

use dataplane::{NO_DISCIPLINE, TenantEntry};
pub use harness::story::{check, holds_with};
use harness::{
    Message, Run, SeenFrame, Switch, Verdict, World,
    message::secret_of,
    story::Story,
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
/// The secret of [`SIGNED`].
pub const ITS: Secret = Secret([SIGNED as u8; 16]);
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
    let lends = |id| TenantEntry { write_back: true, ..tenant(id, NO_DISCIPLINE) };
    vec![
        lends(OPEN),
        lends(SIGNED),
        tenant(PLAIN, NO_DISCIPLINE),
        TenantEntry { also_secret: ALSO, ..lends(ROTATING) },
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
pub struct PacketOutcome {
    pub run: Run,
}

impl PacketOutcome {
    /// What came out, its checksums and lengths right.
    pub fn seen(&self) -> SeenFrame {
        let seen = SeenFrame::read(&self.run.frame).expect("right checksums");
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
}

pub fn system() -> Secret {
    secret_of(wire::TENANT_SYSTEM)
}

/// Sends a packet, which must move just these counters, once each.
pub fn send(w: &World, message: &Message, counts: &[&str]) -> PacketOutcome {
    send_frame(w, &message.frame().bytes(), counts)
}

pub fn send_frame(w: &World, frame: &[u8], counts: &[&str]) -> PacketOutcome {
    let run = w.switch.run(frame, None);
    let moved: Vec<&str> = run.moved.keys().copied().collect();
    let mut wanted = counts.to_vec();
    wanted.sort_unstable();
    assert_eq!(moved, wanted);
    assert!(run.moved.values().all(|by| *by == 1));
    PacketOutcome { run }
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
    Message::write(tenant, KEY, value).numbered(number).with(|write| write.header.life = L)
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

/// The store says that it has all that there was of a loan that was sealed.
pub fn over(flags: Flags) -> Message {
    let mut over = take(SIGNED, X, L, true, 0);
    over.header.flags = over.header.flags.with(Flags::ALL).with(flags);
    over
}

/// A switch in the middle of something.
pub struct LoanInProgress {
    pub w: World,
    /// The loan's epoch here.
    pub loan: Epoch,
}

impl LoanInProgress {
    /// Nothing is lent.
    pub fn first() -> LoanInProgress {
        LoanInProgress { w: switch(X), loan: Epoch::NONE }
    }

    /// The key of a tenant is lent to this switch.
    pub fn owner_of(tenant: u32) -> LoanInProgress {
        let at = LoanInProgress::first();
        let loan = lend(&at.w, tenant, X, true, L);
        LoanInProgress { loan, ..at }
    }

    pub fn owner() -> LoanInProgress {
        LoanInProgress::owner_of(SIGNED)
    }

    /// It is lent to [`Y`], and this switch is the second.
    pub fn keeper_of(tenant: u32) -> LoanInProgress {
        let at = LoanInProgress::first();
        let mut lent = prepare(&at.w, tenant, X, false, L);
        lent.header.node = Y;
        let loan = prepared(&at.w, &lent);
        send(&at.w, &lent.epoch(loan), &["lend"]);
        LoanInProgress { loan, ..at }
    }

    pub fn keeper() -> LoanInProgress {
        LoanInProgress::keeper_of(SIGNED)
    }

    /// What else is done there.
    pub fn and<T>(self, done: impl FnOnce(&LoanInProgress) -> T) -> LoanInProgress {
        done(&self);
        self
    }

    /// The tenant is gone.
    pub fn without_tenant(self) -> LoanInProgress {
        let others = tenants().into_iter().filter(|t| t.id != SIGNED);
        self.w.install(&others.collect::<Vec<_>>());
        self
    }

    /// The store has sealed it.
    pub fn sealed(self) -> LoanInProgress {
        send(&self.w, &take(SIGNED, X, L, true, VERSION), &["take"]);
        self
    }

    /// The store has said that the loan is over; with these flags, too.
    pub fn over(self, flags: Flags) -> LoanInProgress {
        send(&self.w, &over(flags), &["take"]);
        self
    }

    /// What a write asks of the keeper, as the owner [`Y`] has it.
    pub fn keep(&self, number: u64, version: u64, value: &[u8]) -> Message {
        keep_of(SIGNED, number, version, value)
    }

    /// Likewise, kept.
    pub fn kept(self, number: u64, version: u64, value: &[u8]) -> LoanInProgress {
        send(&self.w, &self.keep(number, version, value), &["keep"]);
        self
    }

    /// A client has written, and the keeper was asked.
    pub fn written(self, number: u64, value: &[u8]) -> LoanInProgress {
        send(&self.w, &write(SIGNED, number, value), &["lent_write", "pass_local"]);
        self
    }

    /// The keeper's answer to a write, for this owner.
    pub fn reply(&self, tenant: u32, number: u64, version: u64, value: &[u8]) -> Message {
        reply_of(self.loan, tenant, number, version, value)
    }

    /// Likewise, installed.
    pub fn replied(self, number: u64, version: u64, value: &[u8]) -> LoanInProgress {
        let reply = self.reply(SIGNED, number, version, value);
        send(&self.w, &reply, &["lent_answer", "pass_local"]);
        self
    }

    /// The one record that this switch has; `change` gets its bytes (`struct kept`).
    pub fn change_record(&self, change: impl Fn(&mut [u8])) {
        let tables = self.w.switch.backing();
        for place in 0..tables.elements("kept").expect("a table") {
            let mut record = tables.element("kept", place).expect("an element");
            if record[4] != 0 {
                change(&mut record);
                let written = tables.set_element("kept", place, &record);
                written.expect("writable");
            }
        }
    }

    /// So many windows are counted of the tenant, and of all.
    pub fn windows(self, own: u64, all: u64) -> LoanInProgress {
        let tables = self.w.switch.backing();
        for (place, count) in [(SIGNED % 4096, own), (4096, all)] {
            let written = tables.set_element("kept_counts", place, &count.to_ne_bytes());
            written.expect("writable");
        }
        self
    }

    /// So long ago was that moment of the record, in nanoseconds.
    pub fn ago(self, at: usize, ns: u64) -> LoanInProgress {
        let then = self.w.switch.leases.now_ns().saturating_sub(ns);
        self.change_record(|record| record[at..at + 8].copy_from_slice(&then.to_ne_bytes()));
        self
    }
}

/// Moments of `struct kept`.
pub const UNANSWERED_NS: usize = 56;
pub const SEEN_NS: usize = 72;
/// Whose it is.
pub const TENANT: usize = 8;
/// Its epoch, low byte first.
pub const EPOCH: usize = 24;
/// Counts of it.
pub const NUMBER: usize = 48;
pub const WINDOWS: usize = 80;
pub const MS: u64 = 1_000_000;

/// A write that owner [`Y`] asks this switch to keep.
pub fn keep_of(tenant: u32, number: u64, version: u64, value: &[u8]) -> Message {
    Message::from_client(Op::KeepRequest, tenant, KEY)
        .epoch(Epoch::new(Y, 5))
        .numbered(number)
        .version(BASE + version)
        .expiry_ms(version as u32)
        .value(value)
        .with(|keep| (keep.header.life, keep.header.node) = (L, X))
}

/// What its keeper answers to a write in a loan.
pub fn reply_of(loan: Epoch, tenant: u32, number: u64, version: u64, value: &[u8]) -> Message {
    Message::from_store(Op::KeepReply, tenant, KEY)
        .epoch(loan)
        .numbered(number)
        .version(BASE + version)
        .expiry_ms(version as u32)
        .value(value)
        .with(|reply| (reply.header.life, reply.header.node) = (L, Y))
}

/// What must become of a packet.
pub enum Expectation {
    /// Forwarded, byte for byte.
    Forwarded,
    /// Forwarded with this as the second switch.
    Second(u16),
    /// Forwarded without the stamp that claimed to be this switch's.
    Disowned,
    Dropped,
    /// A read, answered.
    Read(u64, &'static [u8]),
    /// A write, told the loan's life.
    OtherLife,
    /// A write, on its way to the keeper, with its number.
    Asks(u32),
    /// A write, kept: number, version, value.
    Kept(u32, u64, &'static [u8]),
    /// A keeper's answer has become the client's: version; signed so.
    Answered(u64, Secret),
    /// A word of the store, answered.
    Lends(Status),
    /// A question of the store: status, flags, version, value.
    Takes(Status, Flags, u64, &'static [u8]),
}

/// One packet and what becomes of it.
pub struct Row {
    name: &'static str,
    given: fn() -> LoanInProgress,
    packet: fn(&LoanInProgress) -> Message,
    then: Expectation,
    counts: &'static [&'static str],
}

impl Row {
    /// A row of this name; nothing is lent.
    pub const fn of(name: &'static str) -> Row {
        Row {
            name,
            given: LoanInProgress::first,
            packet: |_| panic!("a row says its packet"),
            then: Expectation::Dropped,
            counts: &[],
        }
    }

    /// The state that the switch is in.
    pub const fn given(mut self, given: fn() -> LoanInProgress) -> Row {
        self.given = given;
        self
    }

    /// The packet.
    pub const fn packet(mut self, packet: fn(&LoanInProgress) -> Message) -> Row {
        self.packet = packet;
        self
    }

    /// What becomes of it, and every counter that moves, each by one.
    pub const fn then(mut self, then: Expectation, counts: &'static [&'static str]) -> Row {
        (self.then, self.counts) = (then, counts);
        self
    }
}

/// A row of this name; the key is lent to this switch.
pub const fn to_owner(name: &'static str) -> Row {
    Row::of(name).given(LoanInProgress::owner)
}

/// Likewise; this switch is the second of the loan.
pub const fn to_keeper(name: &'static str) -> Row {
    Row::of(name).given(LoanInProgress::keeper)
}

fn went_on(out: &PacketOutcome, asked: &Message) {
    assert_eq!(out.run.verdict, Verdict::Pass);
    let seen = out.seen();
    assert_eq!((seen.from, seen.to), (asked.from, asked.to));
}

impl Story for Row {
    fn name(&self) -> &str {
        self.name
    }

    fn run(&self) {
        let at = (self.given)();
        let asked = (self.packet)(&at);
        let out = send(&at.w, &asked, self.counts);
        let was = Packet::decode(&asked.payload()).expect("ours").header;
        let by_switch = Header { flags: Flags::CACHED, epoch: Epoch::new(X, 0), ..was };
        let (is, wanted, value, due): (_, _, _, &[u8]) = match self.then {
            Expectation::Forwarded => {
                assert_eq!(out.run.verdict, Verdict::Pass);
                return assert_eq!(out.run.frame, asked.frame().bytes());
            }
            Expectation::Dropped => return assert_eq!(out.run.verdict, Verdict::Drop),
            Expectation::Second(node) => {
                went_on(&out, &asked);
                let (is, value) = out.packet(asked.secret);
                (is, Header { node, ..was }, value, &asked.value)
            }
            Expectation::Disowned => {
                went_on(&out, &asked);
                let (is, value) = out.packet(asked.secret);
                let flags = was.flags.without(Flags::GRANT);
                let epoch = Epoch::NONE;
                (is, Header { epoch, flags, ..was }, value, &asked.value)
            }
            Expectation::Read(version, due) => {
                went_back(&out, &asked);
                let (is, value) = out.packet(asked.secret);
                let op = Op::ReadReply;
                (is, Header { op, version, ..by_switch }, value, due)
            }
            Expectation::OtherLife => {
                went_back(&out, &asked);
                let (is, value) = out.packet(asked.secret);
                assert!(is.expiry_ms < 60_000, "age of the loan: {}", is.expiry_ms);
                let wanted = Header {
                    op: Op::WriteReply,
                    status: Status::OtherLife,
                    life: L,
                    expiry_ms: is.expiry_ms,
                    version: 0,
                    ..by_switch
                };
                (is, wanted, value, &[])
            }
            Expectation::Asks(number) => {
                went_on(&out, &asked);
                let (is, value) = out.system();
                let also = asked.secret == ALSO;
                let wanted = Header {
                    op: Op::KeepRequest,
                    flags: if also { Flags::ALL } else { Flags::NONE },
                    epoch: at.loan,
                    node: Y,
                    life: L,
                    version: BASE + u64::from(number),
                    expiry_ms: number,
                    total: 0,
                    ..was
                };
                (is, wanted, value, &asked.value)
            }
            Expectation::Kept(expiry_ms, version, due) => {
                went_back(&out, &asked);
                let (is, value) = out.system();
                let op = Op::KeepReply;
                (is, Header { op, expiry_ms, version, ..was }, value, due)
            }
            Expectation::Answered(version, secret) => {
                went_on(&out, &asked);
                let (is, value) = out.packet(secret);
                let (op, node, expiry_ms) = (Op::WriteReply, 0, 0);
                (is, Header { op, node, expiry_ms, version, ..by_switch }, value, &[])
            }
            Expectation::Lends(status) => {
                went_back(&out, &asked);
                let (is, value) = out.system();
                let number = is.epoch.number();
                assert_eq!(is.epoch.switch(), X);
                assert!(status != Status::Ok || number > 0);
                assert!(was.epoch.number() == 0 || number == was.epoch.number());
                let life = if status == Status::Mismatch { L } else { was.life };
                let (op, epoch) = (Op::LendReply, is.epoch);
                (is, Header { op, status, epoch, life, ..was }, value, &[])
            }
            Expectation::Takes(status, flags, version, due) => {
                went_back(&out, &asked);
                let (is, value) = out.system();
                assert_eq!(is.epoch.switch(), X);
                assert!(is.epoch.number() > at.loan.number());
                let (op, epoch) = (Op::TakeReply, is.epoch);
                (
                    is,
                    Header {
                        op,
                        status,
                        flags: match due.is_empty() {
                            true => flags.with(Flags::COMPARE),
                            false => flags,
                        },
                        version,
                        epoch,
                        ..was
                    },
                    value,
                    due,
                )
            }
        };
        let wanted = Header { value_len: due.len() as u16, tag: is.tag, ..wanted };
        assert_eq!(is, wanted);
        assert_eq!(value, due);
    }
}

/// Runs a story in the kernel and in this process.
pub fn in_both(story: fn()) {
    story();
    in_this_process(story);
}

pub fn went_back(out: &PacketOutcome, asked: &Message) {
    assert_eq!(out.run.verdict, Verdict::Tx);
    let seen = out.seen();
    assert_eq!((seen.from, seen.to), (asked.to, asked.from));
}
