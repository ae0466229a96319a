//! Every state of a small world, and whether what the clients were told is linearizable in each.

use std::time::Instant;

use model::{Bounds, Call, Path, World};
use stateright::{Checker, Model};

const READ: Call = Call::Read;
const CAS: Call = Call::CompareAndSet { from: 0, to: 1 };

/// Client 1 goes through both switches and its retransmissions around the first; client 2 goes around the first; client 3
/// through both.
const PATHS: [(Path, Path); 3] =
    [(Path::Both, Path::Second), (Path::Second, Path::Neither), (Path::Both, Path::Both)];

/// Exhausts one world; returns its number of states.
fn exhaust(name: &str, bounds: Bounds) -> usize {
    let begun = Instant::now();
    println!("{name}: {bounds:?}");
    let checker = World { bounds, without: None }.checker().threads(2).spawn_dfs().join();
    let states = checker.unique_state_count();
    println!(
        "{name}: {states} states, depth {}, {:.1} s",
        checker.max_depth(),
        begun.elapsed().as_secs_f64()
    );
    if let Some(path) = checker.discovery("linearizable") {
        panic!("{name}: not linearizable after\n{path}");
    }
    assert!(checker.is_done(), "{name}: not exhausted");
    assert!(checker.discovery("a switch answers").is_some(), "{name}: no switch ever answered");
    states
}

/// Everything that may go wrong, once, but two steps of time.
fn faults(scripts: [&[Call]; 3]) -> Bounds {
    Bounds {
        duplicates: 1,
        retransmissions: 1,
        evictions: 1,
        refills: 1,
        fetches: 1,
        renewals: 1,
        steps: 2,
        restarts: 1,
        ..Bounds::quiet(scripts.map(<[Call]>::to_vec), PATHS)
    }
}

#[test]
#[ignore]
fn probe() {
    let w1 = [Call::Write(1)];
    let w2 = [Call::Write(2)];
    let f = faults([&w1, &[READ], &[READ]]);
    let z = Bounds { duplicates: 0, retransmissions: 0, evictions: 0, refills: 0, fetches: 0, renewals: 0, steps: 0, restarts: 0, ..f.clone() };
    exhaust("bare", z.clone());
    exhaust("fetch", Bounds { fetches: 1, ..z.clone() });
    exhaust("dup", Bounds { duplicates: 1, ..z.clone() });
    exhaust("retr", Bounds { retransmissions: 1, ..z.clone() });
    exhaust("evict", Bounds { evictions: 1, refills: 1, ..z.clone() });
    exhaust("steps2", Bounds { steps: 2, ..z.clone() });
    exhaust("steps2renew", Bounds { steps: 2, renewals: 1, ..z.clone() });
    exhaust("restart", Bounds { steps: 2, restarts: 1, ..z.clone() });
    exhaust("w2", Bounds { ..faults([&w1, &w2, &[READ]]) .clone()}.tap(&z));
}
trait Tap { fn tap(self, z: &Bounds) -> Bounds; }
impl Tap for Bounds { fn tap(self, z: &Bounds) -> Bounds { Bounds { scripts: self.scripts, ..z.clone() } } }
