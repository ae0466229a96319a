//! Frames for another receiver on the link are the kernel's affair, as it would drop them.
//! Needs root.

use dataplane::Mode;
use harness::{
    Message, Switch, Verdict,
    namespace::{ifindex, in_namespace, ip},
    switch::tenant,
};

use crate::upgrade::{NUMBER, SIGNED, trial};

const OURS: [u8; 6] = [2, 0, 0, 0, 9, 1];
const CHANGED: [u8; 6] = [2, 0, 0, 0, 9, 2];
const ALL: [u8; 6] = [0xff; 6];

/// What becomes of a read, which the trial discipline takes in, in a frame for `mac`.
fn ends(switch: &Switch, mac: [u8; 6]) -> Verdict {
    let mut frame = Message::read(SIGNED, b"note").frame().bytes();
    frame[..6].copy_from_slice(&mac);
    let run = switch.run(&frame, Some(ifindex("v0")));
    let is_other = run.moved.contains_key("pass_other_mac");
    assert_eq!(is_other, run.verdict == Verdict::Pass, "{run:?}");
    run.verdict
}

/// What is malformed ends here where it was sent here, and nowhere else.
#[test]
fn a_malformed_frame_for_another_receiver_is_left_alone() {
    in_namespace(|| {
        ip("link add v0 address 02:00:00:00:09:01 type veth peer name v1");
        let switch = Switch::load(&[trial()], &[tenant(SIGNED, NUMBER)]);
        switch.dataplane().attach("v0", Mode::Generic).expect("attached");
        let mut frame = Message::read(SIGNED, b"note").frame().bytes();
        frame[42] ^= 0xf; // another version of the protocol
        for (mac, verdict, counter) in
            [(OURS, Verdict::Drop, "drop_bad_version"), (CHANGED, Verdict::Pass, "pass_other_mac")]
        {
            frame[..6].copy_from_slice(&mac);
            let run = switch.run(&frame, Some(ifindex("v0")));
            assert_eq!(run.verdict, verdict, "{run:?}");
            assert_eq!(run.moved.get(counter), Some(&1), "{run:?}");
        }
    });
}

#[test]
fn a_frame_for_another_receiver_is_not_answered() {
    in_namespace(|| {
        ip("link add v0 address 02:00:00:00:09:01 type veth peer name v1");
        let switch = Switch::load(&[trial()], &[tenant(SIGNED, NUMBER)]);
        let dataplane = switch.dataplane();
        dataplane.attach("v0", Mode::Generic).expect("attached");
        assert_eq!(ends(&switch, OURS), Verdict::Drop);
        assert_eq!(ends(&switch, CHANGED), Verdict::Pass);
        assert_eq!(ends(&switch, ALL), Verdict::Pass);
        ip("link set v0 address 02:00:00:00:09:02");
        dataplane.note_interfaces().expect("noted");
        assert_eq!(ends(&switch, OURS), Verdict::Pass);
        assert_eq!(ends(&switch, CHANGED), Verdict::Drop);
    });
}
