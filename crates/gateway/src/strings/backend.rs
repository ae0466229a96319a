//! One of the Redis servers behind the stores, as jobs speak with it.

use redis::{Cmd, Value};

use super::{data::DataResult, errands::Errands};

/// A Redis, to which the loop has a connection.
#[derive(Clone)]
pub(crate) struct Backend {
    pub errands: Errands,
    /// In the order of `--backend`.
    pub number: usize,
}

impl Backend {
    /// Carries a command out that changes nothing.
    pub async fn read(&self, command: &Cmd) -> DataResult<Value> {
        self.errands.ask(self.number, command, false).await
    }

    /// Carries a command out that may change something.
    pub async fn write(&self, command: &Cmd) -> DataResult<Value> {
        self.errands.ask(self.number, command, true).await
    }
}
