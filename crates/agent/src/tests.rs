//! What a switch in the kernel is attached to when its agent begins. Needs root.

use harness::namespace::{ifindex, in_namespace, ip};

use super::*;

const SIZES: Sizes = Sizes { pages: 4 };

fn start(home: &Home, interfaces: &[&str]) -> Result<Plane, AgentError> {
    let names: Vec<String> = interfaces.iter().map(|name| (*name).into()).collect();
    attach(home, &names, Mode::Generic, &[], SIZES, &Loops::default())
}

/// As that of a guest that is off. The agent before went on without it.
#[test]
fn a_switch_that_was_running_goes_on_without_an_interface_until_it_is_there() {
    in_namespace(|| {
        ip("link add a0 type veth peer name a1");
        let home = Home::new(&format!("starting-{}", std::process::id())).unwrap();
        let is_refused = |interfaces: &[&str]| match start(&home, interfaces) {
            Err(AgentError::Dataplane(dataplane::Error::NoInterface(name))) => name == "gone0",
            _ => false,
        };
        assert!(is_refused(&["a0", "gone0"]), "it is a wrong name at first");
        assert!(!home.exists());
        start(&home, &["a0"]).unwrap();
        assert!(is_refused(&["gone0"]), "nothing is left of it here");
        let a0 = ("a0".to_owned(), ifindex("a0"));
        assert_eq!(dataplane::attached(&home), std::slice::from_ref(&a0));
        let Ok(Plane::Kernel(dataplane, attached, missing)) = start(&home, &["gone0", "a0"]) else {
            panic!("it was running");
        };
        assert!(attached[0].taken_over && missing == ["gone0"]);
        let mut kept = KeptPorts::new(&attached, &missing, Loops::default());
        assert!(kept.look(&dataplane).is_empty());
        ip("link add gone0 type veth peer name gone1");
        assert_eq!(kept.look(&dataplane).len(), 1);
        let gone0 = ("gone0".to_owned(), ifindex("gone0"));
        assert_eq!(dataplane::attached(&home), [a0, gone0]);
        dataplane::detach(&home).unwrap();
    });
}
