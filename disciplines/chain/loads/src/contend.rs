//! Clients that take locks and give them back: who had which lock when, as each of them knew it.

use std::{
    cell::RefCell,
    collections::{BTreeMap, HashMap},
    net::SocketAddr,
    rc::Rc,
    time::Duration,
};

use chain_client::{
    Machine, Tasks, Virtual,
    recipes::{Asks, Lock, LockOptions},
};
use hdrhistogram::Histogram;
use load::{Latency, histogram};
use rand::RngExt;
use seed::{SeededRng, rng};

use crate::{Access, Locks, PhaseResult};

/// Clients with a task each.
pub(super) struct Contend {
    clients: Vec<Tasks>,
    by_id: HashMap<u64, usize>,
    log: Rc<RefCell<Log>>,
    from_ns: u64,
    end_ns: u64,
}

/// What the tasks saw.
struct Log {
    accesses: Vec<Access>,
    waits: Histogram<u64>,
    refused: u64,
    lost: u64,
    error: String,
}

impl Contend {
    /// Begins a task at each client, until `end_ns`.
    pub fn new(
        machines: Vec<Machine>,
        locks: &Locks,
        seed: u64,
        [now_ns, from_ns, end_ns]: [u64; 3],
    ) -> Contend {
        let log = Rc::new(RefCell::new(Log {
            accesses: vec![],
            waits: histogram(3),
            refused: 0,
            lost: 0,
            error: String::new(),
        }));
        let ids = machines.iter().map(Machine::id).zip(0..).collect();
        let mut clients = vec![];
        for (number, machine) in machines.into_iter().enumerate() {
            let (client, tasks) = Virtual::new(machine, now_ns);
            let draw = rng(seed, &format!("locks of client {number}"));
            let task = contend(client.clone(), locks.clone(), draw, log.clone(), [from_ns, end_ns]);
            client.spawn(task);
            clients.push(tasks);
        }
        Contend { clients, by_id: ids, log, from_ns, end_ns }
    }

    pub fn take(&mut self, id: u64, datagram: &[u8], from: SocketAddr, now_ns: u64) {
        // One whose id is another since the chains began anew is found by nobody's.
        match self.by_id.get(&id) {
            Some(at) => self.clients[*at].take(datagram, from, now_ns),
            None => self.clients.iter_mut().for_each(|c| c.take(datagram, from, now_ns)),
        }
    }

    pub fn go_on(&mut self, now_ns: u64, send: &mut impl FnMut(SocketAddr, &[u8])) -> bool {
        let mut any = false;
        for client in &mut self.clients {
            if client.has_begun() || client.next_ns().is_some_and(|at| at <= now_ns) {
                client.run(now_ns);
            }
            while let Some((to, datagram)) = client.next_datagram() {
                send(to, &datagram);
                any = true;
            }
        }
        any
    }

    pub fn next_ns(&self) -> u64 {
        if self.clients.iter().any(Tasks::has_begun) {
            return 0;
        }
        let next = self.clients.iter().filter_map(Tasks::next_ns).min();
        next.unwrap_or(u64::MAX).min(self.end_ns)
    }

    /// What was seen, once the time is over. Who has a lock then keeps it until its lease ends.
    pub fn finished(&mut self, now_ns: u64) -> Option<PhaseResult> {
        if now_ns < self.end_ns {
            return None;
        }
        self.clients.iter_mut().for_each(Tasks::kill);
        let log = self.log.borrow();
        Some(PhaseResult {
            seconds: (self.end_ns - self.from_ns) as f64 / 1e9,
            locks: Latency::of(&log.waits),
            accesses: log.accesses.clone(),
            failed: log.refused,
            unknown: log.lost,
            error: log.error.clone(),
            ..PhaseResult::default()
        })
    }
}

/// Takes a lock, does something twice with what it guards, gives it back; again and again.
async fn contend(
    client: Virtual,
    locks: Locks,
    mut draw: SeededRng,
    log: Rc<RefCell<Log>>,
    [from_ns, end_ns]: [u64; 2],
) {
    while client.now_ns() < end_ns {
        let number = draw.random_range(0..locks.locks.max(1));
        let options = LockOptions {
            lease: Duration::from_millis(locks.lease_ms),
            patience: Duration::from_nanos(end_ns.saturating_sub(client.now_ns())),
            name: String::new(),
        };
        let begun_ns = client.now_ns();
        let lock = Lock::new(client.clone(), format!("lock{number}"), options);
        let held = match lock.acquire().await {
            Ok(Some(held)) => held,
            Ok(None) => continue,
            Err(error) => {
                let mut log = log.borrow_mut();
                log.refused += 1;
                log.error = error.to_string();
                continue;
            }
        };
        let access =
            |at_ns| Access { lock: number, token: held.token(), at_ns, held: held.is_held() };
        let now_ns = client.now_ns();
        {
            let mut log = log.borrow_mut();
            if now_ns >= from_ns {
                log.waits.saturating_record(now_ns - begun_ns);
            }
            log.accesses.push(access(now_ns));
        }
        let stands_still = locks.stops > 0.0 && draw.random_bool(locks.stops.min(1.0));
        let hold_ns = match stands_still {
            true => locks.stop_ms * 1_000_000,
            false => locks.hold_us * 1000,
        };
        client.until(now_ns + hold_ns).await;
        log.borrow_mut().accesses.push(access(client.now_ns()));
        if !matches!(held.release().await, Ok(true)) {
            log.borrow_mut().lost += 1;
        }
    }
}

/// What a store that is shown tokens makes of the accesses of one or more logs of one clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exclusion {
    /// Two had a lock at the same time, though each could think so: tokens that were given out
    /// twice or that fell, and accesses by one whose lease ran while another was in.
    pub violations: u64,
    /// Accesses that the store refused, because it had seen a higher token: their lease was over.
    pub fenced: u64,
    /// Locks taken.
    pub taken: u64,
}

impl Exclusion {
    /// From accesses, in any order.
    pub fn of(accesses: &[Access]) -> Exclusion {
        let mut sorted: Vec<&Access> = accesses.iter().collect();
        sorted.sort_by_key(|access| (access.at_ns, access.token));
        let mut seen = Exclusion::default();
        // Per lock: the highest token, and how many accesses each has made.
        let mut newest: BTreeMap<u32, u64> = BTreeMap::new();
        let mut times: BTreeMap<(u32, u64), u64> = BTreeMap::new();
        for access in sorted {
            let times = times.entry((access.lock, access.token)).or_default();
            *times += 1;
            let newest = newest.entry(access.lock).or_default();
            if *times == 1 {
                seen.taken += 1;
                // Whoever takes it later has a higher token.
                seen.violations += u64::from(access.token <= *newest);
            }
            seen.violations += u64::from(*times > 2);
            if access.token < *newest {
                seen.fenced += 1;
                seen.violations += u64::from(access.held);
            }
            *newest = access.token.max(*newest);
        }
        seen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(accesses: &[(u32, u64, u64, bool)]) -> Exclusion {
        let accesses: Vec<Access> = accesses
            .iter()
            .map(|&(lock, token, at_ns, held)| Access { lock, token, at_ns, held })
            .collect();
        Exclusion::of(&accesses)
    }

    #[test]
    fn two_at_a_time_are_seen_and_late_ones_are_fenced() {
        let good = seen(&[(0, 5, 1, true), (0, 5, 2, true), (0, 9, 3, true), (1, 5, 2, true)]);
        assert_eq!((good.violations, good.fenced, good.taken), (0, 0, 3));
        let late = seen(&[(0, 5, 1, true), (0, 9, 3, true), (0, 5, 4, false)]);
        assert_eq!((late.violations, late.fenced), (0, 1));
        let both = seen(&[(0, 5, 1, true), (0, 9, 3, true), (0, 5, 4, true)]);
        assert_eq!(both.violations, 1);
        assert_eq!(seen(&[(0, 9, 1, true), (0, 5, 3, true)]).violations, 2, "it fell");
        let twice = seen(&[(0, 5, 1, true), (0, 5, 2, true), (0, 5, 3, true)]);
        assert_eq!(twice.violations, 1, "given out twice");
    }
}
