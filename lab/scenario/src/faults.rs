//! What goes wrong in a scenario because somebody wants it to.

use sim::AgentHost;

use crate::Scenario;

/// A switch takes no longer to leave, whatever stores do.
const LEAVES_MS: u64 = 10_000;

impl Scenario {
    /// A switch loses its tables and its agent: it forwards, and answers nobody.
    pub fn lose_tables(&mut self, switch: &str) {
        let agent = self.process(&format!("{switch}/agent"));
        self.world.kill(agent);
        self.world.forget_tables(self.machine(switch));
    }

    /// A switch is detached in order, as `switch detach` does: it forwards from then on.
    pub fn detach(&mut self, switch: &str) {
        let name = format!("{switch}/agent");
        let agent = self.process(&name);
        self.world.with(agent, |host: &mut AgentHost, io| host.leave(io)).expect("its agent runs");
        self.until(LEAVES_MS, |scenario| scenario.host::<AgentHost>(&name).has_left());
        self.lose_tables(switch);
    }

    /// A switch loses its tables, and its agent begins anew.
    pub fn reboot(&mut self, switch: &str) {
        self.lose_tables(switch);
        let agent = self.process(&format!("{switch}/agent"));
        self.world.start(agent).expect("it was killed");
    }

    /// A process dies, and lives again at once with what outlives it.
    pub fn restart(&mut self, process: &str) {
        let process = self.process(process);
        self.world.kill(process);
        self.world.start(process).expect("it was killed");
    }

    /// A machine stands still until [`Scenario::resume`].
    pub fn suspend(&mut self, machine: &str) {
        self.world.suspend(self.machine(machine));
    }

    /// It goes on.
    pub fn resume(&mut self, machine: &str) {
        self.world.resume(self.machine(machine));
    }

    /// Every link of a machine loses everything, and nobody is told; or no more than is usual.
    pub fn silence(&mut self, machine: &str, is_silent: bool) {
        let links = &self.world.plan().links;
        let is_its = |link: &plan::topology::Link| link.ends.iter().any(|end| end == machine);
        let its: Vec<usize> = (0..links.len()).filter(|link| is_its(&links[*link])).collect();
        its.into_iter().for_each(|link| self.world.silence(link, [is_silent; 2]));
    }
}
