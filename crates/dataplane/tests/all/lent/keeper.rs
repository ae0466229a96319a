//! The second switch of a loan, and the naming of it.

use harness::{Message, message::secret_of};
use wire::{Epoch, Flags, Op, Status};

use super::world::{Expectation::*, *};

#[test]
fn writes_are_kept_once() {
    check(KEPT);
}

pub const KEPT: &[Row] = &[
    to_keeper("a write")
        .packet(|at| at.keep(1, 1, b"new"))
        .then(Kept(1, BASE + 1, b"new"), &["keep"]),
    to_keeper("over IPv6, odd lengths")
        .packet(|at| at.keep(1, 1, b"new").over_ipv6())
        .then(Kept(1, BASE + 1, b"new"), &["keep"]),
    Row::of("signed with the tenant's other secret: echoed")
        .given(|| LoanInProgress::keeper_of(ROTATING))
        .packet(|_| keep_of(ROTATING, 1, 1, b"new").flags(Flags::ALL))
        .then(Kept(1, BASE + 1, b"new"), &["keep"]),
    Row::of("of a tenant that is gone by now")
        .given(|| LoanInProgress::keeper().without_tenant())
        .packet(|at| at.keep(1, 1, b"new"))
        .then(Kept(1, BASE + 1, b"new"), &["keep"]),
    Row::of("an older one after a newer one: kept, its own value in the answer")
        .given(|| LoanInProgress::keeper().kept(2, 2, b"newer"))
        .packet(|at| at.keep(1, 1, b"new"))
        .then(Kept(1, BASE + 1, b"new"), &["keep"]),
    Row::of("and the newer one is what is kept")
        .given(|| LoanInProgress::keeper().kept(2, 2, b"newer").kept(1, 1, b"new"))
        .packet(|_| take(SIGNED, X, L, false, VERSION))
        .then(Takes(Status::Ok, Flags::NONE, BASE + 2, b"newer"), &["take"]),
    Row::of("the same packet again")
        .given(|| LoanInProgress::keeper().kept(1, 1, b"new"))
        .packet(|at| at.keep(1, 1, b"new"))
        .then(Kept(0, BASE + 1, b"new"), &["keep_again"]),
    Row::of("the client's retransmission, after a longer one: that is in the answer")
        .given(|| LoanInProgress::keeper().kept(1, 1, b"new").kept(2, 2, &[b'l'; 300]))
        .packet(|at| at.keep(1, 3, b"new"))
        .then(Kept(0, BASE + 2, &[b'l'; 300]), &["keep_again"]),
    Row::of("likewise after a shorter one, over IPv6")
        .given(|| LoanInProgress::keeper().kept(1, 1, &[b'l'; 300]).kept(2, 2, b""))
        .packet(|at| at.keep(1, 3, &[b'l'; 300]).over_ipv6())
        .then(Kept(0, BASE + 2, b""), &["keep_again"]),
    Row::of("its tenant has one window less than are left")
        .given(|| LoanInProgress::keeper().windows(2_000, 6_191))
        .packet(|at| at.keep(1, 1, b"new"))
        .then(Kept(1, BASE + 1, b"new"), &["keep"]),
    Row::of("the same number of another client")
        .given(|| LoanInProgress::keeper().kept(1, 1, b"new"))
        .packet(|at| at.keep(1, 2, b"newer").with(|keep| keep.header.client = 5))
        .then(Kept(2, BASE + 2, b"newer"), &["keep"]),
    Row::of("after 190 others of its client it is still known")
        .given(|| {
            (2..192).fold(LoanInProgress::keeper().kept(1, 1, b"new"), |at, number| {
                at.kept(number, number, b"newer")
            })
        })
        .packet(|at| at.keep(1, 200, b"new"))
        .then(Kept(0, BASE + 191, b"newer"), &["keep_again"]),
    Row::of("one that never came, among them, is new")
        .given(|| LoanInProgress::keeper().kept(1, 1, b"new").kept(150, 2, b"newer"))
        .packet(|at| at.keep(100, 3, b"newest"))
        .then(Kept(3, BASE + 3, b"newest"), &["keep"]),
    Row::of("after a leap of many nothing is said of what was before")
        .given(|| LoanInProgress::keeper().kept(1, 1, b"new").kept(1000, 2, b"newer"))
        .packet(|at| at.keep(1, 3, b"new"))
        .then(Dropped, &["drop_keep_old"]),
    Row::of("but of what is near it")
        .given(|| LoanInProgress::keeper().kept(70, 1, b"new").kept(1000, 2, b"newer"))
        .packet(|at| at.keep(900, 3, b"newest"))
        .then(Kept(3, BASE + 3, b"newest"), &["keep"]),
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
    Row::of("no loan")
        .packet(|at| at.keep(1, 1, b"new"))
        .then(Forwarded, &["keep_pass", "pass_local"]),
    Row::of("only prepared")
        .given(|| {
            let at = LoanInProgress::first();
            let mut lent = prepare(&at.w, SIGNED, X, false, L);
            lent.header.node = Y;
            prepared(&at.w, &lent);
            at
        })
        .packet(|at| at.keep(1, 1, b"new"))
        .then(Forwarded, &["keep_pass", "pass_local"]),
    Row::of("sealed")
        .given(|| LoanInProgress::keeper().sealed())
        .packet(|at| at.keep(1, 1, b"new"))
        .then(Forwarded, &["keep_pass", "pass_local"]),
    Row::of("kept, then sealed: it comes again")
        .given(|| LoanInProgress::keeper().kept(1, 1, b"new").sealed())
        .packet(|at| at.keep(1, 1, b"new"))
        .then(Forwarded, &["keep_pass", "pass_local"]),
    to_keeper("of a loan with another life")
        .packet(|at| at.keep(1, 1, b"new").with(|keep| keep.header.life = L + 1))
        .then(Forwarded, &["keep_pass", "pass_local"]),
    to_keeper("of another owner")
        .packet(|at| at.keep(1, 1, b"new").epoch(Epoch::new(33, 5)))
        .then(Forwarded, &["keep_pass", "pass_local"]),
    to_owner("this switch is the owner")
        .packet(|at| at.keep(1, 1, b"new"))
        .then(Forwarded, &["keep_pass", "pass_local"]),
    to_keeper("to be kept by another switch")
        .packet(|at| at.keep(1, 1, b"new").with(|keep| keep.header.node = 33))
        .then(Forwarded, &["bypass_no_discipline", "pass_local"]),
    to_keeper("a bit of it flipped")
        .packet(|at| at.keep(1, 1, b"new").with_a_flipped_bit())
        .then(Dropped, &["drop_spoiled"]),
    to_keeper("forged")
        .packet(|at| at.keep(1, 1, b"new").signed_with(secret_of(SIGNED)))
        .then(Dropped, &["drop_forged"]),
    Row::of("somebody died while he changed the record")
        .given(|| LoanInProgress::keeper().and(|at| at.change_record(|record| record[0] |= 1)))
        .packet(|at| at.keep(1, 1, b"new"))
        .then(Dropped, &["drop_lent_busy"]),
    Row::of("its tenant has as many windows as are left")
        .given(|| LoanInProgress::keeper().windows(2_000, 6_192))
        .packet(|at| at.keep(1, 1, b"new"))
        .then(Forwarded, &["keep_pass", "pass_local"]),
    Row::of("as many clients as one key may have")
        .given(|| {
            LoanInProgress::keeper().and(|at| {
                at.change_record(|record| {
                    record[WINDOWS..WINDOWS + 4].copy_from_slice(&512u32.to_ne_bytes());
                })
            })
        })
        .packet(|at| at.keep(1, 1, b"new"))
        .then(Forwarded, &["keep_pass", "pass_local"]),
];

fn stamped(node: u16) -> Message {
    Message::write(SIGNED, KEY, b"new")
        .epoch(Epoch::new(Y, 5))
        .with(|write| write.header.node = node)
}

#[test]
fn the_second_switch_names_itself() {
    check(SECOND);
}

pub const SECOND: &[Row] = &[
    Row::of("behind one that has sent it to stores that hold copies, too")
        .packet(|_| stamped(wire::NODE_ALL))
        .then(Forwarded, &["bypass_no_discipline", "pass_local"]),
    Row::of("the same without a stamp")
        .packet(|_| stamped(wire::NODE_ALL).epoch(Epoch::NONE))
        .then(Forwarded, &["bypass_no_discipline", "pass_local"]),
    Row::of("behind one that stamped the write")
        .packet(|_| stamped(0))
        .then(Second(X), &["bypass_no_discipline", "pass_local"]),
    Row::of("over IPv6")
        .packet(|_| stamped(0).over_ipv6())
        .then(Second(X), &["bypass_no_discipline", "pass_local"]),
    Row::of("behind two")
        .packet(|_| stamped(33))
        .then(Forwarded, &["bypass_no_discipline", "pass_local"]),
    Row::of("the first that it passes")
        .packet(|_| Message::write(SIGNED, KEY, b"new"))
        .then(Forwarded, &["bypass_no_discipline", "pass_local"]),
    Row::of("the first takes off what the client made up")
        .packet(|_| Message::write(SIGNED, KEY, b"new").with(|write| write.header.node = 33))
        .then(Second(0), &["bypass_no_discipline", "pass_local"]),
    Row::of("of a tenant whose keys may not be lent")
        .packet(|_| Message::write(PLAIN, KEY, b"new").epoch(Epoch::new(Y, 5)))
        .then(Forwarded, &["bypass_no_discipline", "pass_local"]),
    Row::of("a delete has none")
        .packet(|_| {
            let delete = Message::from_client(Op::DeleteRequest, SIGNED, KEY);
            delete.epoch(Epoch::new(Y, 5))
        })
        .then(Forwarded, &["bypass_no_discipline", "pass_local"]),
];
