//! Several users of one switch (the multi-tenancy thesis, section 5.2 and figure 5.1): how much of each one's keys ends up in the cache, also
//! over links that lose, and what it costs a switch to serve many users instead of one.

use serde_json::{Value, json};

use super::measure::{Settled, median, named, rates, settle};
use crate::{
    Experiment, Options, Params, Report,
    fabric::{CLIENT_CPU, Fabric, Generating, Plan, TenantSpec, client, fill, sweep},
    plot,
    table::{Table, percent, thousands},
};
use lab::{progress::Progress, topology::Fault};
use load::{Arrivals, LoadDriver, Phase, PhaseResult, workload::Popularity};

/// Requests under way in a closed loop.
const OUTSTANDING: usize = 64;

/// Runs it: distributions and numbers of users, then lossy links, then many users against one.
pub fn run(
    experiment: &Experiment,
    params: &Params,
    options: &Options,
    progress: &Progress,
) -> anyhow::Result<Report> {
    let mut report = Report::new(&experiment.name, options, params)?;
    let mut table = Table::new(&[
        "popularity",
        "users",
        "cached",
        "all cached after",
        "req/s",
        "hits",
        "p50",
        "wrong",
    ]);
    let plan = Plan {
        server_rate: Some(params.server_rate),
        window_ms: params.tenancy.window_ms,
        control_args: params.control_args.clone(),
        switch_args: params.switch_args.clone(),
        ..Plan::line(1, params.tenancy.pages, &experiment.discipline)
    };
    let mut stage = Stage {
        fabric: Fabric::start(plan.clone(), options.name.clone(), progress)?,
        params,
        options,
        progress,
        next_id: 1,
    };
    let (mut wrong, mut foreign) = (0, 0);
    let mut shares = Shares::new(&params.tenancy.users);
    for popularity in params.distributions() {
        let mut share: f64 = 1.0;
        let mut lines = vec![];
        for users in &params.tenancy.users {
            let run = stage.fill_cache(*users, popularity, "")?;
            share = share.min(run.share());
            shares.add(*users, run.share());
            wrong += run.wrong();
            foreign += run.foreign();
            lines.push((plural(*users), run.series()));
            run.tell(&mut report, &mut table);
        }
        report.summarize(named("cached_share", popularity), share);
        shares.group(popularity.title());
        let title = format!("Total throughput, {}", popularity.title());
        let svg = plot::lines(&title, "seconds", "answers per second", &lines);
        let file = format!("{}-{}.svg", experiment.name, popularity.name());
        report.plots.push((file, svg));
    }
    if params.tenancy.many > 0 {
        let seen = stage.compare(&mut report)?;
        wrong += seen.iter().map(PhaseResult::wrong).sum::<u64>();
        foreign += seen.iter().map(|r| r.foreign_values).sum::<u64>();
    }
    // The lab's name is free again once it is gone.
    drop(stage);
    let lossy = lossy(&plan, params, options, progress)?;
    wrong += lossy.wrong();
    foreign += lossy.foreign();
    report.summarize("cached_share_uniform_lossy", lossy.share());
    lossy.tell(&mut report, &mut table);
    shares.add(lossy.users, lossy.share());
    shares.group(format!("uniform, {} lost", percent(params.tenancy.loss)));
    let file = format!("{}.svg", experiment.name);
    report.plots.push((file, shares.draw()));
    report.summarize("wrong_values", wrong as f64);
    report.summarize("foreign_values", foreign as f64);
    if wrong > 0 {
        report.failure = Some(format!("{wrong} wrong values, {foreign} of other tenants"));
    }
    let notes = std::mem::take(&mut report.text);
    report.text = format!("{}\n{notes}", table.render());
    Ok(report)
}

/// The part of the keys that ended up cached, to be drawn: by distribution and number of users.
struct Shares {
    groups: Vec<String>,
    series: Vec<(usize, Vec<f64>)>,
}

impl Shares {
    fn new(users: &[usize]) -> Shares {
        Shares {
            groups: vec![],
            series: users.iter().map(|users| (*users, vec![])).collect(),
        }
    }

    fn add(&mut self, users: usize, share: f64) {
        let mut series = self.series.iter_mut();
        if let Some((_, shares)) = series.find(|(of, _)| *of == users) {
            shares.push(100.0 * share);
        }
    }

    /// What was added since the last group belongs to this one. The last group may lack some numbers of users.
    fn group(&mut self, name: String) {
        self.groups.push(name);
    }

    fn draw(&self) -> String {
        let names: Vec<String> = self
            .series
            .iter()
            .map(|(users, _)| plural(*users))
            .collect();
        let series: Vec<(&str, Vec<f64>)> = names
            .iter()
            .zip(&self.series)
            .map(|(name, (_, shares))| (name.as_str(), shares.clone()))
            .collect();
        plot::grouped_bars(&plot::GroupedBars {
            title: "Cached in the end; of several users, the least",
            y: "percent of a user's keys",
            groups: &self.groups,
            series: &series,
            marks: None,
        })
    }
}

fn plural(users: usize) -> String {
    match users {
        1 => "1 user".into(),
        n => format!("{n} users"),
    }
}

/// The uniform distribution over links that lose frames, where the thesis lost reports and inserts.
fn lossy(
    plan: &Plan,
    params: &Params,
    options: &Options,
    progress: &Progress,
) -> anyhow::Result<Run> {
    let tenancy = &params.tenancy;
    let plan = Plan {
        fault: Some(Fault {
            loss: tenancy.loss,
            seed: options.seed,
            ..Fault::default()
        }),
        ..plan.clone()
    };
    let calm = Params {
        tenancy: crate::Tenancy {
            rate: tenancy.lossy_rate,
            settle_s: tenancy.lossy_settle_s,
            ..tenancy.clone()
        },
        ..params.clone()
    };
    let mut stage = Stage {
        fabric: Fabric::start(plan, options.name.clone(), progress)?,
        params: &calm,
        options,
        progress,
        next_id: 1,
    };
    let what = format!(", {} lost on every link", percent(tenancy.loss));
    stage.fill_cache(1, Popularity::Uniform, &what)
}

/// One filling of the cache and what came after.
struct Run {
    popularity: Popularity,
    what: String,
    users: usize,
    settled: Settled,
    steady: PhaseResult,
    /// Per tenant, the part of its keys that the switch answered in the end, each asked for once.
    answered: Vec<f64>,
    sweep: PhaseResult,
}

impl Run {
    fn phases(&self) -> impl Iterator<Item = &PhaseResult> {
        let last = [&self.steady, &self.sweep];
        self.settled.phases.iter().chain(last)
    }

    /// The smallest part of a user's keys that is cached: in the switch's memory, and answered from there.
    fn share(&self) -> f64 {
        let answered = self.answered.iter().copied();
        answered.fold(self.settled.share(), f64::min)
    }

    fn wrong(&self) -> u64 {
        self.phases().map(PhaseResult::wrong).sum()
    }

    fn foreign(&self) -> u64 {
        self.phases().map(|phase| phase.foreign_values).sum()
    }

    fn series(&self) -> Vec<(f64, f64)> {
        let mut all = self.settled.intervals.clone();
        all.extend(&self.steady.intervals);
        rates(&all, self.settled.interval_ms)
    }

    fn tell(&self, report: &mut Report, table: &mut Table) {
        let after = self.settled.after_s;
        table.row([
            format!("{}{}", self.popularity.title(), self.what),
            self.users.to_string(),
            percent(self.share()),
            after.map_or("-".into(), |s| format!("{s:.1} s")),
            thousands(self.steady.throughput()),
            percent(self.steady.hit_ratio()),
            format!("{:.0} us", self.steady.all.p50_us),
            self.wrong().to_string(),
        ]);
        report.rows.push(json!({
            "popularity": self.popularity.name(),
            "lossy": !self.what.is_empty(),
            "users": self.users,
            "cached_shares": self.settled.shares,
            "answered_shares": self.answered,
            "all_cached_after_s": after,
            "steady_throughput": self.steady.throughput(),
            "steady_hit_ratio": self.steady.hit_ratio(),
            "steady_loss": self.steady.loss(),
            "p50_us": self.steady.all.p50_us,
            "p99_us": self.steady.all.p99_us,
            "wrong_values": self.wrong(),
            "throughput_over_time": self.series(),
        }));
    }
}

/// The lab and what is measured on it.
struct Stage<'a> {
    fabric: Fabric,
    params: &'a Params,
    options: &'a Options,
    progress: &'a Progress,
    next_id: u32,
}

impl Stage<'_> {
    /// So many new tenants with nothing cached.
    fn newcomers(&mut self, count: usize, quota: u32) -> anyhow::Result<Vec<TenantSpec>> {
        let first = self.next_id;
        self.next_id += count as u32;
        let tenants: Vec<TenantSpec> = (first..self.next_id)
            .map(|id| self.fabric.tenant(id, quota))
            .collect();
        self.fabric.create_tenants(&tenants)?;
        Ok(tenants)
    }

    fn generator(&mut self, tenants: &[TenantSpec]) -> anyhow::Result<LoadDriver> {
        let mut load = self.fabric.generator(&Generating {
            host: &client(1),
            name: "load",
            tenants,
            keys: self.params.keys,
            value_len: self.params.value_len,
            seed: self.options.seed,
            cpu: CLIENT_CPU,
            nice: 0,
        })?;
        fill(&mut load)?;
        Ok(load)
    }

    /// From an empty cache until every key is in it, then a while longer.
    fn fill_cache(
        &mut self,
        users: usize,
        popularity: Popularity,
        what: &str,
    ) -> anyhow::Result<Run> {
        let tenancy = &self.params.tenancy;
        let tenants = self.newcomers(users, tenancy.quota)?;
        let mut load = self.generator(&tenants)?;
        let phase = Phase::reads(popularity, tenancy.rate, 0.0, tenancy.round_s);
        let settled = settle(
            &self.fabric,
            &mut load,
            &tenants,
            self.params.keys,
            &phase,
            tenancy.settle_s,
            self.progress,
        )?;
        let steady = load.run(&Phase {
            seconds: self.params.step_s,
            ..phase
        })?;
        let (answered, sweep) = sweep(&mut load)?;
        drop(load);
        self.fabric.remove_tenants(&tenants)?;
        Ok(Run {
            popularity,
            what: what.into(),
            users,
            settled,
            steady,
            answered,
            sweep,
        })
    }

    /// Many users against few against one, in turn, with everything of everybody cached. Returns what was seen.
    fn compare(&mut self, report: &mut Report) -> anyhow::Result<Vec<PhaseResult>> {
        let tenancy = &self.params.tenancy;
        let all = self.newcomers(tenancy.many, tenancy.many_quota)?;
        self.progress
            .say(format!("writing the keys of {} users", tenancy.many));
        let mut load = self.generator(&all)?;
        let learn = Phase::reads(Popularity::Uniform, tenancy.rate, 0.0, tenancy.round_s);
        let settled = settle(
            &self.fabric,
            &mut load,
            &all,
            self.params.keys,
            &learn,
            2.0 * tenancy.settle_s,
            self.progress,
        )?;
        let popularity = *self
            .params
            .distributions()
            .last()
            .unwrap_or(&Popularity::Uniform);
        let few = tenancy.users.iter().copied().max().unwrap_or(1);
        let counts = [1, few.min(all.len()), all.len()];
        let phase = |users, arrivals| Phase {
            arrivals,
            tenants: users,
            ..Phase::reads(popularity, 1.0, 0.2, tenancy.round_s)
        };
        let mut seen = settled.phases.clone();
        // What one user gets from a closed loop is what this CPU can do: generator and switch together.
        let closed = Arrivals::Closed(OUTSTANDING);
        let capacity = load.run(&phase(1, closed))?.throughput();
        let rate = (capacity * tenancy.load).min(self.params.max_rate);
        let mut served = [(); 3].map(|()| vec![]);
        let mut closed_loop = [(); 3].map(|()| vec![]);
        for round in 0..tenancy.rounds {
            self.progress.say(format!(
                "one user against {}, round {} of {}",
                tenancy.many,
                round + 1,
                tenancy.rounds
            ));
            for (i, users) in counts.iter().enumerate() {
                for (arrivals, into) in [
                    (Arrivals::Open(rate), &mut served),
                    (closed, &mut closed_loop),
                ] {
                    let result = load.run(&phase(*users, arrivals))?;
                    into[i].push(result.cached as f64 / result.seconds);
                    seen.push(result);
                }
            }
        }
        drop(load);
        self.fabric.remove_tenants(&all)?;
        let over_one = |rates: &[Vec<f64>; 3], i: usize| {
            let pairs = rates[i].iter().zip(&rates[0]);
            median(&pairs.map(|(some, one)| some / one).collect::<Vec<_>>())
        };
        for (i, users) in [(1, counts[1]), (2, counts[2])] {
            let name = format!("throughput_{users}_users_over_1");
            report.summarize(name, over_one(&served, i));
            let name = format!("closed_loop_{users}_users_over_1");
            report.summarize(name, over_one(&closed_loop, i));
        }
        report.summarize("many_users_cached_share", settled.share());
        report.rows.push(comparison(
            &counts,
            rate,
            capacity,
            &served,
            &closed_loop,
            &settled,
        ));
        report.text = format!(
            "{} users against one, {}: {} requests a second offered, {:.0} % of what one user gets from a closed loop;\n\
             answered by the switch, median of {}: {}\n",
            tenancy.many,
            popularity.title(),
            thousands(rate),
            100.0 * rate / capacity,
            tenancy.rounds,
            counts
                .iter()
                .zip(&served)
                .map(|(users, rates)| format!("{} {}/s", plural(*users), thousands(median(rates))))
                .collect::<Vec<_>>()
                .join(", ")
        );
        Ok(seen)
    }
}

fn comparison(
    counts: &[usize; 3],
    rate: f64,
    capacity: f64,
    served: &[Vec<f64>; 3],
    closed_loop: &[Vec<f64>; 3],
    settled: &Settled,
) -> Value {
    json!({
        "comparison": counts,
        "offered": rate,
        "closed_loop_of_one": capacity,
        "cached_share": settled.share(),
        "all_cached_after_s": settled.after_s,
        "served_by_switch": served,
        "closed_loop": closed_loop,
    })
}
