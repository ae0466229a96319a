//! The life of a controller: it stands by, leads while it may, writes what changed, and stands
//! by again.

use std::{convert::Infallible, sync::Arc, time::Duration};

use decide::{ENDING_WITHIN, Registration};
use tokio::{sync::watch, time::MissedTickBehavior};

use super::{
    core::{Core, Disciplines, ITEMS_EVERY, PUMP_EVERY, Plan, TICK_EVERY},
    shared::{SharedCore, clock_ms},
};
use crate::state::{Lead, StateError};

const RETRY_AFTER: Duration = Duration::from_millis(200);

/// What every lead starts with.
pub struct Beginning {
    /// What switches are told; its term is filled in.
    pub plan: Plan,
    /// What tenants may choose.
    pub disciplines: &'static [Registration],
    /// The name of the discipline of those that choose none.
    pub default_discipline: String,
}

/// Leads whenever it may, until it is stopped.
///
/// # Errors
/// If the state cannot be used at all.
pub async fn live(
    shared: Arc<SharedCore>,
    beginning: Beginning,
    mut stopped: watch::Receiver<bool>,
) -> Result<(), StateError> {
    loop {
        let lead = tokio::select! {
            lead = shared.state.campaign() => lead?,
            _ = stopped.wait_for(|stopped| *stopped) => return Ok(()),
        };
        let led = lead_once(&shared, &beginning, &lead, &mut stopped).await;
        shared.end();
        match led {
            Ok(LeadEnd::Stopped) => {
                lead.resign().await;
                return Ok(());
            }
            Ok(LeadEnd::Outrun(heard)) => {
                let began = lead.begin_above(heard).await;
                lead.resign().await;
                match began {
                    Ok(()) | Err(StateError::Deposed) => {}
                    Err(e) => return Err(e),
                }
            }
            Ok(LeadEnd::Lost) | Err(StateError::Deposed) => {
                tracing::warn!(term = lead.term(), "does not lead any longer");
            }
            Err(e) => {
                lead.resign().await;
                return Err(e);
            }
        }
    }
}

enum LeadEnd {
    Stopped,
    Lost,
    /// A switch has heard of this term, which is not below ours, from another lead than this one.
    Outrun(u64),
}

async fn lead_once(
    shared: &Arc<SharedCore>,
    beginning: &Beginning,
    lead: &Lead,
    stopped: &mut watch::Receiver<bool>,
) -> Result<LeadEnd, StateError> {
    let loaded = lead.load().await?;
    let plan = Plan { term: lead.term(), ..beginning.plan.clone() };
    let default = &beginning.default_discipline;
    let disciplines =
        Disciplines::start(beginning.disciplines, default, plan.limits, &plan.settings);
    // Microseconds since 1970: above every number of an earlier lead, which used at most one per
    // microsecond.
    let core = Core::new(plan, disciplines, loaded, clock_ms() * 1000)?;
    tracing::info!(term = lead.term(), "leads");
    shared.begin(core, lead.term());
    let over = tokio::select! {
        () = lead.lost() => LeadEnd::Lost,
        never = keep_time(shared, lead) => match never {},
        over = write_changes(shared, lead) => match over {
            StateError::Deposed => LeadEnd::Lost,
            other => return Err(other),
        },
        heard = outrun(shared, lead.term()) => LeadEnd::Outrun(heard),
        () = to_the_end(shared, stopped) => LeadEnd::Stopped,
    };
    if let LeadEnd::Stopped | LeadEnd::Outrun(_) = over {
        let _ = write_once(shared, lead, true).await;
    }
    Ok(over)
}

/// Returns when a switch takes no notice of this lead, with the term that it has heard of.
async fn outrun(shared: &SharedCore, term: u64) -> u64 {
    let mut heard = shared.outrun.subscribe();
    // One that a lead before this one was to begin above is below its term.
    match heard.wait_for(|heard| *heard >= term).await {
        Ok(heard) => *heard,
        Err(_) => std::future::pending().await,
    }
}

/// Returns when this controller is to stop and disciplines have what they want to keep, or have
/// waited long enough for it.
async fn to_the_end(shared: &SharedCore, stopped: &mut watch::Receiver<bool>) {
    // An error means that the sender is gone, which is as good as stopped.
    let _ = stopped.wait_for(|stopped| *stopped).await;
    let is_ready = || {
        let core = &mut shared.lock().core;
        let ready = core.as_mut().is_none_or(|core| core.ending(shared.now()));
        shared.poke.notify_one();
        ready
    };
    let all = async {
        while !is_ready() {
            tokio::time::sleep(PUMP_EVERY).await;
        }
    };
    if tokio::time::timeout(ENDING_WITHIN, all).await.is_err() {
        tracing::warn!("stops without all that was to be kept: switches do not answer");
    }
}

/// Sends what became due, and ticks, while the lead holds by this machine's clock. While it does
/// not, this controller is as one that stands by.
async fn keep_time(shared: &SharedCore, lead: &Lead) -> Infallible {
    let mut pump = tokio::time::interval(PUMP_EVERY);
    let mut tick = tokio::time::interval(TICK_EVERY);
    pump.set_missed_tick_behavior(MissedTickBehavior::Delay);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let ticks = tokio::select! {
            _ = pump.tick() => false,
            _ = tick.tick() => true,
        };
        let mut inner = shared.lock();
        // Looked at last: this process may have stood still until now.
        if !shared.holds(lead.holds().then_some(lead.term())) {
            continue;
        }
        if let Some(core) = inner.core.as_mut().filter(|_| ticks) {
            core.tick(shared.now(), clock_ms());
        }
        inner.pump(shared.now());
        if inner.core.as_ref().is_some_and(|core| core.journal().is_pending()) {
            shared.poke.notify_one();
        }
    }
}

/// Writes changes as they come; returns when that is not possible any longer.
async fn write_changes(shared: &SharedCore, lead: &Lead) -> StateError {
    let mut every = tokio::time::interval(ITEMS_EVERY);
    every.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let with_items = tokio::select! {
            _ = every.tick() => true,
            () = shared.poke.notified() => false,
        };
        match write_once(shared, lead, with_items).await {
            Ok(()) => {}
            Err(StateError::Deposed) => return StateError::Deposed,
            Err(e @ StateError::Row { .. }) => return e,
            Err(e) => {
                tracing::error!("state not written, tried again soon: {e}");
                tokio::time::sleep(RETRY_AFTER).await;
                shared.poke.notify_one();
            }
        }
    }
}

async fn write_once(shared: &SharedCore, lead: &Lead, with_items: bool) -> Result<(), StateError> {
    let taken = {
        let mut inner = shared.lock();
        let Some(core) = &mut inner.core else {
            return Ok(());
        };
        core.take_batch(with_items)
    };
    let (batch, position) = taken;
    if !batch.is_empty() {
        let batch = Arc::new(batch);
        let written = lead.write(&batch).await;
        let mut inner = shared.lock();
        let Some(core) = &mut inner.core else {
            return Ok(());
        };
        if let Err(e) = written {
            core.put_back(Arc::unwrap_or_clone(batch));
            return Err(e);
        }
        core.written(position);
        shared.durable.send_replace(position);
    }
    Ok(())
}
