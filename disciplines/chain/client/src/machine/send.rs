//! Whom a call asks, and with which datagram.

use std::{collections::VecDeque, net::SocketAddr};

use bytes::Bytes;
use client::Error;
use rand::RngExt;

use super::{CallKind, Machine};
use crate::{Counts, Reads, call::Call, near::RoundTrips, view::Chain};

/// Requests of a watch whose answers still count: what the switches were registered with for the
/// last seconds.
const WATCH_REQUESTS: usize = 4;
/// Times in a row without an answer after which others are asked as well which chains there are.
const SILENT: u32 = 2;

impl Machine {
    /// Sends a call's request, unless its time is over.
    pub(super) fn send(&mut self, number: u64, now_ns: u64) {
        let Some(call) = self.calls.get(&number) else { return };
        if now_ns >= call.deadline_ns {
            let error = call.timed_out(&self.names, &self.options, &self.paths);
            return self.finish(number, Err(error));
        }
        self.name(number);
        let sent = self.ask(number, now_ns);
        if let Err(error) = sent {
            return self.finish(number, Err(error));
        }
        let random = self.rng.random();
        if let Some(call) = self.calls.get_mut(&number) {
            call.wait(now_ns, random);
        }
        self.reset_timer(number);
    }

    /// Gives a read or a watch a new id, where it needs one.
    fn name(&mut self, number: u64) {
        let Some(call) = self.calls.get_mut(&number) else { return };
        if call.needs_request() {
            call.requests.push(self.next_read);
            self.by_request.insert(self.next_read, number);
            self.next_read += 1;
            if call.requests.len() > WATCH_REQUESTS {
                self.by_request.remove(&call.requests.remove(0));
            }
        }
    }

    /// Asks the chain, if it is known; and others which chain it is, if it is not, or says nothing.
    fn ask(&mut self, number: u64, now_ns: u64) -> Result<(), Error> {
        let random: f64 = self.rng.random();
        let Some(call) = self.calls.get_mut(&number) else { return Ok(()) };
        let chain = self.view.chain_of(call.hash);
        if let Some(chain) = chain {
            let anywhere = self.view.reads_anywhere;
            let at = member(call, chain, anywhere, self.options.reads, &self.near, random);
            call.to = chain.members[at];
            let behind = match anywhere {
                true => &[],
                false => &chain.members[at + 1..],
            };
            // The answer may come from the tail, which was not asked: a NAT or a filter lets
            // nothing pass from there before something went there.
            let tail = chain.members[chain.members.len() - 1];
            if call.silent == 1 && call.to != tail {
                let datagram = call.datagram_to(tail, &self.names, 0, &[], self.largest)?;
                send(&mut self.datagrams, &mut self.counts, call, (tail, datagram), now_ns);
            }
            let datagram = call.datagram(&self.names, chain.number, behind, self.largest)?;
            call.once_ns = (call.silent == 0 && !call.paused).then_some(now_ns);
            let asked = (call.to, datagram);
            send(&mut self.datagrams, &mut self.counts, call, asked, now_ns);
        }
        if chain.is_some() && call.silent < SILENT {
            return Ok(());
        }
        let members = chain.iter().flat_map(|chain| &chain.members);
        let all: Vec<SocketAddr> = self.options.switches.iter().chain(members).copied().collect();
        let to = all[self.around % all.len()];
        self.around += 1;
        if chain.is_none() {
            call.to = to;
        }
        // With number 0 nothing is done but to say which chain it is.
        let datagram = call.datagram_to(to, &self.names, 0, &[], self.largest)?;
        send(&mut self.datagrams, &mut self.counts, call, (to, datagram), now_ns);
        Ok(())
    }
}

/// The place of the member that a call asks.
fn member(
    call: &Call,
    chain: &Chain,
    anywhere: bool,
    reads: Reads,
    near: &RoundTrips,
    random: f64,
) -> usize {
    let all = &chain.members;
    let tail = all.len() - 1;
    let place = |at| all.iter().position(|member| *member == at);
    let first = match (&call.what, reads) {
        (CallKind::Write | CallKind::Delete, _) => return 0,
        (CallKind::Watch(_), _) => return tail,
        // Another member passes it on.
        (CallKind::Read, Reads::At(at)) if !anywhere => return place(at).unwrap_or(tail),
        (CallKind::Read, _) if !anywhere => return tail,
        (CallKind::Read, Reads::Near) => near.choose(all, random),
        (CallKind::Read, Reads::Spread) => (random * all.len() as f64) as usize,
        (CallKind::Read, Reads::At(at)) => place(at).unwrap_or(0),
    };
    (first + call.skip) % all.len()
}

/// Puts a call's datagram among those to be sent, and has the call note it.
fn send(
    datagrams: &mut VecDeque<(SocketAddr, Bytes)>,
    counts: &mut Counts,
    call: &mut Call,
    (to, datagram): (SocketAddr, Bytes),
    now_ns: u64,
) {
    call.sent(to, datagram.len(), now_ns);
    counts.sent += 1;
    datagrams.push_back((to, datagram));
}
