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
    to_owner("the value that was lent")
        .packet(|_| read(SIGNED))
        .then(Read(VERSION, V), &["lent_read"]),
    to_owner("over IPv6, without room: the packet grows")
        .packet(|_| Message::read(SIGNED, KEY).over_ipv6())
        .then(Read(VERSION, V), &["lent_read"]),
    to_owner("all parts may come: it has one")
        .packet(|_| read(SIGNED).flags(Flags::ALL))
        .then(Read(VERSION, V), &["lent_read"]),
    Row::of("signed with the other secret")
        .given(|| LoanInProgress::owner_of(ROTATING))
        .packet(|_| read(ROTATING).signed_with(ALSO))
        .then(Read(VERSION, V), &["lent_read"]),
    to_owner("with a VLAN tag")
        .packet(|_| read(SIGNED).vlan(5))
        .then(Read(VERSION, V), &["lent_read"]),
    Row::of("what was kept, longer than what was lent")
        .given(|| LoanInProgress::owner().replied(1, 1, &[b'l'; 300]))
        .packet(|_| read(SIGNED))
        .then(Read(BASE + 1, &[b'l'; 300]), &["lent_read"]),
    Row::of("what was kept, empty")
        .given(|| LoanInProgress::owner().replied(1, 1, b""))
        .packet(|_| read(SIGNED))
        .then(Read(BASE + 1, b""), &["lent_read"]),
    Row::of("as long as any packet's")
        .given(|| LoanInProgress::owner().replied(1, 1, &[b'l'; 1452 - 80 - 16]))
        .packet(|_| Message::read(SIGNED, KEY).padded(1452 - 80 - 16).over_ipv6())
        .then(Read(BASE + 1, &[b'l'; 1452 - 80 - 16]), &["lent_read"]),
    Row::of("a write that is not kept yet is not seen")
        .given(|| LoanInProgress::owner().written(1, b"new"))
        .packet(|_| read(SIGNED))
        .then(Read(VERSION, V), &["lent_read"]),
    to_owner("of a part: the store's affair")
        .packet(|_| read(SIGNED).with(|read| (read.header.part, read.header.total) = (4, 2000)))
        .then(Forwarded, &["bypass_no_discipline", "pass_local"]),
    to_owner("of another tenant")
        .packet(|_| read(ROTATING))
        .then(Forwarded, &["bypass_no_discipline", "pass_local"]),
    to_owner("of another key with the same hash")
        .packet(|_| Message::read(SIGNED, b"key0000000000043").hash_of(KEY))
        .then(Forwarded, &["bypass_no_discipline", "pass_local"]),
    to_owner("with a wrong tag")
        .packet(|_| read(SIGNED).with_a_wrong_tag())
        .then(Forwarded, &["bypass_bad_tag", "pass_local"]),
    to_owner("a correction")
        .packet(|_| Message::from_client(Op::CorrectionRequest, SIGNED, KEY))
        .then(Forwarded, &["bypass_no_discipline", "pass_local"]),
    Row::of("only prepared")
        .given(|| {
            LoanInProgress::first().and(|at| prepared(&at.w, &prepare(&at.w, SIGNED, X, true, L)))
        })
        .packet(|_| read(SIGNED))
        .then(Forwarded, &["bypass_no_discipline", "pass_local"]),
    Row::of("sealed")
        .given(|| LoanInProgress::owner().sealed())
        .packet(|_| read(SIGNED))
        .then(Forwarded, &["bypass_no_discipline", "pass_local"]),
    Row::of("the lease is over")
        .given(|| LoanInProgress::owner().and(|at| at.w.outlive_lease()))
        .packet(|_| read(SIGNED))
        .then(Forwarded, &["bypass_no_discipline", "pass_local"]),
    Row::of("the lease is of another term")
        .given(|| LoanInProgress::owner().and(|at| at.w.lease(TERM + 1)))
        .packet(|_| read(SIGNED))
        .then(Forwarded, &["bypass_no_discipline", "pass_local"]),
    Row::of("the tenant may have nothing lent any more")
        .given(|| {
            let at = LoanInProgress::owner();
            let mut all = tenants();
            all.iter_mut().for_each(|tenant| tenant.write_back = false);
            at.w.install(&all);
            at
        })
        .packet(|_| read(SIGNED))
        .then(Forwarded, &["bypass_no_discipline", "pass_local"]),
    Row::of("this switch is the keeper only")
        .given(|| LoanInProgress::keeper().kept(1, 1, b"new"))
        .packet(|_| read(SIGNED))
        .then(Forwarded, &["bypass_no_discipline", "pass_local"]),
    Row::of("somebody died while he changed the record")
        .given(|| LoanInProgress::owner().and(|at| at.change_record(|record| record[0] |= 1)))
        .packet(|_| read(SIGNED))
        .then(Dropped, &["drop_lent_busy"]),
];

fn write_with(change: fn(&mut Message)) -> Message {
    write(SIGNED, 1, b"new").with(change)
}

#[test]
fn writes_go_to_the_keeper_or_untouched_to_the_store() {
    check(WRITES);
}

pub const WRITES: &[Row] = &[
    to_owner("a whole, unconditional write")
        .packet(|_| write(SIGNED, 1, b"new"))
        .then(Asks(1), &["lent_write", "pass_local"]),
    Row::of("the second has the next number")
        .given(|| LoanInProgress::owner().written(1, b"new"))
        .packet(|_| write(SIGNED, 1, b"newer"))
        .then(Asks(2), &["lent_write", "pass_local"]),
    to_owner("over IPv6, odd lengths")
        .packet(|_| write(SIGNED, 1, b"new").over_ipv6())
        .then(Asks(1), &["lent_write", "pass_local"]),
    to_owner("without a checksum: from here on it has one")
        .packet(|_| write(SIGNED, 1, b"new").without_checksum())
        .then(Asks(1), &["lent_write", "pass_local"]),
    to_owner("whose checksum a device is to finish")
        .packet(|_| write(SIGNED, 1, b"new").that_seems_unfinished())
        .then(Asks(1), &["lent_write", "pass_local"]),
    to_owner("with a VLAN tag")
        .packet(|_| write(SIGNED, 1, b"new").vlan(5))
        .then(Asks(1), &["lent_write", "pass_vlan"]),
    to_owner("empty")
        .packet(|_| write(SIGNED, 1, b""))
        .then(Asks(1), &["lent_write", "pass_local"]),
    to_owner("as long as any packet's")
        .packet(|_| write(SIGNED, 1, &[b'l'; 1452 - 80 - 16]))
        .then(Asks(1), &["lent_write", "pass_local"]),
    Row::of("signed with the other secret")
        .given(|| LoanInProgress::owner_of(ROTATING))
        .packet(|_| write(ROTATING, 1, b"new").signed_with(ALSO))
        .then(Asks(1), &["lent_write", "pass_local"]),
    Row::of("signed with the first of two secrets")
        .given(|| LoanInProgress::owner_of(ROTATING))
        .packet(|_| write(ROTATING, 1, b"new"))
        .then(Asks(1), &["lent_write", "pass_local"]),
    to_owner("another switch stamped it")
        .packet(|_| write_with(|w| w.header.epoch = Epoch::new(33, 5)))
        .then(Asks(1), &["lent_write", "pass_local"]),
    to_owner("longer than what fits every packet")
        .packet(|_| write(SIGNED, 1, &[b'l'; 1452 - 80 - 15]))
        .then(Forwarded, &["lent_pass", "pass_local"]),
    to_owner("with a condition")
        .packet(|_| write_with(|w| w.header.flags = Flags::COMPARE))
        .then(Forwarded, &["lent_pass", "pass_local"]),
    to_owner("with a time to live")
        .packet(|_| write_with(|w| w.header.expiry_ms = 5000))
        .then(Forwarded, &["lent_pass", "pass_local"]),
    to_owner("a part")
        .packet(|_| write_with(|w| w.header.total = 2000))
        .then(Forwarded, &["lent_pass", "pass_local"]),
    to_owner("past whoever the key is lent to")
        .packet(|_| write_with(|w| (w.header.flags, w.header.life) = (Flags::ALL, 77)))
        .then(Forwarded, &["lent_pass", "pass_local"]),
    to_owner("without a life")
        .packet(|_| write_with(|w| w.header.life = 0))
        .then(Forwarded, &["lent_pass", "pass_local"]),
    to_owner("padded")
        .packet(|_| write_with(|w| w.padding = 3))
        .then(Forwarded, &["lent_pass", "pass_local"]),
    to_owner("a bit of it flipped")
        .packet(|_| write(SIGNED, 1, b"new").with_a_flipped_bit())
        .then(Forwarded, &["lent_pass", "pass_local"]),
    to_owner("a stamp that claims to be ours goes, as everywhere")
        .packet(|at| {
            let write = write(SIGNED, 1, b"new").flags(Flags::COMPARE);
            write.epoch(at.loan)
        })
        .then(Disowned, &["lent_pass", "pass_local"]),
    Row::of("the keeper has not answered for 60 ms")
        .given(|| LoanInProgress::owner().ago(UNANSWERED_NS, 60 * MS))
        .packet(|_| write(SIGNED, 1, b"new"))
        .then(Forwarded, &["lent_pass", "pass_local"]),
    Row::of("it has answered since")
        .given(|| LoanInProgress::owner().ago(UNANSWERED_NS, 60 * MS).replied(1, 1, b"new"))
        .packet(|_| write(SIGNED, 2, b"newer"))
        .then(Asks(1), &["lent_write", "pass_local"]),
    Row::of("there are no numbers left")
        .given(|| {
            LoanInProgress::owner().and(|at| {
                at.change_record(|record| {
                    record[NUMBER..NUMBER + 8].copy_from_slice(&0xf_ffff_u64.to_ne_bytes());
                })
            })
        })
        .packet(|_| write(SIGNED, 1, b"new"))
        .then(Forwarded, &["lent_pass", "pass_local"]),
    Row::of("the lease is over")
        .given(|| LoanInProgress::owner().and(|at| at.w.outlive_lease()))
        .packet(|_| write(SIGNED, 1, b"new"))
        .then(Forwarded, &["bypass_no_discipline", "pass_local"]),
    Row::of("sealed")
        .given(|| LoanInProgress::owner().sealed())
        .packet(|_| write(SIGNED, 1, b"new"))
        .then(Forwarded, &["bypass_no_discipline", "pass_local"]),
    to_owner("a delete")
        .packet(|_| Message::delete(SIGNED, KEY))
        .then(Forwarded, &["bypass_no_discipline", "pass_local"]),
];

#[test]
fn writes_of_other_lives_are_told_so() {
    check(LIVES);
}

pub const LIVES: &[Row] = &[
    to_owner("the store's life")
        .packet(|_| write_with(|w| w.header.life = 77))
        .then(OtherLife, &["lent_other_life"]),
    to_owner("a client that knows no life yet, over IPv6")
        .packet(|_| write_with(|w| w.header.life = 1).over_ipv6())
        .then(OtherLife, &["lent_other_life"]),
    Row::of("signed with the other secret")
        .given(|| LoanInProgress::owner_of(ROTATING))
        .packet(|_| {
            write(ROTATING, 1, b"new").signed_with(ALSO).with(|write| write.header.life = L ^ 1)
        })
        .then(OtherLife, &["lent_other_life"]),
];

#[test]
fn what_is_kept_is_seen_and_then_answered() {
    check(ANSWERS);
}

pub const ANSWERS: &[Row] = &[
    to_owner("the keeper's answer becomes the client's")
        .packet(|at| at.reply(SIGNED, 1, 1, b"new"))
        .then(Answered(BASE + 1, ITS), &["lent_answer", "pass_local"]),
    to_owner("over IPv6")
        .packet(|at| at.reply(SIGNED, 1, 1, b"new").over_ipv6())
        .then(Answered(BASE + 1, ITS), &["lent_answer", "pass_local"]),
    Row::of("of a write that was signed with the other secret")
        .given(|| LoanInProgress::owner_of(ROTATING))
        .packet(|at| at.reply(ROTATING, 1, 1, b"new").flags(Flags::ALL))
        .then(Answered(BASE + 1, ALSO), &["lent_answer", "pass_local"]),
    Row::of("it comes again: answered again")
        .given(|| LoanInProgress::owner().replied(1, 1, b"new"))
        .packet(|at| at.reply(SIGNED, 1, 1, b"new"))
        .then(Answered(BASE + 1, ITS), &["lent_answer", "pass_local"]),
    Row::of("an older one comes later and changes nothing")
        .given(|| LoanInProgress::owner().replied(2, 2, b"newer").replied(1, 1, b"new"))
        .packet(|_| read(SIGNED))
        .then(Read(BASE + 2, b"newer"), &["lent_read"]),
    to_owner("kept before: the newest is seen, the answer has a version that no value has")
        .packet(|at| at.reply(SIGNED, 1, 5, b"newest").expiry_ms(0))
        .then(Answered(BASE, ITS), &["lent_answer", "pass_local"]),
    Row::of("and read so")
        .given(|| {
            LoanInProgress::owner().and(|at| {
                let reply = at.reply(SIGNED, 1, 5, b"newest").expiry_ms(0);
                send(&at.w, &reply, &["lent_answer", "pass_local"]);
            })
        })
        .packet(|_| read(SIGNED))
        .then(Read(BASE + 5, b"newest"), &["lent_read"]),
    Row::of("the lease is over: it is kept all the same")
        .given(|| LoanInProgress::owner().and(|at| at.w.outlive_lease()))
        .packet(|at| at.reply(SIGNED, 1, 1, b"new"))
        .then(Answered(BASE + 1, ITS), &["lent_answer", "pass_local"]),
    Row::of("sealed")
        .given(|| LoanInProgress::owner().sealed())
        .packet(|at| at.reply(SIGNED, 1, 1, b"new"))
        .then(Dropped, &["drop_lent_over"]),
    to_owner("of a loan under another epoch")
        .packet(|at| {
            let epoch = Epoch::new(X, at.loan.number() - 1);
            at.reply(SIGNED, 1, 1, b"new").epoch(epoch)
        })
        .then(Dropped, &["drop_lent_over"]),
    to_owner("of a loan with another life")
        .packet(|at| at.reply(SIGNED, 1, 1, b"new").with(|reply| reply.header.life = L + 1))
        .then(Dropped, &["drop_lent_over"]),
    to_owner("of another owner's loan: it goes on")
        .packet(|at| at.reply(SIGNED, 1, 1, b"new").epoch(Epoch::new(33, 5)))
        .then(Forwarded, &["bypass_no_discipline", "pass_local"]),
    to_owner("a bit of it flipped")
        .packet(|at| at.reply(SIGNED, 1, 1, b"new").with_a_flipped_bit())
        .then(Dropped, &["drop_spoiled"]),
    to_owner("without a checksum")
        .packet(|at| at.reply(SIGNED, 1, 1, b"new").without_checksum())
        .then(Dropped, &["drop_spoiled"]),
    to_owner("forged: the tenant's own secret is not enough")
        .packet(|at| {
            let reply = at.reply(SIGNED, 1, 1, b"new");
            reply.signed_with(secret_of(SIGNED))
        })
        .then(Dropped, &["drop_forged"]),
    Row::of("the tenant is gone")
        .given(|| LoanInProgress::owner().without_tenant())
        .packet(|at| at.reply(SIGNED, 1, 1, b"new"))
        .then(Dropped, &["drop_lent_over"]),
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
