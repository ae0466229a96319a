//! Idle memory works: an owner that uses a fifth of its quota beside a tenant whose working set
//! exceeds its own; then the owner wakes up and wants all of its pages back.
//!
//! What is possible is measured as well: the same load of a tenant that is guaranteed, for itself,
//! all pages but those that the idle owner uses. Whose a page is says the switch's memory, by the
//! items in it: what a controller has decided is nobody's gain before that. An owner has its pages
//! back when nothing of the borrower is left in them.

use std::time::Duration;

use anyhow::{Context, ensure};
use load::{Phase, PhaseResult, workload::Popularity};
use plan::{CLIENT_CPU, OTHER_CPU, switch};
use serde::{Deserialize, Serialize};
use serde_json::json;
use text::table::{Table, percent, thousands};

use super::{Stage, median};
use crate::{
    Measure, Report, Run,
    params::{Tenancy, exponent, positive},
    plot,
    rig::{Load, SwitchPage, TenantSpec},
};

/// The owner, a tenant that may use its own pages only, one that borrows, and one that has all that
/// could be borrowed.
const OWNER: u32 = 1;
const OWN_ONLY: u32 = 2;
const BORROWER: u32 = 3;
const RICH: u32 = 4;
/// The owner uses one key in so many while it is idle.
const IDLE: usize = 5;
/// Its part of the offered load.
const OWNER_LOAD: f64 = 0.25;
/// Between two looks at the page table.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Parameters of borrowing.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Borrowing {
    tenancy: Tenancy,
    /// Zipf's exponent.
    theta: f64,
    /// Guaranteed pages of the tenant beside the owner.
    own_quota: u32,
    /// Whether it may borrow the owner's.
    borrows: bool,
    /// Requests per second offered in all.
    rate: f64,
    /// Deadline in seconds for everything of the owner to be cached, and the time that a cache has
    /// to settle.
    settle_s: f64,
    /// Returns of the owner.
    rounds: usize,
    /// Length of one measurement, and of one return, in seconds.
    round_s: f64,
}

impl Measure for Borrowing {
    fn check(&self) -> anyhow::Result<()> {
        self.tenancy.check()?;
        exponent(self.theta)?;
        ensure!(self.rounds > 0, "rounds = 0: at least one is needed");
        positive([("rate", self.rate), ("settle_s", self.settle_s), ("round_s", self.round_s)])
    }

    /// All pages that could be had, then owned pages only, then borrowing, then the owner's return,
    /// again and again.
    fn run(&self, run: &Run<'_>, report: &mut Report) -> anyhow::Result<()> {
        measure(self, run, report)
    }
}

fn measure(params: &Borrowing, run: &Run<'_>, report: &mut Report) -> anyhow::Result<()> {
    let line = Stage::line(run, &params.tenancy, 1);
    let name = run.options.name.clone();
    let mut rack =
        SharedStage { stage: Stage::start(run, &params.tenancy, &line, name)?, params, run };
    let idle = params.idle_pages();
    let rich =
        TenantSpec { borrows: false, quota: params.own_quota + idle, ..rack.stage.tenant(RICH) };
    let (possible, _) = rack.beside(&rich, None, "all that could be borrowed")?;
    rack.stage.rig.remove_tenants(&[rich])?;
    let owner = TenantSpec { borrows: false, ..rack.stage.tenant(OWNER) };
    rack.stage.create(std::slice::from_ref(&owner))?;
    let mut owning = rack.generator(&owner, OTHER_CPU)?;
    let needed = rack.pages_needed(&owner, &mut owning)?;

    let own_only =
        TenantSpec { borrows: false, quota: params.own_quota, ..rack.stage.tenant(OWN_ONLY) };
    let (owned, _) = rack.beside(&own_only, Some(&mut owning), "its own pages only")?;
    rack.stage.rig.remove_tenants(&[own_only])?;
    let borrower = TenantSpec {
        borrows: params.borrows,
        quota: params.own_quota,
        ..rack.stage.tenant(BORROWER)
    };
    let (borrowing, mut load) = rack.beside(&borrower, Some(&mut owning), "borrowing")?;
    let mut table = Table::new(&["", "pages", "hits", "req/s", "wrong"]);
    for (what, seen) in [
        ("own pages only", &owned),
        ("borrowing", &borrowing),
        ("all that could be borrowed", &possible),
    ] {
        table.row([
            what.into(),
            seen.pages.to_string(),
            percent(seen.result.hit_ratio()),
            thousands(seen.result.throughput()),
            seen.result.wrong().to_string(),
        ]);
        report.rows.push(json!({
            "phase": what,
            "pages": seen.pages,
            "hit_ratio": seen.result.hit_ratio(),
            "throughput": seen.result.throughput(),
            "wrong_values": seen.result.wrong(),
        }));
    }
    report.summarize("hit_ratio_owned_only", owned.result.hit_ratio());
    report.summarize("hit_ratio_borrowing", borrowing.result.hit_ratio());
    let gain = borrowing.result.hit_ratio() - owned.result.hit_ratio();
    report.summarize("hit_ratio_gain", gain);
    let over_possible = borrowing.result.hit_ratio() / possible.result.hit_ratio();
    report.summarize("hit_ratio_possible", possible.result.hit_ratio());
    report.summarize("hit_ratio_borrowing_over_possible", over_possible);
    let lent = borrowing.pages.saturating_sub(params.own_quota as usize);
    report.summarize("lent_pages", lent as f64);
    report.summarize("idle_pages", f64::from(idle));

    let all = [&possible, &owned, &borrowing];
    let mut wrong: u64 = all.iter().map(|seen| seen.result.wrong()).sum();
    let (mut times, mut never) = (vec![], 0);
    let mut first = None;
    for round in 0..params.rounds {
        run.progress.say(format!("the owner returns, {} of {}", round + 1, params.rounds));
        let lent = rack.let_borrow(&mut owning, &mut load)?;
        let back = rack.owner_returns(&mut owning, &mut load, needed)?;
        wrong += back.wrong;
        report.rows.push(json!({
            "phase": "the owner returns",
            "lent_pages_before": lent,
            "needed_pages": needed,
            "owner_pages_before": back.series.first().map(|look| look.owner),
            "reclaim_ms": back.reclaim_ms,
            "refill_ms": back.refill_ms,
            "owner_hit_ratio": back.hit_ratio,
            "pages_over_time": back.series.iter().map(|l| json!([l.ms, l.owner, l.borrower])).collect::<Vec<_>>(),
        }));
        match back.reclaim_ms {
            // What was not lent is not taken back.
            Some(_) if lent == 0 => {}
            Some(ms) => times.push(ms),
            None => never += 1,
        }
        first.get_or_insert(back.series);
    }
    let worst = times.iter().copied().fold(0.0, f64::max);
    let longest = params.round_s * 1000.0;
    let worst = if never > 0 { longest } else { worst };
    if never > 0 || !times.is_empty() {
        report.summarize("reclaim_ms_max", worst);
        report.summarize("reclaim_ms_p50", median(&times));
    }
    report.summarize("reclaims", times.len() as f64);
    report.summarize("wrong_values", wrong as f64);
    if never > 0 {
        report.failure = Some(format!(
            "{never} of {} times the owner did not have its {needed} pages back within {longest} ms",
            params.rounds
        ));
    } else if wrong > 0 {
        report.failure = Some(format!("{wrong} wrong values"));
    }
    report.text = format!(
        "{}\nThe owner uses {needed} pages when it asks for all of its keys. It had them back after {} ms (median), {worst:.0} ms (longest) of {}.\n",
        table.render(),
        thousands(median(&times)),
        times.len(),
    );
    let series = first.unwrap_or_default();
    let points = |f: fn(&Look) -> usize| {
        let points = series.iter().map(|look| (look.ms / 1000.0, f(look) as f64));
        points.collect::<Vec<_>>()
    };
    let svg = plot::lines(
        "The owner asks for its pages",
        "seconds since its first request",
        "pages",
        &[
            ("the owner's".into(), points(|l| l.owner)),
            ("the other's".into(), points(|l| l.borrower)),
        ],
    );
    report.plot(run.name, svg);
    Ok(())
}

impl Borrowing {
    /// Pages that the owner does not use while it is idle, nor anybody else is guaranteed.
    fn idle_pages(&self) -> u32 {
        let used = self.tenancy.quota.div_ceil(IDLE as u32);
        self.tenancy.pages.saturating_sub(self.own_quota + used)
    }
}

/// Whose items the switch's memory had at one time.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Look {
    /// Since the owner's first request.
    ms: f64,
    /// Pages with items of the owner.
    owner: usize,
    /// Pages with items of the borrower.
    borrower: usize,
}

fn count(pages: &[SwitchPage], tenant: u32) -> usize {
    let of = |page: &&SwitchPage| page.tenant == Some(tenant);
    pages.iter().filter(of).count()
}

/// When the borrower had first left all pages but these. What a page that it left is filled with,
/// and how soon, is the owner's own affair.
fn reclaimed(series: &[Look], others: usize) -> Option<f64> {
    let look = series.iter().find(|look| look.borrower <= others)?;
    Some(look.ms)
}

/// When the owner first had items in so many pages.
fn refilled(series: &[Look], needed: usize) -> Option<f64> {
    let look = series.iter().find(|look| look.owner >= needed)?;
    Some(look.ms)
}

/// A tenant beside the idle owner.
struct Neighbour {
    result: PhaseResult,
    pages: usize,
}

/// One return of the owner.
struct Return {
    reclaim_ms: Option<f64>,
    refill_ms: Option<f64>,
    series: Vec<Look>,
    hit_ratio: f64,
    wrong: u64,
}

struct SharedStage<'a> {
    stage: Stage<'a>,
    params: &'a Borrowing,
    run: &'a Run<'a>,
}

impl SharedStage<'_> {
    fn generator(&mut self, tenant: &TenantSpec, cpu: usize) -> anyhow::Result<Load> {
        let name = format!("load{}", tenant.id);
        self.stage.load_on(cpu, &name, std::slice::from_ref(tenant))
    }

    fn popularity(&self) -> Popularity {
        Popularity::Zipf(self.params.theta)
    }

    /// The owner's requests while it is idle on most of its pages.
    fn idle(&self, seconds: f64) -> Phase {
        Phase {
            keys: self.params.tenancy.keys / IDLE,
            ..Phase::reads(Popularity::Uniform, self.params.rate * OWNER_LOAD, 0.0, seconds)
        }
    }

    /// Pages that the owner fills when all of its keys are cached.
    fn pages_needed(&mut self, owner: &TenantSpec, load: &mut Load) -> anyhow::Result<usize> {
        let all = Phase::reads(Popularity::Uniform, self.params.rate, 0.0, 1.0);
        let settled =
            self.stage.settle(load, std::slice::from_ref(owner), &all, self.params.settle_s)?;
        let pages = self.stage.rig.switch_pages(&switch(1))?;
        let used = pages.iter().filter(|page| page.tenant == Some(OWNER) && page.items > 0).count();
        ensure!(
            used > 0,
            "the owner has nothing cached after {} s ({:.1} % of its keys)",
            self.params.settle_s,
            settled.share() * 100.0
        );
        Ok(used)
    }

    /// Lets another tenant work, beside the idle owner if there is one, until the cache has
    /// settled, then measures it.
    fn beside(
        &mut self,
        tenant: &TenantSpec,
        mut owning: Option<&mut Load>,
        what: &str,
    ) -> anyhow::Result<(Neighbour, Load)> {
        let params = self.params;
        self.stage.create(std::slice::from_ref(tenant))?;
        let mut load = self.generator(tenant, CLIENT_CPU)?;
        let rate = params.rate * (1.0 - OWNER_LOAD);
        let busy = |seconds| Phase::reads(self.popularity(), rate, 0.0, seconds);
        let mut measured = None;
        for (step, seconds) in [("learning", params.settle_s), ("measuring", params.round_s)] {
            self.run.progress.say(format!("{what}: {step}"));
            if let Some(owning) = &mut owning {
                owning.begin(&self.idle(seconds))?;
            }
            measured = Some(load.run(&busy(seconds))?);
            if let Some(owning) = &mut owning {
                owning.finish()?;
            }
        }
        let beside = Neighbour {
            result: measured.context("two steps were measured")?,
            pages: self.pages_of(tenant.id)?,
        };
        Ok((beside, load))
    }

    /// Pages of a tenant, as the switch has it.
    fn pages_of(&self, tenant: u32) -> anyhow::Result<usize> {
        let pages = self.stage.rig.switch_pages(&switch(1))?;
        Ok(count(&pages, tenant))
    }

    /// Waits until half of the idle owner's pages are lent; returns how many are.
    fn let_borrow(&mut self, owning: &mut Load, load: &mut Load) -> anyhow::Result<usize> {
        let params = self.params;
        let begun = self.stage.rig.now();
        loop {
            owning.begin(&self.idle(1.0))?;
            load.run(&Phase::reads(self.popularity(), params.rate * (1.0 - OWNER_LOAD), 0.0, 1.0))?;
            owning.finish()?;
            let has = self.pages_of(BORROWER)?;
            let lent = has.saturating_sub(params.own_quota as usize);
            let enough = if params.borrows { params.idle_pages() as usize } else { 0 };
            if lent * 2 >= enough
                && (self.stage.rig.now() - begun).as_secs_f64() > params.settle_s / 3.0
            {
                return Ok(lent);
            }
            ensure!(
                (self.stage.rig.now() - begun).as_secs_f64() < 3.0 * params.settle_s,
                "{lent} of the idle owner's {} pages were lent within {} s: half of them at least are to be",
                params.idle_pages(),
                3.0 * params.settle_s
            );
        }
    }

    /// The owner asks for all of its keys while the other goes on; watches the page table.
    fn owner_returns(
        &mut self,
        owning: &mut Load,
        load: &mut Load,
        needed: usize,
    ) -> anyhow::Result<Return> {
        let params = self.params;
        let rate = params.rate * (1.0 - OWNER_LOAD);
        load.begin(&Phase::reads(self.popularity(), rate, 0.0, params.round_s))?;
        let burst = Phase::reads(Popularity::Uniform, params.rate, 0.0, params.round_s);
        // The generator sends its first request a little after this, and the switch is asked for
        // all its pages: what is measured includes that.
        let begun = self.stage.rig.now();
        owning.begin(&burst)?;
        let mut series = vec![];
        let result = loop {
            let ms = (self.stage.rig.now() - begun).as_secs_f64() * 1000.0;
            let pages = self.stage.rig.switch_pages(&switch(1))?;
            series.push(Look {
                // The answer is at most as old as the question.
                ms,
                owner: count(&pages, OWNER),
                borrower: count(&pages, BORROWER),
            });
            if let Some(result) = owning.poll()? {
                break result;
            }
            self.stage.rig.wait(LOOK_EVERY)?;
        };
        let other = load.finish()?;
        Ok(Return {
            reclaim_ms: reclaimed(&series, (params.tenancy.pages as usize).saturating_sub(needed)),
            refill_ms: refilled(&series, needed),
            hit_ratio: result.hit_ratio(),
            wrong: result.wrong() + other.wrong(),
            series,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_back_when_the_borrower_has_left_them() {
        let look = |ms, owner| Look { ms, owner, borrower: 25 - owner };
        let series = [look(0.0, 4), look(20.0, 10), look(40.0, 20), look(60.0, 20)];
        // Of 25 pages it needs 20.
        assert_eq!(reclaimed(&series, 5), Some(40.0));
        assert_eq!(reclaimed(&series, 4), None);
        assert_eq!(refilled(&series, 10), Some(20.0));
        assert_eq!(refilled(&series, 21), None);
        assert_eq!(reclaimed(&[], 1), None);
    }

    #[test]
    fn idle_is_what_neither_is_used_nor_guaranteed_to_another() {
        let params = "theta = 0.9\nown_quota = 5\nborrows = true\nrate = 1.0\nsettle_s = 1.0\nrounds = 1\nround_s = 1.0\n\
                      [tenancy]\nquota = 20\npages = 25\n";
        let params: Borrowing = toml::from_str(params).unwrap();
        assert_eq!(params.idle_pages(), 16);
    }
}
