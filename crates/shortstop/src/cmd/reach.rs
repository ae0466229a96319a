//! How commands reach the controllers: the options of all of them, declared once.

use std::{
    fs::File,
    io::Read,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use anyhow::{Context, anyhow, bail};
use api::ControlEndpoint;

/// Longest file of a token in bytes.
const TOKEN_FILE_MAX: u64 = 4096;

/// Where the controllers are, and what is shown to them.
#[derive(clap::Args)]
pub struct Reach {
    /// The controllers, separated by commas; the one that leads is found among them.
    #[arg(
        long,
        value_name = "URL[,URL]",
        default_value = "http://127.0.0.1:7118"
    )]
    control: String,
    #[command(flatten)]
    credentials: Credentials,
}

impl Reach {
    /// The way to the controllers.
    pub fn endpoint(&self) -> anyhow::Result<ControlEndpoint> {
        self.credentials.endpoint(&self.control)
    }
}

/// What is shown to the controllers.
#[derive(clap::Args)]
// A subcommand has the name of the group that clap would make.
#[group(skip)]
pub struct Credentials {
    /// File with the token that the controllers ask for, as `shortstop token` printed it; or else the variable
    /// SHORTSTOP_TOKEN has it.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Authority of the controllers' certificates (PEM), for https [default: those that browsers trust].
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

/// The token of a file that only its owner (and group) may read, or else of the environment.
///
/// # Errors
/// One line that names the file, and what was expected of it.
fn token(file: Option<&Path>) -> anyhow::Result<Option<String>> {
    let text = match file {
        Some(path) => {
            let name = format!("token file {}", path.display());
            let mut file = File::open(path).with_context(|| name.clone())?;
            let mode = file.metadata()?.mode() & 0o777;
            if mode & 0o027 != 0 {
                bail!(
                    "{name}: its mode is {mode:04o}, so others may read it or its group may write it; do `chmod 600 {}`",
                    path.display()
                );
            }
            let mut text = String::new();
            file.by_ref()
                .take(TOKEN_FILE_MAX)
                .read_to_string(&mut text)
                .with_context(|| name)?;
            text
        }
        None => match std::env::var("SHORTSTOP_TOKEN") {
            Ok(text) => text,
            Err(_) => return Ok(None),
        },
    };
    let token = text.trim();
    if token.is_empty() || token.chars().any(|c| !c.is_ascii_graphic()) {
        bail!(
            "the token (--token-file or SHORTSTOP_TOKEN): expected one word, as `shortstop token` prints it"
        );
    }
    Ok(Some(token.into()))
}
