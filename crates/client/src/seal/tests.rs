//! What is sealed opens for its key and tenant and for nothing else, the format of sealed values
//! stays, and neither secrets nor files of others get through.

use std::{fs, os::unix::fs::PermissionsExt};

use proptest::{collection::vec, prelude::*};

use super::*;

fn seal() -> Seal {
    Seal::new([7; 32])
}

/// The longest value that one packet carries beside a hidden key.
const LONGEST: usize = wire::max_value(Seal::HIDDEN_KEY_BYTES) - Seal::OVERHEAD;

proptest! {
    #[test]
    fn what_was_sealed_opens(
        tenant: u32,
        key in vec(any::<u8>(), 1..=wire::MAX_KEY),
        value in vec(any::<u8>(), 0..=LONGEST),
    ) {
        let seal = seal().of_tenant(tenant);
        let hidden = seal.hide(&key);
        let sealed = seal.seal(&hidden, &value);
        prop_assert_eq!(sealed.len(), value.len() + Seal::OVERHEAD);
        prop_assert_eq!(seal.open(&hidden, &sealed).unwrap(), value.clone());
        prop_assert_ne!(seal.seal(&hidden, &value), sealed, "a nonce came twice");
    }

    #[test]
    fn any_flipped_bit_is_refused(value in vec(any::<u8>(), 0..100), at: prop::sample::Index, bit in 0..8u32) {
        let seal = seal().of_tenant(1);
        let hidden = seal.hide(b"k");
        let mut sealed = seal.seal(&hidden, &value);
        let at = at.index(sealed.len());
        sealed[at] ^= 1u8 << bit;
        let expected = if at == 0 { OpenError::NotSealed } else { OpenError::Refused };
        prop_assert_eq!(seal.open(&hidden, &sealed), Err(expected));
    }

    #[test]
    fn a_value_cut_short_or_lengthened_is_refused(value in vec(any::<u8>(), 0..100), cut: prop::sample::Index) {
        let seal = seal().of_tenant(1);
        let hidden = seal.hide(b"k");
        let mut sealed = seal.seal(&hidden, &value);
        prop_assert!(seal.open(&hidden, &sealed[..cut.index(sealed.len())]).is_err());
        sealed.push(0);
        prop_assert!(seal.open(&hidden, &sealed).is_err());
    }

    #[test]
    fn a_value_cannot_be_moved(
        tenants: (u32, u32),
        keys in (vec(any::<u8>(), 1..50), vec(any::<u8>(), 1..50)),
        value in vec(any::<u8>(), 0..50),
    ) {
        let [a, b] = [tenants.0, tenants.1].map(|tenant| seal().of_tenant(tenant));
        let sealed = a.seal(&a.hide(&keys.0), &value);
        if keys.0 != keys.1 {
            prop_assert_ne!(a.hide(&keys.0), a.hide(&keys.1));
            prop_assert_eq!(a.open(&a.hide(&keys.1), &sealed), Err(OpenError::Refused));
        }
        if tenants.0 != tenants.1 {
            prop_assert_ne!(a.hide(&keys.0), b.hide(&keys.0));
            prop_assert_eq!(b.open(&b.hide(&keys.0), &sealed), Err(OpenError::Refused));
            // Nor under the other tenant's hidden key, should somebody copy that along.
            prop_assert_eq!(b.open(&a.hide(&keys.0), &sealed), Err(OpenError::Refused));
        }
        let other = Seal::new([8; 32]).of_tenant(tenants.0);
        prop_assert_ne!(other.hide(&keys.0), a.hide(&keys.0));
        prop_assert_eq!(other.open(&a.hide(&keys.0), &sealed), Err(OpenError::Refused));
    }

    #[test]
    fn arbitrary_bytes_do_not_open(bytes in vec(any::<u8>(), 0..200)) {
        let seal = seal().of_tenant(1);
        prop_assert!(seal.open(&seal.hide(b"k"), &bytes).is_err());
    }
}

/// Values that are stored must open with every later version.
#[test]
fn the_format_stays() {
    let seal = seal().of_tenant(3);
    let hidden = seal.hide(b"user:42");
    assert_eq!(hex::encode(hidden), HIDDEN);
    let sealed = hex::decode(SEALED).unwrap();
    assert_eq!(seal.open(&hidden, &sealed).unwrap(), b"Ada");
}

/// The key `user:42` of tenant 3 under 32 bytes of 7.
const HIDDEN: &str = "7fe7a5ab42cfcefbd67d449d335132ce28ac032339130d6dff310de50ca78828";
/// The value `Ada`, sealed for it.
const SEALED: &str =
    "01faca044ad5e3d7116613b3a93aa8f6c9edeb3dfa3b3d4fa0439b65f42af2276719d05bc1e3768b9cc7247d";

#[test]
fn nothing_prints_a_key() {
    let seal = Seal::new(*b"0123456789abcdef0123456789abcdef");
    assert_eq!(format!("{seal:?}"), "Seal(hidden)");
    let tenant = format!("{:?}", seal.of_tenant(9));
    assert_eq!(tenant, "TenantSeal(tenant 9, hidden)");
    let options = crate::Options { seal: Some(seal), ..crate::Options::default() };
    assert!(!format!("{options:?}").contains("48, 49"), "{options:?}");
}

#[test]
fn a_key_file_is_its_owners_and_holds_64_hex_digits() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("seal.key");
    let read = |text: &str, mode| {
        fs::write(&file, text).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        Seal::read(&file)
    };
    let digits = "0f".repeat(32);
    let expected = Seal::new([15; 32]).of_tenant(1).hide(b"k");
    for text in [digits.clone(), format!(" {digits}\n"), digits.to_uppercase()] {
        for mode in [0o600, 0o400, 0o640, 0o440] {
            assert_eq!(read(&text, mode).unwrap().of_tenant(1).hide(b"k"), expected);
        }
    }
    for mode in [0o604, 0o620, 0o602, 0o644, 0o660] {
        let error = read(&digits, mode).unwrap_err().to_string();
        assert!(error.contains(&format!("{mode:04o}")), "{error}");
        assert!(!error.contains('\n'), "{error}");
    }
    let zeros = "0".repeat(64);
    for text in [
        "",
        "0f",
        &digits[1..],
        &format!("{digits}0f"),
        &zeros,
        &"x".repeat(64),
        &"0f".repeat(4096),
    ] {
        let error = read(text, 0o600).unwrap_err().to_string();
        assert!(error.contains("64 hex digits"), "{text:?}: {error}");
        assert!(!error.contains("0f0f"), "{error}");
    }
    assert!(matches!(Seal::read(&dir.path().join("none")), Err(SealKeyError::Read(_))));
}
