//! Programs are in the kernel when a tenant has them; until the kernel has accepted them once, from
//! the start. Needs root.

use std::{cell::RefCell, collections::BTreeSet, path::Path};

use dataplane::{
    Dataplane, Home, NO_DISCIPLINE, Object, Sizes, TenantEntry, detach, forget_accepted,
};
use harness::{TRIAL, namespace::in_namespace, switch::tenant};
use libbpf_rs::{MapCore, MapFlags, MapHandle};

use crate::upgrade::{NUMBER, SIGNED, trial};

const SIZES: Sizes = Sizes { pages: 4 };

/// Programs that no kernel has seen.
fn unseen() -> Object {
    let mut elf = TRIAL.to_vec();
    // Behind what a reader of the file looks at.
    elf.extend(rand::random::<[u8; 16]>());
    Object { elf: elf.leak(), ..trial() }
}

/// A switch that ends with the test, and what the kernel accepted of it.
struct TestSwitch {
    home: Home,
    begun: RefCell<Vec<Object>>,
}

impl TestSwitch {
    fn new() -> TestSwitch {
        let name = format!("test-needed-{}-{:x}", std::process::id(), rand::random::<u32>());
        TestSwitch { home: Home::new(&name).unwrap(), begun: RefCell::default() }
    }

    fn begin(&self, object: &Object) -> Dataplane {
        self.begun.borrow_mut().push(object.clone());
        let objects = std::slice::from_ref(object);
        Dataplane::load_used(self.home.clone(), objects, SIZES).expect("loaded")
    }

    fn pins(&self) -> std::path::PathBuf {
        Path::new("/sys/fs/bpf/shortstop").join(self.home.name())
    }

    /// Whether packets reach the discipline.
    fn runs(&self) -> bool {
        let programs = MapHandle::from_pinned_path(self.pins().join("programs")).unwrap();
        let place = NUMBER * dataplane::PROGRAMS_PER_DISCIPLINE as u32;
        let found = programs.lookup(&place.to_ne_bytes(), MapFlags::ANY);
        found.unwrap().is_some()
    }
}

impl Drop for TestSwitch {
    fn drop(&mut self) {
        let _ = detach(&self.home);
        for object in self.begun.borrow().iter() {
            forget_accepted(object, SIZES);
        }
    }
}

#[test]
fn programs_wait_for_a_tenant_once_the_kernel_has_accepted_them() {
    in_namespace(|| {
        let (here, object) = (TestSwitch::new(), unseen());
        drop(here.begin(&object));
        assert!(here.runs(), "nobody knew whether the kernel takes them");
        detach(&here.home).unwrap();

        let mut dataplane = here.begin(&object);
        assert!(!here.runs() && here.pins().join("trial_notes").exists());
        assert!(dataplane.groups().len() == 1, "{:?}", dataplane.groups());
        dataplane.need(&BTreeSet::from([NUMBER - 1, NO_DISCIPLINE])).unwrap();
        assert!(!here.runs());
        dataplane.need(&BTreeSet::from([NUMBER])).unwrap();
        assert!(here.runs());
    });
}

#[test]
fn the_next_agent_begins_with_what_tenants_have() {
    in_namespace(|| {
        let (here, object) = (TestSwitch::new(), unseen());
        drop(here.begin(&object));
        drop(here.begin(&object));
        assert!(!here.runs(), "no tenant has them");
        TenantEntry::install(&here.home, &[tenant(SIGNED, NUMBER)]).unwrap();
        drop(here.begin(&object));
        assert!(here.runs());
    });
}

#[test]
fn another_object_is_not_what_was_accepted() {
    in_namespace(|| {
        let here = TestSwitch::new();
        drop(here.begin(&unseen()));
        detach(&here.home).unwrap();
        drop(here.begin(&unseen()));
        assert!(here.runs());
    });
}
