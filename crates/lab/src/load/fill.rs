use std::collections::VecDeque;

use anyhow::{Context, ensure};
use wire::{HEADER_LEN, Header, Op, Packet, Status};

use super::{
    Arrivals,
    batch::Lane,
    generator::{Generator, Run, encode},
    tenant::stamp,
    window::Sent,
};
use crate::workload::{KEY_LEN, Stamp};

/// A write without an answer is sent again after so long.
const AGAIN_NS: u64 = 100_000_000;
/// A write that was refused (the store does not know the tenant yet, or takes no writes yet) is sent again after so long.
const REFUSED_NS: u64 = 20_000_000;

impl Generator {
    /// Writes every key of every active tenant until each is acknowledged.
    ///
    /// # Errors
    /// Not all were acknowledged in time; the message says how many were not, and the last refusal.
    pub(super) fn fill(&mut self, run: &mut Run) -> anyhow::Result<()> {
        let Arrivals::Closed(outstanding) = run.phase.arrivals else {
            anyhow::bail!("load: a fill needs closed arrivals: how many writes are under way");
        };
        let outstanding = outstanding.clamp(1, Lane::SEND * 8);
        let keys = 0..self.config.keys as u32;
        let mut todo: VecDeque<(u16, u32)> = (0..run.active as u16)
            .flat_map(|tenant| keys.clone().map(move |key| (tenant, key)))
            .collect();
        let deadline_ns = self.now_ns() + (run.phase.seconds * 1e9) as u64;
        let mut last_refusal = None;
        // Refused writes and when they may go again, in order of time.
        let mut later: VecDeque<(u64, u16, u32)> = VecDeque::new();
        while !todo.is_empty() || !later.is_empty() || self.window.open() > 0 {
            let now = self.now_ns();
            let left = todo.len() + later.len() + self.window.open();
            ensure!(
                now < deadline_ns,
                "load: {left} of {} writes were not acknowledged within {} s (last refusal: {})",
                run.active * self.config.keys,
                run.phase.seconds,
                last_refusal.map_or("none".into(), |status: Status| format!("{status:?}"))
            );
            while later.front().is_some_and(|(at, ..)| *at <= now) {
                todo.extend(later.pop_front().map(|(_, tenant, key)| (tenant, key)));
            }
            while self.window.open() < outstanding && !self.window.is_full() {
                let Some((tenant, key)) = todo.pop_front() else {
                    break;
                };
                self.queue_write(run, tenant, key, now)?;
            }
            for lane in self.lanes.iter_mut().filter(|lane| !lane.is_empty()) {
                run.result.unsent += lane.send().context("sending writes")? as u64;
            }
            for (sent, status, version) in self.acknowledgements()? {
                if status == Status::Ok {
                    run.result.answered += 1;
                    let tenant = &mut self.tenants[usize::from(sent.tenant)];
                    let stamp = Stamp(sent.stamp);
                    tenant.versions.learn(sent.key, sent.floor, version, stamp);
                } else {
                    last_refusal = Some(status);
                    later.push_back((now + REFUSED_NS, sent.tenant, sent.key));
                }
            }
            while let Some(lost) = self.window.pop_lost(now.saturating_sub(AGAIN_NS)) {
                todo.push_back((lost.tenant, lost.key));
            }
            self.idle(self.now_ns() + 1_000_000);
        }
        Ok(())
    }

    fn queue_write(&mut self, run: &mut Run, index: u16, key: u32, now: u64) -> anyhow::Result<()> {
        self.written = self.written.wrapping_add(1);
        let tenant = &self.tenants[usize::from(index)];
        let stamp = stamp(tenant.id, self.written);
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
            run.result.unsent += lane.send().context("sending writes")? as u64;
        }
        let named = tenant.keys.get(key);
        let header = Header {
            tenant: tenant.id,
            client: self.client,
            request,
            key_hash: named.hash,
            key_len: KEY_LEN as u8,
            ..Header::new(Op::WriteRequest)
        };
        let bytes = lane.queue(HEADER_LEN + KEY_LEN + self.config.value_len);
        encode(bytes, header, named, stamp, &tenant.secret);
        run.result.sent += 1;
        Ok(())
    }

    /// Writes that were answered meanwhile: the status, and the version if it is well.
    fn acknowledgements(&mut self) -> anyhow::Result<Vec<(Sent, Status, u64)>> {
        let mut all = vec![];
        for lane in &mut self.lanes {
            let got = lane.receive().context("receiving answers")?;
            for i in 0..got {
                let Ok(packet) = Packet::decode(lane.datagram(i)) else {
                    continue;
                };
                let header = packet.header;
                if header.client != self.client || header.op != Op::WriteReply {
                    continue;
                }
                if let Some(sent) = self.window.take(header.request) {
                    all.push((sent, header.status, header.version));
                }
            }
        }
        Ok(all)
    }
}
