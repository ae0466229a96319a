//! What keys are called in a backend that several tenants share: by stores, and by gateways that go
//! past them.

use crate::TENANT_OPEN;

/// Names of tenants other than 0 begin with this, then the tenant's number and a colon.
const PREFIX: &str = "shortstop:";

/// A key's name in the backend: tenant 0's keys as they are; those of tenant 7 after
/// `shortstop:7:`. `None` for a key of tenant 0 that is the name of another tenant's.
pub fn backend_name(tenant: u32, key: &[u8]) -> Option<Vec<u8>> {
    if tenant == TENANT_OPEN {
        return (key_of_backend_name(key).0 == TENANT_OPEN).then(|| key.into());
    }
    let mut name = format!("{PREFIX}{tenant}:").into_bytes();
    name.extend_from_slice(key);
    Some(name)
}

/// The tenant and the key of a name in the backend: the reverse of [`backend_name`].
pub fn key_of_backend_name(name: &[u8]) -> (u32, &[u8]) {
    tenants_key(name).unwrap_or((TENANT_OPEN, name))
}

fn tenants_key(name: &[u8]) -> Option<(u32, &[u8])> {
    let rest = name.strip_prefix(PREFIX.as_bytes())?;
    let colon = rest.iter().position(|byte| *byte == b':')?;
    let number = std::str::from_utf8(&rest[..colon]).ok()?;
    let tenant: u32 = number.parse().ok()?;
    // Written otherwise it is nobody's prefix.
    let is_prefix = tenant != TENANT_OPEN && tenant.to_string() == number;
    is_prefix.then_some((tenant, &rest[colon + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_leads_back_to_its_key_and_tenants_cannot_name_one_anothers() {
        // (tenant, key, name)
        type Row = (u32, &'static [u8], Option<&'static [u8]>);
        let rows: [Row; 10] = [
            (0, b"a", Some(b"a")),
            (7, b"a", Some(b"shortstop:7:a")),
            (8, b"shortstop:7:a", Some(b"shortstop:8:shortstop:7:a")),
            (7, b"", Some(b"shortstop:7:")),
            (0, b"shortstop:7:a", None),
            (0, b"shortstop:7:", None),
            (0, b"shortstop:x", Some(b"shortstop:x")),
            (0, b"shortstop:07:a", Some(b"shortstop:07:a")),
            (0, b"shortstop:0:a", Some(b"shortstop:0:a")),
            (0, b"shortstop:\xff:4294967296:a", Some(b"shortstop:\xff:4294967296:a")),
        ];
        for (tenant, key, name) in rows {
            assert_eq!(backend_name(tenant, key).as_deref(), name, "{tenant} {key:?}");
            if let Some(name) = name {
                assert_eq!(key_of_backend_name(name), (tenant, key), "{name:?}");
            }
        }
    }
}
