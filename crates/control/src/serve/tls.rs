//! The listener's certificate, and whose certificates it asks clients for.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use rustls::{
    RootCertStore, ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::WebPkiClientVerifier,
};
use tokio_rustls::TlsAcceptor;

/// Files in PEM form.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// The certificate, then those between it and its authority.
    pub cert: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// Authority of the certificates that clients must show (mutual TLS); none: they need not.
    pub client_ca: Option<PathBuf>,
}

/// Why certificates cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{}: {reason}", .path.display())]
pub struct TlsError {
    path: PathBuf,
    reason: String,
}

fn error(path: &Path, reason: impl std::fmt::Display) -> TlsError {
    TlsError { path: path.into(), reason: reason.to_string() }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let expected = |e| error(path, format!("expected certificates in PEM form: {e}"));
    let found = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(expected)?;
    if found.is_empty() {
        return Err(error(path, "no certificate in it; expected PEM form"));
    }
    Ok(found)
}

impl TlsFiles {
    /// What accepts connections with them: TLS 1.2 and 1.3, HTTP/2 and HTTP/1.
    ///
    /// # Errors
    /// [`TlsError`] names the file.
    pub fn acceptor(&self) -> Result<TlsAcceptor, TlsError> {
        let provider = Arc::new(ring::default_provider());
        let key = PrivateKeyDer::from_pem_file(&self.key)
            .map_err(|e| error(&self.key, format!("expected a private key in PEM form: {e}")))?;
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|e| error(&self.cert, e))?;
        let builder = match &self.client_ca {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let mut roots = RootCertStore::empty();
                for certificate in certificates(path)? {
                    roots.add(certificate).map_err(|e| error(path, e))?;
                }
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                        .build()
                        .map_err(|e| error(path, e))?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let mut config = builder
            .with_single_cert(certificates(&self.cert)?, key)
            .map_err(|e| error(&self.cert, format!("does not go with its key: {e}")))?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(TlsAcceptor::from(Arc::new(config)))
    }
}
