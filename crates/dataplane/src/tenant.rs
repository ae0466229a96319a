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
    /// Is accepted as well, for a tenant that has a secret; what is signed with it is answered so.
    /// [`Secret::NONE`]: no other is.
    pub also_secret: Secret,
    /// Requests per second that are admitted; 0: all.
    pub rate: u64,
    /// Above the rate: drop (`true`) or forward past the cache.
    pub drop_over_rate: bool,
    /// Whether its requests are counted by client and store; see [`crate::Traffic`].
    pub measured: bool,
    /// Reads of an uncached key per statistics window, on one CPU, from which it is reported. 0 counts as 1.
    pub hot_threshold: u32,
    /// Number of its discipline; one without a program means that its packets are only forwarded.
    pub discipline: u32,
}

/// Requests that a tenant may send at once after a pause, as time at its rate.
const BURST_NS: u32 = 50_000_000;
const DROP_OVER_RATE: u32 = 1;
const MEASURED: u32 = 2;

/// Keeps equal hashes of different tenants apart in the table; as `hash_salt` in `bpf/maps.h`.
pub(crate) fn hash_salt(tenant: u32) -> u64 {
    u64::from(tenant).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// The table of tenants. Whoever writes it reads an entry, changes it and writes it back: requests that are admitted in
/// between are not counted against the rate, a few in a change.
struct Map(MapHandle);

impl Map {
    fn open(home: &Home) -> Result<Map, Error> {
        home.must_exist()?;
        let map = MapHandle::from_pinned_path(home.map("tenants"));
        map.map(Map)
            .map_err(Error::bpf("opening the table of tenants"))
    }

    fn ids(&self) -> Vec<u32> {
        let id = |key: Vec<u8>| Some(u32::from_ne_bytes(*key.first_chunk()?));
        self.0.keys().filter_map(id).collect()
    }

    fn get(&self, id: u32) -> Result<Option<Tenant>, Error> {
        let found = self.0.lookup(&id.to_ne_bytes(), MapFlags::ANY);
        let bytes = found.map_err(Error::bpf("reading the table of tenants"))?;
        Ok(bytes.and_then(|bytes| Tenant::read(&bytes)))
    }

    /// Writes an entry unless it is there already: the kernel makes every change in other memory, and what was there
    /// before may be another tenant's next, while programs still read it.
    fn put(&self, before: Option<Tenant>, tenant: Tenant) -> Result<(), Error> {
        if before == Some(tenant) {
            return Ok(());
        }
        let key = tenant.id.to_ne_bytes();
        let written = self.0.update(&key, &tenant.as_bytes(), MapFlags::ANY);
        written.map_err(Error::bpf("writing the table of tenants"))
    }
}

impl TenantEntry {
    /// Makes exactly `entries` the tenants of the switch at `home`: adds, changes and removes. A tenant that stays goes
    /// on where it is with its rate.
    ///
    /// # Errors
    /// If the kernel refuses, for one because there are more than 4096.
    pub fn install(home: &Home, entries: &[TenantEntry]) -> Result<(), Error> {
        let map = Map::open(home)?;
        let stay: std::collections::HashSet<u32> = entries.iter().map(|e| e.id).collect();
        // First, so that there is room.
        for id in map.ids().into_iter().filter(|id| !stay.contains(id)) {
            let removed = map.0.delete(&id.to_ne_bytes());
            removed.map_err(Error::bpf("removing a tenant"))?;
        }
        for entry in entries {
            let before = map.get(entry.id)?;
            let next_ns = before.map_or(0, |tenant| tenant.next_ns);
            map.put(before, entry.with(next_ns))?;
        }
        Ok(())
    }

    /// Changes thresholds only: pairs of a tenant and what its [`TenantEntry::hot_threshold`] is from now on. Tenants
    /// that are not there are passed over. Two system calls for each tenant whose threshold changes, one for others.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn set_thresholds(home: &Home, thresholds: &[(u32, u32)]) -> Result<(), Error> {
        let map = Map::open(home)?;
        for (id, threshold) in thresholds {
            if let Some(before) = map.get(*id)? {
                let hot_threshold = (*threshold).max(1);
                let after = Tenant {
                    hot_threshold,
                    ..before
                };
                map.put(Some(before), after)?;
            }
        }
        Ok(())
    }

    /// Every tenant of the switch with its threshold, in order of their numbers.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn thresholds(home: &Home) -> Result<Vec<(u32, u32)>, Error> {
        let map = Map::open(home)?;
        let mut thresholds = vec![];
        for id in map.ids() {
            thresholds.extend(map.get(id)?.map(|tenant| (id, tenant.hot_threshold)));
        }
        thresholds.sort_unstable();
        Ok(thresholds)
    }

    fn with(&self, next_ns: u64) -> Tenant {
        let flag = |is_set, flag| if is_set { flag } else { 0 };
        Tenant {
            id: self.id,
            flags: flag(self.drop_over_rate, DROP_OVER_RATE) | flag(self.measured, MEASURED),
            secret: self.secret.0,
            also_secret: self.also_secret.0,
            ns_per_request: 1_000_000_000u64.checked_div(self.rate).unwrap_or(0),
            next_ns,
            burst_ns: BURST_NS,
            hot_threshold: self.hot_threshold.max(1),
            discipline: self.discipline,
            unused: 0,
        }
    }
}

impl Tenant {
    fn as_bytes(self) -> [u8; size_of::<Tenant>()] {
        // SAFETY: plain integers without padding (the size is asserted in layout.rs).
        unsafe { std::mem::transmute(self) }
    }

    fn read(bytes: &[u8]) -> Option<Tenant> {
        let bytes: &[u8; size_of::<Tenant>()] = bytes.first_chunk()?;
        // SAFETY: likewise; any bytes are valid integers.
        Some(unsafe { std::mem::transmute::<[u8; size_of::<Tenant>()], Tenant>(*bytes) })
    }
}
