//! One user of two switches (the multi-tenancy thesis, section 5.3, figures 5.2 and 5.3): where
//! guaranteed pages are placed, and what that does to who answers, how far away that is, and so to
//! throughput: of a client that waits for its answers (a closed loop), since at one offered rate
//! everybody who is not overloaded answers as much.

use experiments::{
    Run,
    params::{Tenancy, by_name, positive},
    rig::{Policy, TenantSpec},
    sweep::{Figures, Point, Points},
    tenants::{Stage, distribution, rates},
};
use load::{Arrivals, Interval, Phase, workload::Popularity};
use plan::Line;
use serde::{Deserialize, Serialize};
use serde_json::json;

const SWITCHES: usize = 2;
/// Requests under way in a closed loop: as many as one who waits, so that distance tells and no
/// queue does.
const OUTSTANDING: usize = 4;

/// One distribution under one policy, from an empty cache.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Policies {
    tenancy: Tenancy,
    /// How requests spread.
    #[serde(with = "by_name")]
    popularity: Popularity,
    policy: Policy,
    /// Requests per second that the store takes.
    server_rate: f64,
    /// Requests per second offered.
    rate: f64,
    /// Seconds from the empty cache on.
    settle_s: f64,
    /// Seconds of the steady state.
    step_s: f64,
}

impl Point for Policies {
    /// The switches, and how many users they have had.
    type Bench<'a> = (Stage<'a>, u32);

    fn check(&self) -> anyhow::Result<()> {
        self.tenancy.check()?;
        positive!(self, server_rate, rate, settle_s, step_s)
    }

    fn build<'a>(&self, run: &Run<'a>) -> anyhow::Result<(Stage<'a>, u32)> {
        let line = Line {
            server_rate: Some(self.server_rate),
            ..Stage::line(run, &self.tenancy, SWITCHES)
        };
        let name = run.options.name.clone();
        Ok((Stage::start(run, &self.tenancy, &line, name)?, 0))
    }

    /// From the empty cache on, then a while longer, then in a closed loop.
    fn measure(
        &self,
        (stage, id): &mut (Stage<'_>, u32),
        run: &Run<'_>,
        _: &Points,
    ) -> anyhow::Result<Vec<Figures>> {
        *id += 1;
        let (popularity, policy) = (self.popularity, self.policy);
        run.progress.say(format!("{}, {}", popularity.title(), policy.name()));
        let tenants = [TenantSpec { policy, ..stage.tenant(*id) }];
        let mut load = stage.newcomers(&tenants)?;
        let phase = |seconds| Phase::reads(popularity, self.rate, 0.0, seconds);
        let cold = load.run(&phase(self.settle_s))?;
        let steady = load.run(&phase(self.step_s))?;
        let closed =
            load.run(&Phase { arrivals: Arrivals::Closed(OUTSTANDING), ..phase(self.step_s) })?;
        drop(load);
        stage.rig.remove_tenants(&tenants)?;
        let both = cold.intervals.iter().chain(&steady.intervals);
        let both: Vec<Interval> = both.copied().collect();
        let rates = rates(&both, cold.interval_ms);
        let spread = serde_json::to_value(distribution(&rates))?;
        let figures = Figures::new(json!({
            "throughput": cold.throughput(),
            "steady_throughput": steady.throughput(),
            "closed_loop": closed.throughput(),
            "closed_loop_p50_us": closed.all.p50_us,
            "served_by": steady.served_by,
            "p50_us": steady.all.p50_us,
            "p99_us": steady.all.p99_us,
            "wrong_values": cold.wrong() + steady.wrong(),
            "throughput_over_time": rates,
        }));
        let wrong = cold.wrong() + steady.wrong() + closed.wrong();
        let figures = figures
            .aside("switch_1_share", steady.share_of(1))
            .aside("switch_2_share", steady.share_of(2))
            .aside("store_share", steady.share_of(0))
            .aside("spread", spread)
            .aside("wrong", wrong as f64);
        Ok(vec![figures])
    }
}
