//! Two CPUs at once: what is answered is always one whole value of the key that was asked for.

use std::{
    sync::atomic::{
        AtomicBool,
        Ordering::{Relaxed, SeqCst},
    },
    time::{Duration, Instant},
};

use dataplane::{Place, Table, cells_needed};
use wire::{Op, Packet};

use harness::{Message, Runner, SeenFrame, Verdict, message::secret_of, switch::pin_to_cpu};

use super::world::*;

/// Reads go on until everything was seen that is to be: however the two CPUs' work falls together,
/// only what can never be ends here.
const PATIENCE: Duration = Duration::from_secs(90);

/// Whether to read once more: `least` times, and then until `seen`.
fn goes_on(reads: u32, least: u32, begun: Instant, seen: impl Fn() -> bool) -> bool {
    reads < least || (!seen() && begun.elapsed() < PATIENCE)
}

/// Tells the other CPU that all is over, also when this one panics: it would go on for ever.
struct EndSignal<'a>(&'a AtomicBool);

impl Drop for EndSignal<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Sends a packet and takes no look at what comes out.
fn send(runner: &Runner, message: &Message) -> Verdict {
    runner.run(&message.frame().bytes(), None, &mut vec![])
}

/// The reply to a read, if the switch answered it: version, value.
fn ask(runner: &Runner, read: &Message, out: &mut Vec<u8>) -> Option<(u64, Vec<u8>)> {
    if runner.run(&read.frame().bytes(), None, out) != Verdict::Tx {
        return None;
    }
    let seen = SeenFrame::read(out).expect("a right packet");
    let packet = Packet::decode(&seen.payload).expect("a packet of ours");
    assert_eq!(packet.key, read.key);
    Some((packet.header.version, packet.value.to_vec()))
}

/// Invalidates the entry and fills it again.
fn refill(runner: &Runner, table: &Table, place: Place, key: &[u8], value: &[u8], version: u64) {
    send(runner, &Message::write(SIGNED, key, b""));
    let Some(epoch) = table.wants_value(place, 0) else { return };
    let grant = Message::grant(Op::FetchReply, SIGNED, key, value, epoch).version(version);
    send(runner, &grant);
}

#[test]
fn a_value_is_never_torn() {
    const READS: u32 = 60_000;
    let mut w = world();
    w.cached(SIGNED, KEY, &[b'a'; 1024]);
    let place = w.switch.table.scan()[0].place;
    let (table, runner) = (&w.switch.table, &w.switch.another_runner());
    let done = AtomicBool::new(false);
    let (mut reads, mut answered) = (0, [0u32; 2]);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            pin_to_cpu(1);
            // Length and version tell the two apart as well.
            let values = [([b'a'; 1024].to_vec(), 77), ([b'b'; 1001].to_vec(), 78)];
            for (value, version) in values.iter().cycle() {
                if done.load(Relaxed) {
                    break;
                }
                refill(runner, table, place, KEY, value, *version);
            }
        });
        let read = Message::read(SIGNED, KEY).over_ipv6(); // its checksum is verified, too
        let mut out = vec![];
        let _done = EndSignal(&done);
        let begun = Instant::now();
        while goes_on(reads, READS, begun, || answered.iter().all(|count| *count > 0)) {
            reads += 1;
            let Some((version, value)) = ask(&w.switch.runner, &read, &mut out) else { continue };
            let (letter, len) = if version == 77 { (b'a', 1024) } else { (b'b', 1001) };
            assert!(value.len() == len && value.iter().all(|byte| *byte == letter));
            answered[usize::from(version != 77)] += 1;
        }
    });
    let torn = w.switch.counters.get("bypass_torn").expect("counters");
    println!("{reads} reads: answered {answered:?} with a and b, {torn} torn and forwarded");
    assert!(answered.iter().all(|count| *count > 0), "both values were served: {answered:?}");
}

/// What two packets need microseconds for, done in a fraction of one: the item is invalidated and
/// filled again step by step as `bpf/coherence.h` does it, while reads copy from it.
#[test]
fn a_value_is_never_torn_however_fast_it_changes() {
    const READS: u32 = 60_000;
    const WORDS: usize = 128;
    let mut w = world();
    w.cached(SIGNED, KEY, &[b'a'; 8 * WORDS]);
    let place = w.switch.table.scan()[0].place;
    assert_eq!(place.page, 0);
    let item = &w.switch.shared("pages")[usize::from(place.cell) * 8..];
    // Words of `struct item` of `bpf/table.h`; the value lies behind header and key.
    let (first, word, version, value) = (&item[0], &item[1], &item[2], &item[8..8 + WORDS]);
    // The value's sum is the last of the header's half words.
    let (last, others) = (&item[5], item[5].load(Relaxed) & ((1 << 48) - 1));
    let sum_of = |letter: u8| {
        let mut sum = u64::from(letter) * 0x101 * 4 * WORDS as u64;
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        sum
    };
    let done = AtomicBool::new(false);
    let (mut reads, mut answered) = (0, [0u32; 2]);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            pin_to_cpu(1);
            let mut epoch = word.load(SeqCst) >> 1;
            while !done.load(Relaxed) {
                epoch += 1;
                word.store(epoch << 1, SeqCst);
                first.store(first.load(Relaxed) + 1, SeqCst); // the sequence is its low half
                version.store(77 + epoch % 2, SeqCst);
                let letters = if epoch % 2 == 0 { b"aaaaaaaa" } else { b"bbbbbbbb" };
                for to in value {
                    to.store(u64::from_ne_bytes(*letters), Relaxed);
                }
                last.store(sum_of(letters[0]) << 48 | others, Relaxed);
                word.store(epoch << 1 | 1, SeqCst);
                first.store(first.load(Relaxed) + 1, SeqCst);
                // Not by a pause: an emulated processor may take it for leave to run another one,
                // and then stands still in the midst of nothing.
                for turn in 0..40 * (epoch % 50) {
                    std::hint::black_box(turn);
                }
            }
        });
        let read = Message::read(SIGNED, KEY);
        let mut out = vec![];
        let torn = || w.switch.counters.get("bypass_torn").expect("counters");
        let _done = EndSignal(&done);
        let begun = Instant::now();
        let seen = |answered: &[u32; 2]| answered.iter().all(|count| *count > 0) && torn() > 0;
        while goes_on(reads, READS, begun, || seen(&answered)) {
            reads += 1;
            let Some((version, value)) = ask(&w.switch.runner, &read, &mut out) else { continue };
            let letter = if version == 77 { b'a' } else { b'b' };
            assert!(value.iter().all(|byte| *byte == letter), "{version}: {value:?}");
            answered[usize::from(version != 77)] += 1;
        }
    });
    let torn = w.switch.counters.get("bypass_torn").expect("counters");
    println!("{reads} reads: answered {answered:?} with a and b, {torn} torn and forwarded");
    assert!(torn > 0 && answered.iter().all(|count| *count > 0), "{torn}, {answered:?}");
}

/// Entries of eight keys take turns in the same cells.
#[test]
fn a_reply_carries_the_value_of_its_key_while_cells_change_hands() {
    const ROUNDS: u32 = 150;
    let w = world();
    w.lease(TERM);
    let keys: Vec<Vec<u8>> = (0..8).map(|i| format!("key{i:013}").into_bytes()).collect();
    let value_of = |key: &[u8]| key.repeat(40);
    let place = Place { page: 0, cell: 0, cells: cells_needed(16, 640).expect("fits") };
    let (table, runner, lease) = (&w.switch.table, &w.switch.another_runner(), w.slot(false));
    let (done, served) = (AtomicBool::new(false), AtomicBool::new(false));
    let mut answered = [0u32; 8];
    std::thread::scope(|scope| {
        scope.spawn(|| {
            pin_to_cpu(1);
            let _done = EndSignal(&done);
            let begun = Instant::now();
            let mut rounds = keys.iter().cycle().zip(0..);
            while let Some((key, round)) = rounds.next()
                && goes_on(round, ROUNDS, begun, || served.load(Relaxed))
            {
                let hash = secret_of(SIGNED).key_hash(SIGNED, key);
                let slot = table.insert(SIGNED, hash, key, lease, place).expect("cells are free");
                for version in 0..20 {
                    refill(runner, table, place, key, &value_of(key), version);
                }
                table.evict(slot, place);
                table.quiesce().expect("membarrier");
            }
        });
        let reads: Vec<_> = keys.iter().map(|key| Message::read(SIGNED, key)).collect();
        let mut out = vec![];
        while !done.load(Relaxed) {
            for (read, count) in reads.iter().zip(&mut answered) {
                let Some((_, value)) = ask(&w.switch.runner, read, &mut out) else { continue };
                assert_eq!(value, value_of(&read.key));
                *count += 1;
                served.store(true, Relaxed);
            }
        }
    });
    println!("{ROUNDS} entries in the same cells; answered per key: {answered:?}");
    assert!(answered.iter().sum::<u32>() > 0, "none was served");
}
