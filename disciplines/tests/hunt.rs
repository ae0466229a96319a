//! Whole systems under every fault, in the simulator: no client may notice.

use hunt::{Limits, Plan, run};

fn registered() -> hunt::Disciplines {
    disciplines::all()
}

#[test]
fn one() {
    let seed = std::env::var("SEED").map_or(1, |s| s.parse().unwrap());
    let plan = Plan::draw(seed, registered(), Limits::default());
    println!("{plan:?}");
    let begun = std::time::Instant::now();
    let outcome = run(&plan, registered()).unwrap();
    println!("{outcome:?} {:?}", begun.elapsed());
    assert_eq!(run(&plan, registered()).unwrap().trace, outcome.trace);
}
