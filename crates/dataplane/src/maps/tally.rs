//! What disciplines' programs count for their control halves, by tenant. The agent reports it to
//! the controller.

use super::{backing::Backing, map::Map, tenant::Entries};
use crate::{Error, layout};

/// The map of those objects which count for their control half (`bpf/tally.h`).
pub(crate) const TALLIES: &str = "tallies";

/// What disciplines' programs count of their tenants (`bpf/tally.h`).
pub struct Tallies {
    tenants: Entries,
    /// Where no discipline counts so there is none.
    map: Option<Map>,
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
            map: match at.has_map(TALLIES) {
                true => Some(at.map(TALLIES)?),
                false => None,
            },
        })
    }

    /// The words of a tenant now, over all CPUs; none of one that is not there. They only rise, but
    /// begin with what a tenant that is gone left at its place.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn read(&self, tenant: u32) -> Result<Option<[u64; layout::TALLIES]>, Error> {
        let Some(place) = self.tenants.place(tenant)? else { return Ok(None) };
        let mut sum = [0u64; layout::TALLIES];
        let Some(map) = &self.map else { return Ok(Some(sum)) };
        let per_cpu = map.lookup_percpu(&place.to_ne_bytes());
        let per_cpu = per_cpu.map_err(Error::bpf("reading tallies"))?;
        for of_cpu in per_cpu.iter().flatten() {
            for (word, bytes) in sum.iter_mut().zip(of_cpu.as_chunks().0) {
                *word = word.wrapping_add(u64::from_ne_bytes(*bytes));
            }
        }
        Ok(Some(sum))
    }
}
