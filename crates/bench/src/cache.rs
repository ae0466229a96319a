//! A switch without interfaces that holds items, each with a value, made valid as on a real one: by a lease
//! and by grants.

use std::{
    net::{IpAddr, SocketAddr},
    os::fd::AsFd,
    process,
};

use anyhow::{Context, ensure};
use dataplane::{
    Cells, Counters, Dataplane, Home, Leases, NO_DISCIPLINE, Object, PROGRAMS_PER_DISCIPLINE,
    Sizes, Table, TenantEntry, cells_needed,
};
use decide::Registration;
use wire::{Flags, Header, KeyHash, Op, Secret};

use crate::{packet, runs::Program};

/// This switch's id.
const SWITCH: u16 = 1;
const LEASE_MS: u32 = 3_600_000;
const TERM: u32 = 1;
/// The discipline's number in these switches.
pub const DISCIPLINE: u32 = 1;
/// Reads per window from which a key is reported.
const HOT_THRESHOLD: u32 = 128;

/// A switch with its tables; detached when dropped.
pub struct Cache {
    dataplane: Dataplane,
    /// Its tables.
    pub table: Table,
    leases: Leases,
    counters: Counters,
    /// The entry program.
    pub entry: Program,
    cells: Cells,
    lease: u16,
    store: IpAddr,
}

/// Detaches a switch that was only half made.
struct Detach(Home);

impl Drop for Detach {
    fn drop(&mut self) {
        let _ = dataplane::detach(&self.0);
    }
}

/// Pages that so many items of that size take.
pub fn pages_for(items: usize, key_len: usize, value_len: usize) -> anyhow::Result<u32> {
    let cells = cells_needed(key_len, value_len).context("an item of this size cannot be")?;
    let mut page = Cells::new(1);
    page.set_owner(0, Some(0));
    let per_page = std::iter::from_fn(|| page.take(0, cells)).count();
    Ok(items.div_ceil(per_page) as u32)
}

impl Cache {
    /// Loads the entry program and `objects`, with one tenant and a lease of `store`.
    ///
    /// # Errors
    /// No privilege, or the kernel refuses.
    pub fn load(
        name: &str,
        objects: &[Object],
        tenant: TenantEntry,
        pages: u32,
        store: IpAddr,
    ) -> anyhow::Result<Cache> {
        let home = Home::new(&format!("bench-{}-{name}", process::id()))?;
        let detach_if_it_fails = Detach(home.clone());
        let dataplane = Dataplane::load(home.clone(), objects, Sizes { pages })?;
        let system = TenantEntry {
            id: wire::TENANT_SYSTEM,
            discipline: NO_DISCIPLINE,
            ..tenant
        };
        TenantEntry::install(
            &home,
            &[
                tenant,
                TenantEntry {
                    secret: Secret::NONE,
                    ..system
                },
            ],
        )?;
        let table = Table::open(&home)?;
        table.set_identity(SWITCH, 1_000);
        let leases = Leases::open(&home)?;
        let lease = leases
            .slot_of(SocketAddr::new(store, wire::PORT))
            .context("a free lease slot")?;
        let entry = Program(dataplane.program().as_fd().try_clone_to_owned()?);
        let counters = Counters::open(&home)?;
        let cells = Cells::new(pages);
        let cache = Cache {
            dataplane,
            table,
            leases,
            counters,
            entry,
            cells,
            lease,
            store,
        };
        std::mem::forget(detach_if_it_fails); // from here on it is the cache's own Drop
        cache.take_lease()?;
        Ok(cache)
    }

    fn take_lease(&self) -> anyhow::Result<()> {
        let reply = Header {
            tenant: wire::TENANT_SYSTEM,
            epoch: wire::Epoch::new(SWITCH, 0),
            request: self.lease.into(),
            version: self.leases.now_ns(),
            expiry_ms: LEASE_MS,
            client: TERM,
            ..Header::new(Op::LeaseReply)
        };
        let bytes = packet::payload(reply, b"", b"", 0, &Secret::NONE)?;
        self.entry
            .run(&packet::reply(self.store, &bytes), 0, 1, &mut vec![])?;
        let taken = self.counters.get("lease_renewed")?;
        ensure!(
            taken == 1,
            "the switch did not take the lease that it was given"
        );
        Ok(())
    }

    /// Makes an entry and fills it. False if the key's bucket is full.
    ///
    /// # Errors
    /// No room in the pages, or the switch did not take the grant.
    pub fn fill(
        &mut self,
        tenant: &TenantEntry,
        hash: KeyHash,
        key: &[u8],
        value: &[u8],
    ) -> anyhow::Result<bool> {
        let cells = cells_needed(key.len(), value.len()).context("an item that cannot be")?;
        let place = self.take(tenant.id, cells).context("the pages are full")?;
        if self
            .table
            .insert(tenant.id, hash, key, self.lease, place)
            .is_err()
        {
            self.cells.give_back(place);
            return Ok(false);
        }
        let epoch = self
            .table
            .wants_value(place, 0)
            .context("a new entry holds no value")?;
        let grant = Header {
            tenant: tenant.id,
            flags: Flags::GRANT,
            key_hash: hash,
            epoch,
            version: 1,
            ..Header::new(Op::FetchReply)
        };
        let bytes = packet::payload(grant, key, value, 0, &tenant.secret)?;
        self.entry
            .run(&packet::reply(self.store, &bytes), 0, 1, &mut vec![])?;
        ensure!(
            self.table.wants_value(place, 0).is_none(),
            "the switch did not take a grant"
        );
        Ok(true)
    }

    /// Cells on a page of the tenant, or on one that is nobody's and becomes its own.
    fn take(&mut self, tenant: u32, cells: u8) -> Option<dataplane::Place> {
        let place = self.cells.take(tenant, cells);
        place.or_else(|| {
            let mut pages = 0..self.table.pages();
            let page = pages.find(|page| self.cells.owner(*page).is_none())?;
            self.cells.set_owner(page, Some(tenant));
            self.cells.take(tenant, cells)
        })
    }

    /// Gives the tenant another discipline.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn set_tenant(&self, tenant: TenantEntry) -> anyhow::Result<()> {
        Ok(TenantEntry::install(self.dataplane.home(), &[tenant])?)
    }

    /// A counter's value.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn count(&self, name: &str) -> anyhow::Result<u64> {
        Ok(self.counters.get(name)?)
    }

    /// Attaches the entry program to an interface of this thread's network namespace.
    ///
    /// # Errors
    /// See [`Dataplane::attach`].
    pub fn attach(&self, interface: &str) -> anyhow::Result<u32> {
        Ok(self
            .dataplane
            .attach(interface, dataplane::Mode::Generic)?
            .ifindex)
    }

    /// The first step of the discipline of that number, as loaded.
    ///
    /// # Errors
    /// There is none.
    pub fn discipline(&self, number: u32) -> anyhow::Result<Program> {
        use libbpf_rs::{MapCore, MapFlags, MapHandle, libbpf_sys};
        use std::os::fd::{FromRawFd, OwnedFd};
        let name = self.dataplane.home().name();
        let map = MapHandle::from_pinned_path(format!("/sys/fs/bpf/shortstop/{name}/programs"))?;
        let id = map
            .lookup(
                &(number * PROGRAMS_PER_DISCIPLINE as u32).to_ne_bytes(),
                MapFlags::ANY,
            )?
            .context("no such discipline")?;
        let id = u32::from_ne_bytes(id[..4].try_into()?);
        // SAFETY: asks for a descriptor by id; checked before it is owned.
        let descriptor = unsafe { libbpf_sys::bpf_prog_get_fd_by_id(id) };
        ensure!(descriptor >= 0, "no descriptor for program {id}");
        // SAFETY: a descriptor that was just made for us.
        Ok(Program(unsafe { OwnedFd::from_raw_fd(descriptor) }))
    }
}

impl Drop for Cache {
    fn drop(&mut self) {
        drop(Detach(self.dataplane.home().clone()));
    }
}

/// A tenant of that secret without a limit.
pub fn tenant(id: u32, secret: Secret) -> TenantEntry {
    TenantEntry {
        id,
        secret,
        rate: 0,
        drop_over_rate: false,
        also_secret: Secret::NONE,
        measured: false,
        parameters: [HOT_THRESHOLD, 0],
        discipline: DISCIPLINE,
    }
}

/// A discipline's programs, on a switch of so many pages, under the number of the one that is measured.
pub fn discipline(registration: &Registration, pages: u32) -> Object {
    Object {
        number: DISCIPLINE,
        ..Object::of(registration, Sizes { pages })
    }
}

/// An object under the name of its only step.
pub fn one_step(program: &'static str, number: u32, elf: &'static [u8]) -> Object {
    Object {
        name: program,
        number,
        elf,
        native: None,
        steps: vec![program],
        egress: None,
        maps: vec![],
    }
}
