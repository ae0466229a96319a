//! Phases that go through every key once: writing it, or reading it to see who answers.

use std::collections::VecDeque;

use anyhow::{Context, ensure};
use wire::{Flags, HEADER_LEN, Header, Op, Packet, Status};

use super::{
    Arrivals, PhaseKind,
    batch::Lane,
    generator::{Generator, Run, check, encode},
    tenant::stamp,
    versions::POPULATED,
    window::Sent,
};
use crate::workload::KEY_LEN;

/// A request without an answer is sent again after so long.
const AGAIN_NS: u64 = 100_000_000;
/// A request that was refused (the store does not know the tenant yet, or takes no writes yet) is sent again after so long.
const REFUSED_NS: u64 = 20_000_000;

/// Keys that are still to be asked for, as (index of the tenant, key).
struct Todo {
    now: VecDeque<(u16, u32)>,
    /// Refused ones and when they may go again, in order of time.
    later: VecDeque<(u64, u16, u32)>,
    last_refusal: Option<Status>,
}

impl Generator {
    /// Writes or reads every key of every active tenant until each is answered.
    ///
    /// # Errors
    /// Not all were answered in time; the message says how many were not, and the last refusal.
    pub(super) fn each_key(&mut self, run: &mut Run) -> anyhow::Result<()> {
        let Arrivals::Closed(outstanding) = run.phase.arrivals else {
            anyhow::bail!(
                "load: going through all keys needs closed arrivals: how many requests are under way"
            );
        };
        let outstanding = outstanding.clamp(1, Lane::SEND * 8);
        let keys = 0..self.config.keys as u32;
        let mut todo = Todo {
            now: (0..run.active as u16)
                .flat_map(|tenant| keys.clone().map(move |key| (tenant, key)))
                .collect(),
            later: VecDeque::new(),
            last_refusal: None,
        };
        let deadline_ns = self.now_ns() + (run.phase.seconds * 1e9) as u64;
        loop {
            let now = self.now_ns();
            let left = todo.now.len() + todo.later.len() + self.window.open();
            if left == 0 {
                return Ok(());
            }
            ensure!(
                now < deadline_ns,
                "load: {left} of {} requests were not answered within {} s (last refusal: {})",
                run.active * self.config.keys,
                run.phase.seconds,
                todo.last_refusal
                    .map_or("none".into(), |status: Status| format!("{status:?}"))
            );
            while todo.later.front().is_some_and(|(at, ..)| *at <= now) {
                let ready = todo.later.pop_front();
                todo.now.extend(ready.map(|(_, tenant, key)| (tenant, key)));
            }
            while self.window.open() < outstanding && !self.window.is_full() {
                let Some((tenant, key)) = todo.now.pop_front() else {
                    break;
                };
                self.queue_key(run, tenant, key, now)?;
            }
            for lane in self.lanes.iter_mut().filter(|lane| !lane.is_empty()) {
                run.result.unsent += lane.send().context("sending requests")? as u64;
            }
            self.take_answers(run, &mut todo, now)?;
            while let Some(lost) = self.window.pop_lost(now.saturating_sub(AGAIN_NS)) {
                todo.now.push_back((lost.tenant, lost.key));
            }
            self.idle(self.now_ns() + 1_000_000);
        }
    }

    fn queue_key(&mut self, run: &mut Run, index: u16, key: u32, now: u64) -> anyhow::Result<()> {
        let tenant = &self.tenants[usize::from(index)];
        let (op, stamp) = if run.phase.kind == PhaseKind::Fill {
            self.written = self.written.wrapping_add(1);
            (Op::WriteRequest, stamp(tenant.id, self.written))
        } else {
            (Op::ReadRequest, POPULATED)
        };
        let request = self.window.push(Sent {
            at_ns: now,
            floor: tenant.versions.floor(key),
            stamp: stamp.0,
            key,
            tenant: index,
            interval: Sent::UNCOUNTED,
            ..Sent::default()
        });
        let lane = &mut self.lanes[usize::from(tenant.lane_of_key[key as usize])];
        if lane.is_full() {
            run.result.unsent += lane.send().context("sending requests")? as u64;
        }
        let named = tenant.keys.get(key);
        let header = Header {
            tenant: tenant.id,
            client: self.client,
            request,
            key_hash: named.hash,
            key_len: KEY_LEN as u8,
            ..Header::new(op)
        };
        let bytes = lane.queue(HEADER_LEN + KEY_LEN + self.config.value_len);
        encode(bytes, header, named, stamp, &tenant.secret);
        run.result.sent += 1;
        run.result.tenants[usize::from(index)].sent += 1;
        Ok(())
    }

    fn take_answers(&mut self, run: &mut Run, todo: &mut Todo, now: u64) -> anyhow::Result<()> {
        for lane in &mut self.lanes {
            let got = lane.receive().context("receiving answers")?;
            for i in 0..got {
                let Ok(packet) = Packet::decode(lane.datagram(i)) else {
                    continue;
                };
                let header = packet.header;
                if header.client != self.client {
                    continue;
                }
                let Some(sent) = self.window.take(header.request) else {
                    run.result.late += 1;
                    continue;
                };
                if !matches!(header.status, Status::Ok | Status::NotFound) {
                    todo.last_refusal = Some(header.status);
                    let again = (now + REFUSED_NS, sent.tenant, sent.key);
                    todo.later.push_back(again);
                    continue;
                }
                let tenant = &mut self.tenants[usize::from(sent.tenant)];
                check(&mut run.result, tenant, &packet, &sent);
                let cached = u64::from(header.flags.has(Flags::CACHED));
                run.result.answered += 1;
                run.result.cached += cached;
                let of_tenant = &mut run.result.tenants[usize::from(sent.tenant)];
                of_tenant.answered += 1;
                of_tenant.cached += cached;
            }
        }
        Ok(())
    }
}
