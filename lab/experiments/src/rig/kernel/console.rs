//! What the command line says, as experiments ask it.

use anyhow::{Context, bail};
use api::types::{OverRate, TenantChange};
use lab::{process::command_in, rack::Lab};
use plan::roles;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::rig::{PageRow, SwitchPage};

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

    /// Runs `shortstop tenant WORDS` with these terms; returns what the controller says of the
    /// tenant.
    ///
    /// # Errors
    /// The controller refuses.
    pub(super) fn tenant(&self, words: &[&str], terms: &TenantChange) -> anyhow::Result<Value> {
        let options = options(terms);
        let options = options.iter().map(String::as_str);
        let all: Vec<&str> = ["tenant"].iter().chain(words).copied().chain(options).collect();
        self.ask(&all)
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

/// The terms that are set, as options of the command line.
fn options(terms: &TenantChange) -> Vec<String> {
    let mut options = vec![];
    let mut say = |name: &str, value: Option<String>| {
        options.extend(value.into_iter().flat_map(|value| [format!("--{name}"), value]));
    };
    let over_rate = |over_rate| match over_rate {
        OverRate::Forward => "forward".into(),
        OverRate::Drop => "drop".into(),
    };
    let places = terms.clients.as_ref().filter(|places| !places.is_empty());
    let places =
        places.map(|all| all.iter().map(ToString::to_string).collect::<Vec<_>>().join(","));
    say("quota", terms.quota.map(|pages| pages.to_string()));
    say("policy", terms.policy.map(|policy| policy.name().into()));
    say("rate", terms.rate.map(|rate| rate.to_string()));
    say("over-rate", terms.over_rate.map(over_rate));
    say("discipline", terms.discipline.clone());
    say("clients", places);
    say("borrow", terms.borrow.map(|borrows| borrows.to_string()));
    say(
        "write-back",
        terms.write_back_ms.map(|ms| format!("{ms}{}", if ms > 0 { "ms" } else { "" })),
    );
    for (name, number) in terms.options.iter().flatten() {
        say("option", Some(format!("{name}={number}")));
    }
    options
}

fn parse<T: DeserializeOwned>(value: Value) -> anyhow::Result<Vec<T>> {
    Ok(serde_json::from_value(value)?)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn terms_are_options_of_the_command_line() {
        let terms = TenantChange {
            quota: Some(3),
            over_rate: Some(OverRate::Drop),
            clients: Some(vec!["10.0.1.1/32".parse().unwrap(), "10.0.2.0/24".parse().unwrap()]),
            write_back_ms: Some(0),
            options: Some([("length".into(), 2), ("chains".into(), 1)].into()),
            ..TenantChange::default()
        };
        let words = "--quota 3 --over-rate drop --clients 10.0.1.1/32,10.0.2.0/24 --write-back 0 \
                     --option chains=1 --option length=2";
        assert_eq!(options(&terms).join(" "), words);
        let none = TenantChange { clients: Some(vec![]), ..TenantChange::default() };
        assert!(options(&none).is_empty());
    }

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
