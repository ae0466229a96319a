//! The table of tenants: what the programs check of each packet before a discipline sees it. The
//! agent writes it as the controller says.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::atomic::Ordering,
};

use wire::Secret;

use super::{backing::Backing, map::Map, mapped::SharedArray};
use crate::{
    Error,
    layout::{
        Config, DROP_OVER_RATE, HASH_SALT, MEASURED, NO_DISCIPLINE, PARAMETERS, PLACE_SHIFT,
        REPORTS_OF_ALL, Tenant, WRITE_BACK,
    },
};

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
    /// Whether its keys may be lent to this switch.
    pub write_back: bool,
    /// Words for its discipline, which alone knows what they mean.
    pub parameters: [u32; PARAMETERS],
    /// Number of its discipline; one without a program means that its packets are only forwarded.
    pub discipline: u32,
}

/// The least share of reports of hot keys that a tenant has, however many they are.
const LEAST_SHARE: u32 = 16;

/// Requests that a tenant may send at once after a pause, as time at its rate.
const BURST_NS: u32 = 50_000_000;

/// Keeps equal hashes of different tenants apart in the table; as `hash_salt` in `bpf/maps.h`.
pub(crate) fn hash_salt(tenant: u32) -> u64 {
    u64::from(tenant).wrapping_mul(HASH_SALT)
}

/// The table of tenants. Whoever writes it reads an entry, changes it and writes it back: requests
/// that are admitted in between are not counted against the rate, a few in a change.
pub(crate) struct Entries {
    map: Map,
    config: SharedArray<Config>,
}

impl Entries {
    pub(crate) fn open(at: &Backing) -> Result<Entries, Error> {
        at.must_exist()?;
        Ok(Entries { map: at.map("tenants")?, config: at.mapped("config")? })
    }

    fn ids(&self) -> Vec<u32> {
        let id = |key: Vec<u8>| Some(u32::from_ne_bytes(*key.first_chunk()?));
        self.map.keys().into_iter().filter_map(id).collect()
    }

    fn get(&self, id: u32) -> Result<Option<Tenant>, Error> {
        let found = self.map.lookup(&id.to_ne_bytes());
        let bytes = found.map_err(Error::bpf("reading the table of tenants"))?;
        Ok(bytes.and_then(|bytes| Tenant::read(&bytes)))
    }

    /// A tenant's place in arrays of all tenants.
    pub(crate) fn place(&self, id: u32) -> Result<Option<u32>, Error> {
        Ok(self.get(id)?.map(|tenant| tenant.flags >> PLACE_SHIFT))
    }

    /// Writes an entry unless it is there already: the kernel makes every change in other memory,
    /// and what was there before may be another tenant's next, while programs still read it.
    fn put(&self, before: Option<Tenant>, tenant: Tenant) -> Result<(), Error> {
        if before == Some(tenant) {
            return Ok(());
        }
        let key = tenant.id.to_ne_bytes();
        let written = self.map.update(&key, &tenant.as_bytes());
        self.is_changed();
        written.map_err(Error::bpf("writing the table of tenants"))
    }

    fn remove(&self, id: u32) -> Result<(), Error> {
        let removed = self.map.delete(&id.to_ne_bytes());
        self.is_changed();
        removed.map_err(Error::bpf("removing a tenant"))
    }

    /// From here on programs look at the table again: each CPU has noted what it saw there.
    fn is_changed(&self) {
        let changes = &self.config.at(0).tenants_changed;
        changes.fetch_add(1, Ordering::AcqRel);
    }
}

impl TenantEntry {
    /// A tenant without a limit, of which nothing is counted or lent.
    pub const fn new(id: u32, secret: Secret, discipline: u32) -> TenantEntry {
        TenantEntry {
            id,
            secret,
            also_secret: Secret::NONE,
            rate: 0,
            drop_over_rate: false,
            measured: false,
            write_back: false,
            parameters: [0; PARAMETERS],
            discipline,
        }
    }

    /// Makes exactly `entries` the tenants of a switch: adds, changes and removes. A tenant that
    /// stays goes on where it is with its rate. Those with a discipline share out the reports of
    /// hot keys.
    ///
    /// # Errors
    /// If the kernel refuses, for one because there are more than 4096.
    pub fn install(at: impl Into<Backing>, entries: &[TenantEntry]) -> Result<(), Error> {
        let at = at.into();
        let map = Entries::open(&at)?;
        let stay: std::collections::HashSet<u32> = entries.iter().map(|e| e.id).collect();
        // First, so that there is room.
        for id in map.ids().into_iter().filter(|id| !stay.contains(id)) {
            map.remove(id)?;
        }
        // Those that stay keep their places: what programs count there is theirs.
        let (mut places, mut taken) = (BTreeMap::new(), BTreeSet::new());
        for entry in entries {
            let place = map.place(entry.id)?;
            if let Some(place) = place.filter(|place| taken.insert(*place)) {
                places.insert(entry.id, place);
            }
        }
        let mut free = (0u32..).filter(|place| !taken.contains(place));
        for entry in entries {
            let before = map.get(entry.id)?;
            let next_ns = before.map_or(0, |tenant| tenant.next_ns);
            let place = places.get(&entry.id).copied().or_else(|| free.next());
            map.put(before, entry.with(next_ns, place.expect("there is no end")))?;
        }
        let served = entries.iter().filter(|e| e.discipline != NO_DISCIPLINE);
        let share = REPORTS_OF_ALL / (served.count() as u32).max(1);
        let shares = &map.config.at(0).share;
        shares.store(share.max(LEAST_SHARE), Ordering::Relaxed);
        Ok(())
    }

    /// Has programs look at every tenant again: an agent that was killed may have changed some
    /// without saying so, and each CPU goes by what it noted before.
    ///
    /// # Errors
    /// If the tables cannot be mapped.
    pub fn look_again(at: impl Into<Backing>) -> Result<(), Error> {
        Entries::open(&at.into())?.is_changed();
        Ok(())
    }

    /// A tenant's place in the arrays that have one element for each (`work->place` in `bpf/`);
    /// none: it is not there.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn place(at: impl Into<Backing>, id: u32) -> Result<Option<u32>, Error> {
        Entries::open(&at.into())?.place(id)
    }

    /// Changes parameters only: pairs of a tenant and what its [`TenantEntry::parameters`] are from
    /// now on. Tenants that are not there are passed over. Two system calls for each tenant whose
    /// words change, one for others.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn set_parameters(
        at: impl Into<Backing>,
        words: &[(u32, [u32; PARAMETERS])],
    ) -> Result<(), Error> {
        let map = Entries::open(&at.into())?;
        for (id, [parameter_0, parameter_1]) in words.iter().copied() {
            if let Some(before) = map.get(id)? {
                let after = Tenant { parameter_0, parameter_1, ..before };
                map.put(Some(before), after)?;
            }
        }
        Ok(())
    }

    /// The numbers of the disciplines that tenants of the switch have, by tenant.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn disciplines(at: impl Into<Backing>) -> Result<BTreeMap<u32, u32>, Error> {
        let map = Entries::open(&at.into())?;
        let mut all = BTreeMap::new();
        for id in map.ids() {
            all.extend(map.get(id)?.map(|tenant| (id, tenant.discipline)));
        }
        Ok(all)
    }

    /// What a tenant's packets are signed with; none: the switch does not know it.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn secret_of(at: impl Into<Backing>, id: u32) -> Result<Option<Secret>, Error> {
        Ok(Entries::open(&at.into())?.get(id)?.map(|tenant| Secret(tenant.secret)))
    }

    /// Every tenant of the switch with its parameters, in order of their numbers.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn parameters(at: impl Into<Backing>) -> Result<Vec<(u32, [u32; PARAMETERS])>, Error> {
        let map = Entries::open(&at.into())?;
        let mut all = vec![];
        for id in map.ids() {
            let words = |tenant: Tenant| (id, [tenant.parameter_0, tenant.parameter_1]);
            all.extend(map.get(id)?.map(words));
        }
        all.sort_unstable();
        Ok(all)
    }

    fn with(&self, next_ns: u64, place: u32) -> Tenant {
        let flag = |is_set, flag| if is_set { flag } else { 0 };
        Tenant {
            id: self.id,
            flags: flag(self.drop_over_rate, DROP_OVER_RATE)
                | flag(self.measured, MEASURED)
                | flag(self.write_back, WRITE_BACK)
                | place << PLACE_SHIFT,
            secret: self.secret.0,
            also_secret: self.also_secret.0,
            ns_per_request: 1_000_000_000u64.checked_div(self.rate).unwrap_or(0),
            next_ns,
            burst_ns: BURST_NS,
            parameter_0: self.parameters[0],
            // One that cannot be is none: in the table of programs it would be another's step.
            discipline: self.discipline.min(NO_DISCIPLINE),
            parameter_1: self.parameters[1],
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
