//! What a redirected read costs beside one that is only forwarded: `cargo test -p kvswitch-experiments --test all -- --ignored --nocapture`.

use bench::Spread;
use kvswitch_experiments::cost::{self, Cost};

const BATCHES: usize = 15;

#[test]
#[ignore = "measures"]
fn cost() {
    for skew in [0.99, 0.0] {
        println!("Zipf {skew}: the low tenth of the batches, and their median, in ns");
        tell(&cost::measure(BATCHES, skew).expect("measured"));
    }
}

fn tell(costs: &[Cost]) {
    println!(
        "{:>12} {:>8} {:>15} {:>15}",
        "read", "", "program", "port to port"
    );
    for cost in costs {
        let signed = if cost.is_signed { "signed" } else { "" };
        let [program, way] = [cost.program_ns, cost.way_ns]
            .map(|ns: Spread| format!("{:7.1} {:7.1}", ns.low, ns.median));
        println!("{:>12} {signed:>8} {program} {way}", cost.read.name());
    }
    for is_signed in [true, false] {
        let of = |ns: fn(&Cost) -> f64| cost::overhead(costs, is_signed, ns).expect("both");
        println!(
            "overhead, signed {is_signed}: program {:.3} {:.3}, port to port {:.3} {:.3}",
            of(|cost| cost.program_ns.low),
            of(|cost| cost.program_ns.median),
            of(|cost| cost.way_ns.low),
            of(|cost| cost.way_ns.median),
        );
    }
}
