//! What the command line says, as experiments ask it.

use anyhow::{Context, bail};
use lab::{process::command_in, rack::Lab, roles};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;

/// One page as the controller has it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct PageRow {
    /// The switch's id.
    pub switch: u16,
    /// The page's index there.
    pub page: u32,
    /// Whose it is.
    #[serde(default)]
    pub tenant: Option<u32>,
    /// `own`, `lent`, `leaving` or `free`.
    pub kind: String,
    /// Items in it.
    #[serde(default)]
    pub items: u64,
}

impl PageRow {
    /// Who may fill it now: owners and borrowers, until they have been told to leave.
    pub fn holder(&self) -> Option<u32> {
        let holds = self.kind == "own" || self.kind == "lent";
        self.tenant.filter(|_| holds)
    }
}

/// One page as a switch's memory has it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct SwitchPage {
    /// The page's index.
    pub page: u32,
    /// Whose it is.
    #[serde(default)]
    pub tenant: Option<u32>,
    /// Items in it.
    #[serde(default)]
    pub items: u64,
    /// Of these, items of other tenants than whose the page is.
    #[serde(default)]
    pub foreign_items: u64,
}

/// The command line on the hosts of a rig's controllers.
pub struct Console<'a> {
    lab: &'a Lab,
    hosts: Vec<String>,
}

impl<'a> Console<'a> {
    /// On hosts whose controller listens on its usual port.
    pub(super) fn new(lab: &'a Lab, hosts: Vec<String>) -> Console<'a> {
        Console { lab, hosts }
    }

    /// Runs `shortstop ARGUMENTS --json` beside the first controller that answers, and reads what it says; nothing said is
    /// null.
    ///
    /// # Errors
    /// What each controller had to say.
    pub fn ask(&self, arguments: &[&str]) -> anyhow::Result<Value> {
        let mut said = vec![];
        for host in &self.hosts {
            match self.ask_at(host, arguments) {
                Ok(value) => return Ok(value),
                Err(error) => said.push(format!("{error:#}")),
            }
        }
        bail!("{}", said.join("; "))
    }

    /// As [`Console::ask`], asking the controller on one host.
    ///
    /// # Errors
    /// What it had to say.
    pub fn ask_at(&self, host: &str, arguments: &[&str]) -> anyhow::Result<Value> {
        let words = roles::ask(arguments);
        self.run(host, &words)
            .with_context(|| format!("{host}: `{}`", words.join(" ")))
    }

    /// The status of the controller that leads: standbys have one too, which says nothing of switches.
    ///
    /// # Errors
    /// What each controller had to say.
    pub fn status(&self) -> anyhow::Result<Value> {
        let mut said = vec![];
        for host in &self.hosts {
            match self.ask_at(host, &["control", "status"]) {
                Ok(status) if status["leading"] == true => return Ok(status),
                Ok(status) => said.push(format!("{host} stands by: {status}")),
                Err(error) => said.push(format!("{error:#}")),
            }
        }
        bail!("{}", said.join("; "))
    }

    /// Every page as the controller has it.
    ///
    /// # Errors
    /// No controller says.
    pub fn pages(&self) -> anyhow::Result<Vec<PageRow>> {
        parse(self.ask(&["page", "list"])?).context("page list")
    }

    /// Every page of a switch as its memory has it.
    ///
    /// # Errors
    /// The switch does not say.
    pub fn switch_pages(&self, switch: &str) -> anyhow::Result<Vec<SwitchPage>> {
        let name = format!("{}-{switch}", self.lab.name());
        let status = self.run(switch, &roles::switch_status(&name))?;
        parse(status[0]["page_items"].clone()).with_context(|| format!("{switch}: switch status"))
    }

    /// The lab.
    pub(super) fn lab(&self) -> &Lab {
        self.lab
    }

    /// Runs a command on a node and reads the JSON that it prints.
    fn run(&self, node: &str, words: &[String]) -> anyhow::Result<Value> {
        let output = command_in(&self.lab.namespace(node), words)?.output()?;
        if !output.status.success() {
            let error = String::from_utf8_lossy(&output.stderr);
            bail!("{}", error.trim());
        }
        if output.stdout.trim_ascii().is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_slice(&output.stdout).context("its output is no JSON")
    }
}

fn parse<T: DeserializeOwned>(value: Value) -> anyhow::Result<Vec<T>> {
    Ok(serde_json::from_value(value)?)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn pages_are_read_as_the_command_line_prints_them() {
        let rows: Vec<PageRow> = parse(json!([
            {"switch": 1, "page": 3, "tenant": 7, "kind": "own", "items": 5, "cells": 20},
            {"switch": 1, "page": 4, "tenant": null, "kind": "free", "items": 0, "cells": 0},
            {"switch": 2, "page": 0, "tenant": 7, "kind": "leaving"},
        ]))
        .unwrap();
        let holders: Vec<Option<u32>> = rows.iter().map(PageRow::holder).collect();
        assert_eq!(holders, [Some(7), None, None]);
        let pages: Vec<SwitchPage> =
            parse(json!([{"page": 1, "tenant": 9, "items": 3, "foreign_items": 1}])).unwrap();
        assert_eq!((pages[0].tenant, pages[0].foreign_items), (Some(9), 1));
    }
}
