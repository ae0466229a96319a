//! What is kept of keys outside of the switches.

use super::*;
use crate::snapshot::SavedVersion;

fn saved(seq: u64) -> SavedVersion {
    SavedVersion { seq, value: Some(Bytes::from_static(b"v")) }
}

impl Rig {
    fn kept_keys(&self) -> Vec<&[u8]> {
        self.kept.keys().map(|key| &key[..]).collect()
    }
}

/// All switches of before are forgotten before there are others: no switch has memory of the tenant
/// for a while, which is there all the same.
#[test]
fn what_was_kept_waits_for_other_switches() {
    let mut rig = Rig::new(&[1, 2, 3], 2, 3);
    rig.wants("key");
    rig.kept = [(Key::from("key"), saved(5).encode().unwrap())].into();
    rig.restart();
    rig.run(10);
    for switch in [1, 2, 3] {
        rig.detach(switch);
        rig.switches.remove(&switch);
        rig.tell_rooms();
    }
    rig.run(100);
    assert_eq!(rig.kept_keys(), [b"key"]);
    [4, 5, 6].into_iter().for_each(|switch| rig.add(switch));
    rig.run(100);
    assert_eq!(rig.kept_keys(), [b"key"]);
    assert_eq!(rig.holders("key"), [4, 5, 6].into());
    assert_eq!((rig.view().chains.len(), rig.chain(0).len()), (2, 3), "as its options say");
    rig.tell(|to, now, out| to.room(now, TENANT, &[], out));
    rig.tell(|to, now, out| to.gone(now, TENANT, out));
    assert_eq!(rig.kept_keys(), [b""; 0]);
}
