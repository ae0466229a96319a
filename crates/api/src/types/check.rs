//! What can be said of a request without knowing anything else: lengths, ranges, forms.

use super::{LIST_MAX, NAME_MAX, PageRequest, ReturnPages, TenantChange, TenantSpec, TopologySpec};
use wire::{TENANT_OPEN, TENANT_SYSTEM};

/// Longest lease in seconds: ten years.
const LEASE_MAX_S: u64 = 10 * 365 * 24 * 3600;

/// A request whose fields can be checked by themselves.
pub trait Check {
    /// Checks lengths, ranges and forms.
    ///
    /// # Errors
    /// One line that names the field, and what was expected.
    fn check(&self) -> Result<(), String>;
}

fn name(field: &str, text: &str) -> Result<(), String> {
    if text.len() > NAME_MAX || text.chars().any(char::is_control) {
        return Err(format!(
            "{field}: expected at most {NAME_MAX} bytes without control characters"
        ));
    }
    Ok(())
}

fn list(field: &str, len: usize) -> Result<(), String> {
    if len > LIST_MAX {
        return Err(format!("{field}: {len} entries, at most {LIST_MAX} are taken"));
    }
    Ok(())
}

impl Check for TenantSpec {
    fn check(&self) -> Result<(), String> {
        if let Some(id @ (TENANT_OPEN | TENANT_SYSTEM)) = self.id {
            return Err(format!("id: {id} is reserved, expected 1 to {}", TENANT_SYSTEM - 1));
        }
        name("name", &self.name)?;
        if let Some(secret) = &self.secret {
            let mut bytes = [0; 16];
            let good = hex::decode_to_slice(secret, &mut bytes).is_ok() && bytes != [0; 16];
            if !good {
                return Err("secret: expected 32 hex digits, not all zero".into());
            }
        }
        name("discipline", &self.discipline)?;
        list("stores", self.stores.len())?;
        list("clients", self.clients.len())
    }
}

impl Check for TenantChange {
    fn check(&self) -> Result<(), String> {
        if self.is_empty() {
            return Err("nothing to change: expected at least one field".into());
        }
        name("name", self.name.as_deref().unwrap_or(""))?;
        name("discipline", self.discipline.as_deref().unwrap_or(""))?;
        list("stores", self.stores.as_ref().map_or(0, Vec::len))?;
        list("clients", self.clients.as_ref().map_or(0, Vec::len))
    }
}

impl Check for PageRequest {
    fn check(&self) -> Result<(), String> {
        if self.pages == 0 {
            return Err("pages: 0 were asked for, expected at least 1".into());
        }
        if self.switch == Some(0) {
            return Err("switch: 0 is no switch, expected 1 to 32767".into());
        }
        match self.lease_s {
            Some(s) if s == 0 || s > LEASE_MAX_S => Err(format!(
                "lease_s: expected 1 to {LEASE_MAX_S} seconds, or none for pages that stay"
            )),
            _ => Ok(()),
        }
    }
}

impl Check for ReturnPages {
    fn check(&self) -> Result<(), String> {
        match (self.pages.len(), self.count) {
            (0, None | Some(0)) => {
                return Err("expected the pages to return, or a count of at least 1".into());
            }
            (1.., Some(_)) => return Err("expected either pages or count, not both".into()),
            _ => {}
        }
        list("pages", self.pages.len())?;
        let mut sorted = self.pages.clone();
        sorted.sort_unstable();
        match sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(format!("pages: {} is named twice", pair[0])),
            None => Ok(()),
        }
    }
}

impl Check for TopologySpec {
    fn check(&self) -> Result<(), String> {
        list("switch", self.switches.len())?;
        list("link", self.links.len())?;
        list("network", self.networks.len())?;
        for switch in &self.switches {
            if switch.id == 0 {
                return Err("switch 0: expected an id of 1 to 32767".into());
            }
            name(&format!("switch {}: name", switch.id), &switch.name)?;
        }
        for link in &self.links {
            let which = format!("link {} to {}", link.a, link.b);
            if link.a == link.b {
                return Err(format!("{which}: expected two different switches"));
            }
            if link.cost == 0 {
                return Err(format!("{which}: cost 0, expected at least 1"));
            }
        }
        Ok(())
    }
}

impl Check for super::RouteSettings {
    fn check(&self) -> Result<(), String> {
        Ok(())
    }
}
