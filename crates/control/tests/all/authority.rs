//! Certificates of a test's own.

use std::{fs, path::PathBuf};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

/// An authority with a server's and a client's certificate, as files: `ca.pem`, and `server` and
/// `client` with `.pem` and `.key`.
pub struct Authority {
    directory: tempfile::TempDir,
}

impl Authority {
    pub fn new() -> Authority {
        let directory = tempfile::tempdir().unwrap();
        let mut params = CertificateParams::new(vec![]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let write =
            |name: &str, text: String| fs::write(directory.path().join(name), text).unwrap();
        write("ca.pem", issuer.pem());
        for name in ["server", "client"] {
            let key = KeyPair::generate().unwrap();
            let params =
                CertificateParams::new(vec!["localhost".into(), "127.0.0.1".into()]).unwrap();
            let certificate = params.signed_by(&key, &issuer).unwrap();
            write(&format!("{name}.pem"), certificate.pem());
            write(&format!("{name}.key"), key.serialize_pem());
        }
        Authority { directory }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }
}
