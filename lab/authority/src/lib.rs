//! For tests only: a certificate authority and who it vouches for, as PEM files. In: where the
//! files go, and the names that the certificates are for. What fails here, panics. The tests of
//! whoever speaks TLS call it.

#![deny(unsafe_code)]

use std::{
    fs,
    path::{Path, PathBuf},
};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};

/// An authority with a server's and a client's certificate for this machine, in a directory of its
/// own: `ca.pem`, and `server` and `client` with `.pem` and `.key`; and with `expired`, whose time
/// is over. It ends with this value.
pub struct Authority(tempfile::TempDir);

impl Authority {
    /// A new one: nobody trusts it who trusts another.
    pub fn generate() -> Authority {
        let directory = tempfile::tempdir().expect("room for a directory");
        certify(directory.path(), &["localhost", "127.0.0.1"], &["server", "client", EXPIRED]);
        Authority(directory)
    }

    /// Where one of its files is.
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// What one of its files says.
    pub fn bytes(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).expect("one of its files")
    }
}

/// The name of a certificate whose time is over.
const EXPIRED: &str = "expired";

/// Writes an authority's certificate into a directory, `ca.pem`; and for each of `files` a
/// certificate for these host names and addresses with its key, `FILE.pem` and `FILE.key`. The
/// time of a file `expired` is over.
pub fn certify(directory: &Path, hosts: &[&str], files: &[&str]) {
    let write = |name: String, text: String| {
        fs::write(directory.join(name), text).expect("a directory that can be written");
    };
    // OpenSSL takes a certificate for self-signed whose name is its authority's.
    let params = |name: &str, hosts: &[&str]| {
        let hosts: Vec<String> = hosts.iter().map(ToString::to_string).collect();
        let mut params = CertificateParams::new(hosts).expect("names of hosts");
        params.distinguished_name.push(DnType::CommonName, name);
        params
    };
    let key = || KeyPair::generate().expect("randomness");
    let mut own = params("authority", &[]);
    own.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let issuer = CertifiedIssuer::self_signed(own, key()).expect("a key that signs");
    write("ca.pem".into(), issuer.pem());
    for file in files {
        let key = key();
        let mut params = params(file, hosts);
        if *file == EXPIRED {
            params.not_before = rcgen::date_time_ymd(2000, 1, 1);
            params.not_after = rcgen::date_time_ymd(2001, 1, 1);
        }
        let certificate = params.signed_by(&key, &issuer).expect("a key that signs");
        write(format!("{file}.pem"), certificate.pem());
        write(format!("{file}.key"), key.serialize_pem());
    }
}
