//! Several users of one switch (the multi-tenancy thesis, section 5.2 and figure 5.1): how much of
//! each one's keys ends up in the cache, also over links that lose, and what it costs a switch to
//! serve many users instead of one.

use anyhow::ensure;
use experiments::{
    Measure, Report, Run, World,
    params::{Distributions, Tenancy, part, positive},
    plot,
    rig::{Load, TenantSpec, census},
    table::{Table, percent, thousands},
    tenants::{ReadinessProbe, Stage, median, named, rates},
};
use load::{Arrivals, Phase, PhaseKind, PhaseResult, workload::Popularity};
use plan::{Line, topology::Fault};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Requests under way in a closed loop.
const OUTSTANDING: usize = 64;

/// Distributions and numbers of users, then lossy links, then many users against one.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Users {
    tenancy: Tenancy,
    distributions: Distributions,
    /// Requests per second that the store takes.
    server_rate: f64,
    /// Numbers of users that are compared.
    users: Vec<usize>,
    /// Requests per second offered in all.
    rate: f64,
    /// Deadline in seconds for everything to be cached, from an empty cache on.
    settle_s: f64,
    /// Seconds of the steady state.
    step_s: f64,
    /// Part of the frames that a lossy link loses.
    loss: f64,
    /// Requests per second offered over lossy links.
    lossy_rate: f64,
    /// Deadline in seconds for everything to be cached over lossy links.
    lossy_settle_s: f64,
    /// As many users as shall be compared with one in the end; 0: that is left out.
    many: usize,
    /// Guaranteed pages of each of the many.
    many_quota: u32,
    /// Repetitions of that comparison, in turn.
    rounds: usize,
    /// Length of one repetition in seconds.
    round_s: f64,
    /// Offered load of that comparison, as a part of what a closed loop of one user gets.
    load: f64,
    /// Rates above this are not offered: two CPUs carry no more.
    max_rate: f64,
}

impl Measure for Users {
    fn check(&self) -> anyhow::Result<()> {
        self.tenancy.check()?;
        self.distributions.check()?;
        let Users { users, many, .. } = self;
        ensure!(
            !users.is_empty() && users.iter().all(|n| (1..=64).contains(n)),
            "users = {users:?}: numbers from 1 to 64 are possible"
        );
        ensure!(*many <= 256, "many = {many}: at most 256");
        ensure!(self.rounds > 0, "rounds = 0: at least one is needed");
        part([("loss", self.loss), ("load", self.load)])?;
        positive!(
            self,
            server_rate,
            rate,
            settle_s,
            step_s,
            lossy_rate,
            lossy_settle_s,
            round_s,
            max_rate
        )
    }

    fn run(&self, run: &Run<'_>, report: &mut Report) -> anyhow::Result<()> {
        measure(self, run, report)
    }
}

fn measure(params: &Users, run: &Run<'_>, report: &mut Report) -> anyhow::Result<()> {
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
    let line =
        Line { server_rate: Some(params.server_rate), ..Stage::line(run, &params.tenancy, 1) };
    let mut switch = Switch::start(params, run, &line)?;
    let (mut wrong, mut foreign) = (0, 0);
    let mut shares = Shares::new(&params.users);
    for popularity in params.distributions.all() {
        let mut share: f64 = 1.0;
        let mut lines = vec![];
        for users in &params.users {
            let seen = switch.fill_cache(*users, popularity, "")?;
            share = share.min(seen.share());
            shares.add(*users, seen.share());
            wrong += seen.wrong();
            foreign += seen.foreign();
            lines.push((plural(*users), seen.series()));
            seen.tell(report, &mut table);
        }
        report.summarize(named("cached_share", popularity), share);
        shares.group(popularity.title());
        let title = format!("Total throughput, {}", popularity.title());
        let svg = plot::lines(&title, "seconds", "answers per second", &lines);
        report.plot(format!("{}-{}", run.name, popularity.name()), svg);
    }
    if params.many > 0 {
        let seen = switch.compare(report)?;
        wrong += seen.iter().map(PhaseResult::wrong).sum::<u64>();
        foreign += seen.iter().map(|r| r.foreign_values).sum::<u64>();
    }
    // The lab's name is free again once it is gone.
    drop(switch);
    let lossy = lossy(&line, params, run)?;
    wrong += lossy.wrong();
    foreign += lossy.foreign();
    report.summarize("cached_share_uniform_lossy", lossy.share());
    lossy.tell(report, &mut table);
    shares.add(lossy.users, lossy.share());
    shares.group(format!("uniform, {} lost", percent(params.loss)));
    report.plot(run.name, shares.draw());
    report.summarize("wrong_values", wrong as f64);
    report.summarize("foreign_values", foreign as f64);
    if wrong > 0 {
        report.failure = Some(format!("{wrong} wrong values, {foreign} of other tenants"));
    }
    let notes = std::mem::take(&mut report.text);
    report.text = format!("{}\n{notes}", table.render());
    Ok(())
}

/// The part of the keys that ended up cached, to be drawn: by distribution and number of users.
struct Shares {
    groups: Vec<String>,
    series: Vec<(usize, Vec<f64>)>,
}

impl Shares {
    fn new(users: &[usize]) -> Shares {
        Shares { groups: vec![], series: users.iter().map(|users| (*users, vec![])).collect() }
    }

    fn add(&mut self, users: usize, share: f64) {
        let mut series = self.series.iter_mut();
        if let Some((_, shares)) = series.find(|(of, _)| *of == users) {
            shares.push(100.0 * share);
        }
    }

    /// What was added since the last group belongs to this one. The last group may lack some
    /// numbers of users.
    fn group(&mut self, name: String) {
        self.groups.push(name);
    }

    fn draw(&self) -> String {
        let names: Vec<String> = self.series.iter().map(|(users, _)| plural(*users)).collect();
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
fn lossy(line: &Line, params: &Users, run: &Run<'_>) -> anyhow::Result<Filling> {
    let line = Line {
        fault: Some(Fault { loss: params.loss, seed: run.options.seed, ..Fault::default() }),
        ..line.clone()
    };
    let calm = Users { rate: params.lossy_rate, settle_s: params.lossy_settle_s, ..params.clone() };
    let what = format!(", {} lost on every link", percent(params.loss));
    let mut switch = Switch::start(&calm, run, &line)?;
    switch.fill_cache(1, Popularity::Uniform, &what)
}

/// One filling of the cache and what came after.
struct Filling {
    popularity: Popularity,
    what: String,
    users: usize,
    settled: ReadinessProbe,
    steady: PhaseResult,
    /// Per tenant, the part of its keys that the switch answered in the end, each asked for once.
    answered: Vec<f64>,
    census: PhaseResult,
}

impl Filling {
    fn phases(&self) -> impl Iterator<Item = &PhaseResult> {
        let last = [&self.steady, &self.census];
        self.settled.phases.iter().chain(last)
    }

    /// The smallest part of a user's keys that is cached: in the switch's memory, and answered
    /// from there.
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

/// The switch that they share, and what is measured on it.
struct Switch<'a> {
    stage: Stage<'a>,
    params: &'a Users,
    run: &'a Run<'a>,
    next_id: u32,
}

impl<'a> Switch<'a> {
    fn start(params: &'a Users, run: &'a Run<'a>, line: &Line) -> anyhow::Result<Switch<'a>> {
        let name = run.options.name.clone();
        Ok(Switch {
            stage: Stage::start(run, &params.tenancy, line, name)?,
            params,
            run,
            next_id: 1,
        })
    }

    /// So many new tenants with nothing cached, and a generator with all of their keys written.
    fn newcomers(&mut self, count: usize, quota: u32) -> anyhow::Result<(Vec<TenantSpec>, Load)> {
        let first = self.next_id;
        self.next_id += count as u32;
        let tenant = |id| TenantSpec { quota, ..self.stage.tenant(id) };
        let tenants: Vec<TenantSpec> = (first..self.next_id).map(tenant).collect();
        let load = self.stage.newcomers(&tenants)?;
        Ok((tenants, load))
    }

    /// From an empty cache until every key is in it, then a while longer.
    fn fill_cache(
        &mut self,
        users: usize,
        popularity: Popularity,
        what: &str,
    ) -> anyhow::Result<Filling> {
        let params = self.params;
        let (tenants, mut load) = self.newcomers(users, params.tenancy.quota)?;
        let phase = Phase::reads(popularity, params.rate, 0.0, params.round_s);
        let settled = self.stage.settle(&mut load, &tenants, &phase, params.settle_s)?;
        let steady = load.run(&Phase { seconds: params.step_s, ..phase })?;
        let (answered, census) = census(&mut load)?;
        drop(load);
        self.stage.rig.remove_tenants(&tenants)?;
        Ok(Filling { popularity, what: what.into(), users, settled, steady, answered, census })
    }

    /// Many users against few against one, in turn, with everything of everybody cached. Returns
    /// what was seen.
    fn compare(&mut self, report: &mut Report) -> anyhow::Result<Vec<PhaseResult>> {
        let params = self.params;
        let progress = self.run.progress;
        progress.say(format!("writing the keys of {} users", params.many));
        let (all, mut load) = self.newcomers(params.many, params.many_quota)?;
        let learn = Phase::reads(Popularity::Uniform, params.rate, 0.0, params.round_s);
        let settled = self.stage.settle(&mut load, &all, &learn, 2.0 * params.settle_s)?;
        let popularity = params.distributions.all().pop();
        let popularity = popularity.unwrap_or(Popularity::Uniform);
        let few = params.users.iter().copied().max().unwrap_or(1);
        let counts = [1, few.min(all.len()), all.len()];
        let phase = |users, arrivals| Phase {
            arrivals,
            tenants: users,
            ..Phase::reads(popularity, 1.0, 0.2, params.round_s)
        };
        let mut seen = settled.phases.clone();
        // What one user gets from a closed loop is what this CPU can do: generator and switch
        // together.
        let closed = Arrivals::Closed(OUTSTANDING);
        let capacity = load.run(&phase(1, closed))?.throughput();
        let rate = (capacity * params.load).min(params.max_rate);
        let mut served = [(); 3].map(|()| vec![]);
        let mut closed_loop = [(); 3].map(|()| vec![]);
        // What the generator takes by itself for a request, in seconds; nothing where it is
        // simulated.
        let mut own = [(); 3].map(|()| vec![]);
        for round in 0..params.rounds {
            progress.say(format!(
                "one user against {}, round {} of {}",
                params.many,
                round + 1,
                params.rounds
            ));
            for (i, users) in counts.iter().enumerate() {
                for (arrivals, into) in
                    [(Arrivals::Open(rate), &mut served), (closed, &mut closed_loop)]
                {
                    let result = load.run(&phase(*users, arrivals))?;
                    into[i].push(result.cached as f64 / result.seconds);
                    seen.push(result);
                }
                let dry = match self.run.options.world {
                    World::Sim => 0.0,
                    World::Kernel => {
                        let dry =
                            load.run(&Phase { kind: PhaseKind::Dry, ..phase(*users, closed) })?;
                        let took = 1.0 / dry.throughput();
                        seen.push(dry);
                        took
                    }
                };
                own[i].push(dry);
            }
        }
        drop(load);
        self.stage.rig.remove_tenants(&all)?;
        let over_one = |rates: &[Vec<f64>; 3], i: usize| {
            let pairs = rates[i].iter().zip(&rates[0]);
            median(&pairs.map(|(some, one)| some / one).collect::<Vec<_>>())
        };
        for (i, users) in [(1, counts[1]), (2, counts[2])] {
            let name = format!("throughput_{users}_users_over_1");
            report.summarize(name, over_one(&served, i));
            let name = format!("closed_loop_{users}_users_over_1_with_generator");
            report.summarize(name, over_one(&closed_loop, i));
            let rounds = (0..params.rounds).map(|round| {
                let at = |of: &[Vec<f64>; 3], i: usize| of[i][round];
                without_generator(
                    [at(&closed_loop, 0), at(&closed_loop, i)],
                    [at(&own, 0), at(&own, i)],
                )
            });
            let name = format!("closed_loop_{users}_over_1");
            report.summarize(name, median(&rounds.collect::<Vec<_>>()));
        }
        report.summarize("many_users_cached_share", settled.share());
        report.rows.push(comparison(
            &counts,
            rate,
            capacity,
            &served,
            &closed_loop,
            &own,
            &settled,
        ));
        report.text = format!(
            "{} users against one, {}: {} requests a second offered, {:.0} % of what one user gets from a closed loop;\n\
             answered by the switch, median of {}: {}\n",
            params.many,
            popularity.title(),
            thousands(rate),
            100.0 * rate / capacity,
            params.rounds,
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
    own: &[Vec<f64>; 3],
    settled: &ReadinessProbe,
) -> Value {
    json!({
        "comparison": counts,
        "offered": rate,
        "closed_loop_of_one": capacity,
        "cached_share": settled.share(),
        "all_cached_after_s": settled.after_s,
        "served_by_switch": served,
        "closed_loop": closed_loop,
        "generator_s_per_request": own,
    })
}

/// The throughput of many users over that of one, in a closed loop of generator and switch on one
/// CPU, had the generator no more work with many than with one: from both throughputs, and from
/// what a request of each costs the generator alone, in seconds.
fn without_generator([one, many]: [f64; 2], [own_one, own_many]: [f64; 2]) -> f64 {
    (1.0 / one) / (1.0 / many - (own_many - own_one))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_generator_takes_more_is_taken_out() {
        // 4 us a request, of which the generator has 1; with many 5 us, of which it has 2: the
        // switch is as fast as before.
        let ratio = without_generator([250_000.0, 200_000.0], [1e-6, 2e-6]);
        assert!((ratio - 1.0).abs() < 1e-9, "{ratio}");
        let ratio = without_generator([250_000.0, 200_000.0], [1e-6, 1e-6]);
        assert!((ratio - 0.8).abs() < 1e-9, "{ratio}");
    }
}
