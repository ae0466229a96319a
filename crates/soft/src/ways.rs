//! The kernel's routes and neighbours, remembered by destination, so that the packet path
//! asks nobody.
//!
//! A packet to a destination that is not known passes to the kernel, which forwards it and finds
//! the neighbour; meanwhile the destination is looked up. All are looked up again when the kernel
//! tells of a change, and every [`RECONCILE`]; what no packet went to in between is forgotten.
//! Costs a lock that is only read and a look into a hash table for each packet.
//!
//! Routes are asked for by destination alone: rules that look at more, and several next hops, count
//! only as far as the kernel's answer goes.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use dataplane::native::{Fib, Route};
use futures_util::StreamExt;
use rtnetlink::MulticastGroup;
use tokio::{
    sync::mpsc,
    task::JoinHandle,
    time::{sleep, timeout},
};

use crate::routes::{Forwarding, Kernel, KernelWay};

/// After this long everything is looked up again, should the kernel's news have been lost.
const RECONCILE: Duration = Duration::from_secs(10);
/// News that comes together is answered together.
const PAUSE: Duration = Duration::from_millis(20);
/// Destinations that are remembered; the kernel forwards to the others.
const MOST: usize = 16_384;
/// Destinations that may wait to be looked up.
const QUEUE: usize = 1024;

struct Way {
    route: Route,
    /// Longest packet in bytes.
    mtu: u32,
    used: AtomicBool,
}

#[derive(Default)]
struct KnownWays {
    ways: HashMap<IpAddr, Way>,
    forwards: Forwarding,
}

/// What packets are forwarded by.
pub struct Ways {
    known: Arc<RwLock<KnownWays>>,
    ask: mpsc::Sender<IpAddr>,
}

/// Looks ways up for as long as it lives.
pub struct Lookup(JoinHandle<()>);

impl Drop for Lookup {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Ways {
    /// Begins, for packets that come in by these interfaces. Needs a tokio runtime.
    ///
    /// # Errors
    /// The kernel has no more sockets.
    pub fn open(interfaces: Vec<(u32, String)>) -> std::io::Result<(Ways, Lookup)> {
        let groups = [
            MulticastGroup::Link,
            MulticastGroup::Neigh,
            MulticastGroup::Ipv4Ifaddr,
            MulticastGroup::Ipv4Route,
            MulticastGroup::Ipv4Rule,
            MulticastGroup::Ipv6Ifaddr,
            MulticastGroup::Ipv6Route,
            MulticastGroup::Ipv6Rule,
        ];
        let (news_connection, _, mut messages) = rtnetlink::new_multicast_connection(&groups)?;
        let (connection, netlink, _) = rtnetlink::new_connection()?;
        let known = Arc::<RwLock<KnownWays>>::default();
        let (ask, mut asked) = mpsc::channel(QUEUE);
        let keeper = Keeper { kernel: Kernel { interfaces, netlink }, known: known.clone() };
        keeper.look_at_forwarding();
        let work = async move {
            tokio::join!(news_connection, connection, async {
                loop {
                    let news = tokio::select! {
                        Some(first) = asked.recv() => {
                            let mut all = vec![first];
                            while let Ok(more) = asked.try_recv() {
                                all.push(more);
                            }
                            keeper.learn(all).await;
                            continue;
                        }
                        Some(_) = messages.next() => true,
                        () = sleep(RECONCILE) => false,
                    };
                    if news {
                        sleep(PAUSE).await;
                        while timeout(Duration::ZERO, messages.next())
                            .await
                            .is_ok_and(|m| m.is_some())
                        {}
                    }
                    keeper.look_again(!news).await;
                }
            });
        };
        Ok((Ways { known, ask }, Lookup(tokio::spawn(work))))
    }
}

impl Fib for Ways {
    fn route(&self, _from: IpAddr, to: IpAddr, len: u16, ingress: u32) -> Route {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        // A packet on the recirculation port came in by some other before.
        if let Some(forwards) = known.forwards.get(&ingress)
            && !forwards[usize::from(to.is_ipv6())]
        {
            return Route::Off;
        }
        let Some(way) = known.ways.get(&to) else {
            let _ = self.ask.try_send(to);
            return Route::NoNeighbour { port: 0 };
        };
        if !way.used.load(Relaxed) {
            way.used.store(true, Relaxed);
        }
        if matches!(way.route, Route::By { .. }) && u32::from(len) > way.mtu {
            return Route::TooLong;
        }
        way.route
    }
}

struct Keeper {
    kernel: Kernel,
    known: Arc<RwLock<KnownWays>>,
}

impl Way {
    fn of((route, mtu): KernelWay) -> Way {
        Way { route, mtu, used: AtomicBool::new(true) }
    }
}

impl Keeper {
    fn look_at_forwarding(&self) {
        let forwards = self.kernel.forwarding();
        self.known.write().unwrap_or_else(PoisonError::into_inner).forwards = forwards;
    }

    /// Looks up destinations that nobody knew.
    async fn learn(&self, mut all: Vec<IpAddr>) {
        all.sort_unstable();
        all.dedup();
        let room = {
            let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
            all.retain(|to| !known.ways.contains_key(to));
            MOST.saturating_sub(known.ways.len())
        };
        all.truncate(room);
        if all.is_empty() {
            return;
        }
        if let Some(ways) = self.kernel.look_up(all).await {
            let ways = ways.into_iter().map(|(to, way)| (to, Way::of(way)));
            self.known.write().unwrap_or_else(PoisonError::into_inner).ways.extend(ways);
        }
    }

    /// Looks up everything once more; what nobody used is forgotten now and then.
    async fn look_again(&self, forget: bool) {
        self.look_at_forwarding();
        let all = {
            let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
            let used = |way: &Way| way.used.swap(!forget, Relaxed) || !forget;
            known.ways.iter().filter(|(_, way)| used(way)).map(|(to, _)| *to).collect()
        };
        // What cannot be looked up is not relied on any longer.
        let ways = self.kernel.look_up(all).await.unwrap_or_default();
        let ways = ways.into_iter().map(|(to, way)| (to, Way::of(way))).collect();
        self.known.write().unwrap_or_else(PoisonError::into_inner).ways = ways;
    }
}
