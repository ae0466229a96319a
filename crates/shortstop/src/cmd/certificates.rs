//! Options that name certificates: of whoever listens by TLS, and for the Redis servers that are
//! reached by it.

use std::path::PathBuf;

use commands::secrets;
use tls::{ClientFiles, Identity, ServerFiles};

/// What is shown to clients that come by TLS.
#[derive(clap::Args)]
pub struct ServerCertificate {
    /// Certificate to listen with TLS (PEM: the certificate, then those between it and its
    /// authority). It is read again when it has changed.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Its private key (PEM).
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Authority of the certificates that clients must show (PEM); without it they need none.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_client_ca: Option<PathBuf>,
}

impl ServerCertificate {
    /// The files, if TLS is wanted.
    pub fn files(self) -> Option<ServerFiles> {
        if let Some(key) = &self.tls_key {
            secrets::warn_of_key(key, "--tls-key");
        }
        let (cert, key) = self.tls_cert.zip(self.tls_key)?;
        Some(ServerFiles { cert, key, client_ca: self.tls_client_ca })
    }
}

/// What is believed of, and shown to, the servers of `rediss://` addresses.
#[derive(clap::Args)]
pub struct BackendTrust {
    /// Authority of the certificates of rediss:// servers (PEM) [default: those that browsers
    /// trust].
    #[arg(long, value_name = "FILE")]
    backend_ca: Option<PathBuf>,
    /// Own certificate (PEM), where rediss:// servers ask for one.
    #[arg(long, value_name = "FILE", requires = "backend_key")]
    backend_cert: Option<PathBuf>,
    /// Its private key (PEM).
    #[arg(long, value_name = "FILE", requires = "backend_cert")]
    backend_key: Option<PathBuf>,
}

impl BackendTrust {
    /// The files.
    pub fn files(self) -> ClientFiles {
        if let Some(key) = &self.backend_key {
            secrets::warn_of_key(key, "--backend-key");
        }
        let own = self.backend_cert.zip(self.backend_key);
        ClientFiles { ca: self.backend_ca, own: own.map(|(cert, key)| Identity { cert, key }) }
    }
}
