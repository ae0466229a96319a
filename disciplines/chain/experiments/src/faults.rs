//! Whether chains stay linearizable, and for how long nobody is answered, while members fail under
//! a load that is recorded. `craq-faults.toml` is run by this.

use std::{collections::BTreeMap, time::Duration};

use anyhow::ensure;
use chain_loads::{CLIENTS, Phase, PhaseResult};
use experiments::{
    Measure, Report, Run,
    params::{keys, part, positive},
    plot,
    rig::Clients,
    table::{Table, thousands},
    verdict::judge,
};
use history::{ClientRecord, ClientsConfig};
use plan::client;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{
    bench::Bench,
    layout::{Layout, TENANT},
    protocol::Protocol,
    trouble::{Kind, Trouble, make, one_beside, unavailable_ms},
};

/// Length of values that are read relaxed, in bytes.
const RELAXED_LEN: usize = 64;

/// What a chain does while links lose, double and reorder, each member in turn has each kind of
/// trouble, and at last the chain gets longer. What clients saw must be linearizable.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Faults {
    /// Switches, and members of the chain: who fails is replaced by one of the others.
    switches: u16,
    length: u16,
    /// Keys.
    keys: usize,
    /// Clients on each of two hosts.
    clients: u32,
    /// Operations of both protocols together, at least.
    operations: u64,
    /// How often each member has each kind of trouble.
    rounds: usize,
    kinds: Vec<Kind>,
    /// For how long, in seconds.
    trouble_s: f64,
    /// Operations per second of clients that write, and read relaxed, meanwhile.
    relaxed_rate: f64,
    /// Chances that a link loses, doubles and holds back a packet.
    loss: f64,
    duplicate: f64,
    reorder: f64,
}

/// What came of one protocol.
struct ProtocolResult {
    protocol: Protocol,
    recorded: ClientRecord,
    troubles: Vec<Trouble>,
    relaxed: RelaxedReads,
}

/// What came of relaxed reads.
#[derive(Default)]
struct RelaxedReads {
    answered: u64,
    too_old: u64,
    wrong: u64,
    /// What members answered that they did not know to be committed, as far as they are there yet.
    dirty: u64,
}

impl ProtocolResult {
    /// How often an empty machine came under the id of a member.
    fn ids_reused(&self) -> u64 {
        let killed = self.troubles.iter().filter(|trouble| trouble.kind == Kind::Killed);
        killed.count() as u64
    }

    /// How often a switch that had lost its place to another one took a member's place again.
    fn members_again(&self) -> u64 {
        let again = self.troubles.iter().enumerate().filter(|(at, trouble)| {
            let mut before = self.troubles[..*at].iter().filter(|other| other.by.is_some());
            trouble.by.is_some_and(|by| before.any(|other| other.id == by))
        });
        again.count() as u64
    }
}

impl RelaxedReads {
    fn add(&mut self, result: &PhaseResult) {
        self.answered += result.reads.count;
        self.too_old += result.too_old;
        self.wrong += result.wrong + result.not_found;
    }
}

impl Measure for Faults {
    fn check(&self) -> anyhow::Result<()> {
        keys(self.keys)?;
        one_beside(self.length, self.switches)?;
        ensure!(self.clients > 0, "clients = 0: at least one is needed");
        ensure!(!self.kinds.is_empty(), "kinds: none are given");
        positive!(self, trouble_s)?;
        positive!(self, relaxed_rate)?;
        part([("loss", self.loss), ("duplicate", self.duplicate), ("reorder", self.reorder)])
    }

    fn run(&self, run: &Run<'_>, report: &mut Report) -> anyhow::Result<()> {
        let mut all = vec![];
        for protocol in Protocol::ALL {
            all.push(self.watch(run, protocol)?);
        }
        self.tell(run, report, &all)
    }
}

impl Faults {
    fn watch(&self, run: &Run<'_>, protocol: Protocol) -> anyhow::Result<ProtocolResult> {
        let chances = [self.loss, self.duplicate, self.reorder];
        let layout = Layout { is_relaxed: true, ..Layout::star(self.switches) };
        let layout = layout.faulty(chances, run.options.seed);
        let mut clients = Clients::default();
        let mut bench = Bench::new(run, layout, protocol, self.length)?;
        let cluster = bench.cluster()?;
        for number in 0..2 {
            let config = ClientsConfig {
                first: number * self.clients,
                clients: self.clients,
                keys: self.keys as u32,
                ..ClientsConfig::new(cluster.clone(), vec![TENANT], run.options.seed)
            };
            let host = client(number as usize + 1);
            bench.rig.clients_of(&CLIENTS, &mut clients, &host, "clients", &config)?;
        }
        let mut load =
            bench.load_above(self.keys, self.clients as usize, self.keys, RELAXED_LEN)?;
        let mut relaxed = RelaxedReads::default();
        let time = Duration::from_secs_f64(self.trouble_s);
        bench.rig.wait(time)?;
        let mut troubles = vec![];
        for _ in 0..self.rounds {
            for kind in self.kinds.iter().copied() {
                for place in 0..usize::from(self.length) {
                    let (name, kind_name) = (protocol.name(), kind.name());
                    run.progress.say(format!("{name}: member {place} is {kind_name}"));
                    load.begin(&self.relaxed_phase())?;
                    troubles.push(make(&mut bench, kind, place, time)?);
                    relaxed.add(&load.finish()?);
                }
            }
        }
        relaxed.dirty = bench.count("order_relaxed")?;
        run.progress.say(format!("{}: one more member", protocol.name()));
        bench.set_length(self.length + 1)?;
        bench.rig.wait(time)?;
        while clients.operations()? < self.operations / 2 {
            bench.rig.wait(time)?;
        }
        Ok(ProtocolResult { protocol, recorded: clients.finish()?, troubles, relaxed })
    }

    /// While a member has trouble, and for as long after it.
    fn relaxed_phase(&self) -> Phase {
        let rate = Some(self.relaxed_rate);
        Phase { rate, relaxed: 0.9, ..Phase::load(0.5, 2.0 * self.trouble_s) }
    }

    fn tell(
        &self,
        run: &Run<'_>,
        report: &mut Report,
        all: &[ProtocolResult],
    ) -> anyhow::Result<()> {
        let mut table = Table::new(&["protocol", "trouble", "member", "unavailable", "replaced"]);
        let mut longest: BTreeMap<Kind, f64> = BTreeMap::new();
        let mut per_protocol = vec![];
        let mut together = ClientRecord::default();
        for (number, seen) in (0..).zip(all) {
            let mut of = BTreeMap::new();
            for trouble in &seen.troubles {
                let ms = unavailable_ms(trouble, &seen.recorded.operations);
                for worst in [&mut longest, &mut of] {
                    let worst = worst.entry(trouble.kind).or_insert(0.0_f64);
                    *worst = worst.max(ms);
                }
                let replaced = trouble.replaced_ms;
                table.row([
                    seen.protocol.name().into(),
                    trouble.kind.name().into(),
                    place_name(trouble.place, self.length.into()).into(),
                    format!("{ms:.0} ms"),
                    replaced.map_or("-".into(), |ms| format!("{ms:.0} ms")),
                ]);
                report.rows.push(json!({
                    "protocol": seen.protocol, "trouble": trouble.kind, "place": trouble.place,
                    "unavailable_ms": ms, "replaced_ms": replaced,
                }));
            }
            let bars = self.kinds.iter().map(|kind| of.get(kind).copied().unwrap_or(0.0));
            per_protocol.push((seen.protocol.name(), bars.collect::<Vec<f64>>()));
            // Each protocol's keys are other ones.
            let mut recorded = seen.recorded.clone();
            let first = number * self.keys as u32;
            recorded.operations.iter_mut().for_each(|o| o.key += first);
            together.add(recorded);
        }
        let before = report.rows.len();
        judge(report, &together, self.keys * all.len())?;
        let lost = report.rows[before..].iter().filter(|row| row["lost_write"] == true);
        let lost = lost.count() as u64;
        let open = together.operations.iter().filter(|o| o.return_ns.is_none());
        for (name, count) in [
            ("lost_writes", lost),
            ("operations", together.operations.len() as u64),
            ("outcome_unknown", open.count() as u64),
            ("reads_unanswered", together.unanswered),
            ("torn_values", together.torn),
            ("troubles", all.iter().map(|seen| seen.troubles.len() as u64).sum()),
            ("members_again", all.iter().map(|seen| seen.members_again()).sum()),
            ("ids_reused", all.iter().map(|seen| seen.ids_reused()).sum()),
            ("options_changed", all.len() as u64),
            ("relaxed_reads", all.iter().map(|seen| seen.relaxed.answered).sum()),
            ("relaxed_uncommitted", all.iter().map(|seen| seen.relaxed.dirty).sum()),
            ("relaxed_too_old", all.iter().map(|seen| seen.relaxed.too_old).sum()),
            ("relaxed_wrong", all.iter().map(|seen| seen.relaxed.wrong).sum()),
        ] {
            report.count(name, count);
        }
        for (kind, ms) in &longest {
            report.summarize(format!("unavailable_ms_max_{}", kind.name()), *ms);
        }
        let troubles = all.iter().flat_map(|seen| &seen.troubles);
        let replaced = troubles.filter_map(|trouble| trouble.replaced_ms).max_by(f64::total_cmp);
        replaced.into_iter().for_each(|ms| report.summarize("replaced_ms_max", ms));
        let told = longest.iter().filter(|(kind, _)| kind.is_noticed());
        let told = told.map(|(_, ms)| *ms).fold(0.0, f64::max);
        report.summarize("unavailable_ms_max", told);
        report.text = format!(
            "{}\nlonger of: no write answered, no read answered. A heartbeat decides where a member is killed or silent.\n{} operations\n\n{}",
            table.render(),
            thousands(together.operations.len() as f64),
            report.text
        );
        let groups: Vec<String> = self.kinds.iter().map(|kind| kind.name().into()).collect();
        let svg = plot::grouped_bars(&plot::GroupedBars {
            title: "How long nobody was answered when a member failed",
            y: "milliseconds, worst",
            groups: &groups,
            series: &per_protocol,
            marks: None,
        });
        report.plot(run.name, svg);
        Ok(())
    }
}

/// What the member at this place is called.
fn place_name(place: usize, length: usize) -> &'static str {
    match place {
        0 => "head",
        _ if place + 1 == length => "tail",
        _ => "middle",
    }
}
