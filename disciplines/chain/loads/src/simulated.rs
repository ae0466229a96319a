//! A load generator at chains of switches, as a process of a simulated world.

use experiments::rig::{LoadProcess, SimulatedLoad};
use sim::{Io, Maker, Process, packet::Datagram};

use crate::{Config, Phase, PhaseResult, Source};

/// The generator.
pub struct Generator {
    source: Source,
    port: u16,
    result: Option<anyhow::Result<PhaseResult>>,
}

impl Generator {
    fn go_on(&mut self, io: &mut Io<'_>) {
        let (port, now_ns) = (self.port, io.clock.boottime_ns);
        self.source.go_on(now_ns, &mut |to, datagram| io.send(port, to, datagram));
        if let Some(result) = self.source.finished(now_ns).transpose() {
            self.result = Some(result);
        }
    }
}

impl Process for Generator {
    fn receive(&mut self, datagram: &Datagram<'_>, io: &mut Io<'_>) {
        let now_ns = io.clock.boottime_ns;
        self.source.take(datagram.payload, datagram.from, now_ns);
        self.go_on(io);
    }

    fn wake(&mut self, io: &mut Io<'_>) {
        self.go_on(io);
    }

    fn next_wake_ns(&self) -> Option<u64> {
        self.source.next_ns()
    }

    fn ports(&self) -> Vec<u16> {
        vec![self.port]
    }
}

impl LoadProcess for Generator {
    type Phase = Phase;
    type Result = PhaseResult;

    fn begin(&mut self, phase: &Phase, io: &Io<'_>) -> anyhow::Result<()> {
        self.result = None;
        self.source.begin(phase, io.clock.boottime_ns)
    }

    fn take_result(&mut self) -> Option<anyhow::Result<PhaseResult>> {
        self.result.take()
    }
}

impl SimulatedLoad for Config {
    type Process = Generator;

    fn maker(&self) -> Maker {
        let config = self.clone();
        Box::new(move |birth| {
            Ok(Box::new(Generator {
                source: Source::new(config.clone(), birth.seed)?,
                port: birth.port,
                result: None,
            }))
        })
    }
}
