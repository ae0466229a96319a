//! Recording clients at chains of switches: those of `history`, with another client under them.

use std::{
    io::{BufRead, Write},
    net::SocketAddr,
    time::Duration,
};

use bytes::Bytes;
use chain_client::{Client, Machine, Options, Reads, recipes::Asks};
use client::{Answer, Error, Operation};
use experiments::rig::ClientKind;
use history::{ClientsConfig, clients_of};
use hunt::Connection;

/// Recording clients whose keys are those of chains of the cluster file's switches.
pub const CLIENTS: ClientKind = ClientKind { command: "chain-clients", connect };

fn options(config: &ClientsConfig) -> Options {
    Options {
        deadline: Duration::from_secs(2),
        reads: Reads::Spread,
        ..Options::of(&config.cluster)
    }
}

/// Runs recording clients on sockets: [`clients_of`].
///
/// # Errors
/// The clients cannot start, or nobody reads the output.
pub fn run(
    config: &ClientsConfig,
    input: impl BufRead + Send + 'static,
    output: impl Write,
) -> anyhow::Result<()> {
    let connect = async |tenant| {
        let client = Client::connect(&config.cluster, tenant, options(config)).await?;
        Ok(OnSockets(client))
    };
    clients_of(config, connect, input, output)
}

#[derive(Clone)]
struct OnSockets(Client);

impl history::Connection for OnSockets {
    fn call(&self, operation: Operation<'_>) -> impl Future<Output = Result<Answer, Error>> + Send {
        Asks::call(&self.0, operation)
    }
}

/// A tenant's client in the simulator.
fn connect(config: &ClientsConfig, tenant: u32, seed: u64) -> Result<Box<dyn Connection>, Error> {
    let machine = Machine::new(&config.cluster, tenant, options(config), seed)?;
    Ok(Box::new(InWorld(machine)))
}

struct InWorld(Machine);

impl Connection for InWorld {
    fn begin(&mut self, operation: &Operation<'_>, now_ns: u64) -> u64 {
        self.0.begin(operation, now_ns)
    }

    fn take(&mut self, datagram: &[u8], from: SocketAddr, now_ns: u64) {
        self.0.take(datagram, from, now_ns);
    }

    fn timer(&mut self, now_ns: u64) {
        self.0.timer(now_ns);
    }

    fn next_ns(&self) -> Option<u64> {
        self.0.next_ns()
    }

    fn next_datagram(&mut self) -> Option<(SocketAddr, Bytes)> {
        self.0.next_datagram()
    }

    fn next_finished(&mut self) -> Option<(u64, Result<Answer, Error>)> {
        self.0.next_finished()
    }
}
