//! The other end: connecting to one of several controllers.

use std::{path::PathBuf, time::Duration};

use tonic::{
    metadata::{Ascii, MetadataValue},
    service::{Interceptor, interceptor::InterceptedService},
    transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity},
};

const CONNECT_WITHIN: Duration = Duration::from_secs(3);
/// How often a connection is asked whether it is still there, and how long for.
const ALIVE_EVERY: Duration = Duration::from_secs(5);

/// Where the controllers are, and what is shown to them.
#[derive(Clone, Default)]
pub struct ControlEndpoint {
    /// `http://HOST:PORT` or `https://HOST:PORT`; tried in turn.
    pub urls: Vec<String>,
    /// Authority of the controllers' certificates, PEM; none: those that the system trusts are not known here, so
    /// `https` needs it.
    pub ca: Option<PathBuf>,
    /// Our certificate, PEM, where controllers ask for one.
    pub cert: Option<PathBuf>,
    /// Its private key, PEM.
    pub key: Option<PathBuf>,
    /// Sent with every request.
    pub token: Option<String>,
}

/// A connection that sends the token along.
pub type Link = InterceptedService<Channel, Bearer>;

/// Adds the token to gRPC requests.
#[derive(Clone)]
pub struct Bearer(Option<MetadataValue<Ascii>>);

impl Interceptor for Bearer {
    fn call(
        &mut self,
        mut request: tonic::Request<()>,
    ) -> Result<tonic::Request<()>, tonic::Status> {
        if let Some(value) = &self.0 {
            request
                .metadata_mut()
                .insert("authorization", value.clone());
        }
        Ok(request)
    }
}

/// Reads `URL[,URL...]`.
///
/// # Errors
/// One line: the part that is no URL of a controller.
pub fn parse_urls(text: &str) -> Result<Vec<String>, String> {
    let urls: Vec<String> = text
        .split(',')
        .map(|url| url.trim().trim_end_matches('/').to_string())
        .collect();
    for url in &urls {
        let host = url
            .strip_prefix("http://")
            .or_else(|| url.strip_prefix("https://"))
            .unwrap_or("");
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
    /// These controllers, with nothing shown to them.
    ///
    /// # Errors
    /// As [`parse_urls`].
    pub fn new(urls: &str) -> Result<ControlEndpoint, String> {
        Ok(ControlEndpoint {
            urls: parse_urls(urls)?,
            ..ControlEndpoint::default()
        })
    }

    /// Connects to the first that answers, beginning at `first` (counted around), and says which it was. To move on
    /// from a controller that does not lead, begin at the next.
    ///
    /// # Errors
    /// One line: a file that cannot be read, or that none answers, and why the last one did not.
    pub async fn connect(&self, first: usize) -> Result<(Link, usize), String> {
        let mut last = "no address of a controller is given".to_string();
        for turn in 0..self.urls.len() {
            let which = first.wrapping_add(turn) % self.urls.len();
            match self.connect_to(&self.urls[which]).await {
                Ok(link) => return Ok((link, which)),
                Err(line) => last = line,
            }
        }
        Err(last)
    }

    /// Connects to the controller at `url`, for example where one said that the leader is.
    ///
    /// # Errors
    /// As [`ControlEndpoint::connect`].
    pub async fn connect_to(&self, url: &str) -> Result<Link, String> {
        let endpoint = Endpoint::from_shared(url.to_string())
            .map_err(|_| format!("{url:?} is no address of a controller"))?
            .connect_timeout(CONNECT_WITHIN)
            .http2_keep_alive_interval(ALIVE_EVERY)
            .keep_alive_timeout(ALIVE_EVERY)
            .tcp_nodelay(true);
        let endpoint = match url.starts_with("https://") {
            true => endpoint
                .tls_config(self.tls()?)
                .map_err(|e| format!("{url}: certificates: {}", causes(&e)))?,
            false => endpoint,
        };
        let channel = endpoint.connect().await.map_err(|e| {
            format!(
                "no controller answers at {url} ({}): is `shortstop control` running?",
                causes(&e)
            )
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
        let read = |path: &PathBuf| {
            std::fs::read(path).map_err(|e| format!("cannot read {}: {e}", path.display()))
        };
        let mut tls = ClientTlsConfig::new();
        if let Some(path) = &self.ca {
            tls = tls.ca_certificate(Certificate::from_pem(read(path)?));
        }
        match (&self.cert, &self.key) {
            (Some(cert), Some(key)) => {
                tls = tls.identity(Identity::from_pem(read(cert)?, read(key)?));
            }
            (None, None) => {}
            _ => return Err("a certificate and its key go together (--cert, --key)".into()),
        }
        Ok(tls)
    }
}

/// An error with what caused it, on one line.
fn causes(error: &dyn std::error::Error) -> String {
    let mut line = error.to_string();
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
