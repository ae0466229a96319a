//! What a rack carries: it learns, is filled, and is asked for more until it loses some.

use std::time::Duration;

use anyhow::ensure;
use load::{
    Phase, PhaseResult,
    search::{self, Point},
    workload::Popularity,
};
use text::table::thousands;

use super::{Counts, Search, Servers, step_loss};

/// A cache that takes nothing more for so long is full: a key that found no room is asked for again
/// after a second.
const STALLED: Duration = Duration::from_secs(3);

/// One point of saturation.
pub struct Saturation {
    /// Answers per second at the highest offered rate that passed, and passed again.
    pub rate: f64,
    /// Whether it passed again.
    pub is_confirmed: bool,
    /// What was measured there, the second time.
    pub result: PhaseResult,
    /// Requests that each server took meanwhile, or where that was asked for, at nine tenths of
    /// what was expected.
    pub server_load: Vec<f64>,
    /// What was counted meanwhile.
    pub counted: Counts,
    /// Every step of the search.
    pub points: Vec<Point>,
}

impl Servers<'_> {
    /// Offers load until the hit ratio rises no more, or time is up; returns the last round.
    ///
    /// # Errors
    /// As [`Servers::phase`].
    pub fn learn(&mut self, popularity: Popularity, rate: f64) -> anyhow::Result<PhaseResult> {
        let rate = rate.min(self.params.max_rate);
        let chances = popularity.chances(self.params.keys);
        let optimum: f64 = chances.take(self.params.items).sum();
        // A cache that learns window by window stalls in between.
        let round_s = self.params.window_ms.map_or(0.8, |ms| f64::from(ms) / 1000.0);
        let rounds = (self.params.learn_s / round_s.max(1.0)).ceil().max(1.0) as usize;
        let mut best = 0.0;
        let mut stalled = 0;
        let mut last = PhaseResult::default();
        for _ in 0..rounds {
            last = self.phase(&Phase::reads(popularity, rate, 0.0, round_s))?;
            // Of requests, not of answers: overload drops misses only.
            let hits = last.cached as f64 / (last.sent as f64).max(1.0);
            let title = popularity.title();
            self.progress.say(format!("{title}: learning, {:.1} % hits", hits * 100.0));
            stalled = if hits < best + 0.003 { stalled + 1 } else { 0 };
            best = best.max(hits);
            // What is never there need not be waited for.
            let good = self.is_bare() || hits >= 0.985 * optimum;
            if good || (stalled >= 3 && best > 0.2 * optimum) {
                break;
            }
        }
        Ok(last)
    }

    /// Asks for as many of the hottest keys as the cache may hold, each alike, until so large a
    /// part of that is there: what the hottest are need not be learned first. Where no more come,
    /// `enough` of that part is enough. A read that found its value there, but no place to wait for
    /// it, counts as well.
    ///
    /// # Errors
    /// As [`Servers::phase`], or the time to learn is over and keys are missing.
    pub fn preload(&mut self, part: f64, enough: f64, rate: f64) -> anyhow::Result<PhaseResult> {
        let rate = rate.min(self.params.max_rate);
        let keys = self.params.items;
        let window_s = self.params.window_ms.unwrap_or(1000) as f64 / 1000.0;
        let begun = self.rig.now();
        let (mut best, mut risen) = (0.0, begun);
        loop {
            let phase = Phase { keys, ..Phase::reads(Popularity::Uniform, rate, 0.0, window_s) };
            // A switch that has just been started counts nothing yet.
            let overflows = |this: &Servers<'_>| {
                let counted = this.counted().unwrap_or_default();
                this.overflows.iter().map(|name| counted.switch(name)).sum::<f64>()
            };
            let before = overflows(self);
            let result = self.phase(&phase)?;
            let there = result.cached as f64 + overflows(self) - before;
            let hits = there / (result.sent as f64).max(1.0);
            let percent = hits * 100.0;
            self.progress.say(format!("filling the cache with {keys}: {percent:.1} % are there"));
            let now = self.rig.now();
            if hits > best + 0.002 {
                (best, risen) = (hits, now);
            }
            let took = (now - begun).as_secs_f64();
            let is_over = took >= self.params.learn_s;
            let no_more_come =
                hits > 0.0 && hits >= enough * part && (is_over || now - risen > STALLED);
            if hits >= 0.997 * part || no_more_come || self.is_bare() {
                return Ok(result);
            }
            ensure!(
                !is_over,
                "after {took:.0} s the cache has {percent:.1} % of the {keys} hottest keys, and {:.1} % are wanted; the controller says: {}",
                part * 100.0,
                self.rig.status().unwrap_or_default()["switches"]
            );
        }
    }

    /// Finds the saturation point, from an expectation on.
    ///
    /// # Errors
    /// As [`Servers::phase`].
    pub fn saturate(
        &mut self,
        expected: f64,
        what: &str,
        search: &Search,
        phase: impl Fn(f64, f64, f64) -> Phase,
    ) -> anyhow::Result<Saturation> {
        let (progress, max_rate) = (self.progress, self.params.max_rate);
        let limits = search.limits(self.params.loss, max_rate);
        // Just below what is expected: the first step passes if it is reached.
        const FIRST_STEP: f64 = 0.97;
        let expected = if expected.is_finite() { expected } else { max_rate / 2.0 / FIRST_STEP };
        let step = |this: &mut Servers<'_>, rate: f64, seconds: f64| {
            this.counting(&phase(rate, search.warmup_s, seconds))
        };
        let found = search::saturation(expected * FIRST_STEP, &limits, |rate| {
            progress.say(format!("{what}: trying {}/s", thousands(rate)));
            let begun = self.rig.now();
            let (result, counted) = step(self, rate, search.step_seconds(rate))?;
            tracing::info!(
                "{what}: {rate:.0}/s, lost {:.2} %, {:.1} % hits, {:.1} ms behind",
                result.lasting_loss() * 100.0,
                result.hit_ratio() * 100.0,
                result.behind_ms
            );
            Ok((step_loss(&result, rate), self.rig.now() - begun, (result, counted)))
        })?;
        let search::SearchResult { rate, measured: (result, counted), is_confirmed, points } =
            found;
        self.searches.found(is_confirmed);
        let mut server_load = counted.served.clone();
        if search.loads_s > 0.0 {
            progress.say(format!("{what}: loads of the servers"));
            server_load = step(self, expected.min(rate) * 0.9, search.loads_s)?.1.served;
        }
        Ok(Saturation {
            rate: result.throughput(),
            is_confirmed,
            result,
            server_load,
            counted,
            points,
        })
    }
}
