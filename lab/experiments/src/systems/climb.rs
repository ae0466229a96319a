//! How a system learns a load that nobody knows the bounds of: from what a single server carries
//! on, load rises for as long as the rack carries it. A system that needs reads to learn from gets
//! them, and one that would see nothing beyond overload is never far beyond it.

use anyhow::ensure;
use load::Phase;
use serde::{Deserialize, Serialize};
use text::table::{percent, thousands};

use crate::{
    Run,
    params::positive,
    servers::{Rack, Saturation, Search, Servers},
};

/// How load rises, window by window.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Climb {
    /// The most windows of it.
    pub windows: u32,
    /// Windows without a higher rate that was carried, after which it ends.
    pub patience: u32,
    /// What the rate is multiplied by after a window that was carried, until the first that was
    /// not.
    pub first_step: f64,
    /// And from there on. After a window that was not carried the rate is divided by it.
    pub step: f64,
}

impl Default for Climb {
    fn default() -> Climb {
        Climb { windows: 80, patience: 12, first_step: 1.5, step: 1.07 }
    }
}

impl Climb {
    /// Checks ranges.
    ///
    /// # Errors
    /// The parameter, what it is, what it may be.
    pub fn check(&self) -> anyhow::Result<()> {
        positive!(self, first_step, step)?;
        for (name, step) in [("first_step", self.first_step), ("step", self.step)] {
            ensure!(step > 1.0, "{name} = {step}: more than 1, or load does not rise");
        }
        ensure!(self.windows > 0, "windows = 0: at least 1");
        Ok(())
    }

    /// Puts the system before the servers, has it learn under rising load, and finds the point of
    /// saturation from the highest rate that was carried on.
    ///
    /// # Errors
    /// As [`Servers::phase`].
    pub fn saturate(
        &self,
        servers: &mut Servers<'_>,
        (run, rack): (&Run<'_>, &Rack),
        what: &str,
        search: &Search,
        phase: impl Fn(f64, f64, f64) -> Phase,
    ) -> anyhow::Result<Saturation> {
        servers.cache_on()?;
        let window_s = f64::from(rack.window_ms.unwrap_or(1000)) / 1000.0;
        let mut rising = Ascent::new(self, rack.server_rate / rack.factor, rack.max_rate);
        while let Some(rate) = rising.next() {
            let result = servers.phase(&phase(rate, 0.0, window_s))?;
            let lost = result.lasting_loss();
            let (at, lost_of) = (thousands(rate), percent(lost));
            run.progress.say(format!("{what}: learning at {at}/s, {lost_of} lost"));
            rising.measured(lost < rack.loss);
        }
        servers.saturate(rising.carried, what, search, phase)
    }
}

/// The rate, as it rises.
struct Ascent<'c> {
    climb: &'c Climb,
    rate: f64,
    /// Rates beyond this are not tried.
    most: f64,
    /// The highest that was carried; if none was, the first that was tried.
    carried: f64,
    windows: u32,
    /// Windows since it rose.
    without: u32,
    /// Whether a window was not carried.
    has_failed: bool,
}

impl Ascent<'_> {
    fn new(climb: &Climb, first: f64, most: f64) -> Ascent<'_> {
        let first = first.min(most);
        Ascent {
            climb,
            rate: first,
            most,
            carried: first,
            windows: 0,
            without: 0,
            has_failed: false,
        }
    }

    /// The rate of the next window; none: it has risen as far as it does.
    fn next(&self) -> Option<f64> {
        let is_over = self.windows >= self.climb.windows || self.without >= self.climb.patience;
        (!is_over).then_some(self.rate)
    }

    /// Takes note of whether the window at that rate was carried.
    fn measured(&mut self, is_carried: bool) {
        self.windows += 1;
        self.without += 1;
        let step = if self.has_failed { self.climb.step } else { self.climb.first_step };
        if !is_carried {
            self.has_failed = true;
            self.rate /= self.climb.step;
            return;
        }
        if self.rate > self.carried {
            self.carried = self.rate;
            self.without = 0;
        }
        self.rate = (self.rate * step).min(self.most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rises before a rack that carries what `carries` says in each window; the highest rate that
    /// was carried, and the windows.
    fn risen(climb: &Climb, most: f64, carries: impl Fn(u32) -> f64) -> (f64, u32) {
        let mut rising = Ascent::new(climb, 100.0, most);
        while let Some(rate) = rising.next() {
            rising.measured(rate <= carries(rising.windows));
        }
        (rising.carried, rising.windows)
    }

    #[test]
    fn load_rises_to_what_is_carried_and_stays_there() {
        let climb = Climb::default();
        let (carried, windows) = risen(&climb, 1e9, |_| 5000.0);
        assert!((5000.0 / climb.step..=5000.0).contains(&carried), "{carried}");
        assert!(windows < climb.windows, "{windows}");
    }

    #[test]
    fn who_learns_slowly_is_waited_for() {
        let climb = Climb::default();
        // Twice as much in every ten windows.
        let grows = |window: u32| (200.0 * 2f64.powf(f64::from(window) / 10.0)).min(5000.0);
        let (carried, _) = risen(&climb, 1e9, grows);
        assert!((5000.0 / climb.step..=5000.0).contains(&carried), "{carried}");
    }

    #[test]
    fn it_ends_where_more_cannot_be_offered_and_where_nothing_is_carried() {
        let climb = Climb::default();
        let (carried, windows) = risen(&climb, 3000.0, |_| 1e9);
        assert!(carried == 3000.0 && windows < climb.windows);
        let (carried, windows) = risen(&climb, 1e9, |_| 0.0);
        assert_eq!((carried, windows), (100.0, climb.patience));
    }
}
