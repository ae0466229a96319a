use libbpf_rs::{MapCore, MapFlags, MapHandle};
use wire::Secret;

use crate::{Error, Home, layout::Tenant};

/// What the programs know of a tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TenantEntry {
    /// Number.
    pub id: u32,
    /// Checks and makes tags; [`Secret::NONE`]: no tags, and replies no larger than requests.
    pub secret: Secret,
    /// Requests per second that are admitted; 0: all.
    pub rate: u64,
    /// Above the rate: drop (`true`) or forward past the cache.
    pub drop_over_rate: bool,
    /// Number of its discipline; one without a program means that its packets are only forwarded.
    pub discipline: u32,
}

/// Requests that a tenant may send at once after a pause, as time at its rate.
const BURST_NS: u64 = 50_000_000;

/// Keeps equal hashes of different tenants apart in the table.
pub(crate) fn hash_salt(tenant: u32) -> u64 {
    u64::from(tenant).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl TenantEntry {
    /// Makes exactly `entries` the tenants of the switch at `home`: adds, changes and removes.
    ///
    /// # Errors
    /// If the kernel refuses, for one because there are more than 4096.
    pub fn install(home: &Home, entries: &[TenantEntry]) -> Result<(), Error> {
        let wrong = || Error::bpf("writing the table of tenants");
        let map = MapHandle::from_pinned_path(home.map("tenants")).map_err(wrong())?;
        for entry in entries {
            let value = entry.as_bytes();
            map.update(&entry.id.to_ne_bytes(), &value, MapFlags::ANY)
                .map_err(wrong())?;
        }
        let id_of = |key: &Vec<u8>| u32::from_ne_bytes(key[..4].try_into().expect("u32 keys"));
        let gone: Vec<Vec<u8>> = map
            .keys()
            .filter(|key| entries.iter().all(|entry| entry.id != id_of(key)))
            .collect();
        for key in gone {
            map.delete(&key).map_err(wrong())?;
        }
        Ok(())
    }

    fn as_bytes(&self) -> [u8; size_of::<Tenant>()] {
        let tenant = Tenant {
            secret: self.secret.0,
            hash_salt: hash_salt(self.id),
            ns_per_request: 1_000_000_000u64.checked_div(self.rate).unwrap_or(0),
            burst_ns: BURST_NS,
            next_ns: 0,
            discipline: self.discipline,
            flags: u32::from(self.drop_over_rate),
        };
        // SAFETY: plain integers without padding (the size is asserted in layout.rs).
        unsafe { std::mem::transmute(tenant) }
    }
}
