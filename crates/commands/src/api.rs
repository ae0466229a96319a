//! Asking the controller that leads, for the commands that manage it.

use std::process::ExitCode;

use anyhow::{anyhow, bail};
use api::{AdminRequest, JSON, types::LIST_MAX};
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    command_line::end_when_unread,
    output::{print, print_line},
    reach::Reach,
};

/// Most lists of [`LIST_MAX`] entries that one command fetches.
const LISTS_MAX: usize = 100;

/// Which controller, what is shown to it, and how to print its answer.
#[derive(clap::Args)]
pub struct Api {
    #[command(flatten)]
    /// The way to the controllers.
    pub reach: Reach,
    /// As JSON.
    #[arg(long)]
    pub json: bool,
}

impl Api {
    /// Asks for something.
    ///
    /// # Errors
    /// One line: no controller answers, or what the one that leads said.
    pub fn get<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<T> {
        parse(&self.text(path)?)
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
        let asking = AdminRequest { method: method.parse()?, path: path.into(), body };
        let endpoint = self.reach.endpoint()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let answer = runtime.block_on(endpoint.ask(&asking));
        answer.map_err(anyhow::Error::msg)
    }

    /// A whole list, `LIST_MAX` entries at a time; `after` makes the parameter that continues
    /// behind an entry.
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
    /// It cannot be written.
    pub fn print<T: Serialize>(
        &self,
        value: &T,
        text: impl FnOnce(&T) -> String,
    ) -> anyhow::Result<ExitCode> {
        end_when_unread();
        if self.json {
            print_line(serde_json::to_string_pretty(value)?)?;
        } else {
            print(text(value))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn parse<T: DeserializeOwned>(text: &str) -> anyhow::Result<T> {
    let text = if text.is_empty() { "null" } else { text };
    serde_json::from_str(text).map_err(|e| {
        anyhow!("the controller's answer is not understood ({e}): is it of another version?")
    })
}
