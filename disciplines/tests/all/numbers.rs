//! Numbers that every version knows, because they are in packets or in pinned tables: what the
//! shared code and all disciplines have together is what it was.

use std::{collections::BTreeMap, fs};

use dataplane::{Counters, native::Mutant};
use decide::Totals;
use wire::{Op, Status};

/// Every op: its number, its name, whether it must have a key, whether it may have a value.
const OPS: &[(u8, &str, bool, bool)] = &[
    (0x01, "ReadRequest", true, false),
    (0x02, "ReadReply", true, true),
    (0x03, "WriteRequest", true, true),
    (0x04, "WriteReply", true, true),
    (0x05, "DeleteRequest", true, false),
    (0x06, "DeleteReply", true, true),
    (0x07, "CorrectionRequest", true, false),
    (0x10, "FetchRequest", true, false),
    (0x11, "FetchReply", true, true),
    (0x12, "Invalidate", true, false),
    (0x13, "InvalidateAck", true, false),
    (0x14, "LeaseRequest", false, false),
    (0x15, "LeaseReply", false, false),
    (0x16, "LeaseOffer", false, false),
    (0x17, "ProbeRequest", false, false),
    (0x18, "ProbeReply", false, false),
    (0x19, "KeepRequest", true, true),
    (0x1a, "KeepReply", true, true),
    (0x1b, "LendRequest", true, true),
    (0x1c, "LendReply", true, false),
    (0x1d, "TakeRequest", true, false),
    (0x1e, "TakeReply", true, true),
    (0x1f, "LeaseReturn", false, false),
    (0x20, "LeaseReturned", false, false),
    (0x30, "ReplicaConfirm", true, false),
    (0x31, "ReplicaPush", true, true),
    (0x32, "ReplicaDrop", true, false),
    (0x33, "ReplicaUpdate", true, true),
    (0x34, "ReadCounts", false, true),
    (0x35, "HolderLeaseRequest", false, false),
    (0x36, "HolderLeaseReply", false, false),
    (0x37, "HolderReturn", false, false),
    (0x38, "HolderFetch", true, false),
    (0x39, "HolderGrant", true, true),
    (0x3a, "HolderInvalidate", true, false),
    (0x3b, "HolderAck", true, false),
    (0x40, "ChainRead", true, true),
    (0x41, "ChainReadReply", true, true),
    (0x42, "ChainWrite", true, true),
    (0x43, "ChainWriteReply", true, true),
    (0x44, "ChainAck", true, true),
    (0x50, "DisciplineRequest", true, true),
    (0x51, "DisciplineReply", true, true),
    (0x52, "PeerMessage", true, true),
    (0x53, "PeerSignal", false, true),
];

/// Every status.
const STATUSES: &[(u8, &str)] = &[
    (0, "Ok"),
    (1, "NotFound"),
    (2, "Mismatch"),
    (3, "NeedPadding"),
    (4, "TryAgain"),
    (5, "TooLarge"),
    (6, "WrongPartition"),
    (7, "BackendError"),
    (8, "Denied"),
    (9, "OtherLife"),
    (10, "Taken"),
    (11, "Moved"),
    (12, "NoRoom"),
    (13, "Forgotten"),
    (14, "NoSession"),
];

#[test]
fn ops_and_statuses_have_the_numbers_that_they_had() {
    let ops = (0..=u8::MAX).filter_map(Op::from_number);
    let ops = ops.map(|op| {
        let name = format!("{op:?}");
        (op as u8, name, op.has_key(), op.may_have_value())
    });
    let pinned =
        OPS.iter().map(|&(number, name, key, value)| (number, name.to_owned(), key, value));
    assert_eq!(ops.collect::<Vec<_>>(), pinned.collect::<Vec<_>>());
    let statuses = (0..=u8::MAX).filter_map(|number| Status::from_bits(number).ok());
    let statuses = statuses.map(|status| (status as u8, format!("{status:?}")));
    let pinned = STATUSES.iter().map(|&(number, name)| (number, name.to_owned()));
    assert_eq!(statuses.collect::<Vec<_>>(), pinned.collect::<Vec<_>>());
}

/// Every counter of a switch: the shared code's, and those of disciplines.
const COUNTERS: &[(u32, &str)] = &[
    (0, "pass_not_ours"),
    (1, "pass_other_magic"),
    (2, "pass_other_mac"),
    (3, "pass_local"),
    (4, "pass_no_neighbour"),
    (5, "pass_ttl"),
    (6, "pass_mtu"),
    (7, "pass_no_port"),
    (8, "pass_vlan"),
    (9, "drop_short_header"),
    (10, "drop_bad_version"),
    (11, "drop_unknown_op"),
    (12, "drop_unknown_status"),
    (13, "drop_bad_key_length"),
    (14, "drop_bad_value_length"),
    (15, "drop_bad_part"),
    (16, "drop_truncated"),
    (17, "drop_source"),
    (18, "drop_spoiled"),
    (19, "drop_forged"),
    (20, "drop_over_rate"),
    (21, "bypass_over_rate"),
    (22, "bypass_unknown_tenant"),
    (23, "bypass_bad_tag"),
    (24, "bypass_no_discipline"),
    (25, "bypass_part"),
    (26, "bypass_correction"),
    (27, "bypass_no_room"),
    (28, "bypass_torn"),
    (29, "drop_rounds"),
    (30, "drop_refused"),
    (31, "bypass_no_recirculation"),
    (32, "bypass_no_group"),
    (33, "bypass_no_step"),
    (34, "recirculate"),
    (35, "fan_out"),
    (36, "wake"),
    (37, "wake_grant"),
    (38, "hit_round"),
    (39, "wait"),
    (40, "wait_full"),
    (41, "wait_late"),
    (42, "wait_no_room"),
    (43, "round_stale"),
    (44, "round_gone"),
    (45, "round_lapsed"),
    (46, "round_lost"),
    (47, "round_parked"),
    (48, "answer"),
    (49, "consume"),
    (50, "forward"),
    (51, "hit"),
    (52, "miss"),
    (53, "read_invalid"),
    (54, "read_no_lease"),
    (55, "read_expired"),
    (56, "read_part"),
    (57, "write"),
    (58, "write_invalidated"),
    (59, "write_contended"),
    (60, "grant_installed"),
    (61, "grant_stale"),
    (62, "grant_spoiled"),
    (63, "grant_refused"),
    (64, "grant_too_large"),
    (65, "grant_busy"),
    (66, "grant_no_entry"),
    (67, "fetch_reply"),
    (68, "invalidate"),
    (69, "invalidate_contended"),
    (70, "redirect"),
    (71, "redirect_invalid"),
    (72, "replica_update"),
    (73, "replica_round"),
    (74, "replica_confirm"),
    (75, "replica_drop"),
    (76, "lent_read"),
    (77, "lent_padding"),
    (78, "lent_write"),
    (79, "lent_answer"),
    (80, "lent_other_life"),
    (81, "lent_pass"),
    (82, "keep"),
    (83, "keep_again"),
    (84, "keep_pass"),
    (85, "drop_keep_old"),
    (86, "drop_lent_busy"),
    (87, "drop_lent_over"),
    (88, "lend"),
    (89, "lend_refused"),
    (90, "take"),
    (91, "order_apply"),
    (92, "order_refuse"),
    (93, "order_pass"),
    (94, "order_commit"),
    (95, "order_known"),
    (96, "order_ack"),
    (97, "order_nack"),
    (98, "order_stream"),
    (99, "order_round"),
    (100, "order_copy"),
    (101, "order_watch"),
    (102, "order_read_on"),
    (103, "order_no_lease"),
    (104, "order_unfilled"),
    (105, "order_held"),
    (106, "order_full"),
    (107, "order_moved"),
    (108, "order_no_session"),
    (109, "order_diverged"),
    (110, "order_signal"),
    (111, "drop_order_number"),
    (112, "drop_order_stranger"),
    (113, "drop_order_held"),
    (114, "drop_order_again"),
    (115, "drop_order_early"),
    (116, "drop_order_missing"),
    (117, "drop_order_unfilled"),
    (118, "drop_order_busy"),
    (119, "lease_offer"),
    (120, "lease_renewed"),
    (121, "lease_stale"),
    (122, "probe"),
    (123, "hot_report"),
    (124, "hot_report_lost"),
    (125, "hot_report_share"),
    (126, "probation"),
    (127, "probation_no_blank"),
    (128, "probation_busy"),
    (129, "probation_full"),
    (130, "drop_order_untold"),
    (131, "order_dirty"),
    (132, "order_relaxed"),
    (133, "wake_parts"),
    (134, "drop_part_over"),
    (135, "replica_skip"),
    (136, "wait_gone"),
];

#[test]
fn counters_have_the_numbers_that_they_had() {
    let all = Counters::list(disciplines::all().iter().map(|one| one.counters));
    let named: Vec<(u32, &str)> = all.iter().map(|one| (one.number, one.name)).collect();
    assert_eq!(named, COUNTERS);
    for one in disciplines::all() {
        let Totals { hits, overflows, misses, rounds_begun, rounds_ended, rounds_parked } =
            one.totals;
        for name in [hits, overflows, misses, rounds_begun, rounds_ended, rounds_parked].concat() {
            assert!(all.iter().any(|counter| counter.name == name), "{}: {name}", one.name);
        }
    }
}

/// Two with one number would be broken at once.
#[test]
fn every_mutant_has_a_number_of_its_own() {
    let mut all = Mutant::list().to_vec();
    let folders = fs::read_dir(env!("CARGO_MANIFEST_DIR")).expect("the disciplines");
    let lists = folders.map(|folder| folder.expect("an entry").path().join("mutants.h"));
    for list in lists.filter(|list| list.exists()) {
        all.extend(Mutant::own(&fs::read_to_string(list).expect("a list")));
    }
    let mut seen = BTreeMap::new();
    for Mutant { number, name, .. } in &all {
        let other = seen.insert(number, name);
        assert_eq!(other, None, "{name} has the number of another, {number}");
    }
    assert!(seen.len() >= 48, "some are listed no longer: {seen:?}");
}
