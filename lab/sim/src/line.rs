//! A cache line that every core writes now and then, and what that costs: it is with one of them at
//! a time.

/// The line.
#[derive(Clone, Debug)]
pub struct Line {
    /// What it takes to come from another core.
    move_ns: f64,
    /// The core that it is with.
    with: usize,
    /// When that one has it.
    there_ns: f64,
}

impl Line {
    /// One that takes so long from core to core.
    pub fn new(move_ns: f64) -> Line {
        Line { move_ns, with: 0, there_ns: 0.0 }
    }

    /// Whether it costs anything.
    pub fn costs(&self) -> bool {
        self.move_ns > 0.0
    }

    /// `core` writes it at `now_ns`; when it could.
    pub fn write(&mut self, core: usize, now_ns: f64) -> f64 {
        if core != self.with {
            self.with = core;
            self.there_ns = self.there_ns.max(now_ns) + self.move_ns;
        }
        self.there_ns.max(now_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_core_has_it_for_nothing_and_many_take_turns() {
        let mut line = Line::new(50.0);
        assert_eq!(line.write(0, 10.0), 10.0);
        assert_eq!(line.write(0, 11.0), 11.0);
        let turns: Vec<f64> = (1..=4).map(|core| line.write(core, 100.0)).collect();
        assert_eq!(turns, [150.0, 200.0, 250.0, 300.0]);
        assert_eq!(line.write(4, 120.0), 300.0);
        assert_eq!(line.write(0, 1000.0), 1050.0);
    }
}
