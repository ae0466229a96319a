//! A switch with orbitcache, and what goes round in it.

use dataplane::{NO_DISCIPLINE, Object, Sizes, TenantEntry, native::Mutant};
pub use harness::story::check;
use harness::{
    Message, Run, SeenFrame, Switch, Verdict, World,
    frame::{self, MAC_HERE, MAC_THERE},
    story::{self, Story},
    switch::tenant,
    world::TERM,
};
use wire::{Epoch, Flags, Header, Op, Packet};

use super::time::Time;

/// Anybody's: no secret.
pub const OPEN: u32 = 0;
/// With a secret.
pub const SIGNED: u32 = 7;
/// Another one.
pub const OTHER: u32 = 8;
/// Its values go round for ever.
pub const RESTLESS: u32 = 9;
/// Two reads may wait for each of its values.
pub const NARROW: u32 = 10;
/// Its secret is being changed: [`ALSO`] is accepted beside its own.
pub const ROTATING: u32 = 11;
/// Its keys may be lent.
pub const LENDS: u32 = 12;
/// The life of a loan.
pub const LIFE: u16 = 0x1eaf;
pub const ALSO: wire::Secret = wire::Secret([0xa1; 16]);

pub const KEY: &[u8] = b"key0000000000042";
pub const V: &[u8] = &[b'v'; 128];
/// Length of a value in three parts.
pub const LARGE: u32 = 2148;
pub const PARTS: [&[u8]; 3] = [&[b'0'; 1024], &[b'1'; 1024], &[b'2'; 100]];
const ORBITCACHE: u32 = 3;
/// EtherTypes before the numbers of VLANs: a customer's, and a provider's.
pub const CUSTOMER_TAG: [u8; 2] = [0x81, 0x00];
pub const PROVIDER_TAG: [u8; 2] = [0x88, 0xa8];
const NEVER_PARKS: u32 = 0xff_ffff;

pub fn world() -> World {
    let object =
        Object { number: ORBITCACHE, ..Object::of(&orbitcache::REGISTRATION, Sizes { pages: 4 }) };
    let with =
        |id, orbit| TenantEntry { parameters: [u32::MAX >> 8, orbit], ..tenant(id, ORBITCACHE) };
    let tenants = [
        with(OPEN, 0),
        with(SIGNED, 0),
        with(OTHER, 0),
        with(RESTLESS, NEVER_PARKS),
        with(NARROW, 2 << 24),
        TenantEntry { also_secret: ALSO, ..with(ROTATING, 0) },
        TenantEntry { write_back: true, ..with(LENDS, 0) },
        tenant(wire::TENANT_SYSTEM, NO_DISCIPLINE),
    ];
    World::new(&[object], &tenants)
}

/// Something that happens, with what it must count.
pub type Step = (fn(&mut Orbit), &'static [&'static str]);

/// A story.
pub struct Row {
    name: &'static str,
    given: fn(&mut World),
    steps: &'static [Step],
    answered: &'static [(u64, &'static [u8])],
    left: usize,
}

impl Row {
    /// A story of this name, on a switch that nothing has come to; nothing is answered in it, and
    /// nothing goes round at its end.
    pub const fn of(name: &'static str) -> Row {
        Row { name, given: |_| {}, steps: &[], answered: &[], left: 0 }
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

    /// Requests that are answered, with the value, in this order.
    pub const fn answered(mut self, answered: &'static [(u64, &'static [u8])]) -> Row {
        self.answered = answered;
        self
    }

    /// Values that go round at the end.
    pub const fn left(mut self, left: usize) -> Row {
        self.left = left;
        self
    }
}

/// A story of this name, with a value that is cached.
pub const fn cached(name: &'static str) -> Row {
    Row::of(name).given(|w| w.cached(SIGNED, KEY, V))
}

/// A switch whose recirculation port is played.
pub struct Orbit {
    pub w: World,
    /// What goes round.
    pub round: Vec<Vec<u8>>,
    /// What was asked, by number.
    asked: Vec<Message>,
    /// Frames that left for clients.
    answers: Vec<Vec<u8>>,
    moved: Vec<(&'static str, u64)>,
    time: Time,
}

impl Orbit {
    pub fn new() -> Orbit {
        let orbit = Orbit {
            w: world(),
            round: vec![],
            asked: vec![],
            answers: vec![],
            moved: vec![],
            time: Time::default(),
        };
        orbit.w.switch.send_round();
        orbit
    }

    /// How often that was counted.
    pub fn count(&self, name: &str) -> u64 {
        let moved = self.moved.iter().find(|(moved, _)| *moved == name);
        moved.map_or(0, |(_, by)| *by)
    }

    fn note(&mut self, run: &Run) {
        for (name, by) in &run.moved {
            match self.moved.iter_mut().find(|(known, _)| known == name) {
                Some((_, sum)) => *sum += by,
                None => self.moved.push((name, *by)),
            }
        }
    }

    /// A packet comes in.
    pub fn send(&mut self, message: Message) {
        let frame = message.frame().bytes();
        self.send_as(message, &frame);
    }

    /// A packet comes in with the tag of a provider's VLAN.
    pub fn send_of_provider(&mut self, message: Message) {
        let mut frame = message.frame().bytes();
        frame[12..14].copy_from_slice(&PROVIDER_TAG);
        self.send_as(message, &frame);
    }

    /// Every answer so far has that tag, in their order.
    pub fn tags_are(&self, tags: &[[u8; 2]]) {
        let found: Vec<_> = self.answers.iter().map(|frame| &frame[12..14]).collect();
        assert_eq!(found, tags);
    }

    fn send_as(&mut self, message: Message, frame: &[u8]) {
        if message.header.op == Op::ReadRequest {
            self.asked.push(message);
        }
        self.time.stands_still(&self.w.switch);
        let run = self.w.switch.run(frame, None);
        self.note(&run);
        if ["wake", "wake_parts"].iter().any(|name| run.moved.contains_key(name)) {
            assert_eq!(run.verdict, Verdict::Redirect);
            self.answers.push(run.frame.clone());
            self.round.push(run.frame);
        } else if run.moved.contains_key("recirculate") {
            self.round.push(run.frame);
        } else if run.moved.contains_key("hit") || run.moved.contains_key("lent_read") {
            self.answers.push(run.frame);
        }
    }

    /// What goes round is lost, and time passes, before a packet comes in.
    pub fn lose(&mut self, message: Message) {
        self.round.clear();
        self.wait(45);
        self.send(message);
    }

    /// Everything that goes round comes by once.
    pub fn turn(&mut self) {
        for frame in std::mem::take(&mut self.round) {
            self.time.stands_still(&self.w.switch);
            let run = self.w.switch.run_round(&frame);
            self.note(&run);
            if run.moved.contains_key("hit_round") {
                assert_eq!(run.verdict, Verdict::Redirect);
                self.answers.push(run.frame.clone());
                if !is_last_part(&run.frame) {
                    self.round.push(run.frame);
                }
            } else if run.moved.contains_key("recirculate") {
                self.round.push(run.frame);
            } else {
                assert_eq!(run.verdict, Verdict::Drop);
            }
        }
    }

    /// Likewise until every packet has looked at its item; what is sent round counts nothing.
    pub fn turns(&mut self) {
        (0..64).for_each(|_| self.turn());
        self.moved.retain(|(name, _)| *name != "recirculate");
    }

    /// What the answers since the start say of themselves: where each part begins, and whether the
    /// next one follows.
    pub fn told(&self) -> Vec<(u16, bool)> {
        let told = |frame: &Vec<u8>| {
            let seen = SeenFrame::read(frame).expect("right checksums");
            let header = Packet::decode(&seen.payload).expect("ours").header;
            (header.part, header.flags.has(Flags::ALL))
        };
        self.answers.iter().map(told).collect()
    }

    /// Devices finish what left for clients.
    pub fn finish_answers(&mut self) {
        self.answers.iter_mut().for_each(|answer| frame::finish(answer));
    }

    pub fn write(&mut self, tenant: u32) {
        self.send(Message::write(tenant, KEY, b"new"));
    }

    pub fn wait(&mut self, ms: u64) {
        self.time.passes(&self.w.switch, ms);
    }
}

/// Whether a part leaves and no other after it: nothing goes round then.
fn is_last_part(frame: &[u8]) -> bool {
    let header = Packet::decode(frame::payload(frame)).expect("ours").header;
    header.is_part() && !header.flags.has(Flags::ALL)
}

fn check_answer(asked: &Message, frame: &[u8], value: &[u8]) {
    let seen = SeenFrame::read(frame).expect("right checksums");
    let macs = (seen.to_mac, seen.from_mac);
    assert_eq!(macs, (MAC_HERE, MAC_THERE), "addresses of the link");
    assert_eq!((seen.from, seen.to), (asked.to, asked.from), "addresses");
    assert_eq!((seen.vlan, seen.hop_limit), (asked.vlan, 64));
    assert!(seen.checksum != 0 && seen.trailer == 0);
    let packet = Packet::decode(&seen.payload).expect("a packet of ours");
    assert!(packet.tag_is_valid(&asked.secret), "the tag");
    let padding = seen.payload.len() - wire::HEADER_LEN - packet.key.len() - packet.value.len();
    assert_eq!(padding, 0);
    let is = packet.header;
    assert_eq!(is.epoch.switch(), Switch::ID);
    let was = Packet::decode(&asked.payload()).expect("as sent").header;
    let all = was.flags.has(Flags::ALL);
    let wanted = Header {
        op: Op::ReadReply,
        flags: match all && is.flags.has(Flags::ALL) {
            true => Flags::CACHED.with(Flags::ALL),
            false => Flags::CACHED,
        },
        part: if all { is.part } else { was.part },
        epoch: is.epoch,
        value_len: value.len() as u16,
        version: 77,
        expiry_ms: is.expiry_ms,
        total: if value.len() == V.len() || is.total == 0 { 0 } else { LARGE },
        tag: is.tag,
        ..was
    };
    assert_eq!(is, wanted);
    assert_eq!((packet.key, packet.value), (&asked.key[..], value));
}

impl Story for Row {
    fn name(&self) -> &str {
        self.name
    }

    fn run(&self) {
        let mut orbit = Orbit::new();
        (self.given)(&mut orbit.w);
        for (number, (step, counts)) in self.steps.iter().enumerate() {
            orbit.moved.clear();
            step(&mut orbit);
            orbit.moved.sort_unstable();
            let mut wanted: Vec<_> = counts.iter().map(|name| (*name, 1)).collect();
            wanted.sort_unstable();
            wanted.dedup_by(|a, b| a.0 == b.0 && (b.1 += 1, true).1);
            assert_eq!(orbit.moved, wanted, "step {number}");
        }
        assert_eq!(orbit.round.len(), self.left, "what goes round");
        let number = |frame: &Vec<u8>| {
            let seen = SeenFrame::read(frame).expect("right checksums");
            Packet::decode(&seen.payload).expect("ours").header.request
        };
        let numbers: Vec<u64> = orbit.answers.iter().map(number).collect();
        let wanted: Vec<u64> = self.answered.iter().map(|(number, _)| *number).collect();
        assert_eq!(numbers, wanted, "answered");
        for (frame, (number, value)) in orbit.answers.iter().zip(self.answered) {
            let is = |asked: &&Message| asked.header.request == *number;
            let asked = orbit.asked.iter().find(is).expect("it was asked");
            check_answer(asked, frame, value);
        }
    }
}

/// A read of that number, with room for its answer.
pub fn read(tenant: u32, number: u64) -> Message {
    Message::read(tenant, KEY).padded(V.len()).numbered(number)
}

/// A read of a part, by its place in steps of 256 bytes, of a value of [`LARGE`] bytes.
pub fn read_part(number: u64, part: u16) -> Message {
    read_part_of(SIGNED, number, part)
}

/// As [`read_part`], of that tenant's value.
pub fn read_part_of(tenant: u32, number: u64, part: u16) -> Message {
    let mut read = Message::read(tenant, KEY).numbered(number);
    if part > 0 {
        (read.header.part, read.header.total) = (part, LARGE);
        read.header.version = 77;
    }
    read
}

/// A read of all parts, as long as one of them.
pub fn read_all(tenant: u32, number: u64) -> Message {
    Message::read(tenant, KEY)
        .padded(1024)
        .numbered(number)
        .with(|read| read.header.flags = Flags::ALL)
}

/// A grant of a part, as the store answers a fetch.
pub fn grant_part(epoch: Epoch, part: u16, value: &[u8]) -> Message {
    grant_part_to(SIGNED, epoch, part, value)
}

/// As [`grant_part`], to that tenant.
pub fn grant_part_to(tenant: u32, epoch: Epoch, part: u16, value: &[u8]) -> Message {
    Message::grant(Op::FetchReply, tenant, KEY, value, epoch)
        .with(|reply| (reply.header.part, reply.header.total) = (part, LARGE))
}

/// A grant of `value` under the epoch that the item has, in reply to a write.
pub fn grant(w: &World, tenant: u32, value: &[u8]) -> Message {
    Message::grant(Op::WriteReply, tenant, KEY, value, w.epoch(tenant, KEY))
}

/// The epoch of the last write.
pub fn newest(w: &World) -> Epoch {
    Epoch::new(Switch::ID, w.switch.table.epoch())
}

pub fn next_term(w: &World) {
    w.lease(TERM + 1);
}

pub fn evict(w: &World) {
    let held = w.switch.table.scan().remove(0);
    w.switch.table.evict(held.slot, held.place);
    w.switch.table.quiesce().expect("membarrier");
}

/// Whether every row comes out although a rule is broken so, of the shared code or of this
/// discipline's own.
pub fn holds_with(mutant: Option<&str>, rows: &[impl Story]) -> bool {
    let mut all = Mutant::own(include_str!("../../../mutants.h"));
    all.extend_from_slice(Mutant::list());
    let named = |name| all.iter().find(|mutant| mutant.name == name).expect("listed");
    story::holds_with(mutant.map(named), rows)
}
