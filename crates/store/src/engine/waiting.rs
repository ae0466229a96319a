//! What the backend has been asked and has not answered yet.

use hashbrown::HashMap;

use super::reply::Origin;
use crate::{backend::Ticket, directory::KeyId, shares::Shares};

/// A request that the backend has not answered yet.
pub(super) enum Asked {
    Read(Box<(Origin, Box<[u8]>)>),
    Write(KeyId),
    /// A half's request, of this tenant.
    Half(decide::Request, u32),
    /// A loan's: the value to lend, a value that came back, or the journal. No tenant's: it must end also when the tenant is gone.
    Loan(KeyId),
}

impl Asked {
    fn tenant(&self) -> u32 {
        match self {
            Asked::Read(read) => read.0.tenant,
            Asked::Write(id) => id.0,
            Asked::Half(_, tenant) => *tenant,
            Asked::Loan(_) => wire::TENANT_SYSTEM,
        }
    }
}

/// All of them, by the tickets that they were given; each tenant has a share of the room.
pub(super) struct Waiting {
    asked: HashMap<Ticket, Asked>,
    shares: Shares,
}

impl Waiting {
    /// Room for `limit` requests of `tenants` tenants.
    pub fn new(limit: usize, tenants: usize) -> Waiting {
        Waiting {
            asked: HashMap::new(),
            shares: Shares::new(limit, tenants),
        }
    }

    /// From now on so many tenants share the room.
    pub fn share_among(&mut self, tenants: usize) {
        self.shares.share_among(tenants);
    }

    /// Whether one more request of a tenant may wait.
    pub fn has_room(&self, tenant: u32) -> bool {
        self.shares.has_room(tenant)
    }

    pub fn insert(&mut self, ticket: Ticket, asked: Asked) {
        self.shares.take(asked.tenant(), 1);
        self.asked.insert(ticket, asked);
    }

    pub fn remove(&mut self, ticket: Ticket) -> Option<Asked> {
        let asked = self.asked.remove(&ticket)?;
        self.shares.give_back(asked.tenant(), 1);
        Some(asked)
    }

    /// Forgets what tenants asked that are gone.
    pub fn forget_tenants(&mut self, is_gone: impl Fn(u32) -> bool) {
        let shares = &mut self.shares;
        self.asked.retain(|_, asked| {
            let gone = is_gone(asked.tenant());
            if gone {
                shares.give_back(asked.tenant(), 1);
            }
            !gone
        });
    }
}
