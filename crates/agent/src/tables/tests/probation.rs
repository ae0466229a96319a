//! Items on probation, with the programs in this process: what they make of blanks, and what the
//! agent makes of it.

use std::sync::atomic::AtomicU64;

use dataplane::{
    Leases,
    native::{Clock, Cpu, Frame, Program, Verdict},
};
use harness::{Message, message::store};
use wire::{Epoch, Op, Packet, Secret};

use super::*;

const READS: usize = 3;
const TICK_NS: u64 = 20_000_000;
const WINDOW_TICKS: usize = 50;
/// A burst's length, `1 << BURST_SHIFT` of the data plane.
const BURST_NS: u64 = 1 << 26;
/// Ethernet, IPv4 and UDP.
const HEADERS: usize = 14 + 20 + 8;

pub(super) struct Rig {
    switch: Switch,
    programs: Arc<native::Switch>,
    cpu: Cpu,
    clock: Arc<AtomicU64>,
    version: u64,
}

impl Rig {
    /// The first tenant has two pages, of 16 blanks; the other the next one.
    pub fn start() -> Rig {
        let clock = Arc::new(AtomicU64::new(1_000_000_000));
        let objects = registry::objects(&DISCIPLINES, SIZES);
        let shown = Clock::Set(clock.clone());
        let programs = native::Switch::new("probation", &objects, SIZES, 1, shown).unwrap();
        let mut rig = Rig {
            switch: Switch::at(Place::Process(programs.clone())),
            cpu: Cpu::of(&programs, 0),
            programs,
            clock,
            version: 0,
        };
        rig.set_up(&[COPIES, OTHERS]);
        rig.give_pages(&[(COPIES, &[0, 1]), (OTHERS, &[2])]);
        rig.lease();
        rig
    }

    fn set_up(&mut self, tenants: &[u32]) {
        let tenants: Vec<_> = tenants.iter().map(|id| (*id, "trying")).collect();
        let secret = |id: &u32| format!("{id:02x}").repeat(16);
        self.switch.hear(setup(&store(false).to_string(), &tenants, secret));
    }

    fn give_pages(&mut self, owners: &[(u32, &[u32])]) {
        self.version += 1;
        self.switch.give_pages(self.version, owners);
    }

    fn change(&mut self, key: ItemKey, change: &Change) -> Outcome {
        self.switch.change_telling(&key, change).0
    }

    fn tick(&mut self) {
        self.clock.fetch_add(TICK_NS, Relaxed);
        self.switch.now += crate::TICK;
        let now = self.switch.now;
        self.switch.tables().tick(now).unwrap();
    }

    fn run(&mut self, message: &Message) -> (Verdict, Option<Epoch>) {
        let mut frame = Frame::new(&message.frame().bytes());
        let now_ns = self.clock.load(Relaxed);
        let verdict = self.cpu.run(Program::Entry, &mut frame, 1, now_ns);
        let packet = Packet::decode(&frame.bytes()[HEADERS..]).expect("ours");
        let asks = packet.header.flags.has(wire::Flags::GRANT);
        (verdict, asks.then_some(packet.header.epoch))
    }

    fn lease(&mut self) {
        let leases = Leases::open(&self.programs).unwrap();
        let slot = leases.slot_of(store(false)).unwrap();
        self.renew(slot);
        assert!(leases.state(slot).remaining_ms > 0);
    }

    /// Where its tables are.
    pub fn backing(&self) -> Backing {
        (&self.programs).into()
    }

    /// The store's answer comes, for the lease in this slot.
    pub fn renew(&mut self, slot: u16) {
        self.renew_in(slot, 1);
    }

    /// Likewise, in this term.
    pub fn renew_in(&mut self, slot: u16, term: u64) {
        let mut reply = Message::lease(Op::LeaseReply, 1, slot).signed_with(Secret::NONE);
        reply.header.version = self.clock.load(Relaxed);
        reply.header.expiry_ms = 600_000;
        reply.header.client = term;
        self.run(&reply);
    }

    /// Whether a read is answered by the switch.
    pub fn hits(&mut self, tenant: u32, name: &[u8]) -> bool {
        self.run(&Message::read(tenant, name).padded(600)).0 == Verdict::Back
    }

    /// Reads a key as often as it takes; the epoch under which it asks for its value, if it has an
    /// item now.
    fn begin(&mut self, tenant: u32, name: &[u8]) -> Option<Epoch> {
        let read = Message::read(tenant, name);
        let last = (0..READS).fold(None, |_, _| Some(self.run(&read)));
        last.expect("some reads").1
    }

    /// Likewise, and the store's answer comes.
    pub fn fill(&mut self, tenant: u32, name: &[u8], value: &[u8]) {
        let epoch = self.begin(tenant, name).expect("a blank");
        self.run(&Message::grant(Op::ReadReply, tenant, name, value, epoch));
    }

    fn trials(&mut self) -> Vec<ItemKey> {
        let keys = self.switch.tables().memory.on_probation().cloned();
        let mut keys: Vec<_> = keys.collect();
        keys.sort();
        keys
    }

    fn held(&mut self) -> Vec<ItemKey> {
        self.switch.tables().memory.keys().cloned().collect()
    }

    fn scan(&self) -> Vec<HeldItem> {
        self.switch.held()
    }
}

#[test]
fn a_hot_key_is_answered_and_told_and_confirmed_where_it_lies() {
    let mut rig = Rig::start();
    rig.fill(COPIES, b"hot", &[1; 128]);
    assert!(rig.hits(COPIES, b"hot"), "no round of the agent was needed");
    rig.tick();
    let hot = key(COPIES, "hot");
    assert_eq!((rig.trials(), rig.held()), (vec![hot.clone()], vec![]));
    rig.switch.heard();
    for _ in 0..6 {
        (0..10).for_each(|_| assert!(rig.hits(COPIES, b"hot")));
        rig.tick();
    }
    let told = rig.switch.heard().into_iter().rev().find_map(|body| match body {
        Body::Hot(report) => Some(report.keys[0].keys[0].count),
        _ => None,
    });
    assert!(told.expect("a report") > 20, "hits are told with misses: {told:?}");
    let place = rig.scan()[0].place;
    assert_eq!(rig.change(hot.clone(), &FETCHED), Outcome::Done);
    assert_eq!((rig.trials(), rig.held()), (vec![], vec![hot.clone()]));
    assert!(rig.hits(COPIES, b"hot"), "it keeps its value");
    (0..6 * WINDOW_TICKS).for_each(|_| rig.tick());
    assert_eq!((rig.held(), rig.scan()[0].place), (vec![hot.clone()], place));
    assert_eq!(rig.change(hot, &Change::Remove), Outcome::Done);
    assert!(!rig.hits(COPIES, b"hot"));
}

/// The put of a key that a program made an item of, before the agent had looked.
#[test]
fn a_put_that_comes_before_the_agent_has_looked_confirms_too() {
    let mut rig = Rig::start();
    rig.fill(COPIES, b"hot", &[1; 128]);
    assert_eq!(rig.change(key(COPIES, "hot"), &FETCHED), Outcome::Done);
    assert_eq!(rig.held(), [key(COPIES, "hot")]);
    assert_eq!(rig.scan().len(), 1);
    assert!(rig.hits(COPIES, b"hot"));
}

#[test]
fn what_nobody_confirms_goes_and_may_come_again() {
    let mut rig = Rig::start();
    for _ in 0..3 {
        rig.fill(COPIES, b"hot", &[1; 128]);
        (0..3 * WINDOW_TICKS).for_each(|_| rig.tick());
        assert!(rig.hits(COPIES, b"hot"));
        (0..3 * WINDOW_TICKS).for_each(|_| rig.tick());
        assert_eq!((rig.trials().len(), rig.scan().len()), (0, 0));
        assert!(!rig.hits(COPIES, b"hot"));
        (0..WINDOW_TICKS).for_each(|_| rig.tick());
    }
    let told = |body| matches!(body, Body::Dropped(_));
    assert!(!rig.switch.heard().into_iter().any(told), "nobody counted it");
}

/// One that began is not judged before it could be read: it would make way before the store's
/// answer came, begin anew, and never have a value.
#[test]
fn what_is_read_most_stays_until_its_answer_comes() {
    let mut rig = Rig::start();
    for n in 0..12 {
        rig.begin(COPIES, format!("hcold{n}").as_bytes());
    }
    let epoch = rig.begin(COPIES, b"ha hot one").expect("a blank");
    for _ in 0..5 {
        rig.tick();
        assert!(rig.trials().contains(&key(COPIES, "ha hot one")));
        assert_eq!(rig.begin(COPIES, b"ha hot one"), Some(epoch));
    }
    assert!(rig.trials().len() < 13, "the others make way");
    let grant = Message::grant(Op::ReadReply, COPIES, b"ha hot one", &[1; 128], epoch);
    rig.run(&grant);
    assert!(rig.hits(COPIES, b"ha hot one"));
}

#[test]
fn reads_count_together_only_if_they_come_close_together() {
    let mut rig = Rig::start();
    let read = Message::read(COPIES, b"hnow and then");
    for _ in 0..4 * READS {
        assert_eq!(rig.run(&read).1, None);
        rig.clock.fetch_add(BURST_NS, Relaxed);
    }
    assert!(rig.begin(COPIES, b"hnow and then").is_some());
}

#[test]
fn where_blanks_run_short_it_takes_more_reads() {
    let mut rig = Rig::start();
    let mut begun = |name: String, times: usize| {
        let asks = (0..times).map(|_| rig.begin(COPIES, name.as_bytes()));
        asks.last().flatten().is_some()
    };
    let plenty = (0..100).filter(|n| begun(format!("ha{n}"), 1)).count();
    let few = (0..100).filter(|n| begun(format!("hb{n}"), 2)).count();
    let last = (0..100).filter(|n| begun(format!("hc{n}"), 16)).count();
    assert!(plenty > few && few > 0 && last > 0, "{plenty} {few} {last}");
    assert_eq!(plenty + few + last, 16);
}

/// A scan that reads each key often enough takes the blanks from what is read less, never from what
/// is read more, from the controller's items or from another tenant's.
#[test]
fn a_scan_pushes_out_nothing_that_is_read_more() {
    let mut rig = Rig::start();
    for name in ["hot1", "hot2"] {
        assert_eq!(rig.change(key(COPIES, name), &FETCHED), Outcome::Done);
        rig.fill(OTHERS, name.as_bytes(), &[2; 128]);
    }
    rig.fill(COPIES, b"hot", &[1; 128]);
    let mut scanned = 0;
    for round in 0..40 {
        for n in 0..10 {
            let name = format!("h{round}-{n}");
            scanned += u32::from(rig.begin(COPIES, name.as_bytes()).is_some());
        }
        (0..5).for_each(|_| assert!(rig.hits(COPIES, b"hot"), "round {round}"));
        rig.tick();
    }
    assert!((5..200).contains(&scanned), "of 400 keys {scanned} got an item");
    let mut held = rig.held();
    held.sort();
    assert_eq!(held, [key(COPIES, "hot1"), key(COPIES, "hot2")]);
    assert!(rig.hits(OTHERS, b"hot1") && rig.hits(OTHERS, b"hot2"));
    let trials = rig.trials();
    let of = |tenant| trials.iter().filter(|key| key.tenant == tenant).count();
    assert!(of(COPIES) <= 16 && of(OTHERS) == 2, "{trials:?}");
}

/// The controller wants more than fits: it is told so while blanks are left, and an item that it
/// does not get serves on.
#[test]
fn who_fills_its_pages_keeps_half_of_its_blanks() {
    let mut rig = Rig::start();
    let (mut done, mut refused, mut served) = (0, 0, 0);
    for n in 0..400 {
        let name = format!("h{n}");
        // Where blanks run short it takes more reads; one bucket or another is full.
        let Some(epoch) = (0..20).find_map(|_| rig.begin(COPIES, name.as_bytes())) else {
            rig.tick();
            continue;
        };
        let value = [1; 128];
        rig.run(&Message::grant(Op::ReadReply, COPIES, name.as_bytes(), &value, epoch));
        rig.tick();
        let key = key(COPIES, name.clone().into_bytes());
        let is_there = rig.trials().contains(&key);
        match rig.change(key, &FETCHED) {
            Outcome::Done => done += 1,
            Outcome::NoRoom => {
                refused += 1;
                served += u32::from(is_there);
                assert!(!is_there || rig.hits(COPIES, name.as_bytes()));
            }
            other => panic!("{name}: {other:?}"),
        }
    }
    // Two pages of 128 items, of which 16 are the share.
    assert!((200..=248).contains(&done) && refused > 10 && served > 0, "{done} {refused} {served}");
    (0..5).for_each(|_| rig.tick());
    let hot = (0..20).find_map(|_| rig.begin(COPIES, b"hot"));
    assert!(hot.is_some(), "a blank is left");
}

#[test]
fn pages_that_change_hands_take_blanks_and_items_along() {
    let mut rig = Rig::start();
    rig.fill(COPIES, b"hot", &[1; 128]);
    rig.fill(OTHERS, b"hot", &[1; 128]);
    // Before the agent has looked: it must find out.
    rig.give_pages(&[(OTHERS, &[0, 1]), (COPIES, &[2])]);
    assert_eq!((rig.scan(), rig.trials()), (vec![], vec![]));
    rig.fill(COPIES, b"hot", &[1; 128]);
    rig.fill(OTHERS, b"hot", &[1; 128]);
    let pages: Vec<_> = rig.scan().iter().map(|h| (h.tenant, h.place.page)).collect();
    assert!(pages.iter().all(|(tenant, page)| (*tenant == COPIES) == (*page == 2)));
    assert_eq!(pages.len(), 2);
    // Without pages there is nothing to give.
    rig.give_pages(&[(OTHERS, &[0, 1])]);
    assert_eq!(rig.begin(COPIES, b"hot"), None);
    assert!(rig.hits(OTHERS, b"hot"));
}

/// A tenant that comes gets the place of one that left, and none of its cells.
#[test]
fn who_takes_the_place_of_a_tenant_that_left_gets_blanks_of_its_own() {
    const NEXT: u32 = 11;
    let mut rig = Rig::start();
    rig.fill(COPIES, b"hot", &[1; 128]);
    rig.set_up(&[OTHERS, NEXT]);
    assert_eq!(rig.scan(), []);
    assert_eq!(rig.begin(NEXT, b"hot"), None, "it has no page");
    rig.give_pages(&[(NEXT, &[0]), (OTHERS, &[2])]);
    rig.fill(NEXT, b"hot", &[1; 128]);
    rig.fill(OTHERS, b"hot", &[1; 128]);
    let mut pages: Vec<_> = rig.scan().iter().map(|h| (h.tenant, h.place.page)).collect();
    pages.sort();
    assert_eq!(pages, [(OTHERS, 2), (NEXT, 0)]);
}

#[test]
fn the_next_agent_counts_what_it_finds() {
    let mut rig = Rig::start();
    rig.fill(COPIES, b"hot", &[1; 128]);
    rig.switch.restart(1);
    assert_eq!(rig.held(), [key(COPIES, "hot")]);
    assert_eq!(rig.begin(COPIES, b"h2"), None, "what was given is taken back");
    rig.set_up(&[COPIES, OTHERS]);
    rig.give_pages(&[(COPIES, &[0, 1]), (OTHERS, &[2])]);
    assert!(rig.hits(COPIES, b"hot"));
    rig.fill(COPIES, b"h2", &[1; 128]);
    let mut places: Vec<_> = rig.scan().iter().map(|h| h.place).collect();
    places.dedup();
    assert_eq!(places.len(), 2);
}

/// An item under a hash that is not its key's: no write would find it.
#[test]
fn under_a_false_hash_nothing_stays() {
    let mut rig = Rig::start();
    let read = Message::read(COPIES, b"hot").hash_of(b"another");
    for _ in 0..READS {
        rig.run(&read);
    }
    assert_eq!(rig.scan().len(), 1);
    rig.tick();
    assert_eq!((rig.scan(), rig.trials()), (vec![], vec![]));
    rig.fill(COPIES, b"hot", &[1; 128]);
    rig.tick();
    assert_eq!(rig.trials(), [key(COPIES, "hot")]);
}

impl Rig {
    /// Reads a key under another's hash as often as it takes to get an item.
    fn begin_falsely(&mut self, tenant: u32, name: &[u8], other: &[u8]) {
        let items = self.scan().len();
        let read = Message::read(tenant, name).hash_of(other);
        // Where blanks run short it takes more reads.
        for _ in 0..20 * READS {
            self.run(&read);
        }
        assert_eq!(self.scan().len(), items + 1, "{other:?}");
    }

    /// Names that are looked for in this bucket.
    fn names_in(&self, tenant: u32, bucket: u32, many: usize) -> Vec<Vec<u8>> {
        let table = Table::open(&self.programs).unwrap();
        let is_there = |name: &Vec<u8>| {
            let hash = harness::message::secret_of(tenant).key_hash(tenant, name);
            table.neighbours(tenant, hash).any(|slot| slot / 8 == bucket)
        };
        let names = (0..).map(|n| format!("n{n}").into_bytes());
        names.filter(is_there).take(many).collect()
    }

    /// The next agent, with the same setup.
    fn begin_anew(&mut self) {
        self.switch.restart(1);
        self.set_up(&[COPIES, OTHERS]);
    }
}

/// While the agent is away a client reads one key under several hashes: each read makes an item.
#[test]
fn the_next_agent_finds_every_item_of_a_key_and_keeps_one_at_most() {
    let mut rig = Rig::start();
    for other in [b"one", b"two", b"six"] {
        rig.begin_falsely(COPIES, b"hot", other);
    }
    rig.begin_anew();
    assert_eq!((rig.scan(), rig.held()), (vec![], vec![]));
    // Pages that change hands with items on them are a panic.
    rig.give_pages(&[(OTHERS, &[0, 1, 2]), (COPIES, &[3])]);
    assert_eq!(rig.scan(), []);
}

#[test]
fn the_item_that_can_be_found_stays_and_can_be_removed() {
    let mut rig = Rig::start();
    rig.fill(COPIES, b"hot", &[1; 128]);
    for other in [b"one", b"two", b"six"] {
        rig.begin_falsely(COPIES, b"hot", other);
    }
    rig.begin_anew();
    assert_eq!((rig.scan().len(), rig.held()), (1, vec![key(COPIES, "hot")]));
    rig.give_pages(&[(COPIES, &[0, 1]), (OTHERS, &[2])]);
    assert!(rig.hits(COPIES, b"hot"));
    assert_eq!(rig.change(key(COPIES, "hot"), &Change::Remove), Outcome::Done);
    assert!(rig.scan().is_empty() && !rig.hits(COPIES, b"hot"));
}

/// Another tenant's keys find the room that they leave.
#[test]
fn a_bucket_that_was_filled_while_the_agent_was_away_has_room_again() {
    let mut rig = Rig::start();
    rig.begin_falsely(COPIES, b"hot", b"one");
    let bucket = rig.scan()[0].slot / 8;
    for other in rig.names_in(COPIES, bucket, 7) {
        rig.begin_falsely(COPIES, b"hot", &other);
    }
    assert!(rig.scan().len() == 8 && rig.scan().iter().all(|held| held.slot / 8 == bucket));
    let theirs = rig.names_in(OTHERS, bucket, 3);
    rig.begin_anew();
    rig.give_pages(&[(COPIES, &[0, 1]), (OTHERS, &[2])]);
    for name in &theirs {
        assert_eq!(rig.change(key(OTHERS, name.clone()), &FETCHED), Outcome::Done);
    }
    assert_eq!(rig.held().len(), theirs.len());
}

#[test]
fn a_value_that_is_too_large_gets_more_room_on_probation() {
    let mut rig = Rig::start();
    rig.fill(COPIES, b"hot", &[1; 300]);
    assert!(!rig.hits(COPIES, b"hot"));
    rig.tick();
    assert_eq!(rig.trials(), [key(COPIES, "hot")]);
    let epoch = rig.run(&Message::read(COPIES, b"hot")).1.expect("it asks again");
    rig.run(&Message::grant(Op::ReadReply, COPIES, b"hot", &[1; 300], epoch));
    assert!(rig.hits(COPIES, b"hot"));
}
