//! The thread that drives [`Tables`]: it alone writes the shared tables, and never waits for
//! the network.

use std::{
    sync::mpsc::{Receiver, RecvTimeoutError},
    time::Instant,
};

use tracing::warn;

use super::{
    AgentError, HANDS_ON_WITHIN, LISTEN, REST_TICK, TICK, session::ToTables, tables::Tables,
};

/// Serves until the session is gone; or, if the switch is to leave, until what others rely on is
/// handed on, or cannot be.
pub(super) fn serve(
    mut tables: Tables,
    from_session: &Receiver<ToTables>,
) -> Result<(), AgentError> {
    let mut tick = Instant::now();
    let mut listen = None;
    let mut leaves_by = None;
    loop {
        if let Some(by) = leaves_by {
            if !tables.is_needed() {
                return Ok(());
            }
            if Instant::now() >= by {
                warn!(
                    "what is kept here was not handed on within {} s: others miss this switch as one that failed",
                    HANDS_ON_WITHIN.as_secs()
                );
                return Ok(());
            }
        }
        let due = listen.map_or(tick, |listen| tick.min(listen));
        let wait = due.saturating_duration_since(Instant::now());
        match from_session.recv_timeout(wait) {
            Ok(ToTables::Message(message)) => {
                tables.take(message, Instant::now())?;
                tick = tick.min(Instant::now() + TICK);
            }
            Ok(ToTables::Attached) => tables.attached(),
            Ok(ToTables::Leave) => {
                tables.leave();
                tick = Instant::now();
                leaves_by = Some(Instant::now() + HANDS_ON_WITHIN);
            }
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
            Err(RecvTimeoutError::Timeout) => {}
        }
        let now = Instant::now();
        if now >= tick {
            listen = tables.tick(now)?.then(|| now + LISTEN);
            let rests = leaves_by.is_none() && tables.is_at_rest();
            tick = now + if rests { REST_TICK } else { TICK };
        } else if now >= due {
            listen = tables.listen().then(|| now + LISTEN);
        }
    }
}
