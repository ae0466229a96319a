//! The thread that drives [`Tables`]: it alone writes the shared tables, and never waits for
//! the network.

use std::{
    sync::mpsc::{Receiver, RecvTimeoutError},
    time::Instant,
};

use super::{AgentError, LISTEN, TICK, session::ToTables, tables::Tables};

/// Serves until the session is gone.
pub(super) fn serve(
    mut tables: Tables,
    from_session: &Receiver<ToTables>,
) -> Result<(), AgentError> {
    let mut tick = Instant::now();
    let mut listen = None;
    loop {
        let due = listen.map_or(tick, |listen| tick.min(listen));
        let wait = due.saturating_duration_since(Instant::now());
        match from_session.recv_timeout(wait) {
            Ok(ToTables::Message(message)) => tables.take(message, Instant::now())?,
            Ok(ToTables::Attached) => tables.attached(),
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
            Err(RecvTimeoutError::Timeout) => {}
        }
        let now = Instant::now();
        if now >= tick {
            tick = now + TICK;
            listen = tables.tick(now)?.then(|| now + LISTEN);
        } else if now >= due {
            listen = tables.listen().then(|| now + LISTEN);
        }
    }
}
