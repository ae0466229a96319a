//! The life of a controller: it stands by, leads while it may, writes what changed, and stands
//! by again.

use std::{convert::Infallible, sync::Arc, time::Duration};

use decide::{ENDING_WITHIN, Registration};
use tokio::sync::watch;

use super::{
    core::{Core, CoreConfig, Disciplines, IDLE_ITEMS_EVERY, ITEMS_EVERY, PUMP_EVERY},
    pace::Pace,
    shared::{SharedCore, clock_ms},
};
use crate::state::{Batch, Lead, StateError};

const RETRY_AFTER: Duration = Duration::from_millis(200);

/// What every lead starts with.
pub struct Beginning {
    /// What switches are told; its term is filled in.
    pub config: CoreConfig,
    /// What tenants may choose.
    pub disciplines: &'static [Registration],
    /// The name of the discipline of those that choose none.
    pub default_discipline: String,
}

/// Leads whenever it may, until it is stopped.
///
/// # Errors
/// If the state cannot be used at all, also when it could be before: of another format, or in use.
/// A disk that fails once this controller led is waited for.
pub async fn live(
    shared: Arc<SharedCore>,
    beginning: Beginning,
    mut stopped: watch::Receiver<bool>,
) -> Result<(), StateError> {
    let mut has_led = false;
    loop {
        match live_once(&shared, &beginning, &mut stopped, &mut has_led).await {
            Ok(LeadEnd::Stopped) => return Ok(()),
            Ok(LeadEnd::Lost | LeadEnd::Outrun(_)) => {}
            Err(error @ StateError::Io { .. }) if has_led => {
                tracing::error!("cannot lead, tried again until it can: {error}");
                let is_stopped = stopped.wait_for(|stopped| *stopped);
                if tokio::time::timeout(RETRY_AFTER, is_stopped).await.is_ok() {
                    return Ok(());
                }
            }
            Err(error) => return Err(error),
        }
    }
}

/// One lead, from waiting for it to its end.
async fn live_once(
    shared: &Arc<SharedCore>,
    beginning: &Beginning,
    stopped: &mut watch::Receiver<bool>,
    has_led: &mut bool,
) -> Result<LeadEnd, StateError> {
    let lead = tokio::select! {
        lead = shared.state.campaign() => lead?,
        _ = stopped.wait_for(|stopped| *stopped) => return Ok(LeadEnd::Stopped),
    };
    let led = lead_once(shared, beginning, &lead, stopped).await;
    *has_led |= *shared.term.borrow() > 0;
    shared.end();
    match led {
        Ok(LeadEnd::Lost) | Err(StateError::Deposed) => {
            tracing::warn!(term = lead.term(), "does not lead any longer");
            Ok(LeadEnd::Lost)
        }
        Ok(LeadEnd::Outrun(heard)) => {
            let began = lead.begin_above(heard).await;
            lead.resign().await;
            match began {
                Ok(()) | Err(StateError::Deposed) => Ok(LeadEnd::Outrun(heard)),
                Err(error) => Err(error),
            }
        }
        other => {
            lead.resign().await;
            other
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
    begin(shared, beginning, lead).await?;
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
    if let LeadEnd::Stopped | LeadEnd::Outrun(_) = over
        && let Err(error) = write_once(shared, lead, true).await
    {
        tracing::error!("ends, and what changed last is not written: {error}");
    }
    Ok(over)
}

/// The core begins with what is remembered.
async fn begin(shared: &SharedCore, beginning: &Beginning, lead: &Lead) -> Result<(), StateError> {
    let loaded = lead.load().await?;
    let config = CoreConfig { term: lead.term(), ..beginning.config.clone() };
    let default = &beginning.default_discipline;
    let disciplines = Disciplines::start(beginning.disciplines, default, &config);
    // Microseconds since 1970: above every number of an earlier lead, which used at most one per
    // microsecond.
    let core = Core::new(config, disciplines, loaded, clock_ms() * 1000)?;
    tracing::info!(term = lead.term(), "leads");
    shared.begin(core, lead.term());
    Ok(())
}

/// Returns when a switch takes no notice of this lead, with the term that it has heard of.
async fn outrun(shared: &SharedCore, term: u64) -> u64 {
    let mut heard = shared.outrun.subscribe();
    // One that a lead before this one was to begin above is below its term.
    let heard = heard.wait_for(|heard| *heard >= term).await.map(|heard| *heard);
    match heard {
        Ok(heard) => heard,
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
        shared.told.notify_one();
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
    let mut pace = Pace::new(shared.now());
    loop {
        let (pump_at, tick_at) = (pace.pump_at(), pace.tick_at());
        tokio::select! {
            () = shared.told.notified() => pace.told(),
            () = until(shared, pump_at) => {}
            () = until(shared, Some(tick_at)) => {}
        }
        let now = shared.now();
        let mut inner = shared.lock();
        // Looked at last: this process may have stood still until now.
        if !shared.holds(lead.holds().then_some(lead.term())) {
            pace.ticked(now, false);
            continue;
        }
        if pace.tick_at() <= now {
            let is_idle = inner.core.as_mut().is_none_or(|core| {
                core.tick(now, clock_ms());
                core.is_idle()
            });
            pace.ticked(now, is_idle);
        }
        if pace.may_pump(now) {
            let any = inner.pump(now);
            pace.pumped(now, any);
        }
        if inner.core.as_ref().is_some_and(|core| core.journal().is_pending()) {
            shared.poke.notify_one();
        }
    }
}

/// Waits until that time of the shared clock; for ever without one.
async fn until(shared: &SharedCore, at: Option<Duration>) {
    match at {
        Some(at) => tokio::time::sleep(at.saturating_sub(shared.now())).await,
        None => std::future::pending().await,
    }
}

/// Writes changes as they come; returns when that is not possible any longer.
async fn write_changes(shared: &SharedCore, lead: &Lead) -> StateError {
    let mut items_at = shared.now();
    loop {
        let with_items = tokio::select! {
            () = until(shared, Some(items_at)) => true,
            () = shared.poke.notified() => false,
        };
        if with_items {
            let is_idle = shared.lock().core.as_ref().is_none_or(|core| core.is_idle());
            items_at = shared.now() + if is_idle { IDLE_ITEMS_EVERY } else { ITEMS_EVERY };
        }
        match write_once(shared, lead, with_items).await {
            Ok(()) => {}
            Err(StateError::Deposed) => return StateError::Deposed,
            Err(e @ StateError::Row { .. }) => return e,
            Err(e) => {
                let reason = e.to_string();
                let known = shared.trouble.send_replace(Some(reason.clone()));
                if known.as_ref() != Some(&reason) {
                    tracing::error!("state not written, tried again until it is: {reason}");
                }
                tokio::time::sleep(RETRY_AFTER).await;
                shared.poke.notify_one();
            }
        }
    }
}

/// Writes what waits. What is not written, or of which that is not known because this is dropped,
/// waits again.
async fn write_once(shared: &SharedCore, lead: &Lead, with_items: bool) -> Result<(), StateError> {
    let Some(mut taken) = TakenBatch::take(shared, with_items) else { return Ok(()) };
    if let Err(error) = lead.write(&taken.batch).await {
        // A file, whose disk may be full for days.
        if let StateError::Io { .. } = error {
            taken.compact();
        }
        return Err(error);
    }
    taken.written();
    Ok(())
}

/// Rows that were taken out of the journal to be written. They are put back unless they were: a
/// write that is given up in the middle, for this controller is to stop, leaves the rest of them
/// unsent, and what comes after them must not be taken to be all that there was. Rows that are
/// written a second time are as they were.
struct TakenBatch<'a> {
    shared: &'a SharedCore,
    batch: Arc<Batch>,
    /// That of the journal after them.
    position: u64,
    is_written: bool,
}

impl TakenBatch<'_> {
    /// None: nothing waits, or this controller does not lead.
    fn take(shared: &SharedCore, with_items: bool) -> Option<TakenBatch<'_>> {
        let mut inner = shared.lock();
        let (batch, position) = inner.core.as_mut()?.take_batch(with_items);
        let batch = (!batch.is_empty()).then(|| Arc::new(batch))?;
        Some(TakenBatch { shared, batch, position, is_written: false })
    }

    /// Leaves the last change of each row only.
    fn compact(&mut self) {
        Arc::make_mut(&mut self.batch).compact();
    }

    /// They are durable.
    fn written(mut self) {
        self.is_written = true;
        let mut inner = self.shared.lock();
        let Some(core) = &mut inner.core else { return };
        core.written(self.position);
        self.shared.durable.send_replace(self.position);
        // What had to be safe before it is told may be told now.
        self.shared.told.notify_one();
        if self.shared.trouble.send_replace(None).is_some() {
            tracing::info!("the state is written again");
        }
    }
}

impl Drop for TakenBatch<'_> {
    fn drop(&mut self) {
        if self.is_written {
            return;
        }
        let batch = std::mem::take(&mut self.batch);
        if let Some(core) = &mut self.shared.lock().core {
            core.put_back(Arc::unwrap_or_clone(batch));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, future::poll_fn, task::Poll};

    use api::types::TenantSpec;
    use decide::Limits;

    use super::*;
    use crate::{
        admin::{Admin, Refusal, RefusalKind},
        server::core::RequestOrigin,
        state::{
            Candidate, State,
            faulty::{Fault, FaultyDisk},
        },
    };

    /// Ends a test that hangs; nothing takes that long.
    const PATIENCE: Duration = Duration::from_secs(60);

    fn beginning() -> Beginning {
        let config = CoreConfig {
            cluster: wire::Cluster::single("10.0.0.1:7117".parse().unwrap(), 4),
            limits: Limits::default(),
            settings: BTreeMap::new(),
            updates_per_s: 1000,
            sample_shift: 0,
            term: 0,
        };
        Beginning { config, disciplines: &[], default_discipline: decide::NONE.name.into() }
    }

    async fn create(admin: &SharedCore, id: u32) -> Result<(), Refusal> {
        let spec = TenantSpec { id: Some(id), ..TenantSpec::default() };
        let made = tokio::time::timeout(PATIENCE, admin.create_tenant("test", spec)).await;
        made.expect("an answer").map(drop)
    }

    #[tokio::test]
    async fn while_the_disk_is_full_changes_are_refused_and_then_they_are_made() {
        let (directory, disk) = (tempfile::tempdir().unwrap(), FaultyDisk::default());
        let candidate = Candidate { name: "a".into(), url: "http://a.example:7118".into() };
        let state = State::on(&disk, directory.path(), candidate).unwrap();
        let shared = Arc::new(SharedCore::new(state));
        let (stop, stopped) = watch::channel(false);
        let living = tokio::spawn(live(shared.clone(), beginning(), stopped));
        shared.term.subscribe().wait_for(|term| *term > 0).await.unwrap();
        let admin = &*shared;
        create(admin, 1).await.unwrap();

        disk.fails_by(Some(Fault::Full));
        let (first, second) = (create(admin, 2).await, create(admin, 3).await);
        let (first, second) = (first.unwrap_err(), second.unwrap_err());
        for (refusal, kind) in
            [(&first, RefusalKind::OutcomeUnknown), (&second, RefusalKind::Unavailable)]
        {
            assert_eq!(refusal.kind, kind, "{refusal}");
            let text = &refusal.message;
            assert!(text.contains("control.redb") && text.contains("make room"), "{text}");
        }
        assert!(first.message.contains("look then whether"), "{first}");
        assert!(second.message.starts_with("nothing was changed"), "{second}");

        disk.fails_by(None);
        let mut trouble = shared.trouble.subscribe();
        let over = trouble.wait_for(Option::is_none);
        drop(tokio::time::timeout(PATIENCE, over).await.expect("it is written again"));
        create(admin, 4).await.unwrap();
        let all = admin.tenants(None, 10, false).await.unwrap();
        let ids: Vec<u32> = all.iter().map(|tenant| tenant.id).filter(|id| *id > 0).collect();
        assert_eq!(ids, [1, 2, 4], "what was not safe is now, what was refused was not made");
        stop.send_replace(true);
        living.await.unwrap().unwrap();
    }

    /// As when the controller is told to stop meanwhile: with etcd the rest is never sent.
    #[test]
    fn what_was_being_written_when_that_was_given_up_is_written_again() {
        // One thread waits for disks: a write stands still while it has something else to do.
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().max_blocking_threads(1).build().unwrap();
        runtime.block_on(async {
            let (directory, disk) = (tempfile::tempdir().unwrap(), FaultyDisk::default());
            let candidate = Candidate { name: "a".into(), url: "http://a.example:7118".into() };
            let shared = SharedCore::new(State::on(&disk, directory.path(), candidate).unwrap());
            let lead = shared.state.campaign().await.unwrap();
            begin(&shared, &beginning(), &lead).await.unwrap();
            let asked = RequestOrigin { who: "test", at_ms: 0 };
            let change = |core: &mut Core| {
                core.manage_routes(asked, true);
                core.journal().position()
            };
            let position = shared.leading(change).unwrap();
            let waits = || shared.lock().core.as_ref().unwrap().journal().is_pending();

            let (go_on, stands_still) = std::sync::mpsc::channel::<()>();
            tokio::task::spawn_blocking(move || stands_still.recv());
            {
                let mut write = std::pin::pin!(write_once(&shared, &lead, false));
                let polled = poll_fn(|context| Poll::Ready(write.as_mut().poll(context))).await;
                assert!(polled.is_pending() && !waits(), "it is on its way");
            }
            assert!(waits() && *shared.durable.borrow() < position, "nobody knows whether it came");

            drop(go_on);
            write_once(&shared, &lead, true).await.unwrap();
            assert!(!waits() && *shared.durable.borrow() == position);
            assert_eq!(lead.load().await.unwrap().rows["routing"], b"true");
        });
    }
}
