//! One real switch that stands for many: model checkers save the bytes that a state consists of,
//! and put them back before the next step.

use std::{collections::HashMap, ops::Range, sync::Arc};

use dataplane::{
    RECIRCULATION,
    native::{Cpu, Fib, Frame, Memory, Program, Route, Switch, Verdict},
};

/// The link that everything comes in by and leaves by, and the port that packets go round by.
const LINK: u32 = 1;
const ROUND: u32 = 2;
/// Of one packet that came in, more than any makes.
const ROUNDS_MOST: usize = 100;

/// A real switch, the parts of whose tables that matter are saved as bytes and put back: so it is
/// as many switches as one likes, each in any of its states.
pub struct Snapshots {
    running: RunningCpu,
    parts: SavedParts,
}

/// A CPU, and the frame that it has.
struct RunningCpu {
    cpu: Cpu,
    frame: Frame,
}

/// The parts of its tables that a state consists of.
pub struct SavedParts(Vec<(Memory, Range<usize>)>);

/// Everything leaves by the link.
struct LinkRoutes;

impl Fib for LinkRoutes {
    fn route(&self, _: std::net::IpAddr, _: std::net::IpAddr, _: u16, _: u32) -> Route {
        Route::By { port: LINK, from: [0; 6], to: [0; 6] }
    }
}

impl Snapshots {
    /// Gives a switch that nobody else has yet the ports that it needs here.
    ///
    /// # Panics
    /// If somebody has it.
    pub fn ports(switch: Arc<Switch>) -> Arc<Switch> {
        let switch = switch.routed(Box::new(LinkRoutes));
        for (port, name) in [(LINK, "link"), (ROUND, RECIRCULATION)] {
            switch.add_port(port, name).expect("room for ports");
        }
        switch
    }

    /// Of a switch with these ports; a state is these bytes of elements of arrays, each with the
    /// array's name and the element's index.
    ///
    /// # Panics
    /// If it has no such array or element.
    pub fn of(switch: &Arc<Switch>, parts: &[(&str, u32, Range<usize>)]) -> Snapshots {
        let part = |(table, index, range): &(&str, u32, Range<usize>)| {
            let memory = switch.memory(table, *index);
            (memory.expect("an element of an array"), range.clone())
        };
        Snapshots {
            running: RunningCpu { cpu: Cpu::of(switch, 0), frame: Frame::default() },
            parts: SavedParts(parts.iter().map(part).collect()),
        }
    }

    /// The state that the switch is in.
    pub fn save(&self) -> Vec<u8> {
        self.parts.save()
    }

    /// Puts the switch into that state.
    ///
    /// # Panics
    /// If it is none of [`Snapshots::save`].
    pub fn restore(&self, state: &[u8]) {
        self.parts.restore(state);
    }

    /// What leaves the switch when this packet comes in; what goes round in it is back at once.
    /// Ethernet addresses are zeros.
    pub fn run(&mut self, packet: &[u8], now_ns: u64) -> Vec<Vec<u8>> {
        self.carry(packet, |at, _, (program, ingress), _| {
            at.cpu.run(program, &mut at.frame, ingress, now_ns)
        })
    }

    /// As [`Snapshots::run`], and calls `moment` wherever another CPU may come in, with how many
    /// frames had left by then ([`Cpu::run_with`]).
    #[cfg(debug_assertions)]
    pub fn run_with(
        &mut self,
        packet: &[u8],
        now_ns: u64,
        mut moment: impl FnMut(&SavedParts, usize),
    ) -> Vec<Vec<u8>> {
        self.carry(packet, |at, parts, (program, ingress), left| {
            let mut moment = || moment(parts, left);
            at.cpu.run_with(program, &mut at.frame, ingress, now_ns, &mut moment)
        })
    }

    /// The packet, and what of it goes round, by `run`, which is told how many frames have left.
    fn carry(
        &mut self,
        packet: &[u8],
        mut run: impl FnMut(&mut RunningCpu, &SavedParts, (Program, u32), usize) -> Verdict,
    ) -> Vec<Vec<u8>> {
        let mut leaves = vec![];
        let mut coming = vec![(Program::Entry, LINK, packet.to_vec())];
        let mut runs = 0;
        while let Some((program, ingress, bytes)) = coming.pop() {
            runs += 1;
            assert!(runs < ROUNDS_MOST, "it goes round for ever");
            let at = &mut self.running;
            at.frame.set(&bytes);
            at.cpu.seed(0);
            let verdict = run(at, &self.parts, (program, ingress), leaves.len());
            let mut ports = vec![];
            match verdict {
                Verdict::Drop | Verdict::Pass => {}
                Verdict::Back => ports.push(LINK),
                Verdict::To(port) => ports.push(port),
                Verdict::Fan => at.cpu.fan(ingress, &mut ports),
            }
            for port in ports {
                let mut bytes = at.frame.bytes().to_vec();
                if port == ROUND {
                    coming.push((Program::ComesBack, ROUND, bytes));
                } else {
                    bytes[..12].fill(0);
                    leaves.push(bytes);
                }
            }
        }
        leaves
    }
}

impl SavedParts {
    /// As [`Snapshots::save`].
    pub fn save(&self) -> Vec<u8> {
        let mut state = vec![];
        for (memory, range) in &self.0 {
            let from = state.len();
            state.resize(from + range.len(), 0);
            memory.copy_to(range.start, &mut state[from..]);
        }
        state
    }

    /// As [`Snapshots::restore`].
    ///
    /// # Panics
    /// If it is none of [`SavedParts::save`].
    pub fn restore(&self, state: &[u8]) {
        let mut rest = state;
        for (memory, range) in &self.0 {
            let (part, behind) = rest.split_at(range.len());
            memory.write(range.start, part);
            rest = behind;
        }
        assert!(rest.is_empty(), "as long as it was saved");
    }
}

/// Numbers for what is long and comes again and again, counted up from 0.
#[derive(Debug, Default)]
pub struct Names {
    numbers: HashMap<Arc<[u8]>, u32>,
    all: Vec<Arc<[u8]>>,
}

impl Names {
    /// Its number, and whether it is new.
    pub fn number(&mut self, bytes: &[u8]) -> (u32, bool) {
        if let Some(number) = self.numbers.get(bytes) {
            return (*number, false);
        }
        let number = self.all.len() as u32;
        let bytes: Arc<[u8]> = bytes.into();
        self.all.push(bytes.clone());
        self.numbers.insert(bytes, number);
        (number, true)
    }

    /// What has that number.
    ///
    /// # Panics
    /// If nothing has.
    pub fn bytes(&self, number: u32) -> Arc<[u8]> {
        self.all[number as usize].clone()
    }
}
