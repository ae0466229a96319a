//! Load in Redis's own protocol.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use super::values::{Outcome, Values};
use crate::resp::{Connection, Server};

/// Asks for values by so many connections for so long.
pub(super) fn run(
    server: &Server,
    values: Values,
    workers: usize,
    length: Duration,
) -> anyhow::Result<Outcome> {
    let start = Instant::now();
    let values = Mutex::new(values);
    let locked =
        || -> MutexGuard<'_, Values> { values.lock().unwrap_or_else(PoisonError::into_inner) };
    std::thread::scope(|scope| {
        let work = || -> anyhow::Result<()> {
            let mut connection = Connection::to(server)?;
            while start.elapsed() < length {
                let (ask, name) = {
                    let mut values = locked();
                    let ask = values.next(start.elapsed());
                    let name = values.name(ask.key);
                    (ask, name)
                };
                match &ask.write {
                    Some(value) => {
                        let said = connection.ask(&[b"SET", name.as_bytes(), value]);
                        let is_done = said.is_ok_and(|said| said.as_deref() == Some(b"OK"));
                        locked().wrote(&ask, is_done, start.elapsed());
                    }
                    None => {
                        let found = connection.ask(&[b"GET", name.as_bytes()]).ok();
                        let found = found.as_ref().map(|value| (value.as_deref(), false));
                        locked().read(&ask, found, start.elapsed());
                    }
                }
            }
            Ok(())
        };
        let threads: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        for thread in threads {
            let ended = thread.join();
            ended.map_err(|_| anyhow::anyhow!("a client panicked"))??;
        }
        anyhow::Ok(())
    })?;
    let mut values = locked();
    Ok(std::mem::take(&mut values.seen))
}
