//! The switch that a key is lent to.

use harness::{Message, SeenFrame, frame::finish, message::secret_of, world::TERM};
use wire::{Epoch, Flags, Op};

use super::world::{Expectation::*, *};

fn read(tenant: u32) -> Message {
    Message::read(tenant, KEY).padded(200)
}

#[test]
fn reads_are_answered_while_the_loan_and_the_lease_hold() {
    check(READS);
}

pub const READS: &[Row] = &[
    Row {
        name: "the value that was lent",
        given: LoanInProgress::owner,
        packet: |_| read(SIGNED),
        then: Read(VERSION, V),
        counts: &["lent_read"],
    },
    Row {
        name: "over IPv6, without room: the packet grows",
        given: LoanInProgress::owner,
        packet: |_| Message::read(SIGNED, KEY).over_ipv6(),
        then: Read(VERSION, V),
        counts: &["lent_read"],
    },
    Row {
        name: "all parts may come: it has one",
        given: LoanInProgress::owner,
        packet: |_| read(SIGNED).flags(Flags::ALL),
        then: Read(VERSION, V),
        counts: &["lent_read"],
    },
    Row {
        name: "signed with the other secret",
        given: || LoanInProgress::owner_of(ROTATING),
        packet: |_| read(ROTATING).signed_with(ALSO),
        then: Read(VERSION, V),
        counts: &["lent_read"],
    },
    Row {
        name: "with a VLAN tag",
        given: LoanInProgress::owner,
        packet: |_| read(SIGNED).vlan(5),
        then: Read(VERSION, V),
        counts: &["lent_read"],
    },
    Row {
        name: "what was kept, longer than what was lent",
        given: || LoanInProgress::owner().replied(1, 1, &[b'l'; 300]),
        packet: |_| read(SIGNED),
        then: Read(BASE + 1, &[b'l'; 300]),
        counts: &["lent_read"],
    },
    Row {
        name: "what was kept, empty",
        given: || LoanInProgress::owner().replied(1, 1, b""),
        packet: |_| read(SIGNED),
        then: Read(BASE + 1, b""),
        counts: &["lent_read"],
    },
    Row {
        name: "as long as any packet's",
        given: || LoanInProgress::owner().replied(1, 1, &[b'l'; 1452 - 80 - 16]),
        packet: |_| Message::read(SIGNED, KEY).padded(1452 - 80 - 16).over_ipv6(),
        then: Read(BASE + 1, &[b'l'; 1452 - 80 - 16]),
        counts: &["lent_read"],
    },
    Row {
        name: "a write that is not kept yet is not seen",
        given: || {
            let at = LoanInProgress::owner();
            let write = write(SIGNED, 1, b"new");
            send(&at.w, &write, &["lent_write", "pass_local"]);
            at
        },
        packet: |_| read(SIGNED),
        then: Read(VERSION, V),
        counts: &["lent_read"],
    },
    Row {
        name: "of a part: the store's affair",
        given: LoanInProgress::owner,
        packet: |_| {
            let mut read = read(SIGNED);
            (read.header.part, read.header.total) = (4, 2000);
            read
        },
        then: Forwarded,
        counts: &["bypass_no_discipline", "pass_local"],
    },
    Row {
        name: "of another tenant",
        given: LoanInProgress::owner,
        packet: |_| read(ROTATING),
        then: Forwarded,
        counts: &["bypass_no_discipline", "pass_local"],
    },
    Row {
        name: "of another key with the same hash",
        given: LoanInProgress::owner,
        packet: |_| Message::read(SIGNED, b"key0000000000043").hash_of(KEY),
        then: Forwarded,
        counts: &["bypass_no_discipline", "pass_local"],
    },
    Row {
        name: "with a wrong tag",
        given: LoanInProgress::owner,
        packet: |_| read(SIGNED).with_a_wrong_tag(),
        then: Forwarded,
        counts: &["bypass_bad_tag", "pass_local"],
    },
    Row {
        name: "a correction",
        given: LoanInProgress::owner,
        packet: |_| Message::from_client(Op::CorrectionRequest, SIGNED, KEY),
        then: Forwarded,
        counts: &["bypass_no_discipline", "pass_local"],
    },
    Row {
        name: "only prepared",
        given: || {
            let at = LoanInProgress::first();
            prepared(&at.w, &prepare(&at.w, SIGNED, X, true, L));
            at
        },
        packet: |_| read(SIGNED),
        then: Forwarded,
        counts: &["bypass_no_discipline", "pass_local"],
    },
    Row {
        name: "sealed",
        given: || LoanInProgress::owner().sealed(),
        packet: |_| read(SIGNED),
        then: Forwarded,
        counts: &["bypass_no_discipline", "pass_local"],
    },
    Row {
        name: "the lease is over",
        given: || {
            let at = LoanInProgress::owner();
            at.w.outlive_lease();
            at
        },
        packet: |_| read(SIGNED),
        then: Forwarded,
        counts: &["bypass_no_discipline", "pass_local"],
    },
    Row {
        name: "the lease is of another term",
        given: || {
            let at = LoanInProgress::owner();
            at.w.lease(TERM + 1);
            at
        },
        packet: |_| read(SIGNED),
        then: Forwarded,
        counts: &["bypass_no_discipline", "pass_local"],
    },
    Row {
        name: "the tenant may have nothing lent any more",
        given: || {
            let at = LoanInProgress::owner();
            let mut all = tenants();
            all.iter_mut().for_each(|tenant| tenant.write_back = false);
            at.w.install(&all);
            at
        },
        packet: |_| read(SIGNED),
        then: Forwarded,
        counts: &["bypass_no_discipline", "pass_local"],
    },
    Row {
        name: "this switch is the keeper only",
        given: || LoanInProgress::keeper().kept(1, 1, b"new"),
        packet: |_| read(SIGNED),
        then: Forwarded,
        counts: &["bypass_no_discipline", "pass_local"],
    },
    Row {
        name: "somebody died while he changed the record",
        given: || {
            let at = LoanInProgress::owner();
            at.change_record(|record| record[0] |= 1);
            at
        },
        packet: |_| read(SIGNED),
        then: Dropped,
        counts: &["drop_lent_busy"],
    },
];

fn write_with(change: fn(&mut Message)) -> Message {
    let mut write = write(SIGNED, 1, b"new");
    change(&mut write);
    write
}

#[test]
fn writes_go_to_the_keeper_or_untouched_to_the_store() {
    check(WRITES);
}

pub const WRITES: &[Row] = &[
    Row {
        name: "a whole, unconditional write",
        given: LoanInProgress::owner,
        packet: |_| write(SIGNED, 1, b"new"),
        then: Asks(1),
        counts: &["lent_write", "pass_local"],
    },
    Row {
        name: "the second has the next number",
        given: || {
            let at = LoanInProgress::owner();
            let first = write(SIGNED, 1, b"new");
            send(&at.w, &first, &["lent_write", "pass_local"]);
            at
        },
        packet: |_| write(SIGNED, 1, b"newer"),
        then: Asks(2),
        counts: &["lent_write", "pass_local"],
    },
    Row {
        name: "over IPv6, odd lengths",
        given: LoanInProgress::owner,
        packet: |_| write(SIGNED, 1, b"new").over_ipv6(),
        then: Asks(1),
        counts: &["lent_write", "pass_local"],
    },
    Row {
        name: "without a checksum: from here on it has one",
        given: LoanInProgress::owner,
        packet: |_| write(SIGNED, 1, b"new").without_checksum(),
        then: Asks(1),
        counts: &["lent_write", "pass_local"],
    },
    Row {
        name: "whose checksum a device is to finish",
        given: LoanInProgress::owner,
        packet: |_| write(SIGNED, 1, b"new").that_seems_unfinished(),
        then: Asks(1),
        counts: &["lent_write", "pass_local"],
    },
    Row {
        name: "with a VLAN tag",
        given: LoanInProgress::owner,
        packet: |_| write(SIGNED, 1, b"new").vlan(5),
        then: Asks(1),
        counts: &["lent_write", "pass_vlan"],
    },
    Row {
        name: "empty",
        given: LoanInProgress::owner,
        packet: |_| write(SIGNED, 1, b""),
        then: Asks(1),
        counts: &["lent_write", "pass_local"],
    },
    Row {
        name: "as long as any packet's",
        given: LoanInProgress::owner,
        packet: |_| write(SIGNED, 1, &[b'l'; 1452 - 80 - 16]),
        then: Asks(1),
        counts: &["lent_write", "pass_local"],
    },
    Row {
        name: "signed with the other secret",
        given: || LoanInProgress::owner_of(ROTATING),
        packet: |_| write(ROTATING, 1, b"new").signed_with(ALSO),
        then: Asks(1),
        counts: &["lent_write", "pass_local"],
    },
    Row {
        name: "signed with the first of two secrets",
        given: || LoanInProgress::owner_of(ROTATING),
        packet: |_| write(ROTATING, 1, b"new"),
        then: Asks(1),
        counts: &["lent_write", "pass_local"],
    },
    Row {
        name: "another switch stamped it",
        given: LoanInProgress::owner,
        packet: |_| write_with(|w| w.header.epoch = Epoch::new(33, 5)),
        then: Asks(1),
        counts: &["lent_write", "pass_local"],
    },
    Row {
        name: "longer than what fits every packet",
        given: LoanInProgress::owner,
        packet: |_| write(SIGNED, 1, &[b'l'; 1452 - 80 - 15]),
        then: Forwarded,
        counts: &["lent_pass", "pass_local"],
    },
    Row {
        name: "with a condition",
        given: LoanInProgress::owner,
        packet: |_| write_with(|w| w.header.flags = Flags::COMPARE),
        then: Forwarded,
        counts: &["lent_pass", "pass_local"],
    },
    Row {
        name: "with a time to live",
        given: LoanInProgress::owner,
        packet: |_| write_with(|w| w.header.expiry_ms = 5000),
        then: Forwarded,
        counts: &["lent_pass", "pass_local"],
    },
    Row {
        name: "a part",
        given: LoanInProgress::owner,
        packet: |_| write_with(|w| w.header.total = 2000),
        then: Forwarded,
        counts: &["lent_pass", "pass_local"],
    },
    Row {
        name: "past whoever the key is lent to",
        given: LoanInProgress::owner,
        packet: |_| write_with(|w| (w.header.flags, w.header.life) = (Flags::ALL, 77)),
        then: Forwarded,
        counts: &["lent_pass", "pass_local"],
    },
    Row {
        name: "without a life",
        given: LoanInProgress::owner,
        packet: |_| write_with(|w| w.header.life = 0),
        then: Forwarded,
        counts: &["lent_pass", "pass_local"],
    },
    Row {
        name: "padded",
        given: LoanInProgress::owner,
        packet: |_| write_with(|w| w.padding = 3),
        then: Forwarded,
        counts: &["lent_pass", "pass_local"],
    },
    Row {
        name: "a bit of it flipped",
        given: LoanInProgress::owner,
        packet: |_| write(SIGNED, 1, b"new").with_a_flipped_bit(),
        then: Forwarded,
        counts: &["lent_pass", "pass_local"],
    },
    Row {
        name: "a stamp that claims to be ours goes, as everywhere",
        given: LoanInProgress::owner,
        packet: |at| {
            let write = write(SIGNED, 1, b"new").flags(Flags::COMPARE);
            write.epoch(at.loan)
        },
        then: Disowned,
        counts: &["lent_pass", "pass_local"],
    },
    Row {
        name: "the keeper has not answered for 60 ms",
        given: || LoanInProgress::owner().ago(UNANSWERED_NS, 60 * MS),
        packet: |_| write(SIGNED, 1, b"new"),
        then: Forwarded,
        counts: &["lent_pass", "pass_local"],
    },
    Row {
        name: "it has answered since",
        given: || LoanInProgress::owner().ago(UNANSWERED_NS, 60 * MS).replied(1, 1, b"new"),
        packet: |_| write(SIGNED, 2, b"newer"),
        then: Asks(1),
        counts: &["lent_write", "pass_local"],
    },
    Row {
        name: "there are no numbers left",
        given: || {
            let at = LoanInProgress::owner();
            at.change_record(|record| {
                record[NUMBER..NUMBER + 8].copy_from_slice(&0xf_ffff_u64.to_ne_bytes());
            });
            at
        },
        packet: |_| write(SIGNED, 1, b"new"),
        then: Forwarded,
        counts: &["lent_pass", "pass_local"],
    },
    Row {
        name: "the lease is over",
        given: || {
            let at = LoanInProgress::owner();
            at.w.outlive_lease();
            at
        },
        packet: |_| write(SIGNED, 1, b"new"),
        then: Forwarded,
        counts: &["bypass_no_discipline", "pass_local"],
    },
    Row {
        name: "sealed",
        given: || LoanInProgress::owner().sealed(),
        packet: |_| write(SIGNED, 1, b"new"),
        then: Forwarded,
        counts: &["bypass_no_discipline", "pass_local"],
    },
    Row {
        name: "a delete",
        given: LoanInProgress::owner,
        packet: |_| Message::delete(SIGNED, KEY),
        then: Forwarded,
        counts: &["bypass_no_discipline", "pass_local"],
    },
];

#[test]
fn writes_of_other_lives_are_told_so() {
    check(LIVES);
}

pub const LIVES: &[Row] = &[
    Row {
        name: "the store's life",
        given: LoanInProgress::owner,
        packet: |_| write_with(|w| w.header.life = 77),
        then: OtherLife,
        counts: &["lent_other_life"],
    },
    Row {
        name: "a client that knows no life yet, over IPv6",
        given: LoanInProgress::owner,
        packet: |_| write_with(|w| w.header.life = 1).over_ipv6(),
        then: OtherLife,
        counts: &["lent_other_life"],
    },
    Row {
        name: "signed with the other secret",
        given: || LoanInProgress::owner_of(ROTATING),
        packet: |_| {
            let mut write = write(ROTATING, 1, b"new").signed_with(ALSO);
            write.header.life = L ^ 1;
            write
        },
        then: OtherLife,
        counts: &["lent_other_life"],
    },
];

#[test]
fn what_is_kept_is_seen_and_then_answered() {
    check(ANSWERS);
}

pub const ANSWERS: &[Row] = &[
    Row {
        name: "the keeper's answer becomes the client's",
        given: LoanInProgress::owner,
        packet: |at| at.reply(SIGNED, 1, 1, b"new"),
        then: Answered(BASE + 1, ITS),
        counts: &["lent_answer", "pass_local"],
    },
    Row {
        name: "over IPv6",
        given: LoanInProgress::owner,
        packet: |at| at.reply(SIGNED, 1, 1, b"new").over_ipv6(),
        then: Answered(BASE + 1, ITS),
        counts: &["lent_answer", "pass_local"],
    },
    Row {
        name: "of a write that was signed with the other secret",
        given: || LoanInProgress::owner_of(ROTATING),
        packet: |at| at.reply(ROTATING, 1, 1, b"new").flags(Flags::ALL),
        then: Answered(BASE + 1, ALSO),
        counts: &["lent_answer", "pass_local"],
    },
    Row {
        name: "it comes again: answered again",
        given: || LoanInProgress::owner().replied(1, 1, b"new"),
        packet: |at| at.reply(SIGNED, 1, 1, b"new"),
        then: Answered(BASE + 1, ITS),
        counts: &["lent_answer", "pass_local"],
    },
    Row {
        name: "an older one comes later and changes nothing",
        given: || {
            let at = LoanInProgress::owner().replied(2, 2, b"newer");
            at.replied(1, 1, b"new")
        },
        packet: |_| read(SIGNED),
        then: Read(BASE + 2, b"newer"),
        counts: &["lent_read"],
    },
    Row {
        name: "kept before: the newest is seen, the answer has a version that no value has",
        given: LoanInProgress::owner,
        packet: |at| at.reply(SIGNED, 1, 5, b"newest").expiry_ms(0),
        then: Answered(BASE, ITS),
        counts: &["lent_answer", "pass_local"],
    },
    Row {
        name: "and read so",
        given: || {
            let at = LoanInProgress::owner();
            let reply = at.reply(SIGNED, 1, 5, b"newest").expiry_ms(0);
            send(&at.w, &reply, &["lent_answer", "pass_local"]);
            at
        },
        packet: |_| read(SIGNED),
        then: Read(BASE + 5, b"newest"),
        counts: &["lent_read"],
    },
    Row {
        name: "the lease is over: it is kept all the same",
        given: || {
            let at = LoanInProgress::owner();
            at.w.outlive_lease();
            at
        },
        packet: |at| at.reply(SIGNED, 1, 1, b"new"),
        then: Answered(BASE + 1, ITS),
        counts: &["lent_answer", "pass_local"],
    },
    Row {
        name: "sealed",
        given: || LoanInProgress::owner().sealed(),
        packet: |at| at.reply(SIGNED, 1, 1, b"new"),
        then: Dropped,
        counts: &["drop_lent_over"],
    },
    Row {
        name: "of a loan under another epoch",
        given: LoanInProgress::owner,
        packet: |at| {
            let epoch = Epoch::new(X, at.loan.number() - 1);
            at.reply(SIGNED, 1, 1, b"new").epoch(epoch)
        },
        then: Dropped,
        counts: &["drop_lent_over"],
    },
    Row {
        name: "of a loan with another life",
        given: LoanInProgress::owner,
        packet: |at| {
            let mut reply = at.reply(SIGNED, 1, 1, b"new");
            reply.header.life = L + 1;
            reply
        },
        then: Dropped,
        counts: &["drop_lent_over"],
    },
    Row {
        name: "of another owner's loan: it goes on",
        given: LoanInProgress::owner,
        packet: |at| at.reply(SIGNED, 1, 1, b"new").epoch(Epoch::new(33, 5)),
        then: Forwarded,
        counts: &["bypass_no_discipline", "pass_local"],
    },
    Row {
        name: "a bit of it flipped",
        given: LoanInProgress::owner,
        packet: |at| at.reply(SIGNED, 1, 1, b"new").with_a_flipped_bit(),
        then: Dropped,
        counts: &["drop_spoiled"],
    },
    Row {
        name: "without a checksum",
        given: LoanInProgress::owner,
        packet: |at| at.reply(SIGNED, 1, 1, b"new").without_checksum(),
        then: Dropped,
        counts: &["drop_spoiled"],
    },
    Row {
        name: "forged: the tenant's own secret is not enough",
        given: LoanInProgress::owner,
        packet: |at| {
            let reply = at.reply(SIGNED, 1, 1, b"new");
            reply.signed_with(secret_of(SIGNED))
        },
        then: Dropped,
        counts: &["drop_forged"],
    },
    Row {
        name: "the tenant is gone",
        given: || {
            let at = LoanInProgress::owner();
            let others = tenants().into_iter().filter(|t| t.id != SIGNED);
            at.w.install(&others.collect::<Vec<_>>());
            at
        },
        packet: |at| at.reply(SIGNED, 1, 1, b"new"),
        then: Dropped,
        counts: &["drop_lent_over"],
    },
];

/// What a socket of this machine sent, and left the checksum to a device, through a switch in
/// generic mode: whoever takes it finishes the checksum, of what stands in its place.
#[test]
fn what_a_device_is_to_finish_it_can_finish() {
    in_both(|| {
        let ways: [fn(Message) -> Message; 2] = [|message| message, Message::over_ipv6];
        for over in ways {
            let at = LoanInProgress::owner();
            at.w.switch.leave_checksums();
            let finished = |mut out: PacketOutcome| {
                assert!(SeenFrame::read(&out.run.frame).is_err(), "it is not finished yet");
                finish(&mut out.run.frame);
                out.seen()
            };
            let asks = over(write(SIGNED, 1, b"new")).unfinished();
            finished(send(&at.w, &asks, &["lent_write", "pass_local"]));
            let kept = over(at.reply(SIGNED, 1, 1, b"new")).unfinished();
            finished(send(&at.w, &kept, &["lent_answer", "pass_local"]));
            // What was finished is so again, also where it looked as if it were not.
            let asks = over(write(SIGNED, 2, b"newer")).that_seems_unfinished();
            send(&at.w, &asks, &["lent_write", "pass_local"]).seen();
            let ends = take(SIGNED, X, L, true, VERSION);
            send(&at.w, &ends, &["take"]).system();
        }
    });
}
