//! Any text is a cluster file or an error; a cluster survives its own text.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wire::Cluster;

fuzz_target!(|text: &str| {
    let Ok(cluster) = Cluster::parse(text) else {
        return;
    };
    assert_eq!(Cluster::parse(&cluster.to_toml()), Ok(cluster));
});
