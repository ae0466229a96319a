//! Commands where there are several stores: each goes to the store of its keys; some are taken
//! apart, or go to every store, and their answers are joined ([`joint`](super::joint)).
//!
//! What belongs together on one connection, as a transaction does, is at one store. A command of
//! it with another store's key is answered as a Redis Cluster answers keys of several slots.

use std::time::Instant;

use hashbrown::HashMap;
use resp::Words;

use super::{
    EventLoop,
    client::{Transition, Way},
    commands::{Act, Command},
    dispatch::{CommandText, Next},
    joint::{Join, join, to_store},
    upstream::{PendingCommand, Upstream, Waiter},
    words::encode,
};

/// As Redis says it.
const CROSSING: &[u8] = b"-CROSSSLOT Keys in request don't hash to the same slot\r\n";
const OF_ALL: &[u8] = b"-ERR several stores: this is not possible in a transaction, after WATCH or where else the connection is at one of them\r\n";
const UNKNOWN: &[u8] =
    b"-TRYAGAIN nothing was done: no store's Redis has told where keys stand in commands (COMMAND)\r\n";
const NOT_BEGUN: &[u8] = b"-TRYAGAIN nothing was done: the transaction has not begun\r\n";
const ABORTED: &[u8] = b"-EXECABORT Transaction discarded because of previous errors.\r\n";
/// Commands that are taken apart, each key with what belongs to it.
const APART: &[&str] = &["del", "exists", "mget", "mset", "touch", "unlink"];

/// A command that goes to several stores.
pub(super) struct Joint {
    place: usize,
    number: u64,
    answer: u64,
    command: u16,
    asked: Instant,
    how: Join,
    parts: Vec<Vec<u8>>,
    missing: usize,
}

/// The stores of a command's keys.
#[derive(Clone, Copy)]
enum KeyStores {
    /// It names none.
    None,
    One(usize),
    /// Of several stores, or of several slots of one.
    Several,
}

/// A command of several stores: what goes to each, and how the answers become one.
pub(super) struct Spread {
    /// Numbers of stores, each with a command.
    pub parts: Vec<(usize, Vec<u8>)>,
    pub how: Join,
}

impl EventLoop {
    /// Of a command whose keys were looked up.
    fn key_stores(&self, words: Words<'_>) -> KeyStores {
        let keys = self.keys.iter().filter_map(|key| words.get(key.index));
        let mut places = keys.map(|key| self.owners.place_of(key));
        let Some(first) = places.next() else { return KeyStores::None };
        match places.all(|place| place == first) {
            true => KeyStores::One(first.port),
            false => KeyStores::Several,
        }
    }

    /// The store to which a command goes by a client's own connection.
    pub(super) fn own_store(&mut self, at: usize, said: CommandText<'_>) -> usize {
        if self.stores.len() == 1 {
            return 0;
        }
        if let Some(store) = self.pinned(at) {
            return store;
        }
        if self.owners.have_slots()
            && let Some(channel) = channel_of_slot(said.words)
        {
            return self.store_of(channel);
        }
        match self.key_stores(said.words) {
            KeyStores::One(store) => store,
            KeyStores::None if listens(said) => 0,
            // Where it has been, because that one knows the client.
            KeyStores::None | KeyStores::Several => {
                let own = self.clients[at].own.and_then(|own| self.upstreams.get(own));
                own.map_or(0, |own| own.kind.target)
            }
        }
    }

    /// The store at which a client's connection has its state.
    fn pinned(&self, at: usize) -> Option<usize> {
        let client = self.clients.get(at)?;
        let own = client.own.filter(|_| client.ties.any() && !client.ties.unplaced)?;
        self.upstreams.get(own).map(|upstream| upstream.kind.target)
    }

    /// Why a command cannot be carried out where there are several stores, as an answer.
    fn refusal(
        &mut self,
        at: usize,
        command: Command,
        said: CommandText<'_>,
        stores: KeyStores,
    ) -> Option<&'static [u8]> {
        let may_name_keys =
            matches!(command.act, Act::Plain | Act::Store | Act::Watch | Act::Own | Act::Raw);
        if may_name_keys && !self.commands.are_known() {
            return Some(UNKNOWN);
        }
        let client_state = ["tracking", "caching", "reply", "no-touch", "no-evict", "getredir"];
        match command.act {
            Act::Client if client_state.iter().any(|name| said.is(1, name)) => {
                return Some(b"-ERR CLIENT: not where keys are in several stores\r\n");
            }
            _ if self.clients[at].ties.raw && said.is(0, "cluster") => {
                return Some(b"-ERR CLUSTER: not by a connection that is subscribed\r\n");
            }
            Act::Select if said.word(1) != Some(b"0") => {
                return Some(b"-ERR SELECT is not allowed in cluster mode\r\n");
            }
            Act::Raw
                if self.clients[at].tracking.is_some()
                    || !is_subscription(said) && !said.is(0, "monitor") =>
            {
                return Some(
                    b"-ERR this command is not possible where keys are in several stores\r\n",
                );
            }
            _ => {}
        }
        let pinned = self.pinned(at);
        let goes = match stores {
            KeyStores::None => {
                if !self.commands.are_advised() && self.commands.is_of_whole_databases(said.words) {
                    return Some(
                        b"-ERR several stores: this needs Redis 7.0 or later behind them\r\n",
                    );
                }
                // A message is said at the first store, and heard there: at any other it would be
                // lost. Nodes of a Redis Cluster tell one another.
                if pinned.is_some_and(|pinned| pinned != 0)
                    && !self.owners.have_slots()
                    && (command.publishes || listens(said))
                {
                    return Some(OF_ALL);
                }
                // It would be carried out at one of them, as if that was all there is.
                if self.clients[at].ties.any()
                    && !said.is(0, "ping")
                    && (said.is(0, "scan") || self.commands.spread(said.words).is_some())
                {
                    return Some(OF_ALL);
                }
                true
            }
            KeyStores::One(store) => pinned.is_none_or(|pinned| pinned == store),
            KeyStores::Several => {
                let is_free = pinned.is_none() && !self.clients[at].ties.any();
                is_free && APART.iter().any(|name| said.is(0, name))
            }
        };
        if !goes {
            return Some(CROSSING);
        }
        reaches_further(said.words).then_some(
            b"-ERR BY and GET options of SORT are denied where keys are in several stores\r\n",
        )
    }

    /// Answers a command that is not carried out; nor is a transaction that it is in.
    pub(super) fn refuse_command(&mut self, at: usize, line: &[u8]) -> Next {
        let client = &mut self.clients[at];
        client.ties.refused |= client.ties.transaction;
        client.answer(line);
        self.touch_client(at);
        Next::On
    }

    /// Where a command goes if that is not as where there is one store.
    pub(super) fn dispatch_spread(
        &mut self,
        at: usize,
        command: Command,
        said: CommandText<'_>,
    ) -> Option<Next> {
        if matches!(command.act, Act::Reset | Act::Quit) {
            return None;
        }
        let ties = self.clients[at].ties;
        let stores = self.key_stores(said.words);
        if let Some(line) = self.refusal(at, command, said, stores) {
            return Some(self.refuse_command(at, line));
        }
        if ties.unplaced {
            let store = self.own_store(at, said);
            return Some(self.place_transaction(at, store));
        }
        if ties.any() {
            return None;
        }
        match command.act {
            Act::Multi if said.words.len() == 1 => {
                // Its store is that of the first key.
                let client = &mut self.clients[at];
                client.ties.transaction = true;
                client.ties.unplaced = true;
                client.answer(b"+OK\r\n");
                self.touch_client(at);
                Some(Next::On)
            }
            Act::Get if said.words.len() == 2 => None,
            Act::Info if said.is(1, "gateway") => None,
            Act::Get | Act::Plain | Act::Store | Act::Info => {
                Some(self.by_keys(at, command, said, stores))
            }
            _ => None,
        }
    }

    fn by_keys(
        &mut self,
        at: usize,
        command: Command,
        said: CommandText<'_>,
        stores: KeyStores,
    ) -> Next {
        let spread = match stores {
            KeyStores::One(store) => Err(store),
            KeyStores::Several => Ok(self.apart(said.words)),
            KeyStores::None if said.is(0, "scan") => self.scan(said).ok_or(0),
            KeyStores::None => self.everywhere(said).ok_or(0),
        };
        let reads_direct = matches!(command.act, Act::Get | Act::Plain | Act::Info);
        match spread {
            Err(store) => {
                let way = match reads_direct {
                    true => self.upstream_way(at, store, command.writes),
                    false => Way::Store,
                };
                self.by(at, way, store, command, said, 0)
            }
            Ok(spread) => self.by_several(at, reads_direct, command, spread),
        }
    }

    /// A command, taken apart by its keys. What cannot be taken apart evenly is wrong, and goes to
    /// one store, which says so.
    fn apart(&mut self, words: Words<'_>) -> Spread {
        let starts: Vec<usize> = self.keys.iter().map(|key| key.index).collect();
        let step = starts.windows(2).map(|pair| pair[1] - pair[0]).next().unwrap_or(1);
        let is_even = starts.last().is_some_and(|last| last + step == words.len());
        let mut parts: Vec<(usize, Vec<&[u8]>)> = vec![];
        let mut part_of = HashMap::new();
        let mut places = vec![];
        let name = words.get(0).unwrap_or_default();
        for start in starts {
            let place = words.get(start).map(|key| self.owners.place_of(key));
            let part = *part_of.entry(place).or_insert_with(|| {
                parts.push((place.map_or(0, |place| place.port), vec![name]));
                parts.len() - 1
            });
            places.push(part);
            if is_even {
                parts[part].1.extend((start..start + step).filter_map(|at| words.get(at)));
            }
        }
        if !is_even {
            parts = vec![(0, words.iter().collect())];
        }
        let how = match name {
            _ if !is_even => Join::First,
            name if name.eq_ignore_ascii_case(b"mget") => Join::Places(places),
            name if name.eq_ignore_ascii_case(b"mset") => Join::First,
            _ => Join::Sum,
        };
        let step = if is_even { step } else { usize::MAX };
        let encoded = parts.into_iter().map(|(store, words)| {
            let mut bytes = vec![];
            match &self.tenant {
                None => encode(&words, &mut bytes),
                Some(tenant) => {
                    let named = words.iter().enumerate().map(|(at, word)| match at {
                        at if at > 0 && (at - 1) % step == 0 => tenant.name(word),
                        _ => word.to_vec(),
                    });
                    encode(&named.collect::<Vec<_>>(), &mut bytes);
                }
            }
            (store, bytes)
        });
        Spread { parts: encoded.collect(), how }
    }

    /// SCAN: the cursor names the store.
    fn scan(&mut self, said: CommandText<'_>) -> Option<Spread> {
        let stores = self.stores.len();
        let cursor = std::str::from_utf8(said.word(1)?).ok()?.parse().ok()?;
        let (store, cursor) = to_store(cursor, stores);
        let cursor = cursor.to_string();
        let mut words: Vec<&[u8]> = said.words.iter().collect();
        words[1] = cursor.as_bytes();
        let mut bytes = vec![];
        encode(&words, &mut bytes);
        Some(Spread { parts: vec![(store, bytes)], how: Join::Cursor { store, stores } })
    }

    /// A command that every store is told, as the server advises it.
    fn everywhere(&mut self, said: CommandText<'_>) -> Option<Spread> {
        if self.owners.have_slots() && said.is(0, "pubsub") && said.is(1, "shardnumsub") {
            return self.by_channels(said);
        }
        let how = match said.word(0)? {
            // Any store's answer does.
            name if name.eq_ignore_ascii_case(b"ping") => return None,
            name if name.eq_ignore_ascii_case(b"randomkey") => {
                self.next_number += 1;
                Join::Any(self.next_number as usize % self.stores.len())
            }
            name if name.eq_ignore_ascii_case(b"pubsub")
                && said.is(1, "shardchannels")
                && self.owners.have_slots() =>
            {
                Join::Lists
            }
            _ => self.commands.spread(said.words)?,
        };
        let parts = (0..self.stores.len()).map(|store| (store, said.bytes.to_vec()));
        Some(Spread { parts: parts.collect(), how })
    }

    /// PUBSUB SHARDNUMSUB: each channel is asked for where it is, and its answer are two elements.
    fn by_channels(&self, said: CommandText<'_>) -> Option<Spread> {
        let mut parts: Vec<(usize, Vec<&[u8]>)> = vec![];
        let mut places = vec![];
        for channel in said.words.iter().skip(2) {
            let store = self.store_of(channel);
            let part = parts.iter().position(|(other, _)| *other == store).unwrap_or(parts.len());
            if part == parts.len() {
                parts.push((store, said.words.iter().take(2).collect()));
            }
            parts[part].1.push(channel);
            places.extend([part; 2]);
        }
        let encoded = parts.into_iter().map(|(store, words)| {
            let mut bytes = vec![];
            encode(&words, &mut bytes);
            (store, bytes)
        });
        let parts: Vec<(usize, Vec<u8>)> = encoded.collect();
        (!parts.is_empty()).then_some(Spread { parts, how: Join::Places(places) })
    }

    /// Sends each store its part, once nothing is under way that must not be overtaken.
    pub(super) fn by_several(
        &mut self,
        at: usize,
        reads_direct: bool,
        command: Command,
        spread: Spread,
    ) -> Next {
        let reads_direct = reads_direct && self.clients[at].tracking.is_none();
        let is_direct =
            |way: &mut EventLoop, store| way.upstream_way(at, store, command.writes) == Way::Direct;
        let way =
            match reads_direct && spread.parts.iter().all(|(store, _)| is_direct(self, *store)) {
                true => Way::Direct,
                false => Way::Store,
            };
        if self.would_overtake(at, way, command, 0) {
            return Next::Wait;
        }
        let client = &mut self.clients[at];
        let is_first = client.under_way(way) == 0;
        let answer = client.place(way, 0, command.writes);
        let (number, speaker) = (client.number, client.speaker());
        if is_first {
            self.clients[at].lane = self.choose_lane(way, speaker, command.writes);
        }
        let lane = self.clients[at].lane;
        let Spread { parts, how } = spread;
        let joint = self.joints.insert(Joint {
            place: at,
            number,
            answer,
            command: command.row,
            asked: self.now,
            how,
            parts: vec![vec![]; parts.len()],
            missing: parts.len(),
        });
        for (part, (store, bytes)) in parts.into_iter().enumerate() {
            let upstream = match self.tracked(at, store) {
                Some(own) => own,
                None => self.common(self.target_of(way, store), speaker, lane),
            };
            let waiter = Waiter::Part { joint, part };
            let pending = PendingCommand {
                waiter,
                command: command.row,
                asked: self.now,
                writes: command.writes,
            };
            self.ask(upstream, &bytes, pending);
        }
        self.chosen(at);
        Next::On
    }

    /// A piece of a part of an answer.
    pub(super) fn give_part(&mut self, joint: usize, part: usize, piece: &[u8], ended: bool) {
        let Some(joined) = self.joints.get_mut(joint) else { return };
        let client = self.clients.get_mut(joined.place);
        let client = client.filter(|client| client.number == joined.number);
        match client {
            Some(client) => {
                joined.parts[part].extend_from_slice(piece);
                client.stash(piece.len());
                client.hear(joined.answer);
            }
            None => joined.parts.iter_mut().for_each(|part| *part = vec![]),
        }
        joined.missing -= usize::from(ended);
        if joined.missing > 0 {
            let place = joined.place;
            return self.touch_client(place);
        }
        let Joint { place, number, answer, command, asked, how, parts, .. } =
            self.joints.remove(joint);
        let Some(client) = self.clients.get_mut(place) else { return };
        if client.number != number {
            return;
        }
        client.unstash(parts.iter().map(Vec::len).sum());
        let bytes = join(&how, &parts);
        let is_error = super::joint::is_error(&bytes);
        self.shared.stats.note(command, self.now - asked, is_error);
        self.give(place, number, answer, &bytes, true, is_error);
    }

    /// The rest of a part does not come: what has come of it is no answer.
    pub(super) fn drop_part(&mut self, joint: usize, part: usize) {
        let Some(joined) = self.joints.get_mut(joint) else { return };
        let dropped = std::mem::take(&mut joined.parts[part]).len();
        let client = self.clients.get_mut(joined.place);
        if let Some(client) = client.filter(|client| client.number == joined.number) {
            client.unstash(dropped);
        }
    }

    /// Tells the store of a transaction's first key that it has begun; whatever is next waits for
    /// the answer.
    fn place_transaction(&mut self, at: usize, store: usize) -> Next {
        if self.clients[at].waiting() > 0 {
            return Next::Wait;
        }
        let Some(own) = self.own(at, store) else { return Next::Wait };
        let client = &mut self.clients[at];
        client.ties.unplaced = false;
        client.then = Some(Transition::default());
        let waiter = Waiter::Begin { place: at, number: client.number };
        let mut bytes = vec![];
        encode(&[b"MULTI"], &mut bytes);
        let asked = self.now;
        self.ask(own, &bytes, PendingCommand { waiter, command: 0, asked, writes: false });
        Next::Wait
    }

    /// What a store says to a transaction that begins there. One that it does not begin is none.
    /// Of an error that came in pieces the line is the last.
    pub(super) fn begun(&mut self, place: usize, number: u64, line: &[u8], is_error: bool) {
        let Some(client) = self.clients.get_mut(place) else { return };
        if client.number != number {
            return;
        }
        client.then = None;
        if is_error {
            let is_whole = line.starts_with(b"-");
            client.answer(if is_whole { line } else { NOT_BEGUN });
            client.closing = true;
            return self.touch_client(place);
        }
        self.make_ready(place);
    }

    /// EXEC of a transaction of which a command was refused.
    pub(super) fn abort(&mut self, at: usize) -> Next {
        if self.clients[at].waiting() > 0 {
            return Next::Wait;
        }
        let ties = self.clients[at].ties;
        self.clients[at].ties = ties.after_transaction();
        if let Some(own) = self.clients[at].own.filter(|_| !ties.unplaced) {
            self.say(own, &[b"DISCARD"]);
        }
        if let Some(client) = self.clients.get_mut(at) {
            client.answer(ABORTED);
            self.touch_client(at);
        }
        Next::On
    }

    /// Passes commands on by a connection whose client is subscribed to something: those that
    /// cannot be carried out there become one that no server has, which fails in their place.
    /// `false`: what has come does not hold a whole command, or nothing more may be sent now.
    pub(super) fn pump_commands(&mut self, at: usize, own: usize) -> bool {
        let Some(client) = self.clients.get_mut(at) else { return false };
        let mut input = std::mem::take(&mut client.input);
        let mut parser = client.part.take().unwrap_or_default();
        let limits = self.request_limits;
        let mut skipped = 0;
        let (taken, bytes) = match parser.next(&input, &limits, &mut skipped) {
            Ok(Some(request)) => {
                let words = request.words;
                let mut line = vec![];
                encode(&words.iter().collect::<Vec<_>>(), &mut line);
                let command = self.commands.find(words.get(0).unwrap_or_default());
                let said = CommandText { bytes: &line, words };
                self.commands.keys(words, &mut self.keys);
                let stores = self.key_stores(words);
                if let Some(refusal) = self.refusal(at, command, said, stores) {
                    let name = String::from_utf8_lossy(refusal);
                    let name = name.trim_matches(['-', '\r', '\n']);
                    line.clear();
                    encode(&[name], &mut line);
                }
                (skipped + request.bytes.len(), line)
            }
            Ok(None) => (skipped, vec![]),
            // The server says what is wrong.
            Err(_) => (input.len(), input.clone()),
        };
        input.drain(..taken);
        if let Some(out) = self.upstreams.get_mut(own).and_then(Upstream::out) {
            out.extend_from_slice(&bytes);
            self.touch_upstream(own);
        }
        if let Some(client) = self.clients.get_mut(at) {
            client.part = (!input.is_empty()).then_some(parser);
            client.input = input;
            self.count(at);
        }
        !bytes.is_empty()
    }
}

/// The first channel of a command that subscribes to those which have slots as keys do, or ends
/// that.
pub(super) fn channel_of_slot<'a>(words: Words<'a>) -> Option<&'a [u8]> {
    let is = |name: &[u8]| words.get(0).is_some_and(|word| word.eq_ignore_ascii_case(name));
    if is(b"ssubscribe") || is(b"sunsubscribe") { words.get(1) } else { None }
}

/// Whether a command subscribes to channels, or ends that.
pub(super) fn is_subscription(said: CommandText<'_>) -> bool {
    let name = said.word(0).unwrap_or_default().to_ascii_lowercase();
    name.ends_with(b"subscribe")
}

/// Whether a command is to hear what others say, or to end that.
fn listens(said: CommandText<'_>) -> bool {
    is_subscription(said) || said.is(0, "monitor")
}

/// SORT with patterns, which are keys of any store.
pub(super) fn reaches_further(words: Words<'_>) -> bool {
    let is = |at: usize, name: &[u8]| {
        words.get(at).is_some_and(|word: &[u8]| word.eq_ignore_ascii_case(name))
    };
    if !is(0, b"sort") && !is(0, b"sort_ro") {
        return false;
    }
    let behind = |at: usize| words.get(at + 1).unwrap_or_default();
    (2..words.len()).any(|at| {
        is(at, b"get") && behind(at) != b"#" || is(at, b"by") && behind(at).contains(&b'*')
    })
}
