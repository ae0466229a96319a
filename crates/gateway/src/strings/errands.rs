//! What a job cannot do itself, but has done by the loop that runs it: operations by packets,
//! commands to a Redis behind the stores, pauses. A job waits for each without holding up the loop.

use std::{future::pending, time::Duration};

use bytes::Bytes;
use client::{Answer, Condition, Error, Metadata, Operation, Value};
use redis::Cmd;
use tokio::sync::{mpsc, oneshot};

use super::data::DataResult;

/// What the loop is to do, and whom to tell how it ended.
pub(crate) enum Errand {
    Call(KeyOperation, oneshot::Sender<Result<Answer, Error>>),
    Ask(BackendCommand, oneshot::Sender<DataResult<redis::Value>>),
    Pause(Duration, oneshot::Sender<()>),
}

/// An operation on a key, by packets.
pub(crate) enum KeyOperation {
    Get(Bytes),
    About(Bytes),
    Set { key: Bytes, value: Bytes, ttl: Option<Duration>, condition: Condition },
    Delete { key: Bytes, condition: Condition },
}

impl KeyOperation {
    /// As the client takes it.
    pub fn operation(&self) -> Operation<'_> {
        match self {
            KeyOperation::Get(key) => Operation::Get { key },
            KeyOperation::About(key) => Operation::About { key },
            KeyOperation::Set { key, value, ttl, condition } => {
                Operation::Set { key, value, ttl: *ttl, condition: *condition }
            }
            KeyOperation::Delete { key, condition } => {
                Operation::Delete { key, condition: *condition }
            }
        }
    }
}

/// A command to one of the Redis servers behind the stores.
pub(crate) struct BackendCommand {
    /// Its number, in the order of `--backend`.
    pub backend: usize,
    pub bytes: Vec<u8>,
    /// Whether it may have changed something when no answer comes.
    pub writes: bool,
}

/// By which a job has its errands done.
#[derive(Clone)]
pub(crate) struct Errands(mpsc::UnboundedSender<Errand>);

impl Errands {
    /// A way to the loop that takes errands from the other end.
    pub fn new() -> (Errands, mpsc::UnboundedReceiver<Errand>) {
        let (errands, taken) = mpsc::unbounded_channel();
        (Errands(errands), taken)
    }

    async fn done<T>(&self, errand: impl FnOnce(oneshot::Sender<T>) -> Errand) -> T {
        let (tell, told) = oneshot::channel();
        let _ = self.0.send(errand(tell));
        match told.await {
            Ok(result) => result,
            // The loop is gone, and this job with it.
            Err(_) => pending().await,
        }
    }

    async fn call(&self, operation: KeyOperation) -> Result<Answer, Error> {
        self.done(|tell| Errand::Call(operation, tell)).await
    }

    /// The value of a key.
    pub async fn get(&self, key: &Bytes) -> Result<Option<Value>, Error> {
        self.call(KeyOperation::Get(key.clone())).await?.found()
    }

    /// What a key has beside its value.
    pub async fn about(&self, key: &Bytes) -> Result<Option<Metadata>, Error> {
        self.call(KeyOperation::About(key.clone())).await?.about()
    }

    /// Writes a value if a condition holds; its version.
    pub async fn set_if(
        &self,
        key: &Bytes,
        value: &Bytes,
        ttl: Option<Duration>,
        condition: Condition,
    ) -> Result<u64, Error> {
        let (key, value) = (key.clone(), value.clone());
        self.call(KeyOperation::Set { key, value, ttl, condition }).await?.written()
    }

    /// Removes a key if a condition holds; whether there was one.
    pub async fn delete_if(&self, key: &Bytes, condition: Condition) -> Result<bool, Error> {
        self.call(KeyOperation::Delete { key: key.clone(), condition }).await?.removed()
    }

    /// What the Redis with this number answers to a command.
    pub async fn ask(
        &self,
        backend: usize,
        command: &Cmd,
        writes: bool,
    ) -> DataResult<redis::Value> {
        let bytes = command.get_packed_command();
        self.done(|tell| Errand::Ask(BackendCommand { backend, bytes, writes }, tell)).await
    }

    /// Waits.
    pub async fn pause(&self, how_long: Duration) {
        self.done(|tell| Errand::Pause(how_long, tell)).await
    }
}
