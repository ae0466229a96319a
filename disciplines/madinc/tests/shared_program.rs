//! Disciplines that differ in their control half only share a program in the kernel. Needs root.

use dataplane::{Dataplane, Discipline, Home, Sizes};
use libbpf_rs::{MapCore, MapFlags, MapHandle};

struct Cleared(Home);

impl Drop for Cleared {
    fn drop(&mut self) {
        let _ = dataplane::detach(&self.0);
    }
}

#[test]
fn one_program_serves_both_numbers() {
    let name = format!("test-madinc-{}", std::process::id());
    let home = Cleared(Home::new(&name).unwrap());
    let disciplines = ["netcache", "madinc"].into_iter().zip(0..);
    let disciplines: Vec<Discipline> = disciplines
        .map(|(name, number)| Discipline {
            name,
            program: madinc::PROGRAM,
            number,
            object: madinc::OBJECT,
        })
        .collect();
    let _loaded = Dataplane::load(home.0.clone(), &disciplines, Sizes { pages: 2 }).unwrap();
    let map = format!("/sys/fs/bpf/shortstop/{name}/disciplines");
    let map = MapHandle::from_pinned_path(map).unwrap();
    let program = |number: u32| map.lookup(&number.to_ne_bytes(), MapFlags::ANY).unwrap();
    assert!(program(0).is_some());
    assert_eq!(program(0), program(1));
    assert_eq!(program(2), None);
}
