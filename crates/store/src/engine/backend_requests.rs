//! What the backend has been asked and has not answered yet.

use std::net::SocketAddr;

use hashbrown::{HashMap, HashSet};
use wire::KeyHash;

use super::replies::Origin;
use crate::{backend::Ticket, directory::KeyId, shares::Shares};

/// A request that the backend has not answered yet.
pub(super) enum BackendRequest {
    Read(Box<(Origin, Box<[u8]>)>),
    Write(KeyId),
    /// A half's request, of this tenant.
    Half(decide::Request, u32),
    /// A loan's: the value to lend, a value that came back, or the journal. No tenant's: it must
    /// end also when the tenant is gone.
    Loan(KeyId),
}

/// What two reads have in common that are copies of one: who asks, from where, under which id,
/// for what.
type ReadId = (SocketAddr, u32, u64, u64, KeyHash);

fn read_id(origin: &Origin) -> ReadId {
    let Origin { tenant, client, request, key_hash, .. } = *origin;
    (origin.peer.address, tenant, client, request, key_hash)
}

impl BackendRequest {
    fn read_id(&self) -> Option<ReadId> {
        match self {
            // Each push is one of a kind: at most one for each store and epoch.
            BackendRequest::Read(read) if read.0.op == wire::Op::ReplicaPush => None,
            BackendRequest::Read(read) => Some(read_id(&read.0)),
            BackendRequest::Write(_) | BackendRequest::Half(..) | BackendRequest::Loan(_) => None,
        }
    }

    fn tenant(&self) -> u32 {
        match self {
            BackendRequest::Read(read) => read.0.tenant,
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
        origin.op != wire::Op::ReplicaPush
            && !self.reads.is_empty()
            && self.reads.contains(&read_id(origin))
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.asked.is_empty()
    }

    pub fn insert(&mut self, ticket: Ticket, asked: BackendRequest) {
        self.shares.take(asked.tenant(), 1);
        self.reads.extend(asked.read_id());
        self.asked.insert(ticket, asked);
    }

    pub fn remove(&mut self, ticket: Ticket) -> Option<BackendRequest> {
        let asked = self.asked.remove(&ticket)?;
        self.shares.give_back(asked.tenant(), 1);
        if let Some(id) = asked.read_id() {
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
                shares.give_back(asked.tenant(), 1);
            }
            !gone
        });
    }
}
