//! What the clients of this side hold together, with the gateway's others, is bounded; where it
//! comes to the bound, whoever has held most for longest is sent away.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Instant,
};

use slab::Slab;
use tokio::sync::Notify;

use crate::shared::GatewayState;

/// What a client may hold that is not counted.
const FREE_BYTES: usize = 32 << 10;

/// What one client holds.
#[derive(Debug)]
struct Holding {
    /// All of it.
    bytes: AtomicUsize,
    /// As it is counted.
    counted: AtomicUsize,
    /// Since when it is more than is not counted.
    since: Mutex<Instant>,
    sent_away: Notify,
}

/// What all of them hold.
#[derive(Debug, Default)]
pub(super) struct ClientsMemory(Mutex<Slab<Arc<Holding>>>);

/// What one client holds, until it has gone.
pub(super) struct HeldMemory {
    all: Arc<ClientsMemory>,
    shared: Arc<GatewayState>,
    own: Arc<Holding>,
    place: usize,
}

impl HeldMemory {
    /// Nothing yet.
    pub fn new(all: Arc<ClientsMemory>, shared: Arc<GatewayState>) -> HeldMemory {
        let since = Mutex::new(Instant::now());
        let own = Holding {
            bytes: AtomicUsize::new(0),
            counted: AtomicUsize::new(0),
            since,
            sent_away: Notify::new(),
        };
        let own = Arc::new(own);
        let place = all.0.lock().unwrap_or_else(PoisonError::into_inner).insert(own.clone());
        HeldMemory { all, shared, own, place }
    }

    /// So many bytes now. False: one client alone may not hold so much.
    pub fn set(&self, bytes: usize) -> bool {
        self.own.bytes.store(bytes, Relaxed);
        let bytes = if bytes <= FREE_BYTES { 0 } else { bytes };
        let before = self.own.counted.swap(bytes, Relaxed);
        if bytes <= before {
            self.shared.release(before - bytes);
            return true;
        }
        if before == 0 {
            *self.own.since.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        }
        self.shared.hold(bytes - before);
        // The others have the rest, whoever comes.
        if bytes > self.shared.most_held / 2 {
            return false;
        }
        if self.shared.held() > self.shared.most_held {
            self.send_one_away();
        }
        true
    }

    /// So many bytes more, as [`HeldMemory::set`].
    pub fn add(&self, bytes: usize) -> bool {
        self.set(self.own.bytes.load(Relaxed) + bytes)
    }

    /// Sends away who has held most for longest: a large command that is just coming is larger than
    /// many of which nothing comes.
    fn send_one_away(&self) {
        let all = self.all.0.lock().unwrap_or_else(PoisonError::into_inner);
        let lies = |holding: &Arc<Holding>| {
            let since = *holding.since.lock().unwrap_or_else(PoisonError::into_inner);
            holding.counted.load(Relaxed) as u128 * (1 + since.elapsed().as_micros())
        };
        let holders = all.iter().map(|(_, holding)| (lies(holding), holding));
        let most = holders.filter(|(lies, _)| *lies > 0).max_by_key(|(lies, _)| *lies);
        if let Some((_, most)) = most {
            most.sent_away.notify_one();
        }
    }

    /// Comes when this client is sent away.
    pub fn sent_away(&self) -> impl Future<Output = ()> + use<> {
        let own = self.own.clone();
        async move { own.sent_away.notified().await }
    }

    /// It is sent away for what it holds.
    pub fn refuse(&self) {
        self.shared.memory_refused(self.own.bytes.load(Relaxed));
    }
}

impl Drop for HeldMemory {
    fn drop(&mut self) {
        self.all.0.lock().unwrap_or_else(PoisonError::into_inner).remove(self.place);
        self.shared.release(self.own.counted.load(Relaxed));
        self.shared.disconnect();
    }
}
