//! Packets through the compiled programs, in the kernel.

use std::panic::catch_unwind;

use dataplane::{
    Object, Rows, Sizes, TenantEntry,
    native::{Mutant, choose},
};
use harness::{
    Message, Run, World,
    switch::{in_this_process, tenant},
};
use highest::{REGISTRATION, control::CEILING};
use wire::{Op, Packet};

const TENANT: u32 = 7;

fn world() -> World {
    let object = Object::of(&REGISTRATION, Sizes { pages: 4 });
    let entry = TenantEntry { parameters: [0, 0], ..tenant(TENANT, REGISTRATION.number) };
    let world = World::new(&[object], &[entry]);
    let ceilings = Rows::open(world.switch.backing(), "highest", "highest_ceilings");
    ceilings
        .and_then(|rows| rows.write(&TENANT.to_ne_bytes(), &CEILING.to_ne_bytes()))
        .expect("a row of the tenant");
    world
}

fn say(world: &World, message: Message) -> Run {
    world.switch.run(&message.frame().bytes(), None)
}

fn number(number: u64) -> Message {
    Message::from_client(Op::DisciplineRequest, TENANT, b"lot 4").version(number)
}

/// The number of the reply that the packet became.
fn highest(run: &Run) -> u64 {
    assert_eq!(run.moved.keys().copied().collect::<Vec<_>>(), ["answer"]);
    let seen = harness::SeenFrame::read(&run.frame).expect("a frame");
    let packet = Packet::decode(&seen.payload).expect("a packet");
    assert_eq!((packet.header.op, packet.key), (Op::DisciplineReply, &b"lot 4"[..]));
    assert!(packet.tag_is_valid(&harness::message::secret_of(TENANT)));
    packet.header.version
}

fn the_highest_number_stays() {
    let mut world = world();
    world.given(TENANT, b"lot 4", &[0; 8], 8);
    // (said, answered)
    let rows =
        [(0, 0), (250, 250), (180, 250), (250, 250), (251, 251), (0, 251), (CEILING, CEILING)];
    for (said, answered) in rows {
        assert_eq!(highest(&say(&world, number(said))), answered, "{said}");
        assert_eq!(highest(&say(&world, number(said).over_ipv6())), answered, "{said}, IPv6");
    }
}

#[test]
fn the_highest_number_stays_whoever_says_what_how_often() {
    the_highest_number_stays();
    in_this_process(the_highest_number_stays);
}

#[test]
fn what_breaks_the_rule_is_noticed() {
    let mutants = Mutant::own(include_str!("../mutants.h"));
    assert_eq!(mutants.len(), 1);
    for mutant in &mutants {
        choose(Some(mutant));
        let outcome = catch_unwind(|| in_this_process(the_highest_number_stays));
        choose(None);
        assert!(outcome.is_err(), "{}: nobody noticed", mutant.name);
    }
}

#[test]
fn what_the_switch_does_not_have_goes_on_to_the_store() {
    let world = world();
    for message in [number(5), Message::read(TENANT, b"lot 4")] {
        let run = say(&world, message.clone());
        assert!(run.moved.contains_key("pass_local"), "{:?}", run.moved);
        assert_eq!(run.frame, message.frame().bytes(), "as it came");
    }
}

#[test]
fn nothing_goes_beyond_the_ceiling() {
    let mut world = world();
    world.given(TENANT, b"lot 4", &[0; 8], 8);
    let run = say(&world, number(CEILING + 1));
    assert!(run.moved.contains_key("drop_above_ceiling"), "{:?}", run.moved);
    assert_eq!(highest(&say(&world, number(1))), 1);
}
