//! Numbers that are in packets of every version: what the shared code and all disciplines have
//! together is what it was.

use wire::{Op, Status};

/// Every op: its number, its name, whether it must have a key, whether it may have a value.
const OPS: &[(u8, &str, bool, bool)] = &[
    (0x01, "ReadRequest", true, false),
    (0x02, "ReadReply", true, true),
    (0x03, "WriteRequest", true, true),
    (0x04, "WriteReply", true, true),
    (0x05, "DeleteRequest", true, false),
    (0x06, "DeleteReply", true, false),
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
    (0x20, "HotReport", true, true),
    (0x21, "ControlUpdate", true, true),
    (0x22, "ControlInsert", true, true),
    (0x23, "ControlEvict", true, false),
    (0x24, "ControlReplace", true, true),
    (0x25, "ControlReply", true, false),
    (0x26, "ControlAlloc", false, true),
    (0x27, "ControlFree", false, true),
    (0x30, "ReplicaConfirm", true, false),
    (0x31, "ReplicaPush", true, true),
    (0x32, "ReplicaDrop", true, false),
    (0x33, "ReplicaUpdate", true, true),
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
