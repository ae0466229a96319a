//! The half in an agent, against a table that a test holds.

use std::collections::BTreeSet;

use bytes::Bytes;
use chain_wire::session_key;
use decide::Configuration;
use wire::{KeyHash, Status};

use super::*;
use crate::{
    packets::{PeerKind, flags},
    record::{KeyRecord, Note, SessionRecord, Version, new_key, restored_key},
    report::FilledChain,
    view::{Chain, Protocol, SLOTS},
};

const TENANT: u32 = 7;
const PLACE: u32 = 3;
const TICK_NS: u64 = 20_000_000;
const NUMBER: u64 = 1 << 48 | 5;

struct Rig {
    agent: Agent,
    now_ns: u64,
    state: Vec<u8>,
    items: Vec<(Bytes, Bytes)>,
    /// Those of them whose records cannot be read.
    busy: BTreeSet<Bytes>,
    sent: Vec<(Header, Bytes, Bytes)>,
    reports: Vec<report::State>,
    removable: Vec<report::RemovableKeys>,
    /// How often it was said that the switch is to leave.
    departures: usize,
}

fn hash(key: &[u8]) -> KeyHash {
    wire::Secret([7; 16]).key_hash(TENANT, key)
}

fn view(slot: Option<u8>, chain: Chain) -> View {
    let mut members = [None; SLOTS];
    for slot in 0..3u8 {
        members[usize::from(slot)] = Some(view::Member {
            address: [10, 0, 0, slot + 1].into(),
            switch: u16::from(slot) + 1,
            life: 100 + u64::from(slot),
        });
    }
    View {
        number: NUMBER,
        tenant: TENANT,
        slot,
        protocol: Protocol::NetCraq,
        is_relaxed: false,
        life: 101,
        purge_below: 0,
        lease_ms: 250,
        members,
        chains: vec![chain],
    }
}

fn chain(slots: &[u8], fill_number: u64) -> Chain {
    Chain { slots: slots.into(), filling: fill_number != 0, fill_number }
}

impl Rig {
    /// The agent of the switch in slot 1.
    fn new(of: Chain) -> Rig {
        let mut rig = Rig {
            agent: Agent::default(),
            now_ns: 1_000_000_000,
            state: vec![0; state::LEN],
            items: vec![],
            busy: BTreeSet::new(),
            sent: vec![],
            reports: vec![],
            removable: vec![],
            departures: 0,
        };
        rig.state[24..28].copy_from_slice(&TENANT.to_ne_bytes());
        rig.configure(&view(Some(1), of));
        rig
    }

    fn configure(&mut self, view: &View) {
        let configuration =
            Configuration { rows: vec![view.row().unwrap()], ..Configuration::default() };
        self.tell(|to, now_ns, out| {
            to.configured(now_ns, TENANT, PLACE, &configuration, out);
        });
    }

    fn word(&mut self, at: usize, word: u64) {
        self.state[at..at + 8].copy_from_slice(&word.to_ne_bytes());
    }

    /// The view is in force here, since long ago; nothing was ever granted.
    fn adopt(&mut self) {
        self.word(0, NUMBER);
        self.word(8, 1);
    }

    fn hears(&mut self, slot: usize) {
        self.hears_under(NUMBER, slot);
    }

    fn hears_under(&mut self, number: u64, slot: usize) {
        let now_ns = self.now_ns;
        let peer = state::PEERS_AT + slot * state::PEER;
        self.word(peer, number);
        self.word(peer + 8, now_ns);
    }

    fn tell(&mut self, event: impl FnOnce(&mut Agent, u64, &mut Vec<AgentAction>)) {
        let mut out = vec![];
        event(&mut self.agent, self.now_ns, &mut out);
        self.carry_out(out);
    }

    fn carry_out(&mut self, actions: Vec<AgentAction>) {
        for action in actions {
            match action {
                AgentAction::Send { header, key, value, .. } => {
                    self.sent.push((header, key, value))
                }
                AgentAction::Look { map, key } => {
                    assert_eq!((map, &key[..]), (state::MAP, &PLACE.to_ne_bytes()[..]));
                    let value = self.state.clone();
                    self.tell(|to, now_ns, out| {
                        to.row(now_ns, map, &key, Some(&value), out);
                    });
                }
                AgentAction::Walk { tenant, from, most } => {
                    let all = self.items.clone();
                    let from = from as usize;
                    for (key, record) in all.iter().skip(from).take(most) {
                        let record = (!self.busy.contains(key)).then_some(&record[..]);
                        let item = Item { tenant, key, hash: hash(key), record };
                        self.tell(|to, now_ns, out| to.item(now_ns, item, out));
                    }
                    let next = from + most;
                    let next = (next < all.len()).then_some(next as u32);
                    self.tell(|to, now_ns, out| to.items_end(now_ns, tenant, next, out));
                }
                AgentAction::Report { report, .. } => self.take(&report),
            }
        }
    }

    fn take(&mut self, report: &[u8]) {
        if report::DepartureRequest::decode(report).is_some() {
            self.departures += 1;
        } else if let Some(state) = report::State::decode(report) {
            self.reports.push(state);
        } else {
            self.removable.push(report::RemovableKeys::decode(report).unwrap());
        }
    }

    fn ticks(&mut self, ticks: u32) {
        for _ in 0..ticks {
            self.now_ns += TICK_NS;
            self.tell(|to, now_ns, out| to.tick(now_ns, out));
        }
    }

    /// Messages that are no signals, since the last time.
    fn said(&mut self) -> Vec<(Header, Bytes, Peer)> {
        let all = std::mem::take(&mut self.sent).into_iter();
        let message = |(header, key, value): (Header, Bytes, Bytes)| {
            let is_message = header.op == Op::PeerMessage;
            is_message.then(|| (header, key, Peer::decode(&value).unwrap().0))
        };
        all.filter_map(message).collect()
    }

    /// The tail has what it was sent.
    fn copied(&mut self, header: &Header, key: &[u8], fill: u64) {
        let header = Header { key_hash: hash(key), ..*header };
        let peer = Peer { fill, ..Peer::new(PeerKind::Copied) };
        let (from, value) = (([10, 0, 0, 3], PORT).into(), peer.encode());
        let packet = Packet::new(header, key, &value);
        self.tell(|to, now_ns, out| to.packet(now_ns, from, &packet, out));
    }
}

#[test]
fn it_beats_to_every_other_member_and_says_who_does_not_answer() {
    let mut rig = Rig::new(chain(&[0, 1, 2], 0));
    rig.adopt();
    let first: Vec<u16> = rig.sent.drain(..).map(|(header, ..)| header.node).collect();
    assert_eq!(first, [2, 2], "at once, with its slot");
    for _ in 0..60 {
        rig.hears(0);
        rig.ticks(1);
    }
    let beats = rig.sent.drain(..).filter(|(header, _, value)| {
        let beat = Beat::decode(value).unwrap();
        let ours = (beat.kind, beat.from, beat.life) == (BeatKind::Beat, 1, 101);
        ours && header.epoch == Epoch(NUMBER)
    });
    assert_eq!(beats.count(), 120);
    assert_eq!(rig.reports.last().unwrap().silent, 1 << 2, "never heard");
    rig.hears(2);
    rig.ticks(1);
    assert_eq!(rig.reports.last().unwrap().silent, 0);
    let reports = rig.reports.len();
    rig.ticks(9);
    assert_eq!(rig.reports.last().unwrap().silent, 0);
    rig.ticks(2);
    assert_eq!(rig.reports.last().unwrap().silent, 1 | 1 << 2);
    assert!(rig.reports.len() <= reports + 5, "at changes, and now and then");
}

/// It says so until it is in no chain; then it beats until all who are have heard that.
#[test]
fn who_is_to_leave_is_needed_until_the_others_know_that_it_has() {
    let mut rig = Rig::new(chain(&[0, 1, 2], 0));
    rig.adopt();
    assert!(!rig.agent.is_needed(), "nobody told it to leave");
    rig.tell(|to, now_ns, out| to.leave(now_ns, out));
    assert_eq!(rig.departures, 1, "at once");
    rig.ticks(3);
    assert_eq!(rig.departures, 4);
    let mut without = view(Some(1), chain(&[0, 2], 0));
    without.number = NUMBER + 1;
    rig.sent.clear();
    rig.configure(&without);
    let beats = rig.sent.iter().filter(|(header, ..)| header.epoch == Epoch(NUMBER + 1));
    assert_eq!(beats.count(), 2, "at once");
    rig.word(0, NUMBER + 1);
    rig.hears_under(NUMBER + 1, 0);
    rig.ticks(1);
    assert!(rig.agent.is_needed(), "one has not heard it");
    rig.hears_under(NUMBER + 1, 2);
    rig.ticks(1);
    assert!(!rig.agent.is_needed());
    rig.sent.clear();
    rig.ticks(10);
    assert_eq!((rig.sent.len(), rig.departures), (0, 4));
}

#[test]
fn who_has_left_is_beaten_to_until_it_has_heard_that() {
    let mut rig = Rig::new(chain(&[1, 2], 0));
    rig.adopt();
    rig.sent.clear();
    rig.ticks(2);
    assert_eq!(rig.sent.drain(..).count(), 4, "the one in slot 0 too");
    rig.hears(0);
    rig.ticks(1);
    rig.sent.clear();
    rig.ticks(2);
    assert_eq!(rig.sent.drain(..).count(), 2, "it is granted nothing more");
}

#[test]
fn who_is_no_member_is_quiet() {
    let mut rig = Rig::new(chain(&[0, 1, 2], 0));
    let mut gone = view(Some(1), chain(&[0, 2], 0));
    gone.slot = None;
    rig.configure(&gone);
    rig.sent.clear();
    rig.ticks(20);
    assert_eq!((rig.sent.len(), rig.reports.len()), (0, 0));
}

/// A record of a key with a version that is not acknowledged since `since_ns`.
fn dirty(since_ns: u64) -> Bytes {
    let version = Version {
        seq: 4,
        accepted: 1,
        client: 1,
        request: 16,
        session: 1,
        value: Some(Bytes::from_static(b"v")),
    };
    let mut record = restored_key(&version, 1, 1).unwrap().to_vec();
    record[8..16].copy_from_slice(&3u64.to_ne_bytes());
    record[48..52].copy_from_slice(&((since_ns >> 20) as u32).to_ne_bytes());
    record.into()
}

/// The record of [`dirty`], acknowledged.
fn clean() -> Bytes {
    let mut record = dirty(0).to_vec();
    record[8..16].copy_from_slice(&4u64.to_ne_bytes());
    record.into()
}

#[test]
fn the_tail_is_asked_about_what_waits_for_long() {
    let mut rig = Rig::new(chain(&[0, 1, 2], 0));
    rig.items = vec![
        (Bytes::from_static(b"old"), dirty(rig.now_ns)),
        (Bytes::from_static(b"clean"), new_key(3, 1, 1).unwrap()),
    ];
    rig.ticks(20);
    assert_eq!(rig.said(), []);
    rig.ticks(40);
    let said = rig.said();
    assert!((1..=2).contains(&said.len()), "once in half a second");
    let (header, key, peer) = &said[0];
    assert_eq!((header.version, &key[..], peer.kind), (4, &b"old"[..], PeerKind::Ask));
    rig.configure(&view(Some(1), chain(&[0, 2, 1], 0)));
    rig.ticks(60);
    assert_eq!(rig.said(), [], "the tail is itself");
}

#[test]
fn everything_from_before_is_copied_until_the_tail_has_it() {
    let mut rig = Rig::new(chain(&[0, 1, 2], NUMBER));
    let session = session_key(1);
    rig.items = vec![
        (Bytes::from_static(b"written"), clean()),
        (Bytes::from_static(b"new"), new_key(3, 1, 1).unwrap()),
        (Bytes::copy_from_slice(&session), SessionRecord::new(1, 2, 1).encode()),
    ];
    rig.ticks(5);
    assert_eq!(rig.said(), [], "the view is not in force yet");
    rig.adopt();
    // Another switch may answer under the view before.
    let (granted, now_ns) = (state::PEERS_AT + 16, rig.now_ns);
    rig.word(granted, NUMBER - 1);
    rig.word(granted + 8, now_ns);
    rig.ticks(13);
    assert_eq!(rig.said(), [], "it holds back");
    rig.ticks(2);
    let said = rig.said();
    let seen = |(header, _, peer): &(Header, Bytes, Peer)| {
        (header.version, peer.kind, peer.flags, peer.fill)
    };
    let seen: Vec<_> = said.iter().take(3).map(seen).collect();
    let expected = [
        (4, PeerKind::Copy, 0, NUMBER),
        (3, PeerKind::Copy, flags::BARE, NUMBER),
        (2, PeerKind::CopySession, 0, NUMBER),
    ];
    assert_eq!(seen, expected);
    let (header, key, _) = said[0].clone();
    rig.copied(&header, &key, NUMBER);
    for (header, key, _) in &said[1..3] {
        rig.copied(header, key, NUMBER - 1);
    }
    rig.ticks(2);
    let left: Vec<_> = rig.said().into_iter().map(|(_, key, _)| key).collect();
    assert!(!left.contains(&Bytes::from_static(b"written")));
    assert!(left.contains(&Bytes::from_static(b"new")));
    assert_eq!(rig.reports.last().unwrap().filled, []);
    for (header, key, _) in &said[1..3] {
        rig.copied(header, key, NUMBER);
    }
    rig.ticks(4);
    let filled = FilledChain { chain: 0, fill_number: NUMBER };
    assert_eq!(rig.reports.last().unwrap().filled, [filled]);
    assert_eq!(rig.said(), []);
}

/// Writers may keep an item for as long as an agent looks at it: it is copied later.
#[test]
fn a_tail_has_not_all_while_an_item_could_not_be_read() {
    let fill = FilledChain { chain: 0, fill_number: NUMBER };
    let mut rig = Rig::new(chain(&[0, 1, 2], NUMBER));
    let [read, busy] = ["read", "busy"].map(Bytes::from);
    rig.items = vec![(read, clean()), (busy.clone(), clean())];
    rig.busy.insert(busy.clone());
    rig.adopt();
    for _ in 0..20 {
        rig.ticks(1);
        for (header, key, _) in rig.said() {
            assert_ne!(key, busy);
            rig.copied(&header, &key, NUMBER);
        }
    }
    assert_eq!(rig.reports.last().unwrap().filled, []);
    rig.busy.clear();
    rig.ticks(1);
    let said = rig.said();
    assert_eq!(said[0].1, busy);
    rig.copied(&said[0].0, &busy, NUMBER);
    rig.ticks(4);
    assert_eq!(rig.reports.last().unwrap().filled, [fill]);
}

#[test]
fn a_key_that_stays_deleted_for_a_minute_is_removable_at_its_tail() {
    let mut rig = Rig::new(chain(&[0, 2, 1], 0));
    let delete =
        |seq| Version { seq, accepted: 1, client: 1, request: 16, session: 1, value: None };
    let key = Bytes::from_static(b"k");
    rig.items = vec![(key.clone(), restored_key(&delete(4), 1, 1).unwrap())];
    rig.adopt();
    rig.ticks(2500);
    rig.items = vec![(key.clone(), restored_key(&delete(6), 1, 1).unwrap())];
    rig.ticks(2900);
    assert_eq!(rig.removable, [], "it was written in between");
    rig.ticks(200);
    assert_eq!(rig.removable[0].keys, [(key, 6)]);
    rig.removable.clear();
    rig.configure(&view(Some(1), chain(&[0, 1, 2], 0)));
    rig.ticks(100);
    assert_eq!(rig.removable, [], "another is the tail");
}

/// A tail is a member of another chain already, and the last write of that one has not come to it:
/// a note of it would take a later version of another client for it.
#[test]
fn a_tail_is_copied_notes_of_its_chain_from_before_and_of_others_only_that_writes_have_ended() {
    let mut rig = Rig::new(chain(&[0, 1, 2], NUMBER));
    let mut two = view(Some(1), chain(&[0, 1, 2], NUMBER));
    two.chains.push(chain(&[1, 2], 0));
    rig.configure(&two);
    let mut session = SessionRecord::new(1, 2, 1);
    let its = [
        (32, 4, Some(0)),
        (33, 5, Some(0)),
        (34, 0, Some(0)),
        (35, 4, Some(1)),
        (36, 6, Some(1)),
        (37, 4, None),
        (22, 4, Some(1)),
    ];
    for (note, (request, under, chain)) in session.notes.iter_mut().zip(its) {
        *note = Note { request, seq: 7, under, chain, ..Note::default() };
    }
    rig.items = vec![(Bytes::copy_from_slice(&session_key(1)), session.encode())];
    rig.adopt();
    rig.ticks(1);
    let (_, _, value) = rig.sent.iter().find(|(h, ..)| h.op == Op::PeerMessage).unwrap();
    let notes = value[Peer::LEN..].chunks_exact(24);
    let notes: Vec<_> = notes.map(|n| (n[7], n[15], n[16], n[18])).take(8).collect();
    let forgotten = Status::Forgotten as u8 + 1;
    let expected = [
        (32, 7, 0, 1),
        (17, 0, forgotten, 0),
        (34, 7, 0, 1),
        (19, 0, forgotten, 0),
        (20, 0, forgotten, 0),
        (37, 0, forgotten, 0),
        (0, 0, 0, 0),
        (0, 0, 0, 0),
    ];
    assert_eq!(notes, expected);
}

/// More keys than are followed at a time.
#[test]
fn a_removable_key_is_found_however_many_are_deleted() {
    let mut rig = Rig::new(chain(&[0, 2, 1], 0));
    let delete = Version { seq: 4, accepted: 1, client: 1, request: 16, session: 1, value: None };
    let record = restored_key(&delete, 1, 1).unwrap();
    rig.items = (0..4200).map(|n| (Bytes::from(format!("{n}")), record.clone())).collect();
    rig.adopt();
    // A minute for those that are followed first, and one for the others when these have gone.
    for _ in 0..80 {
        rig.ticks(100);
        let removable = std::mem::take(&mut rig.removable).into_iter();
        let gone: BTreeSet<Bytes> = removable.flat_map(|of| of.keys).map(|(key, _)| key).collect();
        rig.items.retain(|(key, _)| !gone.contains(key));
    }
    assert_eq!(rig.items.len(), 0);
}

#[test]
fn what_later_versions_pushed_out_is_only_asked_about() {
    let mut rig = Rig::new(chain(&[0, 1, 2], NUMBER));
    let mut record = dirty(rig.now_ns).to_vec();
    // It has 4; the first under the number was 4, so the boundary is 3, which is not there.
    record[32..40].copy_from_slice(&NUMBER.to_ne_bytes());
    record[40..48].copy_from_slice(&4u64.to_ne_bytes());
    record[16..24].copy_from_slice(&1u64.to_ne_bytes());
    assert_eq!(KeyRecord::decode(&record).unwrap().boundary(NUMBER), 3);
    rig.items = vec![(Bytes::from_static(b"k"), record.into())];
    rig.adopt();
    rig.ticks(1);
    let (header, _, peer) = rig.said()[0].clone();
    assert_eq!((header.version, peer.flags, peer.fill), (3, flags::BARE, 0));
}

/// A tail that answers within a moment is sent thousands of keys in a tick, never many at once.
#[test]
fn what_the_tail_has_makes_room_for_more() {
    const KEYS: u32 = 10_000;
    let mut rig = Rig::new(chain(&[0, 1, 2], NUMBER));
    let key = |n: u32| Bytes::from(format!("key{n:05}"));
    rig.items = (0..KEYS).map(|n| (key(n), clean())).collect();
    rig.adopt();
    let mut ticks = 0;
    while rig.reports.last().is_none_or(|state| state.filled.is_empty()) {
        rig.ticks(1);
        ticks += 1;
        let mut rounds = 0;
        loop {
            let said = rig.said();
            assert!(said.len() <= 2 * ITEMS, "{} at once", said.len());
            // They come back one by one, and what they make room for goes.
            for (header, key, _) in &said {
                rig.copied(header, key, NUMBER);
            }
            rounds += 1;
            if said.is_empty() || rounds == 10 {
                break;
            }
        }
        assert!(ticks < 100);
    }
    println!("{KEYS} keys in {ticks} ticks of 20 ms");
    assert!(ticks <= 12, "{ticks}");
}

#[test]
fn who_was_not_heard_yet_is_said_before_he_is_silent() {
    let mut rig = Rig::new(chain(&[0, 1, 2], 0));
    rig.adopt();
    for _ in 0..12 {
        rig.hears(0);
        rig.ticks(1);
    }
    let state = rig.reports.last().unwrap();
    assert_eq!((state.silent, state.unheard), (0, 1 << 2));
    for _ in 0..50 {
        rig.hears(0);
        rig.ticks(1);
    }
    let state = rig.reports.last().unwrap();
    assert_eq!((state.silent, state.unheard), (1 << 2, 0));
}

#[test]
fn a_view_that_was_in_force_and_is_forgotten_is_reported() {
    let mut rig = Rig::new(chain(&[0, 1, 2], 0));
    rig.word(0, NUMBER + 57);
    rig.ticks(60);
    let state = rig.reports.last().unwrap();
    assert_eq!((state.number, state.silent), (NUMBER + 57, 0));
}
