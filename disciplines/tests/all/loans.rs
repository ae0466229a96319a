//! Write-back: a store, the switches that own and keep a lent key, clients behind the owner, and a
//! friend of theirs on another path.

use api::types::{TenantChange, TenantSpec};
use dataplane::LoanCounts;
use plan::{
    Plan, Site,
    roles::{Data, Role},
    shapes,
};
use scenario::{Deed, Scenario, seat};
use sim::StoreHost;
use store::mutants::{Mutant, choose};
use wire::{Flags, Header, LIFE_MOVED, LIFE_UNKNOWN, Op, Status};

const KEY: &str = "k";
/// The switches of the loan, and the store.
const OWNER: &str = "switch1";
const KEEPER: &str = "switch2";
const STORE: &str = "server1";
/// The backend is down for so long each time that it dies.
const DOWN_NS: u64 = 2_000_000_000;
const NO_LOANS: LoanCounts = LoanCounts { owns: 0, keeps: 0, sealed: 0 };

/// Switches in a line from `client1` to the store, of which the last is a router, and `friend` at a
/// third switch beside them.
fn world() -> Scenario {
    with_data(Data::Kept)
}

/// Likewise, where the store's data is there.
fn with_data(data: Data) -> Scenario {
    let switches = [OWNER, KEEPER, "switch3", "router"].map(|name| Site::switch(name, vec![]));
    let mut plan = Plan { sites: switches.into(), partitions: 8, ..Plan::default() };
    plan.links = shapes::line(&[OWNER, KEEPER, "router", "switch3"]);
    plan.add_hosts("router", [STORE, "control"].map(String::from));
    plan.add_hosts(OWNER, ["client1".to_owned()]);
    plan.add_hosts("switch3", ["friend".to_owned()]);
    seat(&mut plan, |role| {
        if let Role::Store(store) = role {
            store.lend_from = Some(8);
            store.data = data;
        }
    });
    // More pages than two switches have, so that each looks at the tenant's packets.
    let tenant =
        TenantSpec { id: Some(7), quota: 150, write_back_ms: 100, ..TenantSpec::default() };
    let mut scenario = Scenario::of(&plan, disciplines::all()).for_tenant(tenant);
    scenario.pass(2_000);
    scenario
}

/// The key is lent.
fn lent() -> Scenario {
    lent_in(world())
}

/// In this world, too.
fn lent_in(mut s: Scenario) -> Scenario {
    for _ in 0..10 {
        s.write("client1", KEY);
        s.pass(5);
    }
    s.pass(20);
    assert_eq!((s.loans(OWNER).owns, s.loans(KEEPER).keeps), (1, 1), "{:?}", s.store(STORE).loans);
    s
}

/// The owner has answered a write that the store has not heard of; its number.
fn with_an_unflushed_write() -> (Scenario, u64) {
    let mut s = lent();
    s.pass(100);
    let before = s.store(STORE);
    let newest = s.write("client1", KEY);
    let after = s.store(STORE);
    assert_eq!(after.write.writes_applied, before.write.writes_applied);
    assert_eq!(after.loans.loan_flushes, before.loans.loan_flushes);
    (s, newest)
}

#[test]
fn a_hot_key_is_lent_written_pulled_and_called_back() {
    let mut s = lent();
    s.pass(100);
    let before = s.store(STORE);
    let owner = |s: &Scenario| (s.switch(OWNER, "lent_answer"), s.switch(OWNER, "lent_read"));
    let (answered, read) = owner(&s);
    for _ in 0..5 {
        let newest = s.write("client1", KEY);
        s.pass(5);
        assert_eq!(s.read("client1", KEY), Some(newest));
        s.pass(5);
    }
    assert_eq!(owner(&s), (answered + 5, read + 5));
    assert_eq!(s.store(STORE).write.writes_applied, before.write.writes_applied);
    s.pass(100);
    let pulled = s.store(STORE).loans.loan_flushes;
    assert!(pulled > before.loans.loan_flushes, "within the bound");
    let newest = s.write("client1", KEY);
    assert_eq!(s.store(STORE).loans.loan_flushes, pulled);
    assert_eq!(s.read("friend", KEY), Some(newest), "somebody reads on another path");
    assert_eq!(s.loans(OWNER).owns, 0);
    let loans = s.store(STORE).loans;
    assert_eq!((loans.loans, loans.loans_returned, loans.loans_lost), (1, 1, 0));
    s.write("client1", KEY);
    s.judge();
}

#[test]
fn a_lent_key_that_is_written_no_more_is_called_back_and_one_that_is_stays() {
    let mut s = lent();
    let mut newest = 0;
    for _ in 0..30 {
        newest = s.write("client1", KEY);
        s.pass(100);
    }
    assert_eq!(s.loans(OWNER).owns, 1, "10 a second, lent from 8 on");
    s.pass(2_200);
    assert_eq!(s.loans(OWNER).owns, 0);
    let loans = s.store(STORE).loans;
    assert_eq!((loans.loans_returned, loans.loans_cold), (1, 1));
    assert_eq!(s.read("friend", KEY), Some(newest));
    s.write("client1", KEY);
    s.judge();
}

/// The keeper is away for less than the store waits for it, and the owner behind it, too.
fn away_for_a_moment(s: &mut Scenario, goes: fn(&mut Scenario), comes_back: fn(&mut Scenario)) {
    goes(s);
    s.begin("friend", Deed::Read, KEY);
    s.pass(400);
    comes_back(s);
}

#[test]
fn any_one_that_dies_loses_nothing() {
    let deaths: [fn(&mut Scenario); 9] = [
        |s| s.reboot(OWNER),
        |s| s.reboot(KEEPER),
        |s| s.lose_tables(OWNER),
        |s| s.lose_tables(KEEPER),
        |s| s.suspend(OWNER),
        |s| s.silence(OWNER, true),
        |s| away_for_a_moment(s, |s| s.suspend(KEEPER), |s| s.resume(KEEPER)),
        |s| away_for_a_moment(s, |s| s.silence(KEEPER, true), |s| s.silence(KEEPER, false)),
        |s| s.restart("server1/store"),
    ];
    for (n, dies) in deaths.into_iter().enumerate() {
        let (mut s, newest) = with_an_unflushed_write();
        dies(&mut s);
        // Somebody wants it, and asks in vain maybe.
        s.begin("friend", Deed::Read, KEY);
        s.pass(2_500);
        s.resume(OWNER);
        s.silence(OWNER, false);
        s.pass(100);
        assert_eq!(s.read("friend", KEY), Some(newest), "{n}");
        let newest = s.write("friend", KEY);
        assert_eq!(s.read("client1", KEY), Some(newest), "{n}");
        assert_eq!(s.store(STORE).loans.loans_lost, 0, "{n}");
        s.judge();
    }
}

#[test]
fn if_both_lose_their_memory_what_was_flushed_last_is_there_and_the_loss_is_counted() {
    let (mut s, flushed) = with_an_unflushed_write();
    s.pass(100);
    s.write("client1", KEY);
    s.reboot(OWNER);
    s.reboot(KEEPER);
    s.pass(500);
    assert_eq!(s.store(STORE).loans.loans_lost, 1);
    assert_eq!(s.read("friend", KEY), Some(flushed));
}

#[test]
fn a_tenant_whose_write_back_ends_or_that_leaves_has_its_keys_called_back() {
    let end = TenantChange { write_back_ms: Some(0), ..TenantChange::default() };
    for leaves in [false, true] {
        let (mut s, newest) = with_an_unflushed_write();
        let flushes = s.store(STORE).loans.loan_flushes;
        match leaves {
            true => s.remove_tenant(),
            false => s.change(end.clone()),
        }
        s.until(1_000, |s| s.store(STORE).loans.loans_returned == 1);
        let loans = s.store(STORE).loans;
        assert_eq!(loans.loans_lost, 0, "leaves: {leaves}");
        assert_eq!(loans.loan_flushes, flushes + 1, "leaves: {leaves}");
        assert_eq!(s.status(STORE).loans.lent, 0);
        if !leaves {
            assert_eq!(s.read("friend", KEY), Some(newest));
        }
    }
}

#[test]
fn a_delete_and_a_write_by_another_path_end_a_loan_and_take_place() {
    for deed in [Deed::Delete, Deed::Write(0)] {
        let (mut s, _) = with_an_unflushed_write();
        let done = s.ask("friend", deed, KEY).expect("it is answered");
        assert_eq!(s.store(STORE).loans.loans_returned, 1, "{deed:?}");
        assert_eq!(s.read("friend", KEY), done, "{deed:?}");
        s.judge();
    }
}

#[test]
fn what_a_restored_journal_knows_of_is_not_put_over_what_came_after_it() {
    for after_ms in [50, 12_000] {
        let (mut s, _) = with_an_unflushed_write();
        let store = s.process("server1/store");
        let backup = s.world.backup(store);
        let newest = s.write("friend", KEY);
        s.pass(after_ms);
        s.world.kill(store);
        s.world.put_back(store, backup);
        s.world.start(store).expect("it was killed");
        s.pass(4_000);
        let (loans, found) = (s.status(STORE).loans, s.store(STORE).loans.loans_found);
        assert_eq!((loans.lent, loans.returning, found), (0, 0, 1));
        let records = s.loans(OWNER).sealed + s.loans(KEEPER).sealed;
        assert_eq!(records == 0, after_ms > 11_000, "a record is asked for 11 s");
        assert_eq!(s.read("friend", KEY), Some(newest), "after {after_ms} ms");
    }
}

#[test]
fn what_is_back_is_read_although_its_journal_does_not_forget_it() {
    let (mut s, newest) = with_an_unflushed_write();
    let store = s.process("server1/store");
    s.world.fail_disk(store, true);
    assert_eq!(s.read("friend", KEY), Some(newest));
    let write = s.begin("friend", Deed::Write(0), KEY);
    s.pass(50);
    assert_eq!(s.outcome("friend", write), None, "a crash would bring back what was before");
    assert_eq!(s.status(STORE).loans.returning, 1);
    s.world.fail_disk(store, false);
    s.pass(2_000);
    assert_eq!(s.status(STORE).loans.returning, 0);
    let newest = s.write("friend", KEY);
    s.restart("server1/store");
    s.pass(2_000);
    assert_eq!(s.store(STORE).loans.loans_found, 0, "the journal has forgotten it");
    assert_eq!(s.read("client1", KEY), Some(newest));
    s.judge();
}

/// The store has ended while its backend was down, with what it had called back: nobody but the
/// switches has what they answered.
#[test]
fn what_was_called_back_and_not_written_outlives_the_store() {
    let (mut s, newest) = with_an_unflushed_write();
    let store = s.process("server1/store");
    let down = |s: &mut Scenario| {
        let dies = |store: &mut StoreHost, io: &mut sim::Io<'_>| store.restart_data(DOWN_NS, io);
        s.world.with(store, dies).expect("it runs");
    };
    down(&mut s);
    s.begin("friend", Deed::Read, KEY);
    for _ in 0..5 {
        s.pass(1_000);
        // What was asked meanwhile has failed.
        down(&mut s);
    }
    assert!(s.store(STORE).loans.loan_flush_errors > 1);
    assert_eq!((s.status(STORE).loans.returning, s.store(STORE).loans.loans_returned), (1, 0));
    assert_eq!((s.loans(OWNER).sealed, s.loans(KEEPER).sealed), (1, 1));
    s.world.kill(store);
    s.pass(15_000);
    s.world.start(store).expect("it was killed");
    s.pass(4_000);
    let (loans, counted) = (s.status(STORE).loans, s.store(STORE).loans);
    assert_eq!((loans.lent, loans.returning), (0, 0));
    assert_eq!((counted.loans_found, counted.loans_lost), (1, 0));
    assert_eq!(s.read("friend", KEY), Some(newest));
    // The store has said that it is over.
    s.pass(12_000);
    assert_eq!((s.loans(OWNER), s.loans(KEEPER)), (NO_LOANS, NO_LOANS));
    s.judge();
}

/// A store whose data goes with it has no journal; its switches keep what its next life knows
/// nothing of.
#[test]
fn a_loan_that_nobody_knows_any_more_is_over_once_its_key_is_lent_anew() {
    let mut s = lent_in(with_data(Data::Own));
    s.restart("server1/store");
    s.pass(3_000);
    assert_eq!((s.loans(OWNER).owns, s.loans(KEEPER).keeps), (1, 1), "nobody has told them");
    for _ in 0..400 {
        s.write("client1", KEY);
        s.pass(50);
        if s.store(STORE).loans.loans == 1 {
            break;
        }
    }
    let newest = s.write("client1", KEY);
    let loans = s.store(STORE).loans;
    assert_eq!((loans.loans_found, loans.loans), (0, 1));
    assert_eq!(s.read("friend", KEY), Some(newest));
    s.pass(12_000);
    assert_eq!((s.loans(OWNER), s.loans(KEEPER)), (NO_LOANS, NO_LOANS));
    s.judge();
}

#[test]
fn a_switch_that_was_not_reached_is_told_again_that_a_loan_is_over() {
    let (mut s, _) = with_an_unflushed_write();
    s.begin("friend", Deed::Read, KEY);
    s.until(1_000, |s| s.store(STORE).loans.loans_returned == 1);
    // What was said at once is lost, if it did not arrive yet.
    for is_silent in [true, false] {
        s.silence(OWNER, is_silent);
        s.silence(KEEPER, is_silent);
        s.pass(1_000);
    }
    s.pass(12_000);
    assert_eq!((s.loans(OWNER), s.loans(KEEPER)), (NO_LOANS, NO_LOANS));
    assert_eq!(s.store(STORE).loans.dropped_loan, 0);
}

/// A write was moved to a loan and kept, maybe; then the keeper lost its memory, so that nobody can
/// tell; others have written since. A copy of it that was on its way all the time, from when its
/// client meant it for the store, comes last. What the key has then, and what others wrote.
fn a_late_copy_of_a_write_that_was_moved() -> [Option<u64>; 2] {
    let value = 4711u64.to_be_bytes();
    let write = |life, flags| Header { life, flags, request: 1, ..Header::new(Op::WriteRequest) };
    let mut s = world();
    let own = s.by_hand("friend", write(LIFE_UNKNOWN, Flags::NONE), KEY, &value).life;
    for _ in 0..10 {
        s.write("client1", KEY);
        s.pass(5);
    }
    let moved = s.by_hand("friend", write(own, Flags::NONE), KEY, &value);
    assert_eq!((moved.status, moved.expiry_ms), (Status::OtherLife, LIFE_MOVED));
    // The owner has passed it on, to a keeper that has no memory of it.
    s.reboot(KEEPER);
    let untold = s.by_hand("friend", write(moved.life, Flags::NONE), KEY, &value);
    assert_eq!((untold.status, s.store(STORE).loans.writes_untold), (Status::OtherLife, 1));
    let newest = s.write("friend", KEY);
    s.by_hand("friend", write(own, Flags::ALL), KEY, &value);
    [s.read("friend", KEY), Some(newest)]
}

#[test]
fn a_write_that_was_moved_to_a_loan_is_never_new_again() {
    let [read, newest] = a_late_copy_of_a_write_that_was_moved();
    assert_eq!(read, newest);
}

#[test]
fn the_mutant_that_forgets_what_was_moved_is_found() {
    choose(Some(Mutant::MovedForgotten));
    let [read, newest] = a_late_copy_of_a_write_that_was_moved();
    choose(None);
    assert_eq!(read, Some(4711), "and not {newest:?}");
}
