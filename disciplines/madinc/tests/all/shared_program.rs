//! Disciplines that differ in their control half only share a program in the kernel. Needs root.

use dataplane::{Object, PROGRAMS_PER_DISCIPLINE, Sizes};
use harness::Switch;
use libbpf_rs::{MapCore, MapFlags, MapHandle};

#[test]
fn one_program_serves_both_numbers() {
    let sizes = Sizes { pages: 4 };
    let objects = [netcache::REGISTRATION, madinc::REGISTRATION].map(|r| Object::of(&r, sizes));
    let switch = Switch::load(&objects, &[]);
    let name = switch.dataplane().home().name();
    let map = format!("/sys/fs/bpf/shortstop/{name}/programs");
    let map = MapHandle::from_pinned_path(map).unwrap();
    let first_step = |number: u32| {
        map.lookup(&(number * PROGRAMS_PER_DISCIPLINE as u32).to_ne_bytes(), MapFlags::ANY).unwrap()
    };
    assert!(first_step(0).is_some());
    assert_eq!(first_step(0), first_step(1));
    assert_eq!(first_step(2), None);
}
