use crate::{Backing, Error, layout::TALLIES, map::Map, tenant::Entries};

/// What disciplines' programs count of their tenants (`tally` in `bpf/maps.h`).
pub struct Tallies {
    tenants: Entries,
    map: Map,
}

impl Tallies {
    /// Those of a switch.
    ///
    /// # Errors
    /// If they are not there.
    pub fn open(at: impl Into<Backing>) -> Result<Tallies, Error> {
        let at = at.into();
        Ok(Tallies {
            tenants: Entries::open(&at)?,
            map: at.map("tallies")?,
        })
    }

    /// The words of a tenant now, over all CPUs; none of one that is not there. They only rise, but begin with what a tenant
    /// that is gone left at its place.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn read(&self, tenant: u32) -> Result<Option<[u64; TALLIES]>, Error> {
        let Some(place) = self.tenants.place(tenant)? else {
            return Ok(None);
        };
        let per_cpu = self.map.lookup_percpu(&place.to_ne_bytes());
        let per_cpu = per_cpu.map_err(Error::bpf("reading tallies"))?;
        let mut sum = [0u64; TALLIES];
        for of_cpu in per_cpu.iter().flatten() {
            for (word, bytes) in sum.iter_mut().zip(of_cpu.as_chunks().0) {
                *word = word.wrapping_add(u64::from_ne_bytes(*bytes));
            }
        }
        Ok(Some(sum))
    }
}
