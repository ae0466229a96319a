//! What all calls of a client share, and what they learn for one another. No sockets, no clocks.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use wire::{Cluster, Secret, Secrets, TENANT_SYSTEM};

use crate::{
    Error, Options, Reservation, counters::Counters, envelope::Envelope, lives::Lives,
    paths::Paths, routes::Routes, sizes::Sizes, timing::RoundTrip,
};

/// What ties an answer to its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Id {
    pub client: u64,
    pub request: u64,
}

/// The bits of a request's number that count on within its row.
const ROW_BITS: u32 = 48;

pub(crate) struct Rules {
    pub tenant: u32,
    pub secrets: Secrets,
    pub options: Options,
    /// How long a write may take: no retransmission of it outlives a store's memory of it (rule 7).
    pub write_deadline: Duration,
    pub routes: Routes,
    pub envelope: Envelope,
    pub round_trip: RoundTrip,
    pub counters: Arc<Counters>,
    /// Longest value in bytes, as it travels.
    pub max_value: usize,
    client: u64,
    /// Of reads, and then of the writes to each store, by the store's window: how many there were.
    requests: Box<[AtomicU64]>,
    pub lives: Lives,
    pub paths: Paths,
    pub sizes: Sizes,
    /// A mutant: parts of all versions are joined.
    #[cfg(test)]
    pub joins_any_version: bool,
}

impl Rules {
    /// For calls in the name of `tenant`; the client is known by `client`, which nobody else may
    /// ever have had: stores remember its writes by it.
    pub fn new(
        cluster: &Cluster,
        tenant: u32,
        options: Options,
        client: u64,
    ) -> Result<Rules, Error> {
        options.check()?;
        if cluster.stores.is_empty() || cluster.partitions == 0 {
            return Err(Error::Options("cluster: it has no store; expected at least one".into()));
        }
        let secrets = (tenant != TENANT_SYSTEM)
            .then(|| cluster.secrets_of(tenant))
            .flatten()
            .ok_or(Error::UnknownTenant(tenant))?;
        let envelope = Envelope::new(options.seal.as_ref(), tenant);
        let routes = Routes::new(cluster, tenant);
        Ok(Rules {
            tenant,
            secrets,
            lives: Lives::new(routes.windows),
            paths: Paths::new(routes.windows),
            requests: (0..=routes.windows).map(|_| AtomicU64::new(0)).collect(),
            routes,
            write_deadline: options.deadline.min(cluster.write_deadline()),
            round_trip: RoundTrip::new(&options),
            counters: Arc::default(),
            max_value: cluster.max_value as usize,
            client,
            sizes: Sizes::new(options.expected_value + envelope.overhead()),
            envelope,
            options,
            #[cfg(test)]
            joins_any_version: false,
        })
    }

    /// The id of a read, or of a write to the store with this window.
    ///
    /// The writes to one store are numbered in a row. Whoever keeps the writes of a lent key can
    /// tell of 256 numbers whether they were there ([`crate::window`] leaves no more than 128
    /// between two that matter): reads, and writes to others, must not use these up.
    pub fn new_id(&self, window: Option<usize>) -> Id {
        let row = window.map_or(0, |window| window + 1);
        let number = self.requests[row].fetch_add(1, Relaxed) + 1;
        Id { client: self.client, request: (row as u64) << ROW_BITS | number }
    }

    /// An answer as the mutant sees it.
    #[cfg(test)]
    pub fn any_version(&self, header: &wire::Header, first: &wire::Header) -> wire::Header {
        wire::Header {
            version: match self.joins_any_version && header.part > 0 {
                true => first.version,
                false => header.version,
            },
            ..*header
        }
    }

    /// Whether reads say that all parts of a value may come unasked: from where nobody is
    /// amplified, and some value had parts.
    pub fn takes_all(&self) -> bool {
        self.secrets.tag != Secret::NONE && self.sizes.any_in_parts()
    }

    /// Memory for a value that no packet holds; none: no bound is set.
    pub fn reserve(&self, len: usize) -> Result<Option<Reservation>, Error> {
        let Some(memory) = &self.options.memory else { return Ok(None) };
        memory.reserve(len).map(Some).ok_or(Error::NoMemory { len })
    }

    /// The error of a call that found no place before its deadline.
    pub fn full(&self) -> Error {
        Error::TooManyInFlight { limit: self.options.max_in_flight }
    }
}
