//! What a redirected read costs beside one that is only forwarded: `cargo test -p kvswitch-experiments --test cost -- --ignored --nocapture`.

use kvswitch_experiments::cost::{self, Cost};

const BATCHES: usize = 15;

#[test]
#[ignore = "measures"]
fn cost() {
    for skew in [0.99, 0.0] {
        println!("Zipf {skew}");
        tell(&cost::measure(BATCHES, skew).expect("measured"));
    }
}

fn tell(costs: &[Cost]) {
    println!("{:>12} {:>8} {:>10} {:>10}", "read", "", "program", "way");
    for cost in costs {
        let signed = if cost.is_signed { "signed" } else { "" };
        let Cost {
            read,
            program_ns,
            way_ns,
            ..
        } = cost;
        println!(
            "{:>12} {signed:>8} {program_ns:7.1} ns {way_ns:7.1} ns",
            read.name()
        );
    }
    for is_signed in [true, false] {
        let of = |ns: fn(&Cost) -> f64| cost::overhead(costs, is_signed, ns).expect("both");
        println!(
            "overhead, signed {is_signed}: program {:.3}, port to port {:.3}",
            of(|cost| cost.program_ns),
            of(|cost| cost.way_ns)
        );
    }
}
