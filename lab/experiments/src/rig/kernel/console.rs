//! What the command line says, as experiments ask it.

use std::net::Ipv4Addr;

use anyhow::{Context, bail};
use lab::{process::command_in, rack::Lab};
use plan::roles;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::rig::{PageRow, SwitchPage, TenantSpec};

/// The command line on the hosts of a rig's controllers.
pub struct Console<'a> {
    lab: &'a Lab,
    hosts: Vec<String>,
}

impl<'a> Console<'a> {
    /// On hosts whose controller listens on its usual port.
    pub fn new(lab: &'a Lab, hosts: Vec<String>) -> Console<'a> {
        Console { lab, hosts }
    }

    /// Runs `shortstop ARGUMENTS --json` beside the first controller that answers, and reads what
    /// it says; nothing said is null.
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
        self.run(host, &words).with_context(|| format!("{host}: `{}`", words.join(" ")))
    }

    /// The status of the controller that leads: standbys have one too, which says nothing of
    /// switches.
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
        parse(self.switch_status(switch)?["page_items"].take())
            .with_context(|| format!("{switch}: switch status"))
    }

    /// What a switch has counted, by name.
    ///
    /// # Errors
    /// The switch does not say.
    pub fn switch_counters(&self, switch: &str) -> anyhow::Result<Value> {
        Ok(self.switch_status(switch)?["counters"].take())
    }

    fn switch_status(&self, switch: &str) -> anyhow::Result<Value> {
        let name = format!("{}-{switch}", self.lab.name());
        let mut status = self.run(switch, &roles::switch_status(&name))?;
        let first = status.get_mut(0).map(Value::take);
        first.with_context(|| format!("{switch}: it says nothing"))
    }

    /// Creates a tenant with clients at these addresses; returns what the controller says of it.
    ///
    /// # Errors
    /// The controller refuses.
    pub(super) fn create_tenant(
        &self,
        tenant: &TenantSpec,
        clients: &[Ipv4Addr],
    ) -> anyhow::Result<Value> {
        let (id, quota, rate) =
            (tenant.id.to_string(), tenant.quota.to_string(), tenant.rate.to_string());
        let clients: Vec<String> = clients.iter().map(Ipv4Addr::to_string).collect();
        let clients = clients.join(",");
        let borrows = tenant.borrows.to_string();
        let write_back = match tenant.write_back_ms {
            0 => "0".into(),
            ms => format!("{ms}ms"),
        };
        let mut words = vec!["tenant", "create", "--id", &id, "--reuse", "--quota", &quota];
        words.extend(["--policy", tenant.policy.name(), "--borrow", &borrows]);
        words.extend(["--rate", &rate, "--over-rate", "drop"]);
        words.extend(["--discipline", &tenant.discipline]);
        if !clients.is_empty() {
            words.extend(["--clients", &clients]);
        }
        words.extend(["--write-back", &write_back]);
        let options: Vec<String> =
            tenant.options.iter().map(|(name, number)| format!("{name}={number}")).collect();
        words.extend(options.iter().flat_map(|option| ["--option", option]));
        self.ask(&words)
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
