//! What is remembered, for how long, and what makes room.

use std::{net::Ipv4Addr, sync::atomic::AtomicUsize};

use tokio::{sync::mpsc::UnboundedReceiver, task::yield_now};

use super::*;

/// Knows a way to 10.0.0.0/8, and to nothing else; and how often it was asked.
#[derive(Clone, Default)]
struct Fake(Arc<AtomicUsize>);

impl Answers for Fake {
    fn forwarding(&self) -> Forwarding {
        Forwarding::new()
    }

    async fn look_up(&self, all: Vec<IpAddr>) -> Option<HashMap<IpAddr, KernelWay>> {
        self.0.fetch_add(1, Relaxed);
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

fn heard(mut told: UnboundedReceiver<()>) -> impl Stream<Item = ()> {
    stream::poll_fn(move |context| told.poll_recv(context))
}

#[tokio::test]
async fn what_no_packet_goes_to_is_forgotten_however_much_else_is_asked_for() {
    for news_between in [0, 2] {
        let (kernel, known) = (Fake::default(), Arc::<RwLock<KnownWays>>::default());
        let ((ask, asked), (tell, told), (begin, begun)) =
            (mpsc::channel(QUEUE), mpsc::unbounded_channel(), mpsc::unbounded_channel());
        let keeper = Keeper { kernel: kernel.clone(), known: known.clone() };
        let ways = Ways { known, ask };
        let keep = tokio::spawn(async move { keeper.keep(asked, heard(told), heard(begun)).await });
        let is_done = async |what: &dyn Fn()| {
            let before = kernel.0.load(Relaxed);
            what();
            while kernel.0.load(Relaxed) == before {
                yield_now().await;
            }
        };
        let (once, again) = (host(true, 0), host(true, 1));
        is_done(&|| assert!(!goes(&ways, once) && !goes(&ways, again), "nobody asked before"))
            .await;
        for round in 0..2 {
            assert!(knows(&ways, once), "before round {round}");
            for n in 0..news_between {
                is_done(&|| tell.send(()).unwrap()).await;
                is_done(&|| assert!(!goes(&ways, host(true, 2 + round * 8 + n)))).await;
            }
            assert!(goes(&ways, again), "in round {round}");
            is_done(&|| begin.send(()).unwrap()).await;
        }
        assert!(goes(&ways, again) && !knows(&ways, once), "after two rounds");
        keep.abort();
    }
}

#[tokio::test]
async fn what_leads_nowhere_and_what_is_not_used_make_room() {
    // What the table is filled with: no ways, ways that no packet goes by, ways that are used.
    for (is_reached, is_used) in [(false, true), (true, false), (true, true)] {
        let known = Arc::<RwLock<KnownWays>>::default();
        let (ask, _asked) = mpsc::channel(QUEUE);
        let keeper = Keeper { kernel: Fake::default(), known: known.clone() };
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
