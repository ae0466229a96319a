//! Keys are where servers and proxies that run today put them, by their own answers: the whole
//! experiment, which claims it of each key.
//!
//! All on loopback. redis-server, memcached and nutcracker (twemproxy) are needed.

use lab::testing::needs_root;

use crate::programs::lab;

#[test]
fn two_hundred_thousand_keys_are_where_redis_twemproxy_and_libmemcached_put_them() {
    needs_root();
    let out = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("placement");
    let output = lab(&["run", "placement", "--out"]).arg(out).output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    for by in ["CLUSTER KEYSLOT of Redis", "twemproxy, ketama fnv1a_32", "libmemcached, "] {
        assert!(said.contains(by), "{by}: {said}");
    }
}
