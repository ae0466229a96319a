//! What the backend has been asked and has not answered yet.

use std::net::SocketAddr;

use hashbrown::{HashMap, HashSet};
use wire::{Epoch, KeyHash};

use super::replies::Origin;
use crate::{backend::Ticket, directory::KeyId, shares::Shares};

/// A read that the backend has not answered yet.
pub(super) struct BackendRead {
    pub origin: Origin,
    pub key: Box<[u8]>,
    /// It was asked for a grant, so whatever changes the key afterwards is told.
    pub for_grant: bool,
    /// Reads of the same key by others, which its answer answers, too.
    pub joined: Vec<Origin>,
}

impl BackendRead {
    /// Of this key, and nobody else wants it yet.
    pub fn new(origin: Origin, key: &[u8], for_grant: bool) -> BackendRead {
        BackendRead { origin, key: key.into(), for_grant, joined: vec![] }
    }
}

/// A request that the backend has not answered yet.
pub(super) enum BackendRequest {
    Read(Box<BackendRead>),
    Write(KeyId),
    /// A half's request, of this tenant.
    Half(decide::Request, u32),
    /// A loan's: the value to lend, a value that came back, or the journal. No tenant's: it must
    /// end also when the tenant is gone.
    Loan(KeyId),
}

/// What two reads have in common that are copies of one: who asks, from where, under which id, for
/// what, which part of it, and under which epoch. All reads of a holder have one id, and under a
/// new epoch it wants what it has not been granted.
type ReadId = (SocketAddr, u32, u64, u64, KeyHash, u16, Epoch);

/// None: each push is one of a kind, at most one for each store and epoch.
fn read_id(origin: &Origin) -> Option<ReadId> {
    let Origin { tenant, client, request, key_hash, epoch, .. } = *origin;
    let is_push = origin.op == wire::Op::ReplicaPush;
    let part = origin.wanted.part;
    (!is_push).then_some((origin.peer.address, tenant, client, request, key_hash, part, epoch))
}

impl BackendRequest {
    /// The reads that it is for.
    fn origins(&self) -> impl Iterator<Item = &Origin> {
        let read = match self {
            BackendRequest::Read(read) => Some(read),
            BackendRequest::Write(_) | BackendRequest::Half(..) | BackendRequest::Loan(_) => None,
        };
        read.into_iter().flat_map(|read| std::iter::once(&read.origin).chain(&read.joined))
    }

    /// The room that it takes.
    fn cost(&self) -> usize {
        self.origins().count().max(1)
    }

    fn tenant(&self) -> u32 {
        match self {
            BackendRequest::Read(read) => read.origin.tenant,
            BackendRequest::Write(id) => id.0,
            BackendRequest::Half(_, tenant) => *tenant,
            BackendRequest::Loan(_) => wire::TENANT_SYSTEM,
        }
    }
}

/// All of them, by the tickets that they were given; each tenant has a share of the room.
pub(super) struct BackendRequests {
    asked: HashMap<Ticket, BackendRequest>,
    reads: HashSet<ReadId>,
    shares: Shares,
    /// Of the last request.
    newest: Ticket,
}

impl BackendRequests {
    /// Room for `limit` requests of `tenants` tenants.
    pub fn new(limit: usize, tenants: usize) -> BackendRequests {
        BackendRequests {
            asked: HashMap::new(),
            reads: HashSet::new(),
            shares: Shares::new(limit, tenants),
            newest: 0,
        }
    }

    /// A ticket for one more request.
    pub fn ticket(&mut self) -> Ticket {
        self.newest += 1;
        self.newest
    }

    /// From now on so many tenants share the room.
    pub fn share_among(&mut self, tenants: usize) {
        self.shares.share_among(tenants);
    }

    /// Whether one more request of a tenant may wait.
    pub fn has_room(&self, tenant: u32) -> bool {
        self.shares.has_room(tenant)
    }

    /// Whether a read waits that this one is a copy of.
    pub fn has_read(&self, origin: &Origin) -> bool {
        !self.reads.is_empty() && read_id(origin).is_some_and(|id| self.reads.contains(&id))
    }

    /// Has a read answered with what the backend says to this question; false: nothing is asked
    /// under that ticket. Both are of one key.
    pub fn join(&mut self, ticket: Ticket, origin: Origin) -> bool {
        let Some(BackendRequest::Read(read)) = self.asked.get_mut(&ticket) else { return false };
        read.joined.push(origin);
        self.shares.take(origin.tenant, 1);
        self.reads.extend(read_id(&origin));
        true
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.asked.is_empty()
    }

    pub fn insert(&mut self, ticket: Ticket, asked: BackendRequest) {
        self.shares.take(asked.tenant(), asked.cost());
        self.reads.extend(asked.origins().filter_map(read_id));
        self.asked.insert(ticket, asked);
    }

    pub fn remove(&mut self, ticket: Ticket) -> Option<BackendRequest> {
        let asked = self.asked.remove(&ticket)?;
        self.shares.give_back(asked.tenant(), asked.cost());
        for id in asked.origins().filter_map(read_id) {
            self.reads.remove(&id);
        }
        Some(asked)
    }

    /// Forgets what tenants asked that are gone, but for writes, which may still take place.
    pub fn forget_tenants(&mut self, is_gone: impl Fn(u32) -> bool) {
        let shares = &mut self.shares;
        self.reads.retain(|(_, tenant, ..)| !is_gone(*tenant));
        self.asked.retain(|_, asked| {
            let is_write = matches!(asked, BackendRequest::Write(_));
            let gone = !is_write && is_gone(asked.tenant());
            if gone {
                shares.give_back(asked.tenant(), asked.cost());
            }
            !gone
        });
    }
}
