//! Connecting to a controller: one TLS set-up, one token, for gRPC and JSON alike.

use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use tonic::{
    metadata::{Ascii, MetadataValue},
    service::{Interceptor, interceptor::InterceptedService},
    transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity},
};

const CONNECT_WITHIN: Duration = Duration::from_secs(3);
/// Where there are others to turn to: one whose machine is gone is not to hold up the way to them.
const CONNECT_OF_SEVERAL_WITHIN: Duration = Duration::from_millis(500);
/// How often a connection is asked whether it is still there, and how long it may take to say so.
const ALIVE_EVERY: Duration = Duration::from_secs(1);
const ALIVE_WITHIN: Duration = Duration::from_millis(1500);

/// Where the controllers are, and what is shown to them.
#[derive(Clone, Default)]
pub struct ControlEndpoint {
    /// `http://HOST:PORT` or `https://HOST:PORT`; tried in turn.
    pub urls: Vec<String>,
    /// Authority of the controllers' certificates, PEM; none: those that browsers trust.
    pub ca: Option<PathBuf>,
    /// Our certificate, PEM, where controllers ask for one.
    pub cert: Option<PathBuf>,
    /// Its private key, PEM.
    pub key: Option<PathBuf>,
    /// Sent with every request.
    pub token: Option<String>,
}

/// A connection that sends the token along, with gRPC calls and requests of the admin API alike.
pub type Link = InterceptedService<Channel, Bearer>;

/// Adds the token to requests.
#[derive(Clone)]
pub struct Bearer(Option<MetadataValue<Ascii>>);

impl Interceptor for Bearer {
    fn call(
        &mut self,
        mut request: tonic::Request<()>,
    ) -> Result<tonic::Request<()>, tonic::Status> {
        if let Some(value) = &self.0 {
            request.metadata_mut().insert("authorization", value.clone());
        }
        Ok(request)
    }
}

/// Reads `URL[,URL...]`.
///
/// # Errors
/// One line: the part that is no URL of a controller.
pub(crate) fn parse_urls(text: &str) -> Result<Vec<String>, String> {
    let urls: Vec<String> =
        text.split(',').map(|url| url.trim().trim_end_matches('/').to_string()).collect();
    for url in &urls {
        let host =
            url.strip_prefix("http://").or_else(|| url.strip_prefix("https://")).unwrap_or("");
        let good =
            !host.is_empty() && !host.contains('/') && Endpoint::from_shared(url.clone()).is_ok();
        if !good {
            return Err(format!(
                "{url:?} is no address of a controller; expected http://HOST:PORT or https://HOST:PORT"
            ));
        }
    }
    Ok(urls)
}

impl ControlEndpoint {
    /// These controllers, as `URL[,URL...]`, with nothing shown to them.
    ///
    /// # Errors
    /// One line: the part that is no URL of a controller.
    pub fn new(urls: &str) -> Result<ControlEndpoint, String> {
        Ok(ControlEndpoint { urls: parse_urls(urls)?, ..ControlEndpoint::default() })
    }

    /// Connects to the controller at `url`, for example where one said that the leader is.
    ///
    /// # Errors
    /// One line: a file that cannot be read, or that nobody answers there, why, and what to
    /// look at.
    pub async fn connect_to(&self, url: &str) -> Result<Link, String> {
        let endpoint = Endpoint::from_shared(url.to_string())
            .map_err(|_| format!("{url:?} is no address of a controller"))?
            .connect_timeout(match self.urls.len() {
                0 | 1 => CONNECT_WITHIN,
                _ => CONNECT_OF_SEVERAL_WITHIN,
            })
            .http2_keep_alive_interval(ALIVE_EVERY)
            .keep_alive_timeout(ALIVE_WITHIN)
            .tcp_nodelay(true);
        let endpoint = match url.starts_with("https://") {
            true => endpoint
                .tls_config(self.tls()?)
                .map_err(|e| format!("{url}: certificates: {}", causes(&e)))?,
            false => endpoint,
        };
        let channel = endpoint.connect().await.map_err(|e| {
            let why = match is_invalid(&e) {
                true => "is it http:// or https://, and is the certificate of --ca?",
                false => "is `shortstop control` running?",
            };
            no_answer(url, &e, why)
        })?;
        Ok(InterceptedService::new(channel, self.bearer()?))
    }

    fn bearer(&self) -> Result<Bearer, String> {
        let value = |token: &String| {
            format!("Bearer {token}")
                .parse::<MetadataValue<Ascii>>()
                .map(|mut value| {
                    value.set_sensitive(true);
                    value
                })
                .map_err(|_| "the token has characters that no token has".to_string())
        };
        self.token.as_ref().map(value).transpose().map(Bearer)
    }

    fn tls(&self) -> Result<ClientTlsConfig, String> {
        let certificates = |path| read_pem(path, "-BEGIN CERTIFICATE-", "certificates");
        let private_key = |path| read_pem(path, " PRIVATE KEY-", "a private key");
        let mut tls = ClientTlsConfig::new();
        tls = match &self.ca {
            Some(path) => tls.ca_certificate(Certificate::from_pem(certificates(path)?)),
            None => tls.with_webpki_roots(),
        };
        match (&self.cert, &self.key) {
            (Some(cert), Some(key)) => {
                tls = tls.identity(Identity::from_pem(certificates(cert)?, private_key(key)?));
            }
            (None, None) => {}
            _ => return Err("a certificate and its key go together (--cert, --key)".into()),
        }
        Ok(tls)
    }
}

/// A file that has a part with this mark. What is wrong within the part is found when it is used.
fn read_pem(path: &Path, mark: &str, expected: &str) -> Result<Vec<u8>, String> {
    let name = path.display();
    let bytes = std::fs::read(path).map_err(|e| format!("cannot read {name}: {e}"))?;
    match bytes.windows(mark.len()).any(|at| at == mark.as_bytes()) {
        true => Ok(bytes),
        false => Err(format!("{name}: expected {expected} in PEM form")),
    }
}

/// The line about a controller that cannot be asked, with what to look at.
pub(crate) fn no_answer(url: &str, error: &dyn std::error::Error, why: &str) -> String {
    format!("no controller answers at {url} ({}): {why}", causes(error))
}

/// Whether what arrived was not understood: TLS did not come about.
fn is_invalid(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(io) = error.downcast_ref::<io::Error>() {
            return io.kind() == io::ErrorKind::InvalidData;
        }
        next = error.source();
    }
    false
}

/// What a call's status says, on one line.
pub fn said(status: &tonic::Status) -> String {
    let line = match status.message() {
        "" => status.code().description(),
        message => message,
    };
    with_causes(line.into(), status)
}

/// An error with what caused it, on one line.
pub(crate) fn causes(error: &dyn std::error::Error) -> String {
    with_causes(error.to_string(), error)
}

fn with_causes(mut line: String, error: &dyn std::error::Error) -> String {
    let mut next = error.source();
    while let Some(cause) = next {
        let text = cause.to_string();
        if !line.ends_with(&text) {
            line = format!("{line}: {text}");
        }
        next = cause.source();
    }
    crate::text::one_line(&line)
}

impl std::fmt::Debug for ControlEndpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ControlEndpoint")
            .field("urls", &self.urls)
            .field("token", &self.token.is_some())
            .finish_non_exhaustive()
    }
}
