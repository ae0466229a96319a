//! Asking a controller over HTTP/JSON, for the commands that manage it.

use std::{io, path::PathBuf, process::ExitCode, time::Duration};

use super::reach::token;
use anyhow::{Context, anyhow, bail};
use api::{
    parse_urls,
    types::{ErrorBody, LIST_MAX},
};
use serde::{Serialize, de::DeserializeOwned};
use ureq::{
    Agent,
    http::{Request, Response, StatusCode, header},
    tls::{Certificate, ClientCert, PemItem, PrivateKey, RootCerts, TlsConfig, parse_pem},
};

const JSON: &str = "application/json";
/// Most controllers that one command turns to, redirections included.
const TRIES: usize = 8;
/// Longest answer in bytes.
const ANSWER_MAX: u64 = 16 << 20;
/// Most lists of [`LIST_MAX`] entries that one command fetches.
const LISTS_MAX: usize = 100;

/// Which controller, and what is shown to it.
#[derive(clap::Args)]
pub struct Api {
    /// The controllers, separated by commas; the one that leads is found among them.
    #[arg(
        long,
        value_name = "URL[,URL]",
        default_value = "http://127.0.0.1:7118"
    )]
    control: String,
    /// File with the token, as `shortstop token` printed it; or else the variable SHORTSTOP_TOKEN has it.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Authority of the controllers' certificates (PEM).
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// Own certificate (PEM), where controllers ask for one.
    #[arg(long, value_name = "FILE", requires = "key")]
    cert: Option<PathBuf>,
    /// Its private key (PEM).
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
    /// As JSON.
    #[arg(long)]
    pub json: bool,
}

/// A request to be sent, perhaps several times.
struct Sending {
    method: &'static str,
    path: String,
    kind: &'static str,
    body: Option<String>,
}

impl Api {
    /// Asks for something.
    ///
    /// # Errors
    /// One line: no controller answers, or what the one that leads said.
    pub fn get<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<T> {
        parse(&self.send("GET", path, None)?)
    }

    /// Asks for text.
    ///
    /// # Errors
    /// As [`Api::get`].
    pub fn text(&self, path: &str) -> anyhow::Result<String> {
        self.send("GET", path, None)
    }

    /// Changes something.
    ///
    /// # Errors
    /// As [`Api::get`].
    pub fn change<T: DeserializeOwned>(
        &self,
        method: &'static str,
        path: &str,
        body: Option<&impl Serialize>,
    ) -> anyhow::Result<T> {
        let body = body.map(serde_json::to_string).transpose()?;
        parse(&self.send(method, path, body.map(|body| (JSON, body)))?)
    }

    /// Sends a request to the controller that leads; the answer's body.
    ///
    /// # Errors
    /// As [`Api::get`].
    pub fn send(
        &self,
        method: &'static str,
        path: &str,
        body: Option<(&'static str, String)>,
    ) -> anyhow::Result<String> {
        let (kind, body) = body.map_or((JSON, None), |(kind, body)| (kind, Some(body)));
        let sending = Sending {
            method,
            path: path.into(),
            kind,
            body,
        };
        let urls = parse_urls(&self.control).map_err(|line| anyhow!("--control: {line}"))?;
        let (agent, token) = (self.agent()?, token(self.token_file.as_deref())?);
        let mut next = 0;
        let mut url = urls[0].clone();
        let mut trouble = anyhow!("no controller answers");
        for _ in 0..TRIES.max(urls.len()) {
            match sending.once(&agent, &url, token.as_deref()) {
                Ok(Outcome::Done(text)) => return Ok(text),
                Ok(Outcome::Leader(leader)) => {
                    if url.starts_with("https://") && !leader.starts_with("https://") {
                        bail!(
                            "{url} says that {leader} leads, which is not encrypted; name the leader in --control"
                        );
                    }
                    trouble = anyhow!("{url} says that {leader} leads, and that one does not");
                    url = leader;
                    continue;
                }
                Ok(Outcome::Refused(line)) => return Err(anyhow!(line)),
                Ok(Outcome::Later(line)) => trouble = anyhow!("{url}: {line}"),
                Err(error) if sending.may_repeat(&error) => {
                    trouble = anyhow!("no controller answers at {url} ({error}): {}", hint(&error));
                }
                Err(error) => {
                    return Err(anyhow!("{url}: {error}; whether it was done is not known"));
                }
            }
            next += 1;
            match urls.get(next) {
                Some(other) => url = other.clone(),
                None => break,
            }
        }
        Err(trouble)
    }

    /// A whole list, `LIST_MAX` entries at a time; `after` makes the parameter that continues behind an entry.
    ///
    /// # Errors
    /// As [`Api::get`].
    pub fn list<T: DeserializeOwned>(
        &self,
        path: &str,
        after: impl Fn(&T) -> String,
    ) -> anyhow::Result<Vec<T>> {
        let mut all: Vec<T> = vec![];
        for _ in 0..LISTS_MAX {
            let path = match all.last() {
                None => path.to_string(),
                Some(last) => {
                    let sign = if path.contains('?') { '&' } else { '?' };
                    format!("{path}{sign}after={}", after(last))
                }
            };
            let more: Vec<T> = self.get(&path)?;
            let last = more.len() < LIST_MAX;
            all.extend(more);
            if last {
                return Ok(all);
            }
        }
        bail!("more than {} entries; ask for fewer", all.len())
    }

    /// Prints `value` as JSON if that was asked for, as `text` otherwise.
    ///
    /// # Errors
    /// Never in practice: plain data is always valid JSON.
    pub fn print<T: Serialize>(
        &self,
        value: &T,
        text: impl FnOnce(&T) -> String,
    ) -> anyhow::Result<ExitCode> {
        super::end_when_unread();
        if self.json {
            println!("{}", serde_json::to_string_pretty(value)?);
        } else {
            print!("{}", text(value));
        }
        Ok(ExitCode::SUCCESS)
    }

    fn agent(&self) -> anyhow::Result<Agent> {
        let read = |path: &PathBuf| {
            std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))
        };
        let certificates = |path: &PathBuf| -> anyhow::Result<Vec<Certificate<'static>>> {
            let found: Vec<_> = parse_pem(&read(path)?)
                .filter_map(|item| match item {
                    Ok(PemItem::Certificate(certificate)) => Some(certificate),
                    _ => None,
                })
                .collect();
            if found.is_empty() {
                bail!("{}: expected certificates in PEM form", path.display());
            }
            Ok(found)
        };
        let mut tls = TlsConfig::builder();
        if let Some(path) = &self.ca {
            tls = tls.root_certs(RootCerts::new_with_certs(&certificates(path)?));
        }
        if let (Some(cert), Some(key)) = (&self.cert, &self.key) {
            let private = PrivateKey::from_pem(&read(key)?)
                .map_err(|_| anyhow!("{}: expected a private key in PEM form", key.display()))?;
            tls = tls.client_cert(Some(ClientCert::new_with_certs(
                &certificates(cert)?,
                private,
            )));
        }
        let config = Agent::config_builder()
            .tls_config(tls.build())
            .http_status_as_error(false)
            // Ours to follow: the token must go along, and only to where it may.
            .max_redirects(0)
            .max_redirects_will_error(false)
            .proxy(None)
            .timeout_connect(Some(Duration::from_secs(3)))
            .timeout_global(Some(Duration::from_secs(30)))
            .build();
        Ok(config.into())
    }
}

enum Outcome {
    Done(String),
    /// Another one leads.
    Leader(String),
    /// Not now, and nothing was changed: another controller may do it.
    Later(String),
    /// No.
    Refused(String),
}

impl Sending {
    /// Whether it is sure that nothing was changed by a request that failed like this, or that it does no harm twice.
    fn may_repeat(&self, error: &ureq::Error) -> bool {
        use ureq::{Error, Timeout};
        match error {
            Error::ConnectionFailed | Error::HostNotFound => true,
            Error::Timeout(Timeout::Connect | Timeout::Resolve) => true,
            Error::Io(error) if error.kind() == io::ErrorKind::ConnectionRefused => true,
            _ => self.method == "GET",
        }
    }

    fn once(&self, agent: &Agent, url: &str, token: Option<&str>) -> Result<Outcome, ureq::Error> {
        let mut request = Request::builder()
            .method(self.method)
            .uri(format!("{url}{}", self.path));
        if let Some(token) = token {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        let mut response = match &self.body {
            Some(body) => {
                let request = request.header(header::CONTENT_TYPE, self.kind);
                agent.run(request.body(body.as_str())?)?
            }
            None => agent.run(request.body(())?)?,
        };
        let text = response
            .body_mut()
            .with_config()
            .limit(ANSWER_MAX)
            .read_to_string()?;
        Ok(understand(&response, text))
    }
}

/// What to look at when nothing sensible answers.
fn hint(error: &ureq::Error) -> &'static str {
    match error {
        ureq::Error::Tls(_) | ureq::Error::Rustls(_) | ureq::Error::Pem(_) => "is it --ca's?",
        ureq::Error::Io(error) if error.kind() == io::ErrorKind::InvalidData => {
            "is it http:// or https://, and is the certificate of --ca?"
        }
        ureq::Error::Protocol(_) => "is it http:// or https://?",
        _ => "is `shortstop control` running?",
    }
}

/// What an answer says.
fn understand<B>(response: &Response<B>, text: String) -> Outcome {
    let status = response.status();
    if status.is_success() {
        return Outcome::Done(text);
    }
    let body: ErrorBody = serde_json::from_str(&text).unwrap_or_else(|_| ErrorBody {
        error: format!("{status}, with an answer that no controller gives"),
        leader: None,
    });
    match (status, body.leader) {
        (StatusCode::TEMPORARY_REDIRECT, Some(leader)) if parse_urls(&leader).is_ok() => {
            Outcome::Leader(leader.trim_end_matches('/').into())
        }
        (StatusCode::SERVICE_UNAVAILABLE | StatusCode::TEMPORARY_REDIRECT, _) => {
            Outcome::Later(body.error)
        }
        _ => Outcome::Refused(body.error),
    }
}

fn parse<T: DeserializeOwned>(text: &str) -> anyhow::Result<T> {
    let text = if text.is_empty() { "null" } else { text };
    serde_json::from_str(text).map_err(|e| {
        anyhow!("the controller's answer is not understood ({e}): is it of another version?")
    })
}
