//! Clients that have gone and keys that are deleted take no room for ever.

use sim::ControlHost;
use wire::Status;

use super::{
    client::{Asker, Command, write},
    rig::Rig,
};

impl Rig {
    /// The client is another one from now on.
    fn is_client(&mut self, client: u64) {
        let become_it = |asker: &mut Asker, _: &mut sim::Io<'_>| asker.client = client;
        self.world.with(self.client, become_it).unwrap();
    }

    /// The most items that a switch has.
    fn items(&self) -> u64 {
        let control = self.world.process("control/control").unwrap();
        let control: &ControlHost = self.world.get(control).unwrap();
        let status = control.core().view().status(std::time::Duration::ZERO);
        status.switches.iter().map(|s| s.items).max().unwrap_or(0)
    }
}

#[test]
fn clients_and_keys_that_are_gone_take_no_room() {
    const CLIENTS: u64 = 36;
    let mut rig = Rig::new("netcraq", 3, &[("chains", 2)]);
    let key = |n: u64| -> &'static str { Box::leak(format!("key{n}").into_boxed_str()) };
    let kept = rig.ask(&[write("kept", "1")], 1000);
    assert_eq!(kept[0].status, Status::Ok);
    let mut most = vec![];
    for round in 0..3 {
        for n in round * CLIENTS..(round + 1) * CLIENTS {
            rig.is_client(1 + n);
            // One is deleted, and one was never written: its condition does not hold.
            let all = [
                write(key(n), "x"),
                Command::Delete(key(n)),
                Command::Write(key(1000 + n), "x".into(), Some(5)),
            ];
            let done = rig.ask(&all, 5000);
            let statuses: Vec<Status> = done.iter().map(|d| d.status).collect();
            assert_eq!(statuses[..2], [Status::Ok; 2], "{n}");
            assert_ne!(statuses[2], Status::Ok, "{n}");
        }
        let before = rig.items();
        rig.pass(130_000);
        most.push((before, rig.items()));
    }
    println!("items before and after each two minutes: {most:?}");
    assert!(most.iter().all(|(before, _)| *before >= 2 * CLIENTS), "{most:?}");
    assert!(most.iter().all(|(_, after)| *after <= CLIENTS), "{most:?}");
    let read = rig.ask(&[Command::Read("kept", 0), Command::Read(key(0), 0)], 1000);
    assert_eq!(
        (read[0].status, &*read[0].value, read[1].status),
        (Status::Ok, "1", Status::NotFound)
    );
    // What is made again has numbers above those before.
    let again = rig.ask(&[write(key(0), "y")], 5000);
    assert!(again[0].version > 2, "{}", again[0].version);
}
