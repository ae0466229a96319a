//! The second switch of a loan, and the naming of it.

use harness::{Message, message::secret_of};
use wire::{Epoch, Flags, Op, Status};

use super::world::{Expectation::*, *};

#[test]
fn writes_are_kept_once() {
    check(KEPT);
}

pub const KEPT: &[Row] = &[
    Row {
        name: "a write",
        given: LoanInProgress::keeper,
        packet: |at| at.keep(1, 1, b"new"),
        then: Kept(1, BASE + 1, b"new"),
        counts: &["keep"],
    },
    Row {
        name: "over IPv6, odd lengths",
        given: LoanInProgress::keeper,
        packet: |at| at.keep(1, 1, b"new").over_ipv6(),
        then: Kept(1, BASE + 1, b"new"),
        counts: &["keep"],
    },
    Row {
        name: "signed with the tenant's other secret: echoed",
        given: || LoanInProgress::keeper_of(ROTATING),
        packet: |_| keep_of(ROTATING, 1, 1, b"new").flags(Flags::ALL),
        then: Kept(1, BASE + 1, b"new"),
        counts: &["keep"],
    },
    Row {
        name: "of a tenant that is gone by now",
        given: || {
            let at = LoanInProgress::keeper();
            let others = tenants().into_iter().filter(|t| t.id != SIGNED);
            at.w.install(&others.collect::<Vec<_>>());
            at
        },
        packet: |at| at.keep(1, 1, b"new"),
        then: Kept(1, BASE + 1, b"new"),
        counts: &["keep"],
    },
    Row {
        name: "an older one after a newer one: kept, its own value in the answer",
        given: || LoanInProgress::keeper().kept(2, 2, b"newer"),
        packet: |at| at.keep(1, 1, b"new"),
        then: Kept(1, BASE + 1, b"new"),
        counts: &["keep"],
    },
    Row {
        name: "and the newer one is what is kept",
        given: || LoanInProgress::keeper().kept(2, 2, b"newer").kept(1, 1, b"new"),
        packet: |_| take(SIGNED, X, L, false, VERSION),
        then: Takes(Status::Ok, Flags::NONE, BASE + 2, b"newer"),
        counts: &["take"],
    },
    Row {
        name: "the same packet again",
        given: || LoanInProgress::keeper().kept(1, 1, b"new"),
        packet: |at| at.keep(1, 1, b"new"),
        then: Kept(0, BASE + 1, b"new"),
        counts: &["keep_again"],
    },
    Row {
        name: "the client's retransmission, after a longer one: that is in the answer",
        given: || LoanInProgress::keeper().kept(1, 1, b"new").kept(2, 2, &[b'l'; 300]),
        packet: |at| at.keep(1, 3, b"new"),
        then: Kept(0, BASE + 2, &[b'l'; 300]),
        counts: &["keep_again"],
    },
    Row {
        name: "likewise after a shorter one, over IPv6",
        given: || LoanInProgress::keeper().kept(1, 1, &[b'l'; 300]).kept(2, 2, b""),
        packet: |at| at.keep(1, 3, &[b'l'; 300]).over_ipv6(),
        then: Kept(0, BASE + 2, b""),
        counts: &["keep_again"],
    },
    Row {
        name: "its tenant has one window less than are left",
        given: || LoanInProgress::keeper().windows(2_000, 6_191),
        packet: |at| at.keep(1, 1, b"new"),
        then: Kept(1, BASE + 1, b"new"),
        counts: &["keep"],
    },
    Row {
        name: "the same number of another client",
        given: || LoanInProgress::keeper().kept(1, 1, b"new"),
        packet: |at| {
            let mut keep = at.keep(1, 2, b"newer");
            keep.header.client = 5;
            keep
        },
        then: Kept(2, BASE + 2, b"newer"),
        counts: &["keep"],
    },
    Row {
        name: "after 190 others of its client it is still known",
        given: || {
            (2..192).fold(LoanInProgress::keeper().kept(1, 1, b"new"), |at, number| {
                at.kept(number, number, b"newer")
            })
        },
        packet: |at| at.keep(1, 200, b"new"),
        then: Kept(0, BASE + 191, b"newer"),
        counts: &["keep_again"],
    },
    Row {
        name: "one that never came, among them, is new",
        given: || LoanInProgress::keeper().kept(1, 1, b"new").kept(150, 2, b"newer"),
        packet: |at| at.keep(100, 3, b"newest"),
        then: Kept(3, BASE + 3, b"newest"),
        counts: &["keep"],
    },
    Row {
        name: "after a leap of many nothing is said of what was before",
        given: || LoanInProgress::keeper().kept(1, 1, b"new").kept(1000, 2, b"newer"),
        packet: |at| at.keep(1, 3, b"new"),
        then: Dropped,
        counts: &["drop_keep_old"],
    },
    Row {
        name: "but of what is near it",
        given: || LoanInProgress::keeper().kept(70, 1, b"new").kept(1000, 2, b"newer"),
        packet: |at| at.keep(900, 3, b"newest"),
        then: Kept(3, BASE + 3, b"newest"),
        counts: &["keep"],
    },
];

/// Clients whose windows stand in one set, in the loan that this switch keeps.
fn clients_of_a_set(at: &LoanInProgress) -> Vec<u64> {
    let tables = at.w.switch.backing();
    let places = 0..tables.elements("kept").expect("a table");
    let is_taken = |place: &u32| tables.element("kept", *place).expect("an element")[4] != 0;
    let place = places.into_iter().find(is_taken).expect("it is kept");
    let loan = u64::from(place) << 48 | at.loan.number();
    let mixed = |client: &u64| (loan ^ client.to_be()).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let set = |client: &u64| mixed(client) >> 40 & 1023;
    (1..).filter(|client| set(client) == 5).take(7).collect()
}

#[test]
fn a_tenant_leaves_some_windows_of_each_set_to_others() {
    in_both(|| {
        let at = LoanInProgress::keeper();
        let clients = clients_of_a_set(&at);
        for (nth, client) in (1..).zip(&clients) {
            let mut keep = at.keep(1, nth, b"new");
            keep.header.client = *client;
            let counts: &[_] = if nth < 7 { &["keep"] } else { &["keep_pass", "pass_local"] };
            send(&at.w, &keep, counts);
        }
    });
}

#[test]
fn what_no_loan_is_here_for_goes_to_the_store() {
    check(PASSED);
}

pub const PASSED: &[Row] = &[
    Row {
        name: "no loan",
        given: LoanInProgress::first,
        packet: |at| at.keep(1, 1, b"new"),
        then: Forwarded,
        counts: &["keep_pass", "pass_local"],
    },
    Row {
        name: "only prepared",
        given: || {
            let at = LoanInProgress::first();
            let mut lent = prepare(&at.w, SIGNED, X, false, L);
            lent.header.node = Y;
            prepared(&at.w, &lent);
            at
        },
        packet: |at| at.keep(1, 1, b"new"),
        then: Forwarded,
        counts: &["keep_pass", "pass_local"],
    },
    Row {
        name: "sealed",
        given: || LoanInProgress::keeper().sealed(),
        packet: |at| at.keep(1, 1, b"new"),
        then: Forwarded,
        counts: &["keep_pass", "pass_local"],
    },
    Row {
        name: "kept, then sealed: it comes again",
        given: || LoanInProgress::keeper().kept(1, 1, b"new").sealed(),
        packet: |at| at.keep(1, 1, b"new"),
        then: Forwarded,
        counts: &["keep_pass", "pass_local"],
    },
    Row {
        name: "of a loan with another life",
        given: LoanInProgress::keeper,
        packet: |at| {
            let mut keep = at.keep(1, 1, b"new");
            keep.header.life = L + 1;
            keep
        },
        then: Forwarded,
        counts: &["keep_pass", "pass_local"],
    },
    Row {
        name: "of another owner",
        given: LoanInProgress::keeper,
        packet: |at| at.keep(1, 1, b"new").epoch(Epoch::new(33, 5)),
        then: Forwarded,
        counts: &["keep_pass", "pass_local"],
    },
    Row {
        name: "this switch is the owner",
        given: LoanInProgress::owner,
        packet: |at| at.keep(1, 1, b"new"),
        then: Forwarded,
        counts: &["keep_pass", "pass_local"],
    },
    Row {
        name: "to be kept by another switch",
        given: LoanInProgress::keeper,
        packet: |at| {
            let mut keep = at.keep(1, 1, b"new");
            keep.header.node = 33;
            keep
        },
        then: Forwarded,
        counts: &["bypass_no_discipline", "pass_local"],
    },
    Row {
        name: "a bit of it flipped",
        given: LoanInProgress::keeper,
        packet: |at| at.keep(1, 1, b"new").with_a_flipped_bit(),
        then: Dropped,
        counts: &["drop_spoiled"],
    },
    Row {
        name: "forged",
        given: LoanInProgress::keeper,
        packet: |at| at.keep(1, 1, b"new").signed_with(secret_of(SIGNED)),
        then: Dropped,
        counts: &["drop_forged"],
    },
    Row {
        name: "somebody died while he changed the record",
        given: || {
            let at = LoanInProgress::keeper();
            at.change_record(|record| record[0] |= 1);
            at
        },
        packet: |at| at.keep(1, 1, b"new"),
        then: Dropped,
        counts: &["drop_lent_busy"],
    },
    Row {
        name: "its tenant has as many windows as are left",
        given: || LoanInProgress::keeper().windows(2_000, 6_192),
        packet: |at| at.keep(1, 1, b"new"),
        then: Forwarded,
        counts: &["keep_pass", "pass_local"],
    },
    Row {
        name: "as many clients as one key may have",
        given: || {
            let at = LoanInProgress::keeper();
            at.change_record(|record| {
                record[WINDOWS..WINDOWS + 4].copy_from_slice(&512u32.to_ne_bytes());
            });
            at
        },
        packet: |at| at.keep(1, 1, b"new"),
        then: Forwarded,
        counts: &["keep_pass", "pass_local"],
    },
];

fn stamped(node: u16) -> Message {
    let mut write = Message::write(SIGNED, KEY, b"new").epoch(Epoch::new(Y, 5));
    write.header.node = node;
    write
}

#[test]
fn the_second_switch_names_itself() {
    check(SECOND);
}

pub const SECOND: &[Row] = &[
    Row {
        name: "behind one that has sent it to stores that hold copies, too",
        given: LoanInProgress::first,
        packet: |_| stamped(wire::NODE_ALL),
        then: Forwarded,
        counts: &["bypass_no_discipline", "pass_local"],
    },
    Row {
        name: "the same without a stamp",
        given: LoanInProgress::first,
        packet: |_| stamped(wire::NODE_ALL).epoch(Epoch::NONE),
        then: Forwarded,
        counts: &["bypass_no_discipline", "pass_local"],
    },
    Row {
        name: "behind one that stamped the write",
        given: LoanInProgress::first,
        packet: |_| stamped(0),
        then: Second(X),
        counts: &["bypass_no_discipline", "pass_local"],
    },
    Row {
        name: "over IPv6",
        given: LoanInProgress::first,
        packet: |_| stamped(0).over_ipv6(),
        then: Second(X),
        counts: &["bypass_no_discipline", "pass_local"],
    },
    Row {
        name: "behind two",
        given: LoanInProgress::first,
        packet: |_| stamped(33),
        then: Forwarded,
        counts: &["bypass_no_discipline", "pass_local"],
    },
    Row {
        name: "the first that it passes",
        given: LoanInProgress::first,
        packet: |_| Message::write(SIGNED, KEY, b"new"),
        then: Forwarded,
        counts: &["bypass_no_discipline", "pass_local"],
    },
    Row {
        name: "the first takes off what the client made up",
        given: LoanInProgress::first,
        packet: |_| {
            let mut write = Message::write(SIGNED, KEY, b"new");
            write.header.node = 33;
            write
        },
        then: Second(0),
        counts: &["bypass_no_discipline", "pass_local"],
    },
    Row {
        name: "of a tenant whose keys may not be lent",
        given: LoanInProgress::first,
        packet: |_| Message::write(PLAIN, KEY, b"new").epoch(Epoch::new(Y, 5)),
        then: Forwarded,
        counts: &["bypass_no_discipline", "pass_local"],
    },
    Row {
        name: "a delete has none",
        given: LoanInProgress::first,
        packet: |_| {
            let delete = Message::from_client(Op::DeleteRequest, SIGNED, KEY);
            delete.epoch(Epoch::new(Y, 5))
        },
        then: Forwarded,
        counts: &["bypass_no_discipline", "pass_local"],
    },
];
