//! What a switch holds, each item with a value, made valid as on a real one: by a lease and
//! by grants.

use std::net::{IpAddr, SocketAddr};

use anyhow::{Context, ensure};
use dataplane::{
    Backing, Cells, Counters, Leases, NO_DISCIPLINE, Place, Table, TenantEntry, cells_needed,
};
use wire::{Flags, Header, KeyHash, Op, Secret};

use crate::packet;

/// This switch's id.
const SWITCH: u16 = 1;
const LEASE_MS: u32 = 3_600_000;
const TERM: u64 = 1;

/// The tables of one switch. What a store says to it, its owner brings: `say` returns once the
/// switch has heard it.
pub struct Items {
    /// Its lookup table and pages.
    pub table: Table,
    leases: Leases,
    counters: Counters,
    cells: Cells,
    lease: u16,
    /// Items go to so many groups of pages in turn, whosever they are; `None`: each to its
    /// tenant's pages.
    pub groups: Option<u32>,
    made: u32,
    /// The store's address.
    pub store: IpAddr,
}

/// Makes these the tenants of a switch, beside the system's.
///
/// # Errors
/// The kernel refuses.
pub fn set_tenants(at: &Backing, tenants: &[TenantEntry]) -> anyhow::Result<()> {
    let system = TenantEntry::new(wire::TENANT_SYSTEM, Secret::NONE, NO_DISCIPLINE);
    let all: Vec<TenantEntry> = tenants.iter().copied().chain([system]).collect();
    Ok(TenantEntry::install(at, &all)?)
}

impl Items {
    /// Those of a switch that has none yet, with one tenant.
    ///
    /// # Errors
    /// The tables cannot be opened.
    pub fn open(
        at: Backing,
        tenant: TenantEntry,
        pages: u32,
        store: IpAddr,
    ) -> anyhow::Result<Items> {
        set_tenants(&at, &[tenant])?;
        let table = Table::open(&at)?;
        table.set_identity(SWITCH, 1_000);
        let leases = Leases::open(&at)?;
        let lease =
            leases.slot_of(SocketAddr::new(store, wire::PORT)).context("a free lease slot")?;
        Ok(Items {
            table,
            leases,
            counters: Counters::open(&at, [])?,
            cells: Cells::new(pages),
            lease,
            groups: None,
            made: 0,
            store,
        })
    }

    /// Takes a lease of the store.
    ///
    /// # Errors
    /// The switch did not take it.
    pub fn take_lease(&self, say: impl Fn(&[u8]) -> anyhow::Result<()>) -> anyhow::Result<()> {
        let reply = Header {
            tenant: wire::TENANT_SYSTEM,
            epoch: wire::Epoch::new(SWITCH, 0),
            request: self.lease.into(),
            version: self.leases.now_ns(),
            expiry_ms: LEASE_MS,
            client: TERM,
            ..Header::new(Op::LeaseReply)
        };
        say(&packet::payload(reply, b"", b"", 0, &Secret::NONE)?)?;
        let taken = self.count("lease_renewed")?;
        ensure!(taken == 1, "the switch did not take the lease that it was given");
        Ok(())
    }

    /// Makes an entry and fills it. False if the key's bucket is full.
    ///
    /// # Errors
    /// No room in the pages, or the switch did not take the grant.
    pub fn fill(
        &mut self,
        say: impl Fn(&[u8]) -> anyhow::Result<()>,
        tenant: &TenantEntry,
        hash: KeyHash,
        key: &[u8],
        value: &[u8],
    ) -> anyhow::Result<bool> {
        let cells = cells_needed(key.len(), value.len()).context("an item that cannot be")?;
        let place = self.take(tenant.id, cells).context("the pages are full")?;
        if self.table.insert(tenant.id, hash, key, self.lease, place).is_err() {
            self.cells.give_back(place);
            return Ok(false);
        }
        let epoch = self.table.wants_value(place, 0).context("a new entry holds no value")?;
        let grant = Header {
            tenant: tenant.id,
            flags: Flags::GRANT,
            key_hash: hash,
            epoch,
            version: 1,
            ..Header::new(Op::FetchReply)
        };
        say(&packet::payload(grant, key, value, 0, &tenant.secret)?)?;
        ensure!(self.table.wants_value(place, 0).is_none(), "the switch did not take a grant");
        Ok(true)
    }

    /// Makes an entry with a given record. False if the key's bucket is full.
    ///
    /// # Errors
    /// No room in the pages, or the record is too long for an item.
    pub fn give(
        &mut self,
        tenant: u32,
        hash: KeyHash,
        key: &[u8],
        record: &[u8],
    ) -> anyhow::Result<bool> {
        let cells = cells_needed(key.len(), record.len()).context("an item that cannot be")?;
        let place = self.take(tenant, cells).context("the pages are full")?;
        let made = self.table.insert_given(tenant, hash, key, record, place);
        if made.is_err() {
            self.cells.give_back(place);
        }
        Ok(made.is_ok())
    }

    /// Cells on a page of the tenant, or of the group whose turn it is, or on one that is nobody's
    /// and becomes its own.
    fn take(&mut self, tenant: u32, cells: u8) -> Option<Place> {
        let tenant = self.groups.map_or(tenant, |groups| self.made % groups);
        self.made += 1;
        let place = self.cells.take(tenant, cells);
        place.or_else(|| {
            let mut pages = 0..self.table.pages();
            let page = pages.find(|page| self.cells.owner(*page).is_none())?;
            self.cells.set_owner(page, Some(tenant));
            self.cells.take(tenant, cells)
        })
    }

    /// A counter's value.
    ///
    /// # Errors
    /// The tables cannot be read.
    pub fn count(&self, name: &str) -> anyhow::Result<u64> {
        Ok(self.counters.get(name)?)
    }
}
