//! Two CPUs of one switch have packets of one key at the same moment. What comes of both is what
//! would have come of one after the other; or one of them was dropped, for the other had what it
//! needed, and it is as if that one had been lost.
//!
//! In the kernel two threads send them, again and again. In this process one comes in at each
//! moment of the other's way, in turn, and an agent's removal of the key as well.

use std::{collections::BTreeSet, ops::Range, sync::Barrier};

use chain::packets::{Peer, PeerKind, encode_notes, flags};
use chain_wire::session_key;
use dataplane::{
    Elements, Table,
    native::{Mutant, choose},
};
use harness::{
    Runner, Verdict,
    switch::{in_this_process, pin_to_cpu},
};

use super::net::*;

/// How often each pair meets in the kernel.
const ROUNDS: usize = 40;
const CELL: usize = 64;
/// Of a slot: the item's first cell, on the first page.
const CELLS: usize = 0x1ff;
const ITEM_HEADER: usize = 48;
/// Of an item: the count that it is locked by.
const SEQ: usize = 4;
/// Of a record: the newest versions that were applied, and are known to be committed.
const VERSIONS: usize = 16;
/// In a key's record: since when it is dirty, and when somebody was told so last.
const RECORD_TIMES: Range<usize> = 48..56;
/// In the state: when its number came into force, that nothing is held back any more, which
/// whatever comes may find out, and the count that it is locked by.
const ADOPTED: Range<usize> = 8..16;
const SETTLED: Range<usize> = 16..24;
const STATE_LOCK: Range<usize> = 28..32;

/// What may meet at a switch.
struct Crossing {
    net: Net,
    slot: usize,
    acts: Vec<(&'static str, Act)>,
}

enum Act {
    Packet(Box<Message>),
    /// The agent removes the key as it was before.
    Removal,
}

/// The page that all items lie on, the tenant's state, the buckets that lead to items.
#[derive(Clone, PartialEq)]
struct Memory {
    page: Vec<u8>,
    state: Vec<u8>,
    buckets: Vec<Vec<u8>>,
}

/// A switch where two may meet, and what it is before they do.
struct Arena<'a> {
    net: &'a Net,
    slot: usize,
    before: Memory,
    /// Where the items lie, and which is the key's.
    items: Vec<(usize, bool)>,
    buckets: Vec<u32>,
    begins: Vec<u8>,
    /// Where [`Memory`] is, opened once: it is read and put back for each pair that meets.
    arrays: Arrays,
}

struct Arrays {
    pages: Elements,
    states: Elements,
    buckets: Elements,
}

/// What was said of two packets, and what the switch was then.
type Outcome = ([Verdict; 2], Memory);

impl Act {
    /// Whether it goes on to the member before this one although this one was busy: that one may
    /// have what this one has not, and this one asks again.
    fn is_handed_on(&self) -> bool {
        matches!(self, Act::Packet(packet) if packet.header.op == Op::ChainAck)
    }
}

impl Memory {
    /// Where bytes are others, each with what is here and there.
    fn difference(&self, other: &Memory) -> Vec<(&'static str, usize, u8, u8)> {
        let parts = |memory: &Memory| {
            [
                ("page", memory.page.clone()),
                ("state", memory.state.clone()),
                ("bucket", memory.buckets.concat()),
            ]
        };
        let both = parts(self).into_iter().zip(parts(other));
        both.flat_map(|((name, here), (_, there))| {
            let pairs = here.into_iter().zip(there).enumerate();
            let others = pairs.filter(|(_, (here, there))| here != there);
            others.map(|(at, (here, there))| (name, at, here, there)).collect::<Vec<_>>()
        })
        .collect()
    }

    /// Whether a slot leads to the item there.
    fn leads_to(&self, at: usize) -> bool {
        let slots = self.buckets.iter().flat_map(|bucket| bucket.chunks_exact(8));
        let mut cells = slots.filter_map(|slot| {
            let slot = u64::from_ne_bytes(*slot.first_chunk()?);
            (slot != 0).then_some(slot as usize & CELLS)
        });
        cells.any(|cell| cell * CELL == at)
    }
}

impl Arena<'_> {
    fn of(crossing: &Crossing) -> Arena<'_> {
        let net = &crossing.net;
        let held = net.switches[crossing.slot].switch.table.scan();
        let of_slot = |slot: u32| slot / Table::BUCKET_SLOTS as u32;
        let item = |held: &dataplane::HeldItem| {
            assert_eq!(held.place.page, 0);
            (usize::from(held.place.cell) * CELL, held.key == KEY)
        };
        let items: Vec<_> = held.iter().map(item).collect();
        let buckets: BTreeSet<u32> = held.iter().map(|held| of_slot(held.slot)).collect();
        let before = Memory { page: vec![], state: vec![], buckets: vec![] };
        let buckets = buckets.into_iter().collect();
        let slot = crossing.slot;
        let at = net.switches[slot].switch.backing();
        let [pages, states, buckets_of] =
            ["pages", "chain_states", "buckets"].map(|name| at.array(name).expect("an array"));
        let arrays = Arrays { pages, states, buckets: buckets_of };
        let mut arena = Arena { net, slot, before, items, buckets, begins: vec![], arrays };
        arena.before = arena.read();
        let key = arena.items.iter().find(|(_, is_key)| *is_key).expect("the key's");
        let record = key.0 + ITEM_HEADER + KEY.len();
        arena.begins = arena.before.page[record..record + VERSIONS].to_vec();
        arena
    }

    fn switch(&self) -> &harness::Switch {
        &self.net.switches[self.slot].switch
    }

    fn read(&self) -> Memory {
        let element = |array: &Elements, index| array.element(index).expect("an element");
        let Arrays { pages, states, buckets } = &self.arrays;
        Memory {
            page: element(pages, 0),
            state: element(states, PLACE),
            buckets: self.buckets.iter().map(|index| element(buckets, *index)).collect(),
        }
    }

    fn restore(&self) {
        let Arrays { pages, states, buckets } = &self.arrays;
        pages.set_element(0, &self.before.page).expect("writable");
        for (index, bucket) in self.buckets.iter().zip(&self.before.buckets) {
            buckets.set_element(*index, bucket).expect("writable");
        }
        states.set_element(PLACE, &self.before.state).expect("writable");
    }

    /// Without what only says how often and when something was changed.
    fn plain(&self, mut memory: Memory) -> Memory {
        for (at, is_key) in &self.items {
            let is_locked = memory.page[*at] & 1 == 1;
            assert!(!is_locked || !memory.leads_to(*at), "an item is left locked");
            memory.page[*at..at + SEQ].fill(0);
            if *is_key {
                let record = at + ITEM_HEADER + KEY.len();
                memory.page[record..][RECORD_TIMES].fill(0);
            }
        }
        assert_eq!(memory.state[STATE_LOCK][0] & 1, 0, "the state is left locked");
        memory.state[STATE_LOCK].fill(0);
        memory.state[ADOPTED].fill(0);
        memory.state[SETTLED].fill(0);
        memory
    }

    /// Does it by that runner's CPU. An agent that finds the key locked comes later: it is dropped.
    fn act(&self, runner: &Runner, act: &Act) -> Verdict {
        let Act::Packet(packet) = act else { return self.remove_key() };
        runner.run(&packet.frame().bytes(), None, &mut vec![])
    }

    fn remove_key(&self) -> Verdict {
        let table = &self.switch().table;
        let Some(held) = table.scan().into_iter().find(|held| held.key == KEY) else {
            return Verdict::Pass;
        };
        if self.read().page[usize::from(held.place.cell) * CELL] & 1 == 1 {
            return Verdict::Drop;
        }
        table.remove_if(held.slot, held.place, &self.begins).expect("nobody has it locked");
        Verdict::Pass
    }

    fn in_turn(&self, acts: &[&Act]) -> Memory {
        self.restore();
        for act in acts {
            self.act(&self.switch().runner, act);
        }
        self.plain(self.read())
    }

    /// Both packets at once on two CPUs, again and again.
    fn at_once(&self, packets: [&Message; 2]) -> Vec<Outcome> {
        let (own, other, both) =
            (&self.switch().runner, self.switch().another_runner(), Barrier::new(2));
        let frames = packets.map(|packet| packet.frame().bytes());
        let meet = |runner: &Runner, frame: &[u8]| {
            both.wait();
            let verdict = runner.run(frame, None, &mut vec![]);
            both.wait();
            verdict
        };
        std::thread::scope(|scope| {
            let others = scope.spawn(|| {
                pin_to_cpu(1);
                (0..ROUNDS).map(|_| meet(&other, &frames[1])).collect::<Vec<_>>()
            });
            let round = |_| {
                self.restore();
                (meet(own, &frames[0]), self.read())
            };
            let owns: Vec<_> = (0..ROUNDS).map(round).collect();
            let others = others.join().expect("it ends");
            let rounds = owns.into_iter().zip(others);
            rounds.map(|((own, memory), other)| ([own, other], self.plain(memory))).collect()
        })
    }

    /// The packet, and in the midst of it the other, at each moment in turn.
    fn at_each_moment(&self, packet: &Message, act: &Act) -> Vec<Outcome> {
        let (own, other) = (&self.switch().runner, self.switch().another_runner());
        let frame = packet.frame().bytes();
        let mut outcomes = vec![];
        for at in 0.. {
            self.restore();
            let (mut moments, mut said) = (0, None);
            let verdict = own.run_with(&frame, &mut || {
                if moments == at {
                    said = Some(self.act(&other, act));
                }
                moments += 1;
            });
            let Some(said) = said else { break };
            outcomes.push(([verdict, said], self.plain(self.read())));
        }
        outcomes
    }

    fn check_each_moment(&self, crossing: &Crossing) -> Result<(), String> {
        let removal = ("the key's removal", Act::Removal);
        for first in &crossing.acts {
            for second in crossing.acts.iter().chain([&removal]) {
                let Act::Packet(packet) = &first.1 else { continue };
                self.check([first, second], &self.at_each_moment(packet, &second.1))?;
            }
        }
        Ok(())
    }

    /// Whether what comes of two is what may come of them; else says what does not.
    fn check(
        &self,
        [first, second]: [&(&str, Act); 2],
        outcomes: &[Outcome],
    ) -> Result<(), String> {
        let [one, two] = [&first.1, &second.1];
        let both = [self.in_turn(&[one, two]), self.in_turn(&[two, one])];
        let alone = [self.in_turn(&[one]), self.in_turn(&[two])];
        for (number, (verdicts, memory)) in outcomes.iter().enumerate() {
            let is_lost =
                |at: usize| verdicts[at] == Verdict::Drop || [one, two][at].is_handed_on();
            let is_alone = |at: usize| is_lost(1 - at) && *memory == alone[at];
            if !both.contains(memory) && !is_alone(0) && !is_alone(1) {
                let [first, second] = [first.0, second.0];
                let near = both.iter().chain(&alone).map(|other| other.difference(memory));
                let near: Vec<_> = near.collect();
                return Err(format!(
                    "{first} and {second}, {number}: {verdicts:?}, not as in turn: {near:?}"
                ));
            }
        }
        Ok(())
    }
}

impl Crossing {
    fn new(net: Net, slot: usize, packets: Vec<(&'static str, Message)>) -> Crossing {
        let acts = packets.into_iter().map(|(name, packet)| (name, Act::Packet(Box::new(packet))));
        Crossing { net, slot, acts: acts.collect() }
    }

    /// Each packet with each, in the kernel.
    fn check_at_once(&self) -> Result<(), String> {
        let arena = Arena::of(self);
        for (at, first) in self.acts.iter().enumerate() {
            for second in &self.acts[at..] {
                let (Act::Packet(one), Act::Packet(two)) = (&first.1, &second.1) else { continue };
                arena.check([first, second], &arena.at_once([one, two]))?;
            }
        }
        Ok(())
    }

    /// Each packet in the midst of each, and the agent, in this process; also after each packet.
    fn check_each_moment(&self) -> Result<(), String> {
        let first = Arena::of(self);
        first.check_each_moment(self).map_err(|wrong| format!("at first, {wrong}"))?;
        for (name, act) in &self.acts {
            first.restore();
            first.act(&first.switch().runner, act);
            let then = Arena::of(self);
            then.check_each_moment(self).map_err(|wrong| format!("after {name}, {wrong}"))?;
        }
        Ok(())
    }
}

/// Only the first member has a version, which the next one did not get.
fn at_a_head() -> Crossing {
    let net = Net::off_roads(2, 1);
    net.lose(|going| going.to == Some(1));
    net.send(net.write(0, b"zero"));
    net.lose_nothing();
    let packets = vec![
        ("a write", net.write(0, b"one")),
        ("another write", net.write(0, b"two")),
        ("a create", net.write_if(0, b"new", Some(wire::VERSION_ABSENT))),
        ("a write of version 1", net.write_if(0, b"swapped", Some(1))),
        ("a delete", net.delete(0)),
        ("a read", net.read(0)),
        ("an acknowledgement", ack(&net, 1, 0, 1)),
    ];
    Crossing::new(net, 0, packets)
}

fn at_one_that_is_alone() -> Crossing {
    let net = Net::off_roads(1, 0);
    let packets = vec![
        ("a write", net.write(0, b"one")),
        ("another write", net.write(0, b"two")),
        ("a create", net.write_if(0, b"new", Some(wire::VERSION_ABSENT))),
        ("a delete", net.delete(0)),
        ("a read", net.read(0)),
    ];
    Crossing::new(net, 0, packets)
}

fn at_the_middle() -> Crossing {
    let net = Net::off_roads(3, 1);
    let (first, second) = (net.request(), net.request());
    let packets = vec![
        ("version 1", pass(&net, 1, 1, first, b"one")),
        ("version 2", pass(&net, 1, 2, second, b"two")),
        ("a refusal", lost(&net, 1, 0, net.request())),
        ("a refusal by version 1", lost(&net, 1, 1, net.request())),
        ("an acknowledgement", ack(&net, 2, 1, 1)),
        ("word that something is missing", net.says(2, 1, Peer::new(PeerKind::Nack), 0, b"")),
        ("a read", net.read(1)),
    ];
    Crossing::new(net, 1, packets)
}

fn at_a_tail() -> Crossing {
    let net = Net::off_roads(2, 1);
    let (first, second) = (net.request(), net.request());
    let packets = vec![
        ("version 1", pass(&net, 1, 1, first, b"one")),
        ("version 2", pass(&net, 1, 2, second, b"two")),
        ("a refusal", lost(&net, 1, 0, net.request())),
        ("a question", net.says(0, 1, Peer::new(PeerKind::Ask), 1, b"")),
        ("a read", net.read(1)),
    ];
    Crossing::new(net, 1, packets)
}

fn at_a_tail_that_is_filled() -> Crossing {
    let mut net = Net::off_roads(2, 1);
    net.view.number += 1;
    net.view.chains =
        vec![chain::view::Chain { slots: vec![0, 1], filling: true, fill_number: net.view.number }];
    net.configure(&[0, 1]);
    net.confirm(&[0, 1]);
    net.settle(&[0, 1]);
    let fill = net.view.number;
    let copy = |more_flags: u8, value: &[u8]| {
        let peer = Peer {
            flags: more_flags,
            accepted: fill - 1,
            fill,
            session: session_hash(),
            ..Peer::new(PeerKind::Copy)
        };
        net.says(0, 1, peer, 5, value)
    };
    let mut jump = pass(&net, 1, 6, net.request(), b"six");
    jump.value[1] |= flags::JUMP;
    let mut sessions = net.session(0);
    sessions.notes[3].request = 19;
    let peer = Peer { fill, ..Peer::new(PeerKind::CopySession) };
    let mut session = net.says(0, 1, peer, 5, &encode_notes(&sessions));
    session.header.client = CLIENT;
    session.key = session_key(CLIENT).to_vec();
    let key = session.key.clone();
    let packets = vec![
        ("a copy", copy(0, b"five")),
        ("word that there is nothing to copy", copy(flags::BARE, b"")),
        ("the first version behind that", jump),
        ("a session", session.hash_of(&key)),
        ("a read", net.read(1)),
    ];
    Crossing::new(net, 1, packets)
}

fn at_one_that_gets_another_number() -> Crossing {
    let mut net = Net::off_roads(2, 1);
    let old = net.write(0, b"old");
    net.view.number += 1;
    net.configure(&[0]);
    let packets =
        vec![("a write", net.write(0, b"one")), ("a read", net.read(0)), ("an old write", old)];
    Crossing::new(net, 0, packets)
}

/// What the member before one says of a client's write.
fn of_write(net: &Net, to: usize, kind: PeerKind, seq: u64, request: u64, value: &[u8]) -> Message {
    let status = if kind == PeerKind::Lost { Status::Mismatch } else { Status::Ok };
    let peer =
        Peer { session: session_hash(), accepted: net.view.number, status, ..Peer::new(kind) };
    let mut message = net.says(to - 1, to, peer, seq, value).numbered(request);
    message.header.client = CLIENT;
    message
}

fn pass(net: &Net, to: usize, seq: u64, request: u64, value: &[u8]) -> Message {
    of_write(net, to, PeerKind::Pass, seq, request, value)
}

fn lost(net: &Net, to: usize, seq: u64, request: u64) -> Message {
    of_write(net, to, PeerKind::Lost, seq, request, b"")
}

fn ack(net: &Net, from: usize, to: usize, seq: u64) -> Message {
    let mut ack = net.says(from, to, Peer::new(PeerKind::Ask), seq, b"");
    ack.value = vec![];
    ack.header.op = Op::ChainAck;
    ack.header.node = to as u16 + 1;
    ack
}

/// A crossing, and where it is.
type NamedCrossing = (&'static str, fn() -> Crossing);

const CROSSINGS: [NamedCrossing; 6] = [
    ("at a head", at_a_head),
    ("at one that is alone", at_one_that_is_alone),
    ("at the middle", at_the_middle),
    ("at a tail", at_a_tail),
    ("at a tail that is filled", at_a_tail_that_is_filled),
    ("at one that gets another number", at_one_that_gets_another_number),
];

#[test]
fn what_two_cpus_have_at_once_is_as_one_after_the_other() {
    for (what, crossing) in CROSSINGS {
        println!("{what}, in the kernel");
        crossing().check_at_once().unwrap_or_else(|wrong| panic!("{what}: {wrong}"));
    }
}

#[test]
fn what_comes_in_the_midst_of_a_packet_is_as_before_it_or_after_it() {
    in_this_process(|| {
        for (what, crossing) in CROSSINGS {
            println!("{what}");
            crossing().check_each_moment().unwrap_or_else(|wrong| panic!("{what}: {wrong}"));
        }
    });
}

#[test]
fn a_cpu_that_changes_what_another_has_locked_is_noticed() {
    let mutants = crate::mutants();
    let mutant = mutants.iter().find(|mutant: &&Mutant| mutant.name == "order_locks_nothing");
    choose(Some(mutant.expect("listed")));
    let wrong = in_this_process(|| CROSSINGS.map(|(_, crossing)| crossing().check_each_moment()));
    choose(None);
    assert!(wrong.iter().any(Result::is_err), "{wrong:?}");
}
