//! All switches lose their power, and their tables with it: what was kept of the keys is
//! there again.

use sim::ControlHost;
use wire::Status;

use super::{
    client::{Command, Response, seen, write},
    rig::{Fault, Rig},
};

impl Rig {
    /// Everything loses its power, and has it again; the controller with it, if that is said.
    fn power_fails(&mut self, switches: u32, with_controller: bool) {
        let control = self.world.process("control/control").unwrap();
        if with_controller {
            self.world.kill(control);
        }
        (1..=switches).for_each(|n| self.fails(n, Fault::PoweredOff));
        self.pass(1000);
        if with_controller {
            self.world.start(control).unwrap();
        }
        (1..=switches).for_each(|n| self.recovers(n, Fault::PoweredOff));
        self.pass(8000);
    }

    /// These lose their power for good, and the operator says so.
    fn are_forgotten(&mut self, switches: &[u16]) {
        switches.iter().for_each(|n| self.fails((*n).into(), Fault::PoweredOff));
        self.pass(12_000);
        let control = self.world.process("control/control").unwrap();
        for switch in switches {
            let forgotten = self.world.with(control, |host: &mut ControlHost, io| {
                host.ask(io, |core, asked| core.forget_switch(asked, *switch))
            });
            forgotten.unwrap().unwrap();
        }
        self.pass(8000);
    }

    /// Keys that are kept, as the controller's status says.
    fn kept_keys(&self) -> u64 {
        let control = self.world.process("control/control").unwrap();
        let control: &ControlHost = self.world.get(control).unwrap();
        let status = control.core().view().status(std::time::Duration::ZERO);
        let of_each = status.switches.iter();
        let counted = of_each.filter_map(|s| s.counters.get("chain_kept_keys").copied());
        counted.max().unwrap_or(0)
    }
}

#[test]
fn a_power_loss_of_all_switches_loses_what_came_after_the_snapshot_and_no_more() {
    for (discipline, with_controller) in [("netcraq", false), ("netchain", true)] {
        let mut rig = Rig::new(discipline, 3, &[("chains", 4), ("snapshot", 2)]);
        let keys = ["a", "b", "c", "d", "e", "f"];
        let mut all: Vec<Command> = keys.map(|key| write(key, key)).into();
        all.extend([write("a", "newer"), Command::Delete("b")]);
        let before = rig.ask(&all, 5000);
        assert_eq!(before.len(), all.len(), "{discipline}");
        // Twice the interval, so that it is kept.
        rig.pass(4000);
        let late = rig.ask(&[write("a", "lost"), write("g", "lost")], 1000);
        assert_eq!(seen(&late)[0], (Status::Ok, 3), "{discipline}");
        rig.power_fails(3, with_controller);

        let reads: Vec<Command> =
            ["a", "b", "c", "d", "e", "f", "g"].map(|key| Command::Read(key, 2)).into();
        let read = rig.ask(&reads, 5000);
        let state = |done: &Response| (done.status, done.value.clone());
        let ok = |value: &str| (Status::Ok, value.to_string());
        let states: Vec<_> = read.iter().map(state).collect();
        let none = (Status::NotFound, String::new());
        let expected = [ok("newer"), none.clone(), ok("c"), ok("d"), ok("e"), ok("f"), none];
        assert_eq!(states, expected, "{discipline}");
        assert_eq!(rig.members().len(), 3, "{discipline}");
        // Numbers are above all that were used, whether what they were of is known or not.
        let again = rig.ask(&[write("a", "x"), write("b", "x"), write("g", "x")], 5000);
        for (done, before) in again.iter().zip([3, 2, 1]) {
            assert_eq!(done.status, Status::Ok);
            assert!(done.version > before + (1 << 31), "{}", done.version);
        }
        assert!(again[0].version > read[0].version);
        // Once more: what was restored was kept, under its new numbers.
        rig.pass(4000);
        rig.power_fails(3, !with_controller);
        let twice = rig.ask(&[Command::Read("a", 2), write("a", "y"), Command::Read("c", 2)], 5000);
        assert_eq!(state(&twice[0]), ok("x"), "{discipline}");
        assert!(twice[1].version > again[0].version + (1 << 31));
        assert_eq!(state(&twice[2]), ok("c"), "{discipline}");
    }
}

/// One that has its tables still is waited for: what it has is newer than what was kept.
#[test]
fn nothing_is_restored_over_a_member_that_has_its_tables() {
    for discipline in ["netcraq", "netchain"] {
        let mut rig = Rig::new(discipline, 3, &[("chains", 1), ("snapshot", 2)]);
        rig.ask(&[write("a", "old")], 1000);
        rig.pass(4000);
        rig.ask(&[write("a", "new")], 1000);
        // The last one to be cut off has everything; the others come back without.
        let away = rig.members()[1];
        let others: Vec<u32> = (1..=3).filter(|n| *n != away).collect();
        rig.fails(away, Fault::Silent);
        others.iter().for_each(|n| rig.fails(*n, Fault::Restarted));
        rig.pass(12_000);
        rig.recovers(away, Fault::Silent);
        rig.pass(8000);
        let read = rig.ask(&[Command::Read("a", 0)], 5000);
        assert_eq!((read[0].status, &*read[0].value), (Status::Ok, "new"), "{discipline}");
    }
}

/// A rack is lost for good, and forgotten before there is another one.
#[test]
fn what_was_kept_is_restored_on_other_switches_when_all_of_before_are_forgotten() {
    let mut rig = Rig::new("netcraq", 6, &[("chains", 4), ("snapshot", 2)]);
    let (before, after) = ([1, 2, 3], [4, 5, 6]);
    rig.are_forgotten(&after);
    let keys = ["a", "b", "c", "d", "e", "f"];
    rig.ask(&keys.map(|key| write(key, key)), 5000);
    rig.pass(4000);
    rig.are_forgotten(&before);
    after.iter().for_each(|n| rig.recovers((*n).into(), Fault::PoweredOff));
    rig.pass(12_000);
    let read = rig.ask(&keys.map(|key| Command::Read(key, 2)), 5000);
    let read: Vec<_> = read.iter().map(|done| (done.status, &*done.value)).collect();
    assert_eq!(read, keys.map(|key| (Status::Ok, key)));
    assert_eq!(rig.kept_keys(), 6);
    let mut members = rig.chains().concat();
    assert!(rig.chains().iter().all(|chain| chain.len() == 3), "{:?}", rig.chains());
    members.sort_unstable();
    members.dedup();
    assert_eq!(members, [4, 5, 6]);
}
