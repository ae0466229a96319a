//! The thread that drives [`Tables`]: it alone writes the shared tables, and never waits for the network.

use std::{
    sync::mpsc::{Receiver, RecvTimeoutError},
    time::Instant,
};

use super::{AgentError, TICK, session::ToTables, tables::Tables};

/// Serves until the session is gone.
pub(super) fn serve(
    mut tables: Tables,
    from_session: &Receiver<ToTables>,
) -> Result<(), AgentError> {
    let mut tick = Instant::now();
    loop {
        let wait = tick.saturating_duration_since(Instant::now());
        match from_session.recv_timeout(wait) {
            Ok(ToTables::Message(message)) => tables.take(message, Instant::now())?,
            Ok(ToTables::Attached) => tables.attached(),
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
            Err(RecvTimeoutError::Timeout) => {}
        }
        let now = Instant::now();
        if now >= tick {
            tick = now + TICK;
            tables.tick(now)?;
        }
    }
}
