//! A member that stood still with all of its clocks, as a virtual machine that is paused, and is
//! none any more when it goes on: what it still answers to somebody who does not know that either.

use dataplane::native::choose;
use wire::Status;

use crate::mutants;

use super::{
    client::{Asker, Command, write},
    rig::Rig,
};

/// Members' leases.
const LEASE_MS: u64 = 250;

/// For how many milliseconds after it went on the middle of three answers a read with what was
/// overwritten meanwhile, with this rule broken or none; a second is looked at.
fn answers_for_ms(breaks: Option<&'static str>) -> u64 {
    let mutants = mutants();
    let mutant = |name| mutants.iter().find(|mutant| mutant.name == name);
    choose(breaks.map(|name| mutant(name).expect("one of the list")));
    let mut rig = Rig::new("netcraq", 3, &[("chains", 1)]);
    rig.ask(&[write("k", "one")], 2000);
    let middle = format!("switch{}", rig.members()[1]);
    let machine = rig.world.machine(&middle).unwrap();
    let reader = second_client(&mut rig);
    // Its agent would soon tell the programs what has changed.
    let agent = rig.world.process(&format!("{middle}/agent")).unwrap();
    rig.world.kill(agent);
    rig.world.halt(machine);
    // Before it is left out a write would be passed to it, and wait there: the key would not
    // be clean.
    rig.pass(2000);
    let written = rig.ask(&[write("k", "two")], 5000);
    assert_eq!(written[0].status, Status::Ok);
    rig.pass(60_000);
    rig.world.resume(machine);
    let begin = |asker: &mut Asker, io: &mut sim::Io<'_>| {
        asker.to_do = vec![Command::Read("k", 1); 100_000].into();
        asker.next(io);
    };
    rig.world.with(reader, begin).unwrap();
    let mut last_ms = 0;
    for ms in 1..=1000 {
        rig.pass(1);
        let read = |asker: &mut Asker, _: &mut sim::Io<'_>| {
            // It asks on where it asked, whoever is silent.
            asker.tries = 0;
            std::mem::take(&mut asker.done)
        };
        let done = rig.world.with(reader, read).unwrap();
        if done.iter().any(|done| done.value == "one") {
            last_ms = ms;
        }
    }
    choose(None);
    last_ms
}

/// Another client, which knows the chain as it is now and believes no news.
fn second_client(rig: &mut Rig) -> sim::ProcessId {
    let known: &Asker = rig.world.get(rig.client).unwrap();
    let (switches, routes) = (known.switches.clone(), known.routes.clone());
    let make = Box::new(move |birth: sim::Birth| {
        Ok(Box::new(Asker {
            port: birth.port,
            client: 0xc12e,
            switches: switches.clone(),
            number: u64::MAX,
            routes: routes.clone(),
            to_do: [].into(),
            request: 16,
            began_ns: 0,
            again_ns: 0,
            tries: 0,
            done: vec![],
        }) as _)
    });
    let at = rig.world.machine("client1").unwrap();
    let reader = rig.world.place(at, "client1/old".into(), make);
    rig.world.start(reader).unwrap();
    reader
}

#[test]
fn a_member_that_stood_still_answers_for_one_lease() {
    let for_ms = answers_for_ms(None);
    println!("{for_ms} ms");
    assert!(for_ms > 0, "nothing old was read: the test shows nothing");
    assert!(for_ms <= LEASE_MS);
}

#[test]
fn without_leases_it_would_answer_for_ever() {
    assert_eq!(answers_for_ms(Some("order_reads_unleased")), 1000);
}
