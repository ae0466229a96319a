//! Two CPUs at once, in the kernel: reads are of one whole value, and each write is kept once.

use std::{
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::{Duration, Instant},
};

use harness::{Message, Runner, SeenFrame, Verdict, switch::pin_to_cpu};
use wire::{Flags, Packet};

use super::world::*;

/// Ends a test that hangs; nothing takes that long.
const PATIENCE: Duration = Duration::from_secs(90);

/// What a packet is answered with: its header and value.
fn answer(runner: &Runner, message: &Message) -> Option<(wire::Header, Vec<u8>)> {
    let mut out = vec![];
    if runner.run(&message.frame().bytes(), None, &mut out) != Verdict::Tx {
        return None;
    }
    let seen = SeenFrame::read(&out).expect("right checksums");
    let packet = Packet::decode(&seen.payload).expect("a packet of ours");
    Some((packet.header, packet.value.to_vec()))
}

/// Of a length and of bytes that go with the version.
fn value_of(version: u64) -> Vec<u8> {
    vec![version as u8; 300 + (version % 7) as usize * 100]
}

#[test]
fn reads_meet_whole_values_and_none_that_is_older_than_the_last() {
    /// At least; more, until one has met a value that was installed meanwhile.
    const READS: u32 = 40_000;
    let at = LoanInProgress::owner();
    let loan = at.loan;
    let runner = &at.w.switch.another_runner();
    let done = AtomicBool::new(false);
    let began = Instant::now();
    let (mut last, mut reads, mut answered) = (0, 0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            pin_to_cpu(1);
            for version in 1.. {
                if done.load(Relaxed) {
                    break;
                }
                let reply = reply_of(loan, SIGNED, version, version, &value_of(version));
                runner.run(&reply.frame().bytes(), None, &mut vec![]);
            }
        });
        let read = Message::read(SIGNED, KEY).over_ipv6();
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            while reads < READS || last <= VERSION {
                assert!(began.elapsed() < PATIENCE, "no value is installed");
                reads += 1;
                let Some((header, value)) = answer(&at.w.switch.runner, &read) else { continue };
                answered += 1;
                if header.version != VERSION {
                    assert_eq!(value, value_of(header.version - BASE));
                }
                assert!(header.version >= last, "an older value than before");
                last = header.version;
            }
        }));
        done.store(true, Relaxed);
        result.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
    assert!(answered > reads / 2, "{answered} of {reads} answered");
}

#[test]
fn a_write_that_two_cpus_have_is_kept_once() {
    const WRITES: u64 = 10_000;
    let at = LoanInProgress::keeper();
    let runners = [at.w.switch.another_runner(), at.w.switch.another_runner()];
    let kept: Vec<Vec<bool>> = std::thread::scope(|scope| {
        let threads = runners.iter().zip([0u64, 1]).map(|(runner, cpu)| {
            scope.spawn(move || {
                pin_to_cpu(cpu as usize);
                let new = |number: u64| {
                    let keep = keep_of(SIGNED, number, 2 * number + cpu, b"new");
                    answer(runner, &keep).is_some_and(|(header, _)| header.expiry_ms != 0)
                };
                (0..WRITES).map(new).collect::<Vec<bool>>()
            })
        });
        let threads: Vec<_> = threads.collect();
        let done = threads.into_iter().map(|thread| thread.join());
        done.map(|kept| kept.expect("it ends")).collect()
    });
    let twice = (0..WRITES as usize).filter(|at| kept[0][*at] && kept[1][*at]);
    assert_eq!(twice.collect::<Vec<_>>(), [] as [usize; 0]);
    let once = (0..WRITES as usize).filter(|at| kept[0][*at] || kept[1][*at]);
    assert!(once.count() as u64 > WRITES * 9 / 10);
}

#[test]
fn nothing_is_kept_once_the_store_was_told_so() {
    const WRITES: u64 = 400;
    for round in 0..20 {
        let at = LoanInProgress::keeper();
        let runner = &at.w.switch.another_runner();
        let (newest, taken) = std::thread::scope(|scope| {
            let writes = scope.spawn(move || {
                pin_to_cpu(1);
                let kept = |number: &u64| {
                    let keep = keep_of(SIGNED, *number, *number, b"new");
                    answer(runner, &keep).is_some()
                };
                (1..WRITES).take_while(kept).last().unwrap_or(0)
            });
            for _ in 0..round * 4 {
                answer(&at.w.switch.runner, &take(SIGNED, X, L, false, VERSION));
            }
            let seal = take(SIGNED, X, L, true, VERSION);
            let sealed = loop {
                if let Some((header, _)) = answer(&at.w.switch.runner, &seal) {
                    break header;
                }
            };
            let none_kept = sealed.flags.has(Flags::COMPARE);
            assert!(sealed.flags.has(Flags::GRANT) && none_kept == (sealed.version == VERSION));
            (writes.join().expect("it ends"), sealed.version)
        });
        let newest = if newest == 0 { VERSION } else { BASE + newest };
        assert_eq!(taken, newest, "what was kept, and what was given back");
    }
}
