//! Which token may call which gRPC method.

use super::{Caller, Role};

/// A call of a gRPC method, recognised by its path: `/PACKAGE.SERVICE/METHOD`.
pub struct Call<'a> {
    method: &'a str,
}

impl<'a> Call<'a> {
    /// The call that a path stands for; `None`: no gRPC.
    pub fn of(path: &'a str) -> Option<Call<'a>> {
        let (service, method) = path.strip_prefix('/')?.split_once('/')?;
        service.contains('.').then_some(Call { method })
    }

    /// Whether this one may call it. Methods that are not known here are for admins.
    ///
    /// # Errors
    /// One line: which token is needed.
    pub fn allowed(&self, caller: &Caller) -> Result<(), String> {
        let role = caller.role();
        let (may, whose) = match self.method {
            "Attach" => (matches!(role, Role::Switch(_)), "a switch's"),
            "Serve" => (role == Role::Store, "a store's"),
            "Status" => (!matches!(role, Role::Tenant(_)), "a viewer's"),
            _ => (false, "an admin's"),
        };
        if may || role == Role::Admin {
            return Ok(());
        }
        let (name, method) = (caller.name(), self.method);
        Err(format!("token {name:?} may not call {method}; expected {whose} token"))
    }
}
