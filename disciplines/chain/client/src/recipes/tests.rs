//! Recipes over a network that loses, doubles and reorders, with holders that die.

mod scripted;

use std::{cell::RefCell, rc::Rc, time::Duration};

use super::*;
use crate::{
    Virtual,
    fake::{Chains, Faults, MS, World, options},
};

const FAULTS: Faults = Faults { lose: 10, duplicate: 10, busy: 5, longest_us: 3000 };

fn world(seed: u64) -> World {
    World::new(Chains::new(&[1, 2, 3]), FAULTS, seed)
}

fn lock_options(lease_ms: u64) -> LockOptions {
    LockOptions {
        lease: Duration::from_millis(lease_ms),
        patience: Duration::from_secs(1000),
        name: "some".into(),
    }
}

/// What a lock guards: takes nothing from whoever shows an older token than the newest.
#[derive(Default)]
struct Store {
    newest: u64,
    /// (when, token), as held by the holder's own clock.
    taken: Vec<(u64, u64)>,
    inside: u32,
    together: u32,
}

async fn hold(client: Virtual, times: u32, store: Rc<RefCell<Store>>, stands_still_ms: u64) {
    for n in 0..times {
        let lock = Lock::new(client.clone(), b"lock", lock_options(200));
        let held = lock.acquire().await.unwrap().unwrap();
        let token = held.token();
        {
            let mut store = store.borrow_mut();
            assert!(token > store.newest, "a token that was given out before");
            store.newest = token;
            store.inside += 1;
            store.together += u32::from(store.inside > 1);
            store.taken.push((client.now_ns(), token));
        }
        let still_ms = if n == 1 { stands_still_ms } else { 5 };
        client.until(client.now_ns() + still_ms * MS).await;
        let lost = !held.is_held();
        store.borrow_mut().inside -= 1;
        assert_eq!(lost, still_ms > 200, "a lease of 200 ms");
        let _ = held.release().await;
    }
}

#[test]
fn one_holds_a_lock_at_a_time_and_tokens_rise() {
    for seed in 0..10 {
        let mut world = world(seed);
        let store = Rc::new(RefCell::new(Store::default()));
        for _ in 0..8 {
            let client = world.client(options());
            client.spawn(hold(client.clone(), 5, store.clone(), 5));
        }
        assert!(world.run_until(world.now_ns + 100_000 * MS), "seed {seed}");
        let store = store.borrow();
        assert_eq!((store.taken.len(), store.together), (40, 0), "seed {seed}");
    }
}

#[test]
fn a_lock_whose_holder_stands_still_goes_on_to_the_next_after_its_lease() {
    let mut world = world(3);
    let store = Rc::new(RefCell::new(Store::default()));
    for (times, still_ms) in [(2, 2000), (40, 5)] {
        let client = world.client(options());
        client.spawn(hold(client.clone(), times, store.clone(), still_ms));
    }
    assert!(world.run_until(world.now_ns + 100_000 * MS));
    let store = store.borrow();
    // The store is told by its tokens who was late: its holders know by their clocks.
    assert!(store.together > 0 && store.taken.len() == 42);
    let gaps = store.taken.windows(2).map(|pair| pair[1].0 - pair[0].0);
    let longest_ns = gaps.max().unwrap();
    assert!((200 * MS..400 * MS).contains(&longest_ns), "{longest_ns}");
}

/// Takes a lock with patience for some seconds, alone or beside one who has it all the time.
fn patient(chains: Chains, is_held: bool) -> Result<bool, Error> {
    let mut world = World::new(chains, Faults { lose: 0, ..FAULTS }, 7);
    let (holder, other) = (world.client(options()), world.client(options()));
    if is_held {
        let h = holder.clone();
        holder.spawn(async move {
            let lock = Lock::new(h.clone(), b"lock", lock_options(1000));
            let mut held = lock.acquire().await.unwrap().unwrap();
            held.keep_until(h.now_ns() + 30_000 * MS).await.unwrap();
        });
        world.run_until(world.now_ns + 100 * MS);
    }
    let came = Rc::new(RefCell::new(None));
    let (o, out) = (other.clone(), came.clone());
    other.spawn(async move {
        let patience = Duration::from_secs(8);
        let lock = Lock::new(o.clone(), b"lock", LockOptions { patience, ..lock_options(1000) });
        *out.borrow_mut() = Some(lock.acquire().await.map(|held| held.is_some()));
    });
    assert!(world.run_until(world.now_ns + 60_000 * MS));
    came.take().expect("it ends")
}

#[test]
fn who_cannot_know_whether_he_has_a_lock_does_not_say_that_others_have_it() {
    assert_eq!(patient(Chains::new(&[1, 2, 3]), true).ok(), Some(false));
    assert_eq!(patient(Chains::new(&[1, 2, 3]), false).ok(), Some(true));
    let mut chains = Chains::new(&[1, 2, 3]);
    chains.uncontrolled = true;
    let unknown = patient(chains, false);
    assert!(matches!(unknown, Err(Error::OutcomeUnknown { no_room: false, .. })), "{unknown:?}");
    let mut chains = Chains::new(&[1, 2, 3]);
    chains.full = true;
    let no_room = patient(chains, false);
    assert!(matches!(no_room, Err(Error::OutcomeUnknown { no_room: true, .. })), "{no_room:?}");
}

#[test]
fn a_held_lock_is_kept_while_it_is_renewed() {
    let mut world = world(5);
    let (holder, other) = (world.client(options()), world.client(options()));
    let end_ns = world.now_ns + 3000 * MS;
    let h = holder.clone();
    holder.spawn(async move {
        let lock = Lock::new(h.clone(), b"lock", lock_options(200));
        let mut held = lock.acquire().await.unwrap().unwrap();
        let token = held.token();
        assert!(held.keep_until(end_ns).await.unwrap());
        assert_eq!(held.token(), token);
        assert!(held.release().await.unwrap());
    });
    world.run_until(world.now_ns + 500 * MS);
    let taken_ns = Rc::new(RefCell::new(0));
    let (o, at) = (other.clone(), taken_ns.clone());
    other.spawn(async move {
        let lock = Lock::new(o.clone(), b"lock", lock_options(200));
        let held = lock.acquire().await.unwrap().unwrap();
        *at.borrow_mut() = o.now_ns();
        assert!(held.release().await.unwrap());
    });
    assert!(world.run_until(end_ns + 1000 * MS));
    let waited_ns = *taken_ns.borrow() - end_ns;
    assert!(waited_ns < 150 * MS, "the release was told: {waited_ns}");
}

/// A key has room for 2^32 - 1 milliseconds, which are 49.7 days.
#[test]
fn a_holder_goes_by_no_longer_lease_than_others() {
    for lease in [Duration::from_secs(50 * 86_400), Duration::MAX, Duration::from_micros(1500)] {
        let mut world = world(6);
        let (holder, ended) = (world.client(options()), Rc::new(RefCell::new(None)));
        let (h, out) = (holder.clone(), ended.clone());
        holder.spawn(async move {
            let asked = LockOptions { lease, patience: Duration::MAX, name: String::new() };
            let held = Lock::new(h.clone(), b"lock", asked).acquire().await.unwrap().unwrap();
            let (_, value) = read(&h, &Bytes::from_static(b"lock")).await.unwrap();
            let said_ms = u32::from_be_bytes(*value.unwrap()[8..].first_chunk().unwrap());
            *out.borrow_mut() = Some((held.until_ns(), h.now_ns() + u64::from(said_ms) * MS));
        });
        assert!(world.run_until(world.now_ns + 10_000 * MS));
        let (own_ns, others_ns) = ended.take().unwrap();
        assert!(own_ns <= others_ns, "{lease:?}: {own_ns} and {others_ns}");
    }
}

#[test]
fn a_lock_that_was_lost_is_not_kept() {
    let mut world = world(9);
    let (holder, ended) = (world.client(options()), Rc::new(RefCell::new(None)));
    let (h, out) = (holder.clone(), ended.clone());
    holder.spawn(async move {
        let lock = Lock::new(h.clone(), b"lock", lock_options(2000));
        let mut held = lock.acquire().await.unwrap().unwrap();
        write(&h, &Bytes::from_static(b"lock"), b"another's", Condition::Always).await.unwrap();
        let renewed = held.renew().await.unwrap();
        let began_ns = h.now_ns();
        let kept = held.keep_until(u64::MAX).await.unwrap();
        *out.borrow_mut() = Some((renewed, kept, h.now_ns() - began_ns));
    });
    assert!(world.run_until(world.now_ns + 60_000 * MS));
    assert_eq!(ended.take(), Some((false, false, 0)));
}

/// Not when its renewal is given up: others have the lock by then.
#[test]
fn a_holder_that_is_cut_off_has_lost_the_lock_when_its_lease_is_over() {
    let mut world = world(8);
    let holder = world.client(options());
    let (h, ended) = (holder.clone(), Rc::new(RefCell::new(None)));
    let out = ended.clone();
    holder.spawn(async move {
        let lock = Lock::new(h.clone(), b"lock", lock_options(2000));
        let mut held = lock.acquire().await.unwrap().unwrap();
        let kept = held.keep_until(u64::MAX).await.unwrap();
        *out.borrow_mut() = Some((kept, h.now_ns(), held.until_ns()));
    });
    assert!(!world.run_until(world.now_ns + 3000 * MS), "it is kept");
    world.chains.dead = [1, 2, 3].into();
    assert!(world.run_until(world.now_ns + 60_000 * MS));
    let (kept, now_ns, until_ns) = ended.take().unwrap();
    assert!(!kept && now_ns <= until_ns, "{kept}, {now_ns} and not {until_ns}");
}

#[test]
fn who_leads_is_told_once_per_leader() {
    let mut world = world(6);
    let watcher = world.client(options());
    let told = Rc::new(RefCell::new(vec![]));
    let (w, out) = (watcher.clone(), told.clone());
    let until_ns = world.now_ns + 5000 * MS;
    watcher.spawn(async move {
        let tell = |who: Option<Leader>| {
            out.borrow_mut().push(who.map(|leader| leader.name));
            true
        };
        leader(&w, b"election", tell, until_ns).await.unwrap();
    });
    for n in 0..2u8 {
        let client = world.client(options());
        let c = client.clone();
        client.spawn(async move {
            let name = format!("candidate {n}");
            let options = LockOptions { name, ..lock_options(300) };
            let candidate = Candidate::new(c.clone(), b"election", options);
            let mut held = candidate.campaign().await.unwrap().unwrap();
            held.keep_until(c.now_ns() + 1000 * MS).await.unwrap();
            held.release().await.unwrap();
        });
    }
    assert!(world.run_until(until_ns + 1));
    let names: Vec<_> = told.borrow().iter().flatten().cloned().collect();
    assert_eq!(names.len(), 2, "{told:?}");
    assert_ne!(names[0], names[1]);
}

#[test]
fn each_addition_takes_place_once() {
    for seed in 0..10 {
        let mut world = world(seed);
        let sum = Rc::new(RefCell::new(vec![]));
        for _ in 0..6 {
            let client = world.client(options());
            let (c, sum) = (client.clone(), sum.clone());
            client.spawn(async move {
                let counter = Counter::new(c.clone(), b"counter");
                for _ in 0..10 {
                    let count = counter.add(1, c.now_ns() + 60_000 * MS).await.unwrap();
                    sum.borrow_mut().push(count);
                }
            });
        }
        assert!(world.run_until(world.now_ns + 100_000 * MS));
        let mut sum = sum.borrow().clone();
        sum.sort_unstable();
        assert_eq!(sum, (1..=60).collect::<Vec<_>>(), "seed {seed}");
    }
}

#[test]
fn nobody_leaves_a_barrier_before_all_have_come() {
    let mut world = world(7);
    let come = Rc::new(RefCell::new([0; 3]));
    for n in 0..5u64 {
        let client = world.client(options());
        let (c, come) = (client.clone(), come.clone());
        client.spawn(async move {
            let barrier = Barrier::new(c.clone(), b"barrier", 5);
            for round in 0..3 {
                c.until(c.now_ns() + n * 30 * MS).await;
                come.borrow_mut()[round] += 1;
                assert!(barrier.enter(c.now_ns() + 60_000 * MS).await.unwrap());
                assert_eq!(come.borrow()[round], 5);
            }
        });
    }
    assert!(world.run_until(world.now_ns + 100_000 * MS));
    let client = world.client(options());
    let c = client.clone();
    let late = Rc::new(RefCell::new(None));
    let out = late.clone();
    client.spawn(async move {
        let barrier = Barrier::new(c.clone(), b"barrier", 5);
        let came = barrier.enter(c.now_ns() + 500 * MS).await.unwrap();
        *out.borrow_mut() = Some(came);
    });
    assert!(world.run_until(world.now_ns + 2000 * MS));
    assert_eq!(*late.borrow(), Some(false), "alone until its patience ended");
}
