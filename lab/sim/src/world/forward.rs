//! What a switch does with a frame: its programs look at it, and its kernel takes what they pass.

use std::{
    net::IpAddr,
    sync::{Arc, PoisonError},
    time::Instant,
};

use dataplane::{
    Table,
    native::{Cpu, Fib, Frame, Program, Route, Switch, Verdict},
};
use plan::{Hardware, ProgramCosts, network::PortId};
use wire::Op;

use super::{Event, World};
use crate::{
    frames::FrameId,
    ids::MachineId,
    line::Line,
    network::{Network, Ways},
    packet::{self, Mac},
    round::{RoundCounts, RoundPort},
    service::Service,
};

/// The index of the port by which packets are sent round, as programs know it. The others have
/// their own, counted from 1.
pub(crate) const ROUND: u32 = 60_000;
/// The same port's far end, by which they come back.
const ROUND_BACK: u32 = ROUND + 1;
/// Longest IP packet of a link.
const MTU: u16 = 1500;
/// Packets that may wait; what comes on top is dropped.
const QUEUE: u32 = 1024;
/// What a packet takes a core that is sent round once more, in nanoseconds.
const ROUND_NS: f64 = 1000.0;
/// Packets that may wait to be sent round there.
const ROUND_QUEUE: u32 = 256;
/// Packets that a chip's memory holds for the port by which they go round: thousands,
/// whichever chip.
const CHIP_QUEUE: u32 = 16_384;

/// What forwards on a machine.
pub(super) struct Forwarding {
    /// Its programs, where they are loaded: of each core, or once for a chip.
    cpus: Vec<Cpu>,
    /// Where writes take their numbers, if they are loaded.
    table: Option<Table>,
    /// One for each core, or of a chip for each port.
    cores: Vec<Service>,
    is_chip: bool,
    /// Their time is the world's.
    is_shared: bool,
    /// What a packet takes them beside what all take.
    costs: Costs,
    /// The core that took the last frame.
    turn: usize,
    /// The line in which writes are numbered: the one that all cores write.
    epochs: Line,
    /// The port by which packets are sent round.
    round: RoundPort,
    transit_ns: u64,
    /// Ports that copies leave by.
    fan: Vec<u32>,
    counts: ForwardCounts,
}

/// What a packet takes a core beside what every packet takes it.
#[derive(Clone, Copy)]
struct Costs {
    byte_ns: f64,
    program_ns: ProgramCosts,
}

impl Costs {
    fn of(hardware: &Hardware) -> Costs {
        Costs { byte_ns: hardware.byte_ns, program_ns: hardware.program_ns }
    }

    /// Whether all packets take the same.
    fn are_none(&self) -> bool {
        self.byte_ns == 0.0 && self.program_ns == ProgramCosts::default()
    }

    /// Of a packet of so many bytes and this op, in nanoseconds; no verdict: no program looked.
    fn of_packet(&self, len: usize, op: Option<Op>, verdict: Option<&Verdict>) -> f64 {
        let program_ns = match verdict {
            None | Some(Verdict::Drop) => 0.0,
            Some(Verdict::Back) => self.program_ns.answered,
            Some(_) if op.is_some_and(Op::carries_write) => self.program_ns.written,
            Some(_) => self.program_ns.forwarded,
        };
        self.byte_ns * len as f64 + program_ns
    }
}

/// What cores take for a packet at least, and for one of the dearest: by how much of them can wait
/// queues are bounded.
fn packet_ns(hardware: &Hardware) -> [f64; 2] {
    let least = 1e9 / hardware.switch_rate;
    [least, least + hardware.byte_ns * f64::from(MTU) + hardware.program_ns.most()]
}

/// How often the switches' programs ran.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Programs {
    /// Runs.
    pub runs: u64,
    /// What they took, in nanoseconds; 0 unless they are timed.
    pub ns: f64,
    /// What reading the clock takes, if they are.
    clock_ns: Option<f64>,
}

impl Programs {
    /// From now on with their time.
    pub(super) fn time(&mut self) {
        const TIMES: u32 = 10_000;
        let begun = Instant::now();
        let read = (0..TIMES).map(|_| Instant::now()).max();
        let took = read.unwrap_or(begun) - begun;
        self.clock_ns = Some(took.as_nanos() as f64 / f64::from(TIMES));
    }

    fn count<R>(&mut self, run: impl FnOnce() -> R) -> R {
        self.runs += 1;
        let Some(clock_ns) = self.clock_ns else { return run() };
        let begun = Instant::now();
        let result = run();
        self.ns += (begun.elapsed().as_nanos() as f64 - clock_ns).max(0.0);
        result
    }
}

/// What a switch dropped, and sent round.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ForwardCounts {
    /// Frames that found too many others waiting.
    pub overflowed: u64,
    /// Frames that the programs dropped.
    pub dropped: u64,
    /// What happened at the port by which they are sent round.
    pub round: RoundCounts,
}

impl Forwarding {
    /// Of a machine with so many ports. Its cores take what comes in turn, as a network card
    /// spreads it that knows no flows; in a chip each port has a pipeline for itself.
    pub fn new(hardware: &Hardware, ports: usize) -> Forwarding {
        let cores = hardware.cores.map_or(ports, |cores| cores as usize).max(1);
        let [least_ns, most_ns] = packet_ns(hardware);
        let round = match hardware.round_gbit {
            None => RoundPort::new(ROUND_NS, 0.0, ROUND_QUEUE),
            Some(gbit) => RoundPort::new(0.0, 8.0 / gbit, CHIP_QUEUE),
        };
        Forwarding {
            cpus: vec![],
            table: None,
            cores: vec![Service::varied(least_ns, most_ns, 1, QUEUE); cores],
            costs: Costs::of(hardware),
            is_chip: hardware.cores.is_none(),
            is_shared: hardware.is_shared,
            turn: 0,
            epochs: Line::new(hardware.line_ns),
            round,
            transit_ns: (hardware.switch_us * 1e3) as u64,
            fan: vec![],
            counts: ForwardCounts::default(),
        }
    }

    /// The programs of the core that took the last frame.
    fn cpu(&mut self) -> Option<&mut Cpu> {
        let core = if self.is_chip { 0 } else { self.turn };
        self.cpus.get_mut(core)
    }

    /// Those of the core that takes what was sent round: the last one, where nobody chose another.
    fn cpu_of_rounds(&mut self) -> Option<&mut Cpu> {
        self.turn = self.cores.len() - 1;
        self.cpus.last_mut()
    }
}

/// The cores that switches of one machine share; of no use to anybody where none do.
pub(super) fn shared_cores(hardware: &Hardware) -> Service {
    let [least_ns, most_ns] = packet_ns(hardware);
    Service::varied(least_ns, most_ns, hardware.cores.unwrap_or(1), QUEUE)
}

/// The kernel's routes, as the programs of a machine ask for them.
#[derive(Clone)]
pub(crate) struct Routes {
    ways: Arc<Ways>,
    /// By a port's index: its addresses, and the hardware addresses of it and of the one across.
    ports: Vec<([IpAddr; 2], [Mac; 2])>,
}

impl Routes {
    /// Those of a machine, by these ways.
    pub fn of(network: &Network, machine: u32, ways: Arc<Ways>) -> Routes {
        let port = |port: &PortId| {
            let at = network.port(*port);
            let macs = [at.mac, network.across(*port).mac];
            ([at.v4.into(), at.v6.into()], macs)
        };
        Routes { ways, ports: network.ports_of(machine).iter().map(port).collect() }
    }
}

impl Fib for Routes {
    fn route(&self, _: IpAddr, to: IpAddr, len: u16, _: u32) -> Route {
        let Some(index) = self.ways.to(to) else { return Route::None };
        let (own, [from, to_mac]) = &self.ports[usize::from(index)];
        // An own address of another port has that port's subnet, which leads out of it.
        if own.contains(&to) {
            return Route::None;
        }
        if len > MTU {
            return Route::TooLong;
        }
        Route::By { port: u32::from(index) + 1, from: *from, to: *to_mac }
    }
}

impl World {
    /// Has a switch's programs look at what comes to its ports, if they are loaded.
    pub(super) fn attach(&mut self, machine: MachineId) {
        let loaded = self.loaded[machine.0 as usize].lock();
        let loaded = loaded.unwrap_or_else(PoisonError::into_inner).clone();
        let Some(forwarding) = &mut self.machines[machine.0 as usize].forwarding else { return };
        if forwarding.cpus.is_empty() == loaded.is_some() {
            let seed = self.seed ^ u64::from(machine.0) << 32 | 1;
            let cpu = |switch: &Arc<Switch>, number: u32| {
                let mut cpu = Cpu::of(switch, number);
                cpu.seed(seed.wrapping_add(u64::from(number) << 48));
                cpu
            };
            let cpus = loaded.iter().flat_map(|switch| {
                let numbers = 0..switch.cpus();
                numbers.map(move |number| cpu(switch, number))
            });
            forwarding.cpus = cpus.collect();
            let table = loaded.as_ref().filter(|_| forwarding.epochs.costs());
            forwarding.table = table.and_then(|switch| Table::open(switch).ok());
        }
    }

    /// What a switch dropped, and sent round; nothing on a host.
    pub fn forward_counts(&self, machine: MachineId) -> ForwardCounts {
        let forwarding = self.machines[machine.0 as usize].forwarding.as_ref();
        let counts = |f: &Forwarding| ForwardCounts { round: f.round.counts, ..f.counts };
        forwarding.map(counts).unwrap_or_default()
    }

    /// A frame at a port of a switch. It is looked at when it comes, and leaves when the switch's
    /// core had time for it.
    pub(super) fn forward(&mut self, machine: MachineId, port: PortId, frame: FrameId) {
        let at = &mut self.machines[machine.0 as usize];
        let Some(forwarding) = &mut at.forwarding else { return };
        let cores = forwarding.cores.len();
        let core = match forwarding.is_chip {
            true => usize::from(self.network.port(port).index).min(cores - 1),
            false => (forwarding.turn + 1) % cores,
        };
        forwarding.turn = core;
        let service = match forwarding.is_shared {
            true => &self.shared_cores,
            false => &forwarding.cores[core],
        };
        let Some(worker) = service.begin(self.now_ns) else {
            forwarding.counts.overflowed += 1;
            return self.frames.give(frame);
        };
        let (transit_ns, costs) = (forwarding.transit_ns, forwarding.costs);
        let bytes = self.frames.bytes(frame);
        let (len, op) = match costs.are_none() {
            true => (0, None),
            false => (bytes.len(), packet::op(bytes)),
        };
        let before = forwarding.table.as_ref().map(Table::epoch);
        let mut verdict = None;
        if let Some(cpu) = forwarding.cpu() {
            let ingress = u32::from(self.network.port(port).index) + 1;
            let now_ns = at.clock.at(self.now_ns).boottime_ns;
            let frame_at = self.frames.at(frame);
            let run = || cpu.run(Program::Entry, frame_at, ingress, now_ns);
            verdict = Some(self.programs.count(run));
        }
        let more_ns = costs.of_packet(len, op, verdict.as_ref());
        let service = match forwarding.is_shared {
            true => &mut self.shared_cores,
            false => &mut forwarding.cores[core],
        };
        let mut leaves_ns = service.serve(worker, self.now_ns, more_ns);
        if forwarding.table.as_ref().map(Table::epoch) != before {
            let there_ns = forwarding.epochs.write(core, leaves_ns as f64);
            forwarding.cores[core].held_until(there_ns);
            leaves_ns = leaves_ns.max(there_ns as u64);
        }
        match verdict {
            Some(verdict) => {
                self.carry_out(machine, port, frame, verdict, leaves_ns + transit_ns);
            }
            None => self.pass(machine, port, frame, leaves_ns + transit_ns),
        }
    }

    /// A frame comes back that was sent round.
    pub(super) fn round(&mut self, machine: MachineId, frame: FrameId) {
        let what = packet::digest(self.frames.bytes(frame)) ^ u64::from(machine.0) << 48;
        self.trace.note(self.now_ns, what);
        self.packets += 1;
        let at = &mut self.machines[machine.0 as usize];
        let forwarding = at.forwarding.as_mut().filter(|_| !at.suspended);
        let Some(forwarding) = forwarding else { return self.frames.give(frame) };
        // The port carries it at its own pace; whoever shares cores has no other for what
        // comes back.
        let taken_ns = match forwarding.is_shared {
            true => self.shared_cores.take(self.now_ns),
            false => Some(self.now_ns),
        };
        let Some(taken_ns) = taken_ns else {
            forwarding.counts.overflowed += 1;
            return self.frames.give(frame);
        };
        let leaves_ns = taken_ns + forwarding.transit_ns;
        let Some(cpu) = forwarding.cpu_of_rounds() else { return self.frames.give(frame) };
        let now_ns = at.clock.at(self.now_ns).boottime_ns;
        let frame_at = self.frames.at(frame);
        let verdict =
            self.programs.count(|| cpu.run(Program::ComesBack, frame_at, ROUND_BACK, now_ns));
        // It came by no port of the network; the kernel takes it as its own machine's.
        let port = self.network.ports_of(machine.0)[0];
        let mac = self.network.port(port).mac;
        if verdict == Verdict::Pass {
            self.frames.at(frame).bytes_mut()[..6].copy_from_slice(&mac);
        }
        match verdict {
            Verdict::Back => self.frames.give(frame),
            verdict => self.carry_out(machine, port, frame, verdict, leaves_ns),
        }
    }

    fn carry_out(
        &mut self,
        machine: MachineId,
        port: PortId,
        frame: FrameId,
        verdict: Verdict,
        leaves_ns: u64,
    ) {
        match verdict {
            Verdict::Back => self.transmit(port, frame, leaves_ns),
            Verdict::To(ROUND) => self.send_round(machine, frame, leaves_ns),
            Verdict::To(index) => {
                let ports = self.network.ports_of(machine.0);
                match ports.get(index.wrapping_sub(1) as usize) {
                    Some(&out) => self.transmit(out, frame, leaves_ns),
                    None => self.frames.give(frame),
                }
            }
            Verdict::Pass => self.pass(machine, port, frame, leaves_ns),
            Verdict::Fan => self.fan(machine, port, frame, leaves_ns),
            Verdict::Drop => {
                if let Some(forwarding) = &mut self.machines[machine.0 as usize].forwarding {
                    forwarding.counts.dropped += 1;
                }
                self.frames.give(frame);
            }
        }
    }

    fn send_round(&mut self, machine: MachineId, frame: FrameId, leaves_ns: u64) {
        let at = &mut self.machines[machine.0 as usize];
        let Some(forwarding) = &mut at.forwarding else { return };
        let len = self.frames.bytes(frame).len();
        match forwarding.round.take(leaves_ns, len) {
            Some(back_ns) => self.queue.put(back_ns, Event::Round(machine, frame)),
            None => self.frames.give(frame),
        }
    }

    /// Copies of a frame leave by every port of a group but the one that it came in by.
    fn fan(&mut self, machine: MachineId, port: PortId, frame: FrameId, leaves_ns: u64) {
        let at = &mut self.machines[machine.0 as usize];
        let now_ns = at.clock.at(self.now_ns).boottime_ns;
        let Some(forwarding) = &mut at.forwarding else { return };
        let ingress = u32::from(self.network.port(port).index) + 1;
        let mut fan = std::mem::take(&mut forwarding.fan);
        if let Some(cpu) = forwarding.cpu() {
            cpu.fan(ingress, &mut fan);
        }
        for egress in fan.drain(..) {
            let copy = self.frames.copy(frame);
            let at = &mut self.machines[machine.0 as usize];
            let cpu = at.forwarding.as_mut().and_then(Forwarding::cpu);
            let copy_at: &mut Frame = self.frames.at(copy);
            let leaves = cpu.is_some_and(|cpu| cpu.leaves(copy_at, ingress, egress, now_ns));
            if leaves {
                self.carry_out(machine, port, copy, Verdict::To(egress), leaves_ns);
            } else {
                self.frames.give(copy);
            }
        }
        self.frames.give(frame);
        if let Some(forwarding) = &mut self.machines[machine.0 as usize].forwarding {
            forwarding.fan = fan;
        }
    }

    /// The kernel's way: to a process here, or on to where routes lead.
    fn pass(&mut self, machine: MachineId, port: PortId, frame: FrameId, leaves_ns: u64) {
        let refused = &mut self.machines[machine.0 as usize].refused;
        let bytes = self.frames.bytes(frame);
        if bytes.get(..6) != Some(&self.network.port(port).mac) {
            refused.not_mine += 1;
            return self.frames.give(frame);
        }
        let to = match packet::destination(bytes) {
            Ok(to) => to,
            Err(packet::RefusalReason::Broken) => {
                refused.broken += 1;
                return self.frames.give(frame);
            }
            Err(packet::RefusalReason::Other) => {
                refused.not_mine += 1;
                return self.frames.give(frame);
            }
        };
        if self.network.is_own(machine.0, to) {
            return self.take_in(machine, port, frame);
        }
        let way = self.network.way(machine.0, to);
        let passed = way.filter(|out| {
            let macs = [self.network.port(*out), self.network.across(*out)].map(|p| p.mac);
            packet::pass_on(self.frames.at(frame).bytes_mut(), macs[0], macs[1])
        });
        match passed {
            Some(out) => self.transmit(out, frame, leaves_ns),
            None => {
                refused.unreachable += 1;
                self.frames.give(frame);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_costs_by_its_length_and_by_what_becomes_of_it() {
        let program_ns = ProgramCosts { answered: 100.0, forwarded: 200.0, written: 300.0 };
        let costs = Costs { byte_ns: 0.5, program_ns };
        let of = |op, verdict: Option<Verdict>| costs.of_packet(80, op, verdict.as_ref());
        assert_eq!(of(Some(Op::ReadRequest), Some(Verdict::Back)), 140.0);
        assert_eq!(of(Some(Op::ReadRequest), Some(Verdict::To(2))), 240.0);
        assert_eq!(of(None, Some(Verdict::Pass)), 240.0);
        assert_eq!(of(Some(Op::WriteRequest), Some(Verdict::To(2))), 340.0);
        assert_eq!(of(Some(Op::WriteRequest), Some(Verdict::Back)), 140.0, "it says no");
        assert_eq!(of(Some(Op::WriteRequest), Some(Verdict::Drop)), 40.0);
        assert_eq!(of(Some(Op::WriteRequest), None), 40.0, "there is no program");
    }
}
