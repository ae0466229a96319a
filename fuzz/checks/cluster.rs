//! What a fuzzer and the tests of `wire` ask of any text: if it is a cluster file, it stays the
//! same when it is written and read again.

use wire::Cluster;

pub fn cluster(bytes: &[u8]) {
    let Some(cluster) = std::str::from_utf8(bytes).ok().and_then(|text| Cluster::parse(text).ok())
    else {
        return;
    };
    assert_eq!(Cluster::parse(&cluster.to_toml()), Ok(cluster));
}
