//! A link between two switches loses everything and keeps its carrier: both ways, or one of them.
//! No kernel notices; probes between the switches do, and the controller has packets go another
//! way. How long has any client no answer, and is what they saw linearizable?
//!
//! With `--set probes=false` nobody notices, and the experiment fails: the clients behind the link
//! are cut off for as long as it is silent.

mod layout;

use std::{collections::BTreeMap, time::Duration};

use anyhow::ensure;
use history::{ClientsConfig, Operation};
use serde::{Deserialize, Serialize};
use serde_json::json;
use text::table::{Table, thousands};

use self::layout::{CLIENT_HOSTS, SILENT, SILENT_ENDS, plan};
use crate::{
    Measure, Report, Run,
    params::{keys, positive},
    rig::{Clients, Rig, TenantSpec},
    verdict::judge,
};

const TENANT: u32 = 1;
const QUOTA: u32 = 24;
/// Which ways are silent, in turn: both, to the spine, from the spine.
const WAYS: [(&str, [bool; 2]); 3] = [
    ("both ways", [true, true]),
    ("to the spine", [true, false]),
    ("from the spine", [false, true]),
];
/// Clients ask for so long before, between and after.
const CALM: Duration = Duration::from_secs(1);
/// How long it may take until a link that carries packets again is believed to.
const HEARD: Duration = Duration::from_secs(40);
/// Between two looks at what the controller knows.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Parameters of silent links.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SilentLink {
    /// Keys.
    keys: usize,
    /// Clients on each of two hosts.
    clients: u32,
    /// How often the link is silent.
    silences: usize,
    /// For how long, in seconds.
    silent_s: f64,
    /// Whether switches probe their neighbours.
    probes: bool,
}

impl Measure for SilentLink {
    fn check(&self) -> anyhow::Result<()> {
        keys(self.keys)?;
        ensure!(self.silences > 0, "silences = 0: at least one is needed");
        ensure!(self.clients > 0, "clients = 0: at least one is needed");
        positive!(self, silent_s)
    }

    fn run(&self, run: &Run<'_>, report: &mut Report) -> anyhow::Result<()> {
        measure(self, run, report)
    }
}

fn measure(params: &SilentLink, run: &Run<'_>, report: &mut Report) -> anyhow::Result<()> {
    let plan = plan(run.discipline, params.probes, run.options.seed);
    // The clients first, so that they do not report the loss of everything else.
    let mut clients = Clients::default();
    let mut rig = Rig::build(plan, run.options.name.clone(), run)?;
    rig.manage_routes()?;
    let tenant = TenantSpec::new(TENANT, QUOTA, run.discipline);
    rig.create_tenants(&[tenant], &CLIENT_HOSTS.map(String::from))?;
    rig.wait_for("the link to be known", HEARD, |rig| {
        Ok(rig.carries(SILENT_ENDS).ok().filter(|up| *up).map(drop))
    })?;
    let cluster = rig.cluster(&[TENANT])?;
    for (first, host) in (0..).step_by(params.clients as usize).zip(CLIENT_HOSTS) {
        let config = ClientsConfig {
            first,
            clients: params.clients,
            keys: params.keys as u32,
            ..ClientsConfig::new(cluster.clone(), vec![TENANT], run.options.seed)
        };
        rig.clients(&mut clients, host, "clients", &config)?;
    }
    rig.wait(CALM)?;
    let mut silences = vec![];
    for number in 0..params.silences {
        let (name, ways) = WAYS[number % WAYS.len()];
        run.progress.say(format!("silence {} of {}: {name}", number + 1, params.silences));
        let noticed = silence(&mut rig, ways, Duration::from_secs_f64(params.silent_s))?;
        silences.push((name, noticed));
        rig.wait(CALM)?;
    }
    let recorded = clients.finish()?;
    let swallowed = rig.swallowed(SILENT)?;
    judge(report, &recorded, params.keys)?;
    let longest = longest_ms(&recorded.operations);
    let unavailable = longest.values().copied().fold(0.0, f64::max);
    let noticed: Vec<f64> = silences.iter().filter_map(|(_, ms)| *ms).collect();
    report.summarize("unavailable_ms_max", unavailable);
    report.summarize("noticed_ms_max", noticed.iter().copied().fold(0.0, f64::max));
    for (name, count) in [
        ("silences", silences.len() as u64),
        ("silences_unnoticed", (silences.len() - noticed.len()) as u64),
        ("frames_swallowed", swallowed),
        ("operations", recorded.operations.len() as u64),
        ("reads_from_switches", recorded.from_switches()),
        ("torn_values", recorded.torn),
        ("reads_unanswered", recorded.unanswered),
    ] {
        report.count(name, count);
    }
    tell(report, &silences, &longest);
    let (asked, clients) = (longest.len(), params.clients as usize * CLIENT_HOSTS.len());
    if asked < clients {
        report.fails(format!("{asked} of {clients} clients asked for anything"));
    }
    Ok(())
}

/// Silences the link for a while; returns after how many milliseconds the controller knew, if it
/// ever did. It knows of the end before this returns.
fn silence(rig: &mut Rig, ways: [bool; 2], time: Duration) -> anyhow::Result<Option<f64>> {
    let begun = rig.now();
    rig.silence(SILENT, ways)?;
    let mut noticed = None;
    while rig.now() - begun < time {
        if noticed.is_none() && !rig.carries(SILENT_ENDS)? {
            noticed = Some((rig.now() - begun).as_secs_f64() * 1000.0);
        }
        rig.wait(LOOK_EVERY)?;
    }
    rig.silence(SILENT, [false, false])?;
    rig.wait_for("the link to be heard again", HEARD, |rig| {
        Ok(rig.carries(SILENT_ENDS)?.then_some(()))
    })?;
    Ok(noticed)
}

/// The longest time in milliseconds that each client had no answer, of those from its first to
/// anybody's last.
fn longest_ms(operations: &[Operation]) -> BTreeMap<u32, f64> {
    let mut answers: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
    for operation in operations {
        let of_client = answers.entry(operation.client).or_default();
        of_client.extend(operation.return_ns);
    }
    // One that was cut off and never had an answer again has waited until then.
    if let Some(end) = operations.iter().filter_map(|o| o.return_ns).max() {
        let answered = answers.values_mut().filter(|at| !at.is_empty());
        answered.for_each(|at| at.push(end));
    }
    let longest = |mut at: Vec<u64>| {
        at.sort_unstable();
        let gaps = at.windows(2).map(|pair| pair[1] - pair[0]);
        gaps.max().map_or(f64::INFINITY, |ns| ns as f64 / 1e6)
    };
    let of = |(client, at)| (client, longest(at));
    answers.into_iter().map(of).collect()
}

fn tell(report: &mut Report, silences: &[(&str, Option<f64>)], longest: &BTreeMap<u32, f64>) {
    let mut table = Table::new(&["silence", "which way", "the controller knows after"]);
    for (number, (name, ms)) in silences.iter().enumerate() {
        table.row([
            (number + 1).to_string(),
            (*name).into(),
            ms.map_or("never".into(), |ms| format!("{} ms", thousands(ms))),
        ]);
        report.rows.push(json!({"silence": number + 1, "ways": name, "noticed_ms": ms}));
    }
    let mut waits = Table::new(&["client", "longest without an answer"]);
    for (client, ms) in longest {
        waits.row([client.to_string(), format!("{} ms", thousands(*ms))]);
        report.rows.push(json!({"client": client, "unavailable_ms": ms}));
    }
    report.text = format!("{}\n{}\n{}", table.render(), waits.render(), report.text);
}

#[cfg(test)]
mod tests {
    use history::{Effect, Need};

    use super::*;

    #[test]
    fn the_longest_wait_is_between_two_answers_of_one_client_or_after_its_last() {
        let at = |client, call_ms: u64, return_ms: Option<u64>| Operation {
            client,
            key: 0,
            call_ns: call_ms * 1_000_000,
            return_ns: return_ms.map(|ms| ms * 1_000_000),
            need: Need::Any,
            effect: Effect::Keep,
            lapse: None,
        };
        let operations = [
            at(1, 0, Some(10)),
            at(2, 0, Some(5)),
            at(1, 10, None),
            at(2, 5, Some(30)),
            at(1, 200, Some(410)),
        ];
        let expected = BTreeMap::from([(1, 400.0), (2, 380.0)]);
        assert_eq!(longest_ms(&operations), expected);
    }
}
