//! A sample of who asked whom, of tenants whose pages follow their traffic. The agent drains it and
//! reports it to the controller.

use std::net::Ipv6Addr;

use super::{backing::Backing, map::Map};
use crate::{
    Error,
    layout::{FLOW_BYTES, TRAFFIC_SAMPLE},
};

/// Requests of a tenant from one client to one store that passed a switch, or were answered there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FlowCount {
    /// Whose.
    pub tenant: u32,
    /// Who asked; IPv4 as `::ffff:a.b.c.d`.
    pub client: Ipv6Addr,
    /// Who was asked; likewise.
    pub store: Ipv6Addr,
    /// Requests since the last drain: 64 times those that were counted.
    pub requests: u64,
}

/// A sample of the traffic of measured tenants ([`crate::TenantEntry::measured`]): of requests that
/// are admitted, those whose number is a multiple of 64. At most 8192 pairs of client and store are
/// kept; the rarest make room for new ones, approximately. A client chooses its numbers, so it can
/// make itself look rare, or up to 64 times as busy as it is.
pub struct Traffic {
    map: Map,
}

impl Traffic {
    /// The sample of a switch. One reader at a time.
    ///
    /// # Errors
    /// If it is not there.
    pub fn open(at: impl Into<Backing>) -> Result<Traffic, Error> {
        let at = at.into();
        at.must_exist()?;
        let map = at.map("traffic")?;
        Ok(Traffic { map })
    }

    /// Takes what has been counted since the last time, in no order. What programs count at the
    /// same moment is in this result or the next; a single request may get lost between them.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn drain(&self) -> Result<Vec<FlowCount>, Error> {
        let mut counts = vec![];
        // The keys first: whoever removes the one that he stands on begins anew.
        let keys: Vec<Vec<u8>> = self.map.keys();
        for key in keys {
            let value = self.map.lookup_and_delete(&key);
            let value = value.map_err(Error::bpf("emptying the sample of traffic"))?;
            // Others may have taken its place meanwhile.
            counts.extend(value.and_then(|value| FlowCount::read(&key, &value)));
        }
        Ok(counts)
    }
}

impl FlowCount {
    fn read(key: &[u8], value: &[u8]) -> Option<FlowCount> {
        let key: &[u8; FLOW_BYTES] = key.first_chunk()?;
        let address = |at: usize| key[at..].first_chunk::<16>().copied().map(Ipv6Addr::from);
        let counted = u64::from_ne_bytes(*value.first_chunk()?);
        Some(FlowCount {
            tenant: u32::from_ne_bytes(*key.first_chunk()?),
            client: address(4)?,
            store: address(20)?,
            requests: counted.saturating_mul(TRAFFIC_SAMPLE),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_no_flow_are_none() {
        assert_eq!(FlowCount::read(&[0; 35], &[0; 8]), None);
        assert_eq!(FlowCount::read(&[0; 36], &[0; 7]), None);
        assert!(FlowCount::read(&[0; 36], &[0; 8]).is_some());
    }
}
