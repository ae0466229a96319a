//! What is made of the batches over links.

use crate::report::{
    Report, Side,
    Target::{self, AtLeast, AtMost, Report as Told},
};

/// Of redis-benchmark; more follows in each.
pub const GATEWAY: &str = "gateway_cpu_over_redis";
/// Those of its ways, one at a time and 16 at a time, and what each should cost at most.
pub const OF_GATEWAY: [(&str, [f64; 2]); 5] = [
    (GATEWAY, [1.2, 2.2]),
    ("gateway_upstream_cpu_over_redis", [1.2, 1.6]),
    ("gateway_write_cpu_over_redis", [1.5, 2.2]),
    ("gateway_upstream_cpu_over_twemproxy", [1.0, 1.0]),
    ("gateway_local_cpu_over_redis", [0.9, 0.95]),
];
/// Rates of one key, from a copy of the gateway's and by the network, and what each should be at
/// least.
pub const ONE_KEY: [(&str, f64); 2] =
    [("single_key_rate_over_redis", 1.5), ("single_key_network_rate_over_redis", 0.8)];
/// All others.
pub const KEYS: [&str; 6] = [
    "veth_hit_over_reflector",
    "veth_hit_cpu_over_reflector",
    MEMCACHED_CPU,
    MEMCACHED_RATE,
    "soft_hit_over_memcached_udp",
    "miss_path_over_direct",
];
const MEMCACHED_CPU: &str = "veth_hit_cpu_over_memcached_udp";
const MEMCACHED_RATE: &str = "veth_hit_rate_over_memcached_udp";

/// What came of one way.
pub struct Way {
    /// Answers per second.
    pub rates: Side,
    /// Processor time per answer in microseconds.
    pub cpu: Side,
}

/// What came of all.
pub struct Ways {
    /// From the switch.
    pub hit: Way,
    /// From a program that sends back what it gets.
    pub reflector: Way,
    /// From memcached on a link of its own.
    pub memcached: Way,
    /// From a store behind the switch.
    pub store: Way,
    /// From memcached behind a router.
    pub routed: Way,
    /// From a soft switch.
    pub soft: Way,
}

/// How many times memcached's rate a hit's has to be: 1.8, but where the client gets no more than
/// that from a reflector, 0.9 of what it gets, which is then the client's limit and not the
/// switch's.
fn rate_target(reflector: f64) -> Target {
    const WANTED: f64 = 1.8;
    AtLeast(if reflector < WANTED { 0.9 * reflector } else { WANTED })
}

/// Writes the rows.
pub fn write(report: &mut Report, ways: &Ways) {
    let Ways { hit, reflector, memcached, store, routed, soft } = ways;
    report.machine(
        "the client against a bare reflector",
        reflector.cpu.values.clone(),
        "us of CPU",
    );
    report.ratio(
        "veth_hit_over_reflector",
        AtLeast(0.92),
        "/s",
        [hit.rates.clone(), reflector.rates.clone()],
    );
    report.ratio(
        "veth_hit_cpu_over_reflector",
        AtMost(1.08),
        "us",
        [hit.cpu.clone(), reflector.cpu.clone()],
    );
    report.ratio(MEMCACHED_CPU, AtMost(0.33), "us", [hit.cpu.clone(), memcached.cpu.clone()]);
    let limit = reflector.rates.over(&memcached.rates).median;
    report.ratio(
        MEMCACHED_RATE,
        rate_target(limit),
        "/s",
        [hit.rates.clone(), memcached.rates.clone()],
    );
    report.note(
        MEMCACHED_RATE,
        format!("the client gets {limit:.2} times memcached's rate from a bare reflector"),
    );
    report.ratio(
        "miss_path_over_direct",
        AtLeast(0.9),
        "/s",
        [store.rates.clone(), routed.rates.clone()],
    );
    report.ratio(
        "soft_hit_over_memcached_udp",
        Told,
        "/s",
        [soft.rates.clone(), memcached.rates.clone()],
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_is_slower_than_the_target_has_its_own_limit() {
        assert_eq!(rate_target(2.5), AtLeast(1.8));
        assert_eq!(rate_target(1.5), AtLeast(0.9 * 1.5));
    }
}
