//! Clients with caches of their own (CLIENT TRACKING), where there are several stores or slots of a
//! Redis Cluster: such a client has a connection of its own to each store, all of which track what
//! it reads. What they say of keys that have changed, it hears between its answers.
//!
//! A key that has changed is told of behind the answers that came before, of whichever store: a
//! client that heard of it ahead of the value that it has read would keep that value for good.

use super::{
    EventLoop,
    client::Way,
    commands::{Act, Command},
    dispatch::{CommandText, Next},
    joint::Join,
    spread::{Spread, channel_of_slot, is_subscription},
    tracked_connections::{CachingChoice, TrackedConnections},
    upstream::{Kind, PendingCommand, Upstream, Waiter},
    words::encode,
};

/// What a message says that confirms a subscription, at its beginning.
const CONFIRMATIONS: [&str; 6] = [
    "$9\r\nsubscribe\r\n",
    "$10\r\npsubscribe\r\n",
    "$10\r\nssubscribe\r\n",
    "$11\r\nunsubscribe\r\n",
    "$12\r\npunsubscribe\r\n",
    "$12\r\nsunsubscribe\r\n",
];

impl EventLoop {
    /// What becomes of a command by which a client's cache begins, or that would end it; `None`: it
    /// is none, or goes on as every other.
    pub(super) fn dispatch_tracking(
        &mut self,
        at: usize,
        command: Command,
        said: CommandText<'_>,
    ) -> Option<Next> {
        let client = &self.clients[at];
        let tracks = client.tracking.is_some();
        match command.act {
            Act::Client if said.is(1, "tracking") => {
                let is_possible = client.protocol == 3
                    && !client.ties.any()
                    && !said.words.iter().any(|word| word.eq_ignore_ascii_case(b"redirect"));
                is_possible.then(|| self.track(at, command, said))
            }
            Act::Client if tracks && said.is(1, "caching") => Some(self.choose(at, said)),
            // The other connections would not hear of it.
            Act::Auth if tracks => Some(self.refuse_command(at, REFUSED)),
            Act::Hello if tracks && said.words.iter().skip(1).any(|word| word != b"3") => {
                Some(self.refuse_command(at, REFUSED))
            }
            Act::Raw if tracks && !client.ties.any() && is_subscription(said) => {
                Some(self.subscribe(at, command, said))
            }
            _ => None,
        }
    }

    /// Has all stores track what a client reads, or no longer.
    fn track(&mut self, at: usize, command: Command, said: CommandText<'_>) -> Next {
        if self.clients[at].waiting() > 0 {
            return Next::Wait;
        }
        if self.clients[at].tracking.is_none() {
            self.open_all(at);
        }
        let has = |name: &[u8]| said.words.iter().any(|word| word.eq_ignore_ascii_case(name));
        let choice = match (has(b"optin"), has(b"optout")) {
            (true, _) => Some(CachingChoice::Yes),
            (_, true) => Some(CachingChoice::No),
            _ => None,
        };
        if let Some(tracking) = &mut self.clients[at].tracking {
            tracking.choice = choice;
            tracking.caching = None;
        }
        let parts = (0..self.stores.len()).map(|store| (store, said.bytes.to_vec())).collect();
        let next = self.by_several(at, false, command, Spread { parts, how: Join::First });
        // Where one does not track, the client would keep what it reads there for good.
        let owns = self.clients[at].tracking.iter().flat_map(|tracking| &tracking.owns);
        let are_there =
            owns.clone().all(|own| self.upstreams.get(*own).is_some_and(|u| u.stream.is_some()));
        if !are_there && let Some(client) = self.clients.get_mut(at) {
            client.closing = true;
        }
        next
    }

    /// A connection of a client's own to each store.
    pub(super) fn open_all(&mut self, at: usize) {
        if let Some(own) = self.clients[at].own.take() {
            self.drop_own(own);
        }
        let client = &self.clients[at];
        let (number, speaker) = (client.number, client.speaker());
        let mut owns = vec![];
        for target in 0..self.stores.len() {
            let kind = Kind { target, speaker, lane: 0 };
            let upstream = Upstream::new(kind, Some((at, number)), &self.shared, self.now);
            owns.push(self.upstreams.insert(upstream));
        }
        for own in &owns {
            self.tell_names(at, *own);
        }
        if let Some(client) = self.clients.get_mut(at) {
            client.tracking =
                Some(Box::new(TrackedConnections { owns, choice: None, caching: None }));
        }
    }

    /// CLIENT CACHING: it is said by the connection by which the next command goes.
    fn choose(&mut self, at: usize, said: CommandText<'_>) -> Next {
        let client = &mut self.clients[at];
        let Some(tracking) = &mut client.tracking else { return Next::On };
        let chosen = match said.word(2) {
            Some(word) if word.eq_ignore_ascii_case(b"yes") => Some(CachingChoice::Yes),
            Some(word) if word.eq_ignore_ascii_case(b"no") => Some(CachingChoice::No),
            _ => None,
        };
        let line: &[u8] = match chosen {
            _ if said.words.len() != 3 => {
                b"-ERR wrong number of arguments for 'client|caching' command\r\n"
            }
            None => b"-ERR syntax error\r\n",
            Some(_) if chosen == tracking.choice => {
                tracking.caching = chosen;
                b"+OK\r\n"
            }
            Some(CachingChoice::Yes) => {
                b"-ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode.\r\n"
            }
            Some(CachingChoice::No) => {
                b"-ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.\r\n"
            }
        };
        client.answer(line);
        self.touch_client(at);
        Next::On
    }

    /// SUBSCRIBE and its like, by RESP3, which confirms them between answers.
    fn subscribe(&mut self, at: usize, command: Command, said: CommandText<'_>) -> Next {
        if self.clients[at].waiting() > 0 {
            return Next::Wait;
        }
        let store = channel_of_slot(said.words).map_or(0, |channel| self.store_of(channel));
        let Some(own) = self.tracked(at, store) else { return Next::Wait };
        let client = &mut self.clients[at];
        let (number, answer) = (client.number, client.place(Way::Own, 0, false));
        let waiter = Waiter::Subscription { place: at, number, answer };
        let pending = self.pending(waiter, command);
        self.ask(own, said.bytes, pending);
        self.chosen(at);
        Next::On
    }

    /// The connection to a store of a client that has one to each; what it has said of the next
    /// command has been said by it.
    pub(super) fn tracked(&mut self, at: usize, store: usize) -> Option<usize> {
        let tracking = self.clients.get(at)?.tracking.as_ref()?;
        let (own, caching) = (*tracking.owns.get(store)?, tracking.caching);
        if let Some(choice) = caching {
            let mut bytes = vec![];
            encode(&choice.command(), &mut bytes);
            let (waiter, asked) = (Waiter::Nobody, self.now);
            self.ask(own, &bytes, PendingCommand { waiter, command: 0, asked, writes: false });
        }
        Some(own)
    }

    /// A command has gone: what was said of the next one counts no more.
    pub(super) fn chosen(&mut self, at: usize) {
        if let Some(client) = self.clients.get_mut(at)
            && let Some(tracking) = &mut client.tracking
        {
            tracking.caching = None;
        }
    }

    /// Something that answers nothing has come by a connection of a client that has several, or a
    /// piece of that.
    pub(super) fn pushed(&mut self, at: usize, place: usize, piece: &[u8], ended: bool) {
        let Some(upstream) = self.upstreams.get_mut(at) else { return };
        upstream.push.extend_from_slice(piece);
        if !ended {
            return;
        }
        let push = std::mem::take(&mut upstream.push);
        let confirmed = match upstream.pending.front().map(|pending| pending.waiter) {
            Some(Waiter::Subscription { place, number, answer }) if confirms(&push) => {
                upstream.pending.pop_front();
                Some((place, number, answer))
            }
            _ => None,
        };
        if let Some(client) = self.clients.get_mut(place) {
            client.push(&push);
            self.touch_client(place);
        }
        if let Some((place, number, answer)) = confirmed {
            self.give(place, number, answer, b"", true, false);
        }
    }
}

/// A user is of all connections, or of none.
const REFUSED: &[u8] =
    b"-ERR after CLIENT TRACKING the user and the protocol cannot change where keys are in several stores\r\n";

/// Whether a message says that a channel is subscribed, or is not any more.
fn confirms(push: &[u8]) -> bool {
    let start = push.iter().position(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    CONFIRMATIONS.iter().any(|name| push[start..].starts_with(name.as_bytes()))
}
