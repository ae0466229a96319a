//! What must never have been counted, wherever a rig counts it: by stores, by switches, and by
//! whoever asks.

use load::{Phase, PhaseResult};
use serde_json::Value;

use super::{Driver, Load, Rig};
use crate::run::NeverCounts;

/// A generator whose results are looked at.
pub(super) struct CheckedLoad {
    pub load: Load,
    pub seen: NeverCounts,
}

impl CheckedLoad {
    fn look(&self, result: &PhaseResult) {
        let mut seen = self.seen.borrow_mut();
        seen.add("wrong_keys", result.wrong_keys);
        seen.add("wrong_values", result.wrong_values);
        seen.add("forged_accepted", result.forged_accepted);
    }
}

impl Driver for CheckedLoad {
    fn begin(&mut self, phase: &Phase) -> anyhow::Result<()> {
        self.load.begin(phase)
    }

    fn poll(&mut self) -> anyhow::Result<Option<PhaseResult>> {
        let result = self.load.poll()?;
        result.iter().for_each(|result| self.look(result));
        Ok(result)
    }

    fn finish(&mut self) -> anyhow::Result<PhaseResult> {
        let result = self.load.finish()?;
        self.look(&result);
        Ok(result)
    }
}

impl Rig {
    /// Takes down what a store that is about to end has counted.
    pub(super) fn look_at_store(&mut self, host: &str) {
        if !self.machines.is_running(host, "store") {
            return;
        }
        match self.machines.store_status(host) {
            Ok(status) => {
                self.seen.borrow_mut().look_at(&status.totals);
                self.add_counted(&status.totals);
            }
            Err(_) => self.seen.borrow_mut().add("stores_that_do_not_say", 1),
        }
    }

    /// Takes down what a switch that is about to lose its tables has counted.
    pub(super) fn look_at_switch(&mut self, switch: &str) {
        match self.machines.switch_counters(switch) {
            Ok(counters) => {
                self.seen.borrow_mut().look_at(&counters);
                self.add_counted(&counters);
            }
            Err(_) if !self.machines.is_running(switch, "agent") => {}
            Err(_) => self.seen.borrow_mut().add("switches_that_do_not_say", 1),
        }
    }

    /// Takes down what these have counted of loans and of copies in stores, at the end of a run.
    pub fn look_at_counted(&mut self, stores: &[&str], switches: &[&str]) {
        for host in stores {
            if let Ok(status) = self.machines.store_status(host) {
                self.add_counted(&status.totals);
            }
        }
        for switch in switches {
            if let Ok(counters) = self.machines.switch_counters(switch) {
                self.add_counted(&counters);
            }
        }
    }

    /// What was counted of loans, of items on probation or of copies in stores under this name, as
    /// far as it was taken down.
    pub fn counted(&self, name: &str) -> u64 {
        self.counted.get(name).copied().unwrap_or(0)
    }

    fn add_counted(&mut self, counters: &Value) {
        let all = counters.as_object().into_iter().flatten();
        let is_of = |name: &str| {
            hunt::is_of_loans(name) || hunt::is_of_replicas(name) || name == hunt::PROBATION
        };
        for (name, count) in all.filter(|(name, _)| is_of(name)) {
            *self.counted.entry(name.clone()).or_default() += count.as_u64().unwrap_or(0);
        }
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        // Nobody wants to know, or waits for, what an interrupted run has seen.
        if std::thread::panicking() || lab::interrupt::check().is_err() {
            return;
        }
        for host in self.stores() {
            self.look_at_store(&host);
        }
        for switch in self.plan.nodes_of("agent") {
            self.look_at_switch(&switch);
        }
    }
}
