//! Concurrent clients that record what they ask and what they are told.

use std::io::{BufRead, Write};

use client::{Answer, Client, Error, Operation};

use super::{
    ClientRecord, ClientsConfig, Recorder,
    until_told::{Progress, run_until_told},
};

/// Nanoseconds of the clock that all processes share.
pub fn now_ns() -> u64 {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC);
    now.map_or(0, |t| t.tv_sec() as u64 * 1_000_000_000 + t.tv_nsec() as u64)
}

/// A client of one tenant on sockets: that of stores, or that of a discipline whose keys are
/// elsewhere. Clones are the same client.
pub trait Connection: Clone + Send + Sync + 'static {
    /// Carries out an operation.
    fn call(&self, operation: Operation<'_>) -> impl Future<Output = Result<Answer, Error>> + Send;
}

impl Connection for Client {
    fn call(&self, operation: Operation<'_>) -> impl Future<Output = Result<Answer, Error>> + Send {
        Client::call(self, operation)
    }
}

/// Runs clients of stores: [`clients_of`].
///
/// # Errors
/// The clients cannot start, or nobody reads the output.
pub fn clients(
    config: &ClientsConfig,
    input: impl BufRead + Send + 'static,
    output: impl Write,
) -> anyhow::Result<()> {
    let connect = async |tenant| Client::connect(&config.cluster, tenant, config.options()).await;
    clients_of(config, connect, input, output)
}

/// Runs clients, each of which `connect` makes for a tenant, until `input` ends; writes the number
/// of operations every tenth of a second and what was recorded at last, each as a line of JSON.
///
/// # Errors
/// The clients cannot start, or nobody reads the output.
pub fn clients_of<C: Connection>(
    config: &ClientsConfig,
    connect: impl AsyncFn(u32) -> Result<C, Error>,
    input: impl BufRead + Send + 'static,
    output: impl Write,
) -> anyhow::Result<()> {
    run_until_told(input, output, async |progress| {
        let ids = match config.tenants.as_slice() {
            [] => &[wire::TENANT_OPEN],
            some => some,
        };
        let mut connections = vec![];
        for id in ids {
            connections.push(connect(*id).await?);
        }
        let numbers = config.first..config.first + config.clients;
        let begin = |number| {
            let recorder = Recorder::new(config, number);
            tokio::spawn(record(recorder, connections.clone(), progress.clone()))
        };
        Ok(numbers.map(begin).collect())
    })
}

/// One client, until it is stopped. `connections`: one per tenant.
async fn record(
    mut recorder: Recorder,
    connections: Vec<impl Connection>,
    progress: Progress,
) -> ClientRecord {
    while !progress.is_stopped() {
        let asked = recorder.next(now_ns());
        let result = connections[asked.tenant].call(asked.operation()).await;
        let says_something = recorder.told(result, now_ns());
        progress.count(says_something);
    }
    recorder.into_recorded()
}
