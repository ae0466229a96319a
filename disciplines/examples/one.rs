//! One experiment in the simulator.
use experiments::{Backend, Options, World};
fn main() {
    let mut args = std::env::args().skip(1);
    let name = args.next().unwrap();
    let mut all = disciplines::experiments().unwrap().into_iter();
    let mut one = all.find(|e| e.name == name).unwrap();
    let mut quick = false;
    let mut seed = 1;
    for arg in args {
        match arg.split_once('=') {
            None => quick = true,
            Some(("seed", s)) => seed = s.parse().unwrap(),
            Some((a, b)) => one.set(a, b).unwrap(),
        }
    }
    let options = Options {
        quick,
        seed,
        seeds: 1,
        backend: Backend::Embedded,
        name: None,
        world: World::Sim,
        disciplines: disciplines::all(),
    };
    let begun = std::time::Instant::now();
    let report = one.run(&options).unwrap();
    println!("{}", report.text);
    println!("{}", serde_json::to_string_pretty(&report.summary).unwrap());
    println!(
        "failure: {:?}; {:.1} s",
        report.failure,
        begun.elapsed().as_secs_f64()
    );
    let dir = std::path::Path::new("/tmp/exp-out");
    report.write_plots(dir).unwrap();
    std::fs::write(
        dir.join(format!("{name}.json")),
        serde_json::to_string_pretty(&report).unwrap(),
    )
    .unwrap();
}
