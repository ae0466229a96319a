//! What keys are called in the backend.

use crate::backend::Key;

/// Names of tenants other than 0 begin with this in the backend, then the tenant's number and
/// a colon.
const PREFIX: &str = "shortstop:";

/// A key's name in the backend: tenant 0's keys as they are; those of tenant 7 after
/// `shortstop:7:`. `None` for a key of tenant 0 that looks like another tenant's.
pub(super) fn name_of(key: Key<'_>) -> Option<Vec<u8>> {
    if key.tenant == wire::TENANT_OPEN {
        return (!key.bytes.starts_with(PREFIX.as_bytes())).then(|| key.bytes.into());
    }
    let mut name = format!("{PREFIX}{}:", key.tenant).into_bytes();
    name.extend_from_slice(key.bytes);
    Some(name)
}

/// The tenant and the key of a name in the backend: the reverse of [`name_of`]. `None` for a name
/// that no key has.
pub(in crate::backend) fn key_of(name: &[u8]) -> Option<(u32, &[u8])> {
    let Some(rest) = name.strip_prefix(PREFIX.as_bytes()) else {
        return Some((wire::TENANT_OPEN, name));
    };
    let colon = rest.iter().position(|byte| *byte == b':')?;
    let tenant = std::str::from_utf8(&rest[..colon]).ok()?.parse().ok()?;
    Some((tenant, &rest[colon + 1..]))
}

#[cfg(test)]
mod tests {
    use wire::KeyHash;

    use super::*;

    #[test]
    fn tenants_cannot_name_one_anothers_keys() {
        let of = |tenant, bytes| name_of(Key { tenant, hash: KeyHash::default(), bytes });
        assert_eq!(of(0, b"a"), Some(b"a".to_vec()));
        assert_eq!(of(7, b"a"), Some(b"shortstop:7:a".to_vec()));
        assert_eq!(of(0, b"shortstop:7:a"), None);
        assert_eq!(of(8, b"shortstop:7:a"), Some(b"shortstop:8:shortstop:7:a".to_vec()));
    }

    #[test]
    fn a_name_leads_back_to_its_key() {
        type Key = Option<(u32, &'static [u8])>;
        let rows: [(&[u8], Key); 6] = [
            (b"a", Some((0, b"a"))),
            (b"shortstop:7:a", Some((7, b"a"))),
            (b"shortstop:8:shortstop:7:a", Some((8, b"shortstop:7:a"))),
            (b"shortstop:x:a", None),
            (b"shortstop:7", None),
            (b"shortstop:\xff:a", None),
        ];
        for (name, key) in rows {
            assert_eq!(key_of(name), key, "{}", String::from_utf8_lossy(name));
        }
    }
}
