//! How processes that keep a connection to the controllers reach them.

use std::path::PathBuf;

use anyhow::{Context, anyhow};
use control::api::connect::ControlEndpoint;

/// What is shown to the controllers.
#[derive(clap::Args)]
pub struct Credentials {
    /// File with the token that the controllers ask for, as `shortstop token` printed it; or else the variable
    /// SHORTSTOP_TOKEN has it.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Authority of the controllers' certificates (PEM), for https.
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
    pub fn endpoint(&self, urls: &str) -> anyhow::Result<ControlEndpoint> {
        let endpoint = ControlEndpoint::new(urls).map_err(|line| anyhow!("--control: {line}"))?;
        Ok(ControlEndpoint {
            ca: self.ca.clone(),
            cert: self.cert.clone(),
            key: self.key.clone(),
            token: token(self.token_file.as_deref())?,
            ..endpoint
        })
    }
}

/// The token of a file, or else of the environment.
pub fn token(file: Option<&std::path::Path>) -> anyhow::Result<Option<String>> {
    let token = match file {
        Some(file) => Some(
            std::fs::read_to_string(file)
                .with_context(|| format!("cannot read the token file {}", file.display()))?,
        ),
        None => std::env::var("SHORTSTOP_TOKEN").ok(),
    };
    let token = token.map(|text| text.trim().to_owned());
    Ok(token.filter(|text| !text.is_empty()))
}
