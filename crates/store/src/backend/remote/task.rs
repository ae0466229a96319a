//! The task beside the connection: one batch at a time, and what the log says of it.

use std::time::Duration;

use super::{Outcome, Protocol, queue::Queue};
use crate::{
    backend::{Completion, OutsideEvent, outage::Outage},
    clock::boot_ns,
};

/// Where outside writes are tracked, a question is asked at least this often.
const HEARTBEAT: Duration = Duration::from_millis(100);

/// The half beside the connection. A batch that takes longer than `within` has failed, and its
/// connection is given up.
pub(super) async fn serve(
    mut protocol: impl Protocol,
    watched: bool,
    within: Duration,
    mut queue: Queue,
) {
    let mut connected = true;
    let mut outage = Outage::default();
    loop {
        let gathered = queue.gather();
        if watched {
            // An empty batch is a question, too: its answer proves that nothing has gone unseen.
            if let Ok(false) = tokio::time::timeout(HEARTBEAT, gathered).await {
                return;
            }
        } else if !gathered.await {
            return;
        }
        let asked = boot_ns();
        let batch = &queue.batch;
        let mut is_reached = false;
        let carried_out = tokio::time::timeout(within, async {
            protocol.connect().await?;
            is_reached = true;
            protocol.execute(batch).await
        });
        let outcomes = match carried_out.await {
            Ok(Ok(outcomes)) if outcomes.len() == batch.len() => {
                connected = true;
                if let Some(after) = outage.answered(boot_ns()) {
                    tracing::warn!("backend: answers again, after {:.1} s", after.as_secs_f64());
                }
                if watched {
                    let seen = OutsideEvent::Seen(asked);
                    let _ = queue.completions.send(Completion::Outside(seen));
                }
                outcomes
            }
            failed => {
                if let Some(unsaid) = outage.failed(boot_ns()) {
                    let why = match failed {
                        Ok(Err(error)) => format!("{error:#}"),
                        Ok(Ok(_)) => "an answer is missing".into(),
                        Err(_) => format!("no answer within {within:?}"),
                    };
                    match unsaid {
                        0 => tracing::warn!("backend: {why}"),
                        _ => tracing::warn!("backend: {why} (and {unsaid} failures before)"),
                    }
                }
                protocol.disconnect();
                if watched && connected {
                    let lost = Completion::Outside(OutsideEvent::Everything);
                    let _ = queue.completions.send(lost);
                }
                connected = false;
                let outcome = if is_reached { Outcome::Failed } else { Outcome::Unreached };
                vec![outcome; batch.len()]
            }
        };
        if !queue.answer(outcomes) {
            return;
        }
    }
}
