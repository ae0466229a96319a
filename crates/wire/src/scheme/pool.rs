//! Which server of a memcached pool has a name, as its clients compute it for themselves.

use serde::{Deserialize, Serialize};

use super::{Digest, Scheme, tagged};

/// Points of a server of average weight on a ring.
const POINTS: u32 = 160;
/// Points that are taken from one MD5.
const POINTS_A_DIGEST: usize = 4;
/// The port that clients leave out of the name that a server has on a ring.
const USUAL_PORT: &str = ":11211";

/// A server of a pool, as the pool's clients know it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PoolServer {
    /// HOST:PORT as the clients' configuration has it, letter by letter, or twemproxy's own name
    /// of the server: a ring is made from names.
    pub name: String,
    /// Its share of the keys beside others'; at least 1.
    #[serde(default = "one")]
    pub weight: u32,
}

fn one() -> u32 {
    1
}

/// A pool, ready for lookups: a binary search among the points of its ring, or one division.
#[derive(Debug, PartialEq, Eq)]
pub struct Pool {
    digest: Digest,
    /// The bytes around the part of a name that counts.
    hash_tag: Option<[u8; 2]>,
    servers: u32,
    order: Order,
}

/// How a digest leads to a server.
#[derive(Debug, PartialEq, Eq)]
enum Order {
    /// The server of the first point that is not before the digest; behind the last point comes
    /// the first. Points with the places of their servers, in ascending order.
    Ring(Vec<(u32, u32)>),
    /// Servers in turn.
    Turns(Vec<u32>),
}

impl Pool {
    /// A pool of these servers, in their order.
    pub(super) fn new(
        scheme: Scheme,
        digest: Digest,
        hash_tag: Option<[u8; 2]>,
        servers: &[PoolServer],
    ) -> Pool {
        let turns = |weighs: bool| {
            let each = (0..).zip(servers).flat_map(|(at, server): (u32, _)| {
                let count = if weighs { server.weight } else { 1 };
                std::iter::repeat_n(at, count as usize)
            });
            Order::Turns(each.collect())
        };
        let order = match scheme {
            Scheme::Modula => turns(false),
            Scheme::TwemproxyModula => turns(true),
            _ => Order::Ring(ring(servers)),
        };
        Pool { digest, hash_tag, servers: servers.len() as u32, order }
    }

    /// The place of the server that has a name.
    pub(super) fn server_of(&self, name: &[u8]) -> u32 {
        let counts = self.hash_tag.map_or(name, |tag| tagged(name, tag));
        let digest = self.digest.of(counts);
        match &self.order {
            Order::Ring(points) => {
                let at = points.partition_point(|(point, _)| *point < digest);
                points.get(at).or(points.first()).map_or(0, |(_, server)| *server)
            }
            Order::Turns(turns) => turns[digest as usize % turns.len()],
        }
    }

    /// How many servers it has.
    pub(super) fn servers(&self) -> u32 {
        self.servers
    }
}

/// Each server has points in proportion to its weight, at the digests of its name with numbers.
fn ring(servers: &[PoolServer]) -> Vec<(u32, u32)> {
    let total: u64 = servers.iter().map(|server| u64::from(server.weight)).sum();
    let mut points = vec![];
    for (at, PoolServer { name, weight }) in (0..).zip(servers) {
        let name = name.strip_suffix(USUAL_PORT).unwrap_or(name);
        // In the precision, and in the order, in which clients compute it: with some weights they
        // lose a point or four by that.
        let share = *weight as f32 / total as f32;
        let points_of_average = share * POINTS as f32 / POINTS_A_DIGEST as f32;
        let digests = f64::from(points_of_average * servers.len() as f32) + 1e-10;
        for number in 0..(digests as f32).floor() as u32 {
            let md5::Digest(bytes) = md5::compute(format!("{name}-{number}"));
            for point in bytes.chunks_exact(4) {
                let point = u32::from_le_bytes(point.try_into().expect("four bytes"));
                points.push((point, at));
            }
        }
    }
    points.sort_unstable();
    points
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Deserialize)]
    struct Row {
        scheme: Scheme,
        servers: Vec<(String, u32)>,
        /// Of each key its server's place, one digit each.
        places: String,
    }

    #[test]
    fn keys_are_where_libmemcached_1_1_4_looks_for_them() {
        // By its `memcached_generate_hash`, with MEMCACHED_BEHAVIOR_KETAMA_WEIGHTED or as it is.
        let rows: Vec<Row> = serde_json::from_str(include_str!("libmemcached.json")).unwrap();
        assert_eq!(rows.len(), 6);
        for Row { scheme, servers, places } in rows {
            let server = |(name, weight)| PoolServer { name, weight };
            let servers: Vec<_> = servers.into_iter().map(server).collect();
            let pool = Pool::new(scheme, scheme.usual_digest(), None, &servers);
            for (at, expected) in places.chars().enumerate() {
                let key = if at % 4 == 0 { format!("k\u{e9}y{at}") } else { format!("key{at}") };
                let found = pool.server_of(key.as_bytes());
                assert_eq!(Some(found), expected.to_digit(16), "{scheme:?} {servers:?} {key}");
            }
        }
    }
}
