//! Who asks.

use super::Role;
use crate::admin::{Refusal, RefusalKind};

/// Who asks, and what they may. Handlers call one of the checks before they do anything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    name: String,
    role: Role,
}

/// A token that was found good, without the token: who showed it is still as good as long as
/// [`Access::admits`](super::Access::admits) it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pass {
    /// Whose it is.
    pub caller: Caller,
    /// BLAKE3 of the token.
    pub(super) hash: [u8; 32],
}

impl Caller {
    /// Who has a token of this name and role.
    pub fn new(name: String, role: Role) -> Caller {
        Caller { name, role }
    }

    /// Anybody, where there are no tokens: may do everything.
    pub fn anonymous() -> Caller {
        Caller::new("anonymous".into(), Role::Admin)
    }

    /// The token's name, for the audit log.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What the token allows.
    pub fn role(&self) -> Role {
        self.role
    }

    /// The tenant whose token it is.
    pub fn tenant(&self) -> Option<u32> {
        match self.role {
            Role::Tenant(id) => Some(id),
            _ => None,
        }
    }

    /// May change anything.
    ///
    /// # Errors
    /// [`RefusalKind::Forbidden`].
    pub fn administrates(&self) -> Result<(), Refusal> {
        self.must(self.role == Role::Admin, "an admin's")
    }

    /// May see everything but secrets.
    ///
    /// # Errors
    /// [`RefusalKind::Forbidden`].
    pub fn sees(&self) -> Result<(), Refusal> {
        let may = matches!(self.role, Role::Admin | Role::Viewer);
        self.must(may, "an admin's or viewer's")
    }

    /// May see this tenant, without its secrets.
    ///
    /// # Errors
    /// [`RefusalKind::Forbidden`].
    pub fn sees_tenant(&self, id: u32) -> Result<(), Refusal> {
        let may = self.tenant() == Some(id) || self.sees().is_ok();
        self.must(may, &format!("an admin's, a viewer's or tenant {id}'s"))
    }

    /// May use this tenant's memory and secrets.
    ///
    /// # Errors
    /// [`RefusalKind::Forbidden`].
    pub fn is_or_administrates(&self, id: u32) -> Result<(), Refusal> {
        let may = self.tenant() == Some(id) || self.role == Role::Admin;
        self.must(may, &format!("an admin's or tenant {id}'s"))
    }

    /// May attach as this switch.
    ///
    /// # Errors
    /// [`RefusalKind::Forbidden`].
    pub fn is_switch(&self, id: u16) -> Result<(), Refusal> {
        let may = match self.role {
            Role::Admin | Role::Switch(None) => true,
            Role::Switch(Some(own)) => own == id,
            _ => false,
        };
        self.must(may, &format!("one for switch {id}"))
    }

    fn must(&self, may: bool, whose: &str) -> Result<(), Refusal> {
        if may {
            return Ok(());
        }
        let line = format!("token {:?} may not do that; expected {whose} token", self.name);
        Err(Refusal::new(RefusalKind::Forbidden, line))
    }
}
