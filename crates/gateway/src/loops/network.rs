//! What becomes of reads by the network: their answers, or another way where there are none.

use client::{Answer, Error};
use mio::Token;

use super::{
    EventLoop, READ_BYTES, SOCKETS,
    reads::{EndedRead, Ending},
    upstream::{PendingCommand, Waiter},
    words::encode,
};

impl EventLoop {
    /// Whether a read of the key with this hash is to go by the network to its store;
    /// `is_at_store`: that is at work on it.
    pub(super) fn goes_by_network(
        &mut self,
        (hash, store): (u64, usize),
        is_at_store: bool,
    ) -> bool {
        let Some(reads) = self.reads.as_mut().filter(|_| hash != 0) else { return false };
        let is_hot = self.sketch.as_mut().is_none_or(|sketch| sketch.read(hash));
        (is_hot || is_at_store) && reads.is_there(store, self.now)
    }

    pub(super) fn network_event(&mut self, token: Token) {
        let at = usize::from(token == SOCKETS[1]);
        if let Some(reads) = &mut self.reads {
            reads.packets.receive(at);
        }
    }

    /// Gives the answers of reads that have ended.
    pub(super) fn take_reads(&mut self) {
        while let Some(done) = self.reads.as_mut().and_then(|reads| reads.next_done(self.now)) {
            let (read, answer) = match done {
                Ending::Read(read, answer) => (read, answer),
                Ending::Call(call, result) => {
                    if let Some(jobs) = &mut self.jobs {
                        jobs.hear_call(call, result);
                    }
                    continue;
                }
            };
            let found = match answer.and_then(Answer::found) {
                Ok(found) => found,
                Err(error) => {
                    self.read_failed(read, error);
                    continue;
                }
            };
            let EndedRead { waiters, hash, .. } = read;
            if let Some(jobs) = &self.jobs {
                jobs.network.count_found(found.is_some(), waiters.len());
            }
            let by_switch = found.as_ref().is_some_and(|value| value.from_switch);
            if let Some(sketch) = &mut self.sketch {
                sketch.answered(hash, by_switch);
            }
            let counters = &self.shared.counters;
            counters.network_reads.add(waiters.len() as u64);
            if by_switch {
                counters.answered_by_switch.add(waiters.len() as u64);
            }
            let mut bytes = std::mem::take(&mut self.answer);
            bytes.clear();
            if let Some(value) = found {
                use std::io::Write;
                let _ = write!(bytes, "${}\r\n", value.bytes.len());
                bytes.extend_from_slice(&value.bytes);
                bytes.extend_from_slice(b"\r\n");
            }
            for (pending, protocol) in waiters {
                let Waiter::Client { place, number, answer } = pending.waiter else { continue };
                self.shared.stats.note(pending.command, self.now - pending.asked, false);
                let said = match (bytes.is_empty(), protocol) {
                    (false, _) => &bytes[..],
                    (true, 3) => b"_\r\n",
                    (true, _) => b"$-1\r\n",
                };
                self.give(place, number, answer, said, true, false);
                self.relieve(place);
            }
            if bytes.capacity() <= READ_BYTES {
                self.answer = bytes;
            }
        }
    }

    /// A read has no answer: it goes another way, if there is one.
    fn read_failed(&mut self, read: EndedRead, error: Error) {
        if self.jobs.is_some() {
            return self.string_read_failed(read, error);
        }
        let EndedRead { waiters, later, name, .. } = read;
        self.shared.counters.network_fallbacks.add((waiters.len() + later.len()) as u64);
        for (pending, _) in waiters.into_iter().chain(later) {
            self.read_upstream_instead(pending, &name);
        }
    }

    /// A read that the network had no answer to, or one that only Redis can give.
    pub(super) fn read_upstream_instead(&mut self, pending: PendingCommand, name: &[u8]) {
        let Waiter::Client { place, number, answer } = pending.waiter else { return };
        let Some(client) = self.clients.get(place) else { return };
        if client.number != number {
            return;
        }
        let speaker = client.speaker();
        let store = self.owners.port_of(name);
        let way = self.direct_way(store, speaker, false);
        // What comes behind it by this way goes by the same connection.
        if self.clients[place].under_way(way) == 0 {
            self.clients[place].lane = self.choose_lane(way, speaker, false);
        }
        let client = &mut self.clients[place];
        client.reroute(answer, way);
        let lane = client.lane;
        let upstream = self.common(self.target_of(way, store), speaker, lane);
        let mut bytes = vec![];
        let name = self.tenant.as_ref().map_or(name.into(), |tenant| tenant.name(name));
        encode(&[&b"GET"[..], &name], &mut bytes);
        self.ask(upstream, &bytes, pending);
    }

    pub(super) fn flush_network(&mut self) {
        if let Some(reads) = &mut self.reads {
            reads.flush();
        }
    }
}
