//! The rack on which write-back is measured: two switches in a line with one tenant, its clients,
//! and the search for what it carries. Each point of the experiment builds one or measures on one.

use lab::{progress::Progress, steered::Seat};
use load::{Phase, PhaseResult, search};
use plan::{CLIENT_CPU, Line, client, switch};
use serde_json::{Map, Value};
use text::table::{percent, thousands};

use super::{Answer, WriteBack};
use crate::{
    Run,
    rig::{GeneratorSpec, Load, Rig, TIMEOUT_MS, TenantSpec, fill},
    run::Searches,
    servers::step_loss,
};

const TENANT: u32 = 7;
const SERVER: &str = "server";
const SWITCHES: usize = 2;
/// Part of the requests that may be lost at saturation.
const LOSS: f64 = 0.02;
/// No generator of this machine offers more.
const MAX_RATE: f64 = 150_000.0;
/// Requests that wait at a server. Few, so that what a client has under way is within its window of
/// rule 7.
const QUEUE: u32 = 16;
/// Up to the first rate that is too high, each is so much higher than the one before.
const LEAP: f64 = 2.0;

/// A rack with a tenant, with write-back or without.
pub struct Bench<'a> {
    loads: Vec<Load>,
    rig: Rig,
    params: WriteBack,
    name: &'static str,
    progress: &'a Progress,
    searches: Searches,
}

/// What was counted while load ran.
#[derive(Clone, Debug, Default)]
pub(super) struct Counts {
    /// Of the store.
    pub store: Map<String, Value>,
    /// Of both switches together.
    pub switches: Map<String, Value>,
    /// Keys that are lent now.
    pub lent: u64,
}

impl Counts {
    /// The same since then.
    fn since(mut self, before: &Counts) -> Counts {
        for (now, before) in
            [(&mut self.store, &before.store), (&mut self.switches, &before.switches)]
        {
            for (name, now) in now {
                *now = (count(Some(now)) - count(before.get(name))).into();
            }
        }
        self
    }

    pub fn of_store(&self, name: &str) -> u64 {
        count(self.store.get(name))
    }
}

fn count(value: Option<&Value>) -> u64 {
    value.and_then(Value::as_u64).unwrap_or(0)
}

/// Load and what was counted meanwhile.
#[derive(Clone, Debug)]
pub(super) struct Step {
    pub result: PhaseResult,
    pub counted: Counts,
}

impl Step {
    /// Writes that reached the store over writes answered.
    pub fn reached(&self) -> f64 {
        self.over_writes(self.counted.of_store("writes"))
    }

    /// Writes that reached the backend, of clients or of what came back, over writes answered.
    pub fn backed(&self) -> f64 {
        let of_loans = self.counted.of_store("loan_flushes");
        self.over_writes(self.counted.of_store("writes_applied") + of_loans)
    }

    /// Times that switches were asked for what they have of a loan, over writes answered.
    pub fn asked(&self) -> f64 {
        self.over_writes(count(self.counted.switches.get("take")))
    }

    fn over_writes(&self, count: u64) -> f64 {
        count as f64 / (self.result.writes_answered as f64).max(1.0)
    }
}

/// What was measured of one write ratio.
pub(super) struct Measurement {
    /// Requests per second of which less than the limit is lost.
    pub rate: f64,
    /// Measured there.
    pub saturated: Step,
    /// The load at which latencies are compared, in requests per second.
    pub load_rate: f64,
    /// Measured there.
    pub loaded: Step,
}

impl<'a> Bench<'a> {
    /// Builds it and writes all keys.
    pub fn new(run: &Run<'a>, params: &WriteBack) -> anyhow::Result<Bench<'a>> {
        let (name, write_back_ms) = match params.write_back {
            Answer::No => ("without", 0),
            Answer::Yes => ("with", params.write_back_ms),
        };
        let line = Line {
            server_rate: Some(params.server_rate),
            queue: QUEUE,
            lend_from: params.lend_from,
            window_ms: params.window_ms,
            ..Line::of(SWITCHES, params.pages, run.discipline)
        };
        let mut plan = line.plan();
        plan.partitions = params.servers;
        let mut rig = Rig::build(plan, run.options.name.clone(), run)?;
        let tenant = TenantSpec {
            write_back_ms,
            // The same memory for reads in each run, whatever is idle.
            borrows: false,
            ..TenantSpec::new(TENANT, params.quota, run.discipline)
        };
        let tenants = [tenant];
        rig.create_tenants(&tenants, &[client(1)])?;
        let mut loads = vec![];
        for number in 0..params.clients as u64 {
            let name = format!("load{number}");
            loads.push(rig.load(&GeneratorSpec {
                seat: Seat { host: &client(1), name: &name, cpu: Some(CLIENT_CPU), nice: 0 },
                tenants: &tenants,
                keys: params.keys,
                value_len: params.value_len.into(),
                timeout_ms: TIMEOUT_MS,
                seed: run.options.seed,
                interval_ms: 100,
                again_ms: None,
                names_lives: true,
                number,
                trace: None,
            })?);
        }
        run.progress.say(format!("{name} write-back: writing all keys"));
        fill(&mut loads[0])?;
        let (progress, searches) = (run.progress, run.searches.clone());
        Ok(Bench { loads, rig, params: params.clone(), name, progress, searches })
    }

    /// Finds the point of saturation, and measures there and at `load_rate` (none: as the
    /// parameters have it).
    pub(super) fn measure(
        &mut self,
        write_ratio: f64,
        load_rate: Option<f64>,
    ) -> anyhow::Result<Measurement> {
        let first = self.settle(write_ratio)?;
        let search = self.params.search.clone();
        let found = search::saturation(first, &search.limits(LOSS, MAX_RATE), |rate| {
            let begun = self.rig.now();
            let seconds = search.step_seconds(rate);
            let step = self.step(write_ratio, rate, search.warmup_s, seconds)?;
            Ok((step_loss(&step.result, rate), self.rig.now() - begun, step))
        })?;
        self.searches.found(found.is_confirmed);
        let load_rate = load_rate.unwrap_or(found.rate * self.params.load);
        let loaded =
            self.step(write_ratio, load_rate, self.params.settle_s, self.params.seconds)?;
        Ok(Measurement {
            rate: found.measured.result.throughput(),
            saturated: found.measured,
            load_rate,
            loaded,
        })
    }

    /// Load of so much more each time, until it is too much: a rate that is about right, with
    /// caches and loans as they are under it.
    fn settle(&mut self, write_ratio: f64) -> anyhow::Result<f64> {
        let mut rate = f64::from(self.params.servers) * self.params.server_rate / 4.0;
        loop {
            let seconds = self.params.settle_s / 2.0;
            let step = self.step(write_ratio, rate, seconds, seconds)?;
            let loss = step_loss(&step.result, rate);
            if loss >= LOSS || rate >= MAX_RATE {
                return Ok(rate * (1.0 - loss).clamp(0.5, 0.97));
            }
            rate = (rate * LEAP).min(MAX_RATE);
        }
    }

    fn step(
        &mut self,
        write_ratio: f64,
        rate: f64,
        warmup_s: f64,
        seconds: f64,
    ) -> anyhow::Result<Step> {
        self.progress.say(format!(
            "{} write-back, {} writes: trying {}/s",
            self.name,
            percent(write_ratio),
            thousands(rate)
        ));
        let rate_each = rate / self.loads.len() as f64;
        let phase = self.params.phase(write_ratio, rate_each, seconds);
        if warmup_s > 0.0 {
            let seconds = warmup_s;
            self.run(&Phase { seconds, ..phase.clone() })?;
        }
        let before = self.counted()?;
        let result = PhaseResult::of_all(&self.run(&phase)?);
        let counted = self.counted()?.since(&before);
        tracing::info!(
            "{} write-back, {} writes: {rate:.0}/s, lost {:.2} %, {} lent, {} called back",
            self.name,
            percent(write_ratio),
            result.lasting_loss() * 100.0,
            counted.lent,
            counted.of_store("loans_returned"),
        );
        Ok(Step { result, counted })
    }

    /// All clients at once.
    fn run(&mut self, phase: &Phase) -> anyhow::Result<Vec<PhaseResult>> {
        for load in &mut self.loads {
            load.begin(phase)?;
        }
        self.loads.iter_mut().map(|load| load.finish()).collect()
    }

    fn counted(&self) -> anyhow::Result<Counts> {
        let status = self.rig.store_status(SERVER)?;
        let mut switches = Map::new();
        for number in 1..=SWITCHES {
            let counters = self.rig.switch_counters(&switch(number))?;
            for (name, counted) in counters.as_object().into_iter().flatten() {
                let sum = count(switches.get(name)) + count(Some(counted));
                switches.insert(name.clone(), sum.into());
            }
        }
        Ok(Counts {
            store: status.totals.as_object().cloned().unwrap_or_default(),
            switches,
            lent: status.loans.lent,
        })
    }
}
