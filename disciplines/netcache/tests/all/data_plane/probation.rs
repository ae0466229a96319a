//! Keys that are read often get an item of a blank, and the answer to the read that made it fills
//! it.

use dataplane::{BlankOutcome, Cells, Place, Probation, TenantEntry, native::Clock};
use wire::{Epoch, Flags, Op, Packet};

use harness::{
    Message, Run, SeenFrame, Switch, Verdict,
    message::secret_of,
    switch::{at_moment, in_this_process},
};

use super::world::*;

/// A page of the other worlds' four.
const PAGE: u32 = 3;
const READS: u32 = 3;
/// Reads of a burst come within 67 ms: on a busy machine some burst or other is cut in two.
const TRIES: u32 = 100;

/// A world whose tenant has so many blanks of three cells.
struct Trials {
    w: World,
    probation: Probation,
    tenant: u32,
    cells: Cells,
}

impl Trials {
    fn new(blanks: usize) -> Trials {
        let w = world();
        w.lease(TERM);
        let tenant = TenantEntry::place(w.switch.backing(), SIGNED).expect("tenants");
        let mut cells = Cells::new(w.switch.table.pages());
        cells.set_owner(PAGE, Some(SIGNED));
        let probation = Probation::open(w.switch.backing()).expect("tables");
        let mut trials = Trials { w, probation, tenant: tenant.expect("it is there"), cells };
        trials.probation.set_threshold(trials.tenant, READS);
        (0..blanks).for_each(|_| trials.give(3));
        trials
    }

    fn give(&mut self, cells: u8) {
        let place = self.cells.take(SIGNED, cells).expect("room");
        let table = &self.w.switch.table;
        assert!(self.probation.give(self.tenant, place, table));
    }

    fn run(&self, message: &Message) -> Run {
        self.w.switch.run(&message.frame().bytes(), None)
    }

    /// Reads a key until it has an item; the epoch under which the last read asks for the value.
    fn begin(&self, key: &[u8]) -> Epoch {
        for _ in 1..READS {
            let run = self.run(&Message::read(SIGNED, key));
            assert_eq!(run.moved.get("probation"), None);
        }
        let run = self.read_until("probation", &Message::read(SIGNED, key));
        let seen = SeenFrame::read(&run.frame).expect("right checksums");
        let header = Packet::decode(&seen.payload).expect("ours").header;
        assert!(header.flags.has(Flags::GRANT));
        assert_eq!(header.epoch.switch(), Switch::ID);
        header.epoch
    }

    /// Reads until the counter moves.
    fn read_until(&self, counter: &str, read: &Message) -> Run {
        let mut runs = (0..TRIES * READS).map(|_| self.run(read));
        let run = runs.find(|run| run.moved.get(counter) == Some(&1));
        run.unwrap_or_else(|| panic!("{counter} did not move"))
    }

    /// The counter that says why a key that is read once more than often enough has no item.
    fn refused(&self, key: &[u8], reason: &str) {
        let last = self.read_until(reason, &Message::read(SIGNED, key));
        assert_eq!(last.moved.get("probation"), None);
        assert!(self.w.switch.table.scan().iter().all(|held| held.key != key));
    }

    fn used(&mut self) -> Vec<BlankOutcome> {
        self.probation.take_used(self.tenant)
    }
}

fn is_hit(run: &Run) -> bool {
    run.verdict == Verdict::Tx && run.moved.get("hit") == Some(&1)
}

/// The numbers of stretches of 67 ms come again after 256 of them.
#[test]
fn reads_of_seventeen_seconds_ago_are_of_no_burst() {
    in_this_process(|| {
        let trials = Trials::new(1);
        let now_ns = Clock::Boot.now_ns();
        let begins = |later_ns| {
            let run = || trials.run(&Message::read(SIGNED, KEY));
            at_moment(now_ns + later_ns, run).moved.contains_key("probation")
        };
        let later_ns = 256 << 26;
        let reads = [0, 0, later_ns, later_ns, later_ns].map(begins);
        assert_eq!(reads, [false, false, false, false, true]);
    });
}

#[test]
fn a_key_that_is_read_often_enough_is_answered_after_one_round_trip_to_its_store() {
    let mut trials = Trials::new(2);
    let epoch = trials.begin(KEY);
    let grant = Message::grant(Op::ReadReply, SIGNED, KEY, V128, epoch);
    trials.w.send_as("grant_installed", grant);
    assert!(is_hit(&trials.run(&Message::read(SIGNED, KEY))));
    let held = trials.w.switch.table.scan();
    let [held] = held.as_slice() else { panic!("one item: {held:?}") };
    let item = BlankOutcome::Item { slot: held.slot, place: held.place };
    assert_eq!((held.tenant, held.key.as_slice()), (SIGNED, KEY));
    assert_eq!(held.lease, trials.w.slot(false));
    assert_eq!(trials.used(), [item]);
    assert_eq!(trials.used(), []);
    let hash = secret_of(SIGNED).key_hash(SIGNED, KEY);
    assert!(trials.w.switch.table.leads_to(held.slot, SIGNED, hash));
}

#[test]
fn a_write_after_it_began_outdates_the_answer_that_is_under_way() {
    let trials = Trials::new(1);
    let epoch = trials.begin(KEY);
    trials.w.send_as("write_invalidated", Message::write(SIGNED, KEY, V128));
    let grant = Message::grant(Op::ReadReply, SIGNED, KEY, V128, epoch);
    trials.w.send_as("grant_stale", grant);
    assert!(!is_hit(&trials.run(&Message::read(SIGNED, KEY))));
}

/// Rule 1: what a write carries that found no item is no proof about an item that came after it.
#[test]
fn its_epoch_is_above_that_of_a_write_that_found_nothing() {
    let trials = Trials::new(1);
    trials.run(&Message::read(SIGNED, KEY));
    trials.run(&Message::read(SIGNED, KEY));
    let write = trials.run(&Message::write(SIGNED, KEY, V128));
    let seen = SeenFrame::read(&write.frame).expect("right checksums");
    let carried = Packet::decode(&seen.payload).expect("ours").header.epoch;
    let read = trials.read_until("probation", &Message::read(SIGNED, KEY));
    let seen = SeenFrame::read(&read.frame).expect("right checksums");
    let asked = Packet::decode(&seen.payload).expect("ours").header.epoch;
    assert!(asked.number() > carried.number(), "{asked:?} {carried:?}");
}

#[test]
fn what_it_may_not_have() {
    let mut trials = Trials::new(0);
    trials.refused(b"no blank was given", "probation_no_blank");
    trials.give(1);
    trials.refused(b"a key that is too long for the only cell", "probation_full");
    assert!(matches!(trials.used()[..], [BlankOutcome::Not(_)]));
    // Its fingerprint is another key's: only one of them could be found.
    trials.give(3);
    trials.begin(KEY);
    trials.give(3);
    let other = Message::read(SIGNED, b"of the same hash").hash_of(KEY);
    trials.read_until("probation_full", &other);
    assert_eq!(trials.w.switch.table.scan().len(), 1);
}

#[test]
fn others_get_nothing() {
    let trials = Trials::new(1);
    let reads = |message: &dyn Fn() -> Message| {
        let run = (0..2 * READS).map(|_| trials.run(&message())).last();
        let moved = run.expect("some").moved;
        assert!(!moved.keys().any(|name| name.starts_with("probation")), "{moved:?}");
    };
    // Nobody gave this tenant anything.
    reads(&|| Message::read(OTHER, KEY));
    // Another switch has asked for a grant already.
    reads(&|| Message::read(SIGNED, KEY).epoch(Epoch::new(9, 5)).flags(Flags::GRANT));
    // The store that it goes to has no lease here.
    reads(&|| Message::read(SIGNED, KEY).over_ipv6());
    trials.w.set_parameters(&[(SIGNED, [1, 4 << 16])]);
    // Keys that may not be cached.
    reads(&|| Message::read(SIGNED, KEY));
    trials.w.set_parameters(&[(SIGNED, [1, 0])]);
    trials.w.outlive_lease();
    reads(&|| Message::read(SIGNED, KEY));
}

/// An agent that was stopped while it filled a slot stops this, and nothing else; the next one goes
/// on.
#[test]
fn a_bucket_that_the_agent_fills_is_left_alone() {
    const BY_AGENT: u32 = 2;
    const LOCKS: u32 = 1024;
    let trials = Trials::new(1);
    for lock in 0..LOCKS {
        let by_agent = BY_AGENT.to_ne_bytes();
        trials.w.switch.poke("bucket_locks", lock, 0, &by_agent);
    }
    trials.refused(KEY, "probation_busy");
    let next = dataplane::Table::open(trials.w.switch.backing()).expect("tables");
    trials.refused(KEY, "probation_busy");
    next.unlock_abandoned().expect("nobody waits");
    trials.read_until("probation", &Message::read(SIGNED, KEY));
}

#[test]
fn what_was_taken_back_is_given_to_nobody() {
    let mut trials = Trials::new(3);
    trials.begin(KEY);
    trials.probation.withdraw(trials.tenant);
    trials.probation.set_threshold(trials.tenant, READS);
    trials.refused(b"another", "probation_no_blank");
    let used = trials.used();
    assert!(
        matches!(used[..], [BlankOutcome::Item { .. }, BlankOutcome::Not(_), BlankOutcome::Not(_)]),
        "{used:?}"
    );
    trials.give(3);
    trials.begin(b"a third");
    // An agent that starts finds the item, and gives again what was not used.
    trials.give(3);
    let again = Probation::open(trials.w.switch.backing()).expect("tables");
    assert_eq!(again.left(trials.tenant), 0);
    assert_eq!(trials.w.switch.table.scan().len(), 2);
}

/// An agent whose table is old by a moment leaves alone what a program has put into the slot since.
#[test]
fn only_the_item_that_is_meant_goes() {
    let trials = Trials::new(1);
    trials.begin(KEY);
    let held = trials.w.switch.table.scan().remove(0);
    let elsewhere = Place { cell: held.place.cell + 3, ..held.place };
    trials.w.switch.table.evict(held.slot, elsewhere);
    assert_eq!(trials.w.switch.table.scan().len(), 1);
    trials.w.switch.table.evict(held.slot, held.place);
    assert_eq!(trials.w.switch.table.scan().len(), 0);
}
