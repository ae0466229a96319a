//! What is remembered, for how long, and what makes room; on a clock that only waits.

use std::net::Ipv4Addr;

use futures_util::stream;
use tokio::time::interval;

use super::*;

/// Knows a way to 10.0.0.0/8, and to nothing else.
struct Fake;

impl Answers for Fake {
    fn forwarding(&self) -> Forwarding {
        Forwarding::new()
    }

    async fn look_up(&self, all: Vec<IpAddr>) -> Option<HashMap<IpAddr, KernelWay>> {
        let way = |to: &IpAddr| match to {
            IpAddr::V4(v4) if v4.octets()[0] == 10 => {
                (Route::By { port: 1, from: [1; 6], to: [2; 6] }, 1500)
            }
            _ => (Route::None, 0),
        };
        Some(all.into_iter().map(|to| (to, way(&to))).collect())
    }
}

/// The n-th of those there is a way to, or no way.
fn host(is_reached: bool, n: usize) -> IpAddr {
    let first: u32 = if is_reached { 10 } else { 192 };
    Ipv4Addr::from(first << 24 | n as u32).into()
}

fn goes(ways: &Ways, to: IpAddr) -> bool {
    matches!(ways.route(to, to, 100, 1), Route::By { .. })
}

fn knows(ways: &Ways, to: IpAddr) -> bool {
    ways.known.read().unwrap().ways.contains_key(&to)
}

/// Ways that are kept while the future runs, told of news whenever the clock shows so much more.
fn kept(news: Duration) -> (Ways, impl Future<Output = ()>) {
    let known = Arc::<RwLock<KnownWays>>::default();
    let (ask, asked) = mpsc::channel(QUEUE);
    let keeper = Keeper { kernel: Fake, known: known.clone() };
    let keep = async move {
        let ticks = interval_at(Instant::now() + news, news);
        let news = stream::unfold(ticks, |mut ticks| async {
            ticks.tick().await;
            Some(((), ticks))
        });
        keeper.keep(asked, Box::pin(news)).await;
    };
    (Ways { known, ask }, keep)
}

const NEVER: Duration = Duration::from_secs(1 << 30);

#[tokio::test(start_paused = true)]
async fn what_no_packet_goes_to_is_forgotten_however_much_else_is_asked_for() {
    for news in [NEVER, RECONCILE / 4] {
        let (ways, keep) = kept(news);
        let keep = tokio::spawn(keep);
        let (once, again) = (host(true, 0), host(true, 1));
        assert!(!goes(&ways, once) && !goes(&ways, again), "nobody asked before");
        // Somebody asks for another every second, and one is used all the while.
        let mut second = interval(Duration::from_secs(1));
        for n in 0..30 {
            second.tick().await;
            goes(&ways, host(true, 2 + n));
            sleep(Duration::from_millis(100)).await;
            assert!(goes(&ways, again), "after {n} s");
        }
        assert!(!knows(&ways, once), "after two rounds");
        keep.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn what_leads_nowhere_and_what_is_not_used_make_room() {
    // What the table is filled with: no ways, ways that no packet goes by, ways that are used.
    for (is_reached, is_used) in [(false, true), (true, false), (true, true)] {
        let known = Arc::<RwLock<KnownWays>>::default();
        let (ask, _asked) = mpsc::channel(QUEUE);
        let keeper = Keeper { kernel: Fake, known: known.clone() };
        let ways = Ways { known, ask };
        let used: Vec<IpAddr> = (0..100).map(|n| host(true, n)).collect();
        keeper.learn(used.clone()).await;
        assert!(used.iter().all(|to| goes(&ways, *to)));
        for first in (100..2 * MOST).step_by(QUEUE) {
            let all: Vec<IpAddr> = (first..first + QUEUE).map(|n| host(is_reached, n)).collect();
            keeper.learn(all.clone()).await;
            assert!(!is_used || all.iter().all(|to| goes(&ways, *to) == is_reached));
            assert!(ways.known.read().unwrap().ways.len() <= MOST);
        }
        let fresh = host(true, 4 * MOST);
        keeper.learn(vec![fresh]).await;
        assert!(goes(&ways, fresh), "there is room for one that is new");
        let stay = used.iter().filter(|to| knows(&ways, **to)).count();
        assert!(stay == 100 || (is_reached && is_used), "{stay} of those that are used stay");
    }
}
