//! How commands reach the controllers: the options of all of them, declared once.

use std::path::PathBuf;

use anyhow::anyhow;
use api::ControlEndpoint;

use crate::secrets;

/// Where the controllers are, and what is shown to them.
#[derive(clap::Args)]
pub struct Reach {
    /// The controllers, separated by commas; the one that leads is found among them.
    #[arg(long, value_name = "URL[,URL]", default_value = "http://127.0.0.1:7118")]
    control: String,
    #[command(flatten)]
    credentials: Credentials,
}

impl Reach {
    /// The way to the controllers.
    ///
    /// # Errors
    /// One line: what is wrong with a URL or with the token.
    pub fn endpoint(&self) -> anyhow::Result<ControlEndpoint> {
        self.credentials.endpoint(&self.control)
    }
}

/// What is shown to the controllers.
#[derive(clap::Args)]
// A subcommand has the name of the group that clap would make.
#[group(skip)]
pub struct Credentials {
    /// File with the token that the controllers ask for, as `shortstop token` printed it; or else
    /// the variable SHORTSTOP_TOKEN has it.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Authority of the controllers' certificates (PEM), for https [default: those that browsers
    /// trust].
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// Own certificate (PEM), where controllers ask for one.
    #[arg(long, value_name = "FILE", requires = "key")]
    cert: Option<PathBuf>,
    /// Its private key (PEM).
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
}

impl Credentials {
    /// The way to the controllers at these URLs.
    ///
    /// # Errors
    /// As [`Reach::endpoint`].
    pub fn endpoint(&self, urls: &str) -> anyhow::Result<ControlEndpoint> {
        let endpoint = ControlEndpoint::new(urls).map_err(|line| anyhow!("--control: {line}"))?;
        if let Some(key) = &self.key {
            secrets::warn_of_key(key, "--key");
        }
        Ok(ControlEndpoint {
            ca: self.ca.clone(),
            cert: self.cert.clone(),
            key: self.key.clone(),
            token: secrets::word(
                self.token_file.as_deref(),
                "token",
                "--token-file",
                "SHORTSTOP_TOKEN",
            )?,
            ..endpoint
        })
    }
}
