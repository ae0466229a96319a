//! What is read of files in PEM form.

use std::path::{Path, PathBuf};

use rustls::{
    RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};

/// Why certificates cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{}: {reason}", .path.display())]
pub struct TlsError {
    path: PathBuf,
    reason: String,
}

impl TlsError {
    pub(crate) fn new(path: &Path, reason: impl std::fmt::Display) -> TlsError {
        TlsError { path: path.into(), reason: reason.to_string() }
    }
}

/// All certificates of a file, at least one.
pub(crate) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let expected = |e| TlsError::new(path, format_args!("expected certificates in PEM form: {e}"));
    let found = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(expected)?;
    if found.is_empty() {
        return Err(TlsError::new(path, "no certificate in it; expected PEM form"));
    }
    Ok(found)
}

/// The authorities of a file.
pub(crate) fn authorities(path: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots.add(certificate).map_err(|e| TlsError::new(path, e))?;
    }
    Ok(roots)
}

/// The private key of a file.
pub(crate) fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_file(path)
        .map_err(|e| TlsError::new(path, format_args!("expected a private key in PEM form: {e}")))
}
