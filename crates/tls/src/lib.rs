//! TLS of certificates in files: what one who listens shows and asks for ([`Acceptor`]), and whom
//! one who connects believes ([`Connector`]). TLS 1.2 and 1.3, of `rustls`.
//!
//! Paths come in, and configurations of `rustls` go out; whoever has the sockets carries them.
//! Certificates are short-lived in many places, so files are read again when they have changed.
//! What cannot be used then is said in the log, and what was read before goes on.

#![deny(unsafe_code)]

mod file_config;
mod files;

use std::{path::PathBuf, sync::Arc};

use rustls::{
    ClientConfig, RootCertStore, ServerConfig,
    crypto::{CryptoProvider, ring},
    server::WebPkiClientVerifier,
};

use self::{
    file_config::FileConfig,
    files::{authorities, certificates, private_key},
};

pub use self::files::TlsError;
pub use rustls;

/// What one who connects shows to servers that ask: files in PEM form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The certificate, then those between it and its authority.
    pub cert: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

/// The files of one who listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerFiles {
    /// What it shows: the certificate, then those between it and its authority.
    pub cert: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// Authority of the certificates that clients must show (mutual TLS); none: they need not.
    pub client_ca: Option<PathBuf>,
}

/// The files of one who connects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientFiles {
    /// Authority of the servers' certificates; none: those that browsers trust.
    pub ca: Option<PathBuf>,
    /// What it shows to servers that ask for a certificate.
    pub own: Option<Identity>,
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

impl ServerFiles {
    /// Reads them.
    ///
    /// # Errors
    /// [`TlsError`] names the file.
    pub fn config(&self) -> Result<ServerConfig, TlsError> {
        let ServerFiles { cert, key, client_ca } = self;
        let builder = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(|e| TlsError::new(cert, e))?;
        let builder = match client_ca {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let roots = Arc::new(authorities(path)?);
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider())
                    .build()
                    .map_err(|e| TlsError::new(path, e))?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let key = private_key(key)?;
        builder
            .with_single_cert(certificates(cert)?, key)
            .map_err(|e| TlsError::new(cert, format!("does not go with its key: {e}")))
    }

    fn paths(&self) -> Vec<PathBuf> {
        [&self.cert, &self.key].into_iter().chain(&self.client_ca).cloned().collect()
    }
}

impl ClientFiles {
    /// Reads them.
    ///
    /// # Errors
    /// [`TlsError`] names the file.
    pub fn config(&self) -> Result<ClientConfig, TlsError> {
        let roots = match &self.ca {
            Some(path) => authorities(path)?,
            None => RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() },
        };
        let builder = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(|e| TlsError::new(self.ca.as_deref().unwrap_or("TLS".as_ref()), e))?
            .with_root_certificates(roots);
        match &self.own {
            None => Ok(builder.with_no_client_auth()),
            Some(Identity { cert, key }) => builder
                .with_client_auth_cert(certificates(cert)?, private_key(key)?)
                .map_err(|e| TlsError::new(cert, format!("does not go with its key: {e}"))),
        }
    }

    fn paths(&self) -> Vec<PathBuf> {
        let own = self.own.iter().flat_map(|own| [&own.cert, &own.key]);
        self.ca.iter().chain(own).cloned().collect()
    }
}

/// Takes connections, with what its files say now.
#[derive(Clone, Debug)]
pub struct Acceptor(Arc<FileConfig<ServerConfig>>);

impl Acceptor {
    /// Reads the files for the first time.
    ///
    /// # Errors
    /// [`TlsError`] names the file.
    pub fn new(files: ServerFiles) -> Result<Acceptor, TlsError> {
        Acceptor::with_protocols(files, &[])
    }

    /// The same, for clients that want to hear which of these protocols is spoken (ALPN).
    ///
    /// # Errors
    /// [`TlsError`] names the file.
    pub fn with_protocols(files: ServerFiles, protocols: &[&[u8]]) -> Result<Acceptor, TlsError> {
        let paths = files.paths();
        let protocols: Vec<Vec<u8>> = protocols.iter().map(|name| name.to_vec()).collect();
        let read = move || {
            let mut config = files.config()?;
            config.alpn_protocols = protocols.clone();
            Ok(config)
        };
        Ok(Acceptor(Arc::new(FileConfig::new(paths, Box::new(read))?)))
    }

    /// For the next connection.
    pub fn config(&self) -> Arc<ServerConfig> {
        self.0.now()
    }
}

/// Makes connections, with what its files say now.
#[derive(Clone, Debug)]
pub struct Connector(Arc<FileConfig<ClientConfig>>);

impl Connector {
    /// Reads the files for the first time.
    ///
    /// # Errors
    /// [`TlsError`] names the file.
    pub fn new(files: ClientFiles) -> Result<Connector, TlsError> {
        let paths = files.paths();
        Ok(Connector(Arc::new(FileConfig::new(paths, Box::new(move || files.config()))?)))
    }

    /// For the next connection.
    pub fn config(&self) -> Arc<ClientConfig> {
        self.0.now()
    }
}

#[cfg(test)]
mod tests;
