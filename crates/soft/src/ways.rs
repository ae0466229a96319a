//! The kernel's routes and neighbours, remembered by destination, so that the packet path
//! asks nobody.
//!
//! A packet to a destination that is not known passes to the kernel, which forwards it and finds
//! the neighbour; meanwhile the destination is looked up. All are looked up again when the kernel
//! tells of a change, and every [`RECONCILE`]; what no packet went to in between is forgotten. If
//! there are too many of them, those to which there is no way are forgotten first, then those that
//! no packet went to since they were looked up. Costs a lock that is only read and a look into a
//! hash table for each packet.
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
use futures_util::{Stream, StreamExt, stream};
use rtnetlink::MulticastGroup;
use tokio::{
    sync::mpsc,
    task::JoinHandle,
    time::{Instant, MissedTickBehavior, interval_at, sleep, timeout},
};

use crate::routes::{Answers, Forwarding, Kernel, KernelWay};

/// After this long everything is looked up again, should the kernel's news have been lost.
const RECONCILE: Duration = Duration::from_secs(10);
/// News that comes together is answered together.
const PAUSE: Duration = Duration::from_millis(20);
/// Destinations that are remembered; the kernel forwards to the others.
const MOST: usize = 16_384;
/// Of those that are used least so many make room at once: to find them is to look at all.
const AT_ONCE: usize = MOST / 16;
/// Destinations that may wait to be looked up.
const QUEUE: usize = 1024;

struct Way {
    route: Route,
    /// Longest packet in bytes.
    mtu: u32,
    /// Whether a packet went by it since it was found, or since ways were last forgotten.
    used: AtomicBool,
    /// Whether it was found since then.
    fresh: bool,
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
        let (ask, asked) = mpsc::channel(QUEUE);
        let keeper = Keeper { kernel: Kernel { interfaces, netlink }, known: known.clone() };
        keeper.look_at_forwarding();
        let mut reconcile = interval_at(Instant::now() + RECONCILE, RECONCILE);
        reconcile.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let rounds = stream::poll_fn(move |context| reconcile.poll_tick(context).map(Some));
        let work = async move {
            tokio::join!(news_connection, connection, keeper.keep(asked, &mut messages, rounds));
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

struct Keeper<K> {
    kernel: K,
    known: Arc<RwLock<KnownWays>>,
}

impl Way {
    fn fresh((route, mtu): KernelWay) -> Way {
        Way { route, mtu, used: AtomicBool::new(false), fresh: true }
    }

    /// How much is lost if it is forgotten.
    fn worth(&self) -> u8 {
        match self.route {
            Route::None => 0,
            _ if !self.used.load(Relaxed) => 1,
            _ => 2,
        }
    }
}

/// So many of them, at least, that are worth least. Of those that were used only as many as must.
fn worth_least(ways: &HashMap<IpAddr, Way>, least: usize) -> Vec<IpAddr> {
    let mut all: Vec<(u8, IpAddr)> = ways.iter().map(|(to, way)| (way.worth(), *to)).collect();
    all.sort_by_key(|(worth, _)| *worth);
    let unused = all.partition_point(|(worth, _)| *worth < 2);
    all.truncate(least.max(unused.min(AT_ONCE)));
    all.into_iter().map(|(_, to)| to).collect()
}

impl<K: Answers> Keeper<K> {
    /// Looks up what is asked for, and all again when there is news or it is time for a round.
    async fn keep(
        &self,
        mut asked: mpsc::Receiver<IpAddr>,
        mut news: impl Stream<Item = impl Sized> + Unpin,
        mut rounds: impl Stream<Item = impl Sized> + Unpin,
    ) {
        loop {
            let is_news = tokio::select! {
                Some(first) = asked.recv() => {
                    let mut all = vec![first];
                    while let Ok(more) = asked.try_recv() {
                        all.push(more);
                    }
                    self.learn(all).await;
                    continue;
                }
                Some(_) = news.next() => true,
                Some(_) = rounds.next() => false,
            };
            if is_news {
                sleep(PAUSE).await;
                while timeout(Duration::ZERO, news.next()).await.is_ok_and(|m| m.is_some()) {}
            }
            self.look_again(!is_news).await;
        }
    }

    fn look_at_forwarding(&self) {
        let forwards = self.kernel.forwarding();
        self.known.write().unwrap_or_else(PoisonError::into_inner).forwards = forwards;
    }

    /// Looks up destinations that nobody knew.
    async fn learn(&self, mut all: Vec<IpAddr>) {
        all.sort_unstable();
        all.dedup();
        {
            let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
            all.retain(|to| !known.ways.contains_key(to));
        }
        if all.is_empty() {
            return;
        }
        let Some(ways) = self.kernel.look_up(all).await else { return };
        self.make_room(ways.len());
        let ways = ways.into_iter().map(|(to, way)| (to, Way::fresh(way)));
        self.known.write().unwrap_or_else(PoisonError::into_inner).ways.extend(ways);
    }

    /// Forgets what is worth least, if so many more are too many. Packets go on meanwhile.
    fn make_room(&self, more: usize) {
        let goes = {
            let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
            let beyond = (known.ways.len() + more).saturating_sub(MOST);
            if beyond == 0 {
                return;
            }
            worth_least(&known.ways, beyond)
        };
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        for to in goes {
            known.ways.remove(&to);
        }
    }

    /// Looks up everything once more. `forget`: but for what no packet went to since ways were last
    /// forgotten.
    async fn look_again(&self, forget: bool) {
        self.look_at_forwarding();
        let all = {
            let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
            let stays = |way: &Way| !forget || way.used.swap(false, Relaxed) || way.fresh;
            known.ways.iter().filter(|(_, way)| stays(way)).map(|(to, _)| *to).collect()
        };
        // What cannot be looked up is not relied on any longer.
        let found = self.kernel.look_up(all).await.unwrap_or_default();
        let ways = {
            let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
            let again = |(to, (route, mtu)): (IpAddr, KernelWay)| {
                let before = known.ways.get(&to)?;
                let used = before.used.load(Relaxed).into();
                Some((to, Way { route, mtu, used, fresh: before.fresh && !forget }))
            };
            found.into_iter().filter_map(again).collect()
        };
        self.known.write().unwrap_or_else(PoisonError::into_inner).ways = ways;
    }
}

#[cfg(test)]
mod tests;
