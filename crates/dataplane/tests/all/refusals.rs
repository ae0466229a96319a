//! What a kernel refuses is told, and harms nobody else. Needs root.

use dataplane::{Object, Sizes, check};
use harness::{Message, REFUSED, Switch, TRIAL, namespace::in_namespace, switch::tenant};

const TENANT: u32 = 7;
const REFUSED_NUMBER: u32 = 5;

fn object(name: &'static str, number: u32, elf: &'static [u8], step: &'static str) -> Object {
    Object {
        name,
        maps_of: name,
        number,
        elf,
        native: None,
        steps: vec![step],
        egress: None,
        maps: vec![],
        counters: "",
    }
}

fn objects() -> [Object; 2] {
    [
        object("refused", REFUSED_NUMBER, REFUSED, "refused_first"),
        object("trial", 4, TRIAL, "trial_first"),
    ]
}

#[test]
fn a_program_that_is_refused_takes_its_discipline_and_no_other() {
    in_namespace(|| {
        let switch = Switch::load(&objects(), &[tenant(TENANT, REFUSED_NUMBER)]);
        let refused = switch.dataplane().refused();
        assert_eq!(refused.len(), 1, "{refused:?}");
        let (discipline, why) = &refused[0];
        assert_eq!((*discipline, &why.program[..]), ("refused", "refused_first"));
        // The verifier's own words, and which kernel's.
        assert!(why.reason.contains("R") && why.reason.contains("max"), "{why}");
        assert!(why.to_string().starts_with("Linux "), "{why}");
        let pins =
            std::path::Path::new("/sys/fs/bpf/shortstop").join(switch.dataplane().home().name());
        assert!(pins.join("trial_notes").exists() && !pins.join("refused_words").exists());
        // Packets of its tenants go where they would have gone.
        let read = Message::read(TENANT, b"note").frame().bytes();
        let run = switch.run(&read, None);
        assert_eq!(run.moved.get("bypass_no_discipline"), Some(&1), "{run:?}");
    });
}

#[test]
fn a_check_tells_of_every_program_and_leaves_nothing() {
    in_namespace(|| {
        let checked = check(&objects(), Sizes { pages: 4 }).expect("this kernel may be asked");
        let verdict = |name: &str| {
            let found = checked.iter().find(|checked| checked.program == name);
            found.unwrap_or_else(|| panic!("{name} is not in {checked:?}"))
        };
        let steps = verdict("entry").verdict.clone().expect("taken");
        assert!(steps > 1000, "{steps} steps");
        assert_eq!(verdict("trial_first").disciplines, ["trial"]);
        assert!(verdict("trial_first").verdict.is_ok());
        let refusal = verdict("refused_first").verdict.clone().unwrap_err();
        assert_eq!(refusal.program, "refused_first");
    });
}
