//! A generator of load as a process: the same source of requests as a real one's, at its
//! very times.

use std::net::SocketAddr;

use load::{LoadConfig, Phase, PhaseResult, Source};

use crate::{
    packet::Datagram,
    process::{Io, Maker, Process},
};

/// What makes a generator.
pub fn generator(config: LoadConfig) -> Maker {
    let stores: Vec<SocketAddr> = config.cluster.stores.iter().map(|s| s.address).collect();
    Box::new(move |birth| {
        Ok(Box::new(Generator {
            stores: stores.clone(),
            source: Source::new(config.clone(), birth.seed)?,
            port: birth.port,
            result: None,
        }))
    })
}

/// A generator that runs.
pub struct Generator {
    source: Source,
    port: u16,
    stores: Vec<SocketAddr>,
    result: Option<anyhow::Result<PhaseResult>>,
}

impl Generator {
    /// Begins a phase.
    ///
    /// # Errors
    /// As [`Source::begin`].
    pub fn begin(&mut self, phase: &Phase, io: &Io<'_>) -> anyhow::Result<()> {
        self.result = None;
        self.source.begin(phase, io.now_ns())
    }

    /// The result of the phase that was begun, once it is over.
    pub fn take_result(&mut self) -> Option<anyhow::Result<PhaseResult>> {
        self.result.take()
    }

    #[inline]
    fn go_on(&mut self, io: &mut Io<'_>) {
        let (port, stores) = (self.port, &self.stores);
        let now_ns = io.now_ns();
        let mut send = |store: usize, bytes: &[u8]| io.send(port, stores[store], bytes);
        self.source.due(now_ns, &mut send);
        self.source.expire(now_ns);
        if let Some(result) = self.source.finished(now_ns).transpose() {
            self.result = Some(result);
        }
    }
}

impl Process for Generator {
    fn receive(&mut self, datagram: &Datagram<'_>, io: &mut Io<'_>) {
        self.source.take(datagram.payload, datagram.from, io.now_ns());
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
