//! A switch with netcache and its tenants.

use dataplane::{NO_DISCIPLINE, Object, Sizes, TenantEntry};
use harness::{Case, switch::tenant};
pub use harness::{
    World,
    world::{ItemField, TERM},
};
use wire::Secret;

/// Anybody's: no secret.
pub const OPEN: u32 = 0;
/// With a secret, like every tenant but [`OPEN`].
pub const SIGNED: u32 = 7;
/// Another one.
pub const OTHER: u32 = 8;
/// One request per second; what is above goes past the cache.
pub const LIMITED: u32 = 9;
/// One request per second; what is above is dropped.
pub const STRICT: u32 = 10;
/// A discipline that this switch does not have.
pub const PLAIN: u32 = 11;
/// Not in the switch's table.
pub const UNKNOWN: u32 = 12;
/// Its secret is being changed: [`ALSO`] is accepted beside its own.
pub const ROTATING: u32 = 13;
/// Its traffic is sampled; the other's as well, of which one request per second is admitted.
pub const MEASURED: u32 = 14;
pub const MEASURED_LIMITED: u32 = 15;
/// Its keys may be lent.
pub const LENDS: u32 = 16;
pub const ALSO: Secret = Secret([0xa1; 16]);

pub const KEY: &[u8] = b"key0000000000042";
pub const V128: &[u8] = &[b'v'; 128];
const NETCACHE: u32 = 3;

pub fn netcache() -> Object {
    Object { number: NETCACHE, ..Object::of(&netcache::REGISTRATION, Sizes { pages: 4 }) }
}

/// The tenants of every world.
pub fn tenants() -> Vec<TenantEntry> {
    let limit =
        |id, drop_over_rate| TenantEntry { rate: 1, drop_over_rate, ..tenant(id, NETCACHE) };
    vec![
        tenant(OPEN, NETCACHE),
        tenant(SIGNED, NETCACHE),
        tenant(OTHER, NETCACHE),
        limit(LIMITED, false),
        limit(STRICT, true),
        tenant(PLAIN, 5),
        TenantEntry { measured: true, ..tenant(MEASURED, NETCACHE) },
        TenantEntry { measured: true, ..limit(MEASURED_LIMITED, true) },
        TenantEntry { also_secret: ALSO, ..tenant(ROTATING, NETCACHE) },
        TenantEntry { write_back: true, ..tenant(LENDS, NETCACHE) },
        tenant(wire::TENANT_SYSTEM, NO_DISCIPLINE),
    ]
}

pub fn world() -> World {
    World::new(&[netcache()], &tenants())
}

/// A lease, and an entry without a value.
pub fn entry(w: &mut World) {
    w.lease(TERM);
    w.entry(SIGNED, KEY, 128);
}

/// A row of this name, with an entry whose value is to come.
pub const fn entered(name: &'static str) -> Case {
    Case::of(name).given(entry)
}

/// A row of this name, with a value that is cached.
pub const fn cached(name: &'static str) -> Case {
    Case::of(name).given(|w| w.cached(SIGNED, KEY, V128))
}

/// Runs every row, and fails with all that are wrong.
pub fn check(cases: &[Case]) {
    harness::check(world, cases);
}

/// From how many reads per window each tenant's keys are reported.
pub fn report_from(w: &World, thresholds: &[(u32, u32)]) {
    let words = thresholds.iter().map(|(id, from)| (*id, [*from, 0]));
    w.set_parameters(&words.collect::<Vec<_>>());
}
