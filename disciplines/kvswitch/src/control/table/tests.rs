//! Plans of tables, carried out.

use proptest::prelude::*;

use super::*;

fn key(n: u32) -> Key {
    Key::copy_from_slice(&n.to_be_bytes())
}

/// The home of a key: the server of its number.
fn home(key: &Key) -> usize {
    usize::from(key[3]) % 8
}

struct Case {
    loads: Vec<(Key, f64)>,
    may: Vec<bool>,
    /// A server that is there, and may have no turns.
    behind: Option<usize>,
    /// Whether who is not there has not been for a lease.
    lapsed: bool,
    room: usize,
    changes: usize,
    weights: [f64; 8],
    full: f64,
}

impl Case {
    fn of(loads: &[(u32, f64)]) -> Case {
        Case {
            loads: loads.iter().map(|(n, load)| (key(*n), *load)).collect(),
            may: vec![true; 8],
            behind: None,
            lapsed: true,
            room: 100,
            changes: 100,
            weights: [1.0; 8],
            full: f64::INFINITY,
        }
    }

    fn plan(&self, table: &Table) -> Vec<Assignment> {
        let takes = |at: usize| self.may[at] && self.behind != Some(at);
        let takes: Vec<bool> = (0..self.may.len()).map(takes).collect();
        table.plan(&Situation {
            hottest: &self.loads,
            load: &|_| 0.0,
            threshold: 100.0,
            home: &|key| Some(home(key)).filter(|at| self.may[*at]),
            is_lapsed: &|_| self.lapsed,
            entry: &|_, at| Some(at).filter(|at| takes[*at]),
            server_of: &|at| at,
            loads: &self.present(table),
            full: self.full,
            average: self.full / 1.1,
            weight: &|at| self.weights[at],
            may: &takes,
            most: &|_| 64,
            busy: &|_| false,
            room: self.room,
            changes: self.changes,
        })
    }

    /// What each server has to do.
    fn present(&self, table: &Table) -> [f64; 8] {
        let mut loads = [0.0; 8];
        for (key, load) in &self.loads {
            let at_home = vec![home(key)];
            let servers = table.servers(key).unwrap_or(&at_home);
            let each = load / servers.len() as f64;
            servers.iter().for_each(|at| loads[*at] += each);
        }
        loads
    }

    /// Plans and does it, until nothing is left.
    fn carry_out(&self, table: &mut Table) -> usize {
        let mut done = 0;
        loop {
            let plan = self.plan(table);
            if plan.is_empty() {
                return done;
            }
            done += plan.len();
            assert!(done < 1000, "it never ends");
            for change in plan {
                let turns = turns_of(&change.servers, &|at| self.weights[at]);
                table.set(&change.key, change.servers);
                table.set_turns(&change.key, turns);
                table.set_home(&change.key, home(&change.key));
            }
        }
    }
}

#[test]
fn a_key_has_as_many_servers_as_its_load_says_and_its_home_is_one() {
    let mut table = Table::default();
    Case::of(&[(1, 350.0), (2, 150.0), (3, 90.0)]).carry_out(&mut table);
    assert_eq!(table.servers(&key(1)).unwrap(), &[1, 4, 5, 7]);
    assert_eq!(table.servers(&key(2)).unwrap(), &[2, 6]);
    assert_eq!((table.len(), table.replicas()), (2, 6));
}

#[test]
fn a_home_with_too_much_to_do_has_no_turns_until_it_has_less_than_others() {
    let mut table = Table::default();
    let mut given = Case::of(&[(1, 350.0), (9, 60.0), (17, 40.0), (2, 20.0)]);
    given.carry_out(&mut table);
    assert_eq!(table.len(), 1, "the others are below the threshold");
    // The home has 87 + 60 + 40.
    given.full = 110.0;
    given.carry_out(&mut table);
    assert!(!table.servers(&key(1)).unwrap().contains(&1));
    let servers = table.servers(&key(9)).cloned();
    assert_eq!(servers, None, "the first sufficed");
    given.full = 95.0;
    given.carry_out(&mut table);
    let servers = table.servers(&key(9)).unwrap();
    assert_eq!(servers.len(), 2, "{servers:?}");
    assert_eq!(table.servers(&key(17)), None);
    assert_eq!(given.plan(&table), [], "it settles");
    given.full = 1000.0;
    given.carry_out(&mut table);
    assert_eq!(table.servers(&key(9)), None, "it may come back");
}

#[test]
fn one_that_is_behind_has_no_turns_until_it_has_caught_up() {
    let mut table = Table::default();
    let mut given = Case::of(&[(1, 350.0), (2, 150.0), (9, 60.0), (17, 2.0)]);
    given.carry_out(&mut table);
    assert_eq!(table.servers(&key(9)), None, "it is below the threshold");
    given.behind = Some(1);
    given.carry_out(&mut table);
    for n in [1, 2, 9] {
        let servers = table.servers(&key(n)).unwrap();
        assert!(servers.len() >= 2 && !servers.contains(&1), "{n}: {servers:?}");
    }
    assert_eq!(table.servers(&key(17)), None, "it is not worth it");
    given.behind = None;
    given.full = 110.0;
    given.carry_out(&mut table);
    assert!(table.servers(&key(1)).unwrap().contains(&1));
}

#[test]
fn a_server_with_little_to_do_is_given_turns_of_those_with_most() {
    let mut table = Table::default();
    let mut given = Case::of(&[(1, 420.0), (2, 360.0), (3, 300.0)]);
    given.may[7] = false;
    given.carry_out(&mut table);
    given.may[7] = true;
    let before = given.present(&table);
    assert_eq!(before[7], 0.0);
    assert_eq!(given.plan(&table), [], "nothing says what is little");
    given.full = 1.1 * 1080.0 / 8.0;
    given.carry_out(&mut table);
    let after = given.present(&table);
    assert!(after[7] > 60.0, "{before:?} {after:?}");
    let highest = |loads: [f64; 8]| loads.into_iter().fold(0.0, f64::max);
    assert!(highest(after) <= highest(before), "{before:?} {after:?}");
}

#[test]
fn what_is_worth_a_turn_of_all_has_one_of_who_comes_later() {
    let mut table = Table::default();
    let mut given = Case::of(&[(1, 790.0)]);
    given.behind = Some(4);
    given.carry_out(&mut table);
    assert_eq!(table.servers(&key(1)).unwrap().len(), 7);
    given.behind = None;
    given.carry_out(&mut table);
    assert_eq!(table.servers(&key(1)).unwrap().len(), 8);
}

#[test]
fn about_right_stays_as_it_is() {
    let mut table = Table::default();
    Case::of(&[(1, 350.0), (2, 150.0)]).carry_out(&mut table);
    for loads in [[300.0, 101.0], [390.0, 190.0], [250.0, 80.0]] {
        let given = Case::of(&[(1, loads[0]), (2, loads[1])]);
        assert_eq!(given.plan(&table), [], "{loads:?}");
    }
    let plan = Case::of(&[(1, 150.0), (2, 60.0)]).plan(&table);
    let counts: Vec<usize> = plan.iter().map(|change| change.servers.len()).collect();
    assert_eq!(counts, [3, 0], "the one has fewer, the other goes");
}

#[test]
fn what_grows_keeps_what_it_has() {
    let mut table = Table::default();
    Case::of(&[(1, 350.0)]).carry_out(&mut table);
    Case::of(&[(1, 650.0)]).carry_out(&mut table);
    let servers = table.servers(&key(1)).unwrap();
    assert_eq!(servers.len(), 7);
    assert!([1, 3, 5, 7].iter().all(|at| servers.contains(at)));
}

#[test]
fn a_server_that_turns_slow_has_fewer_turns_of_what_it_has_and_all_when_it_is_fast() {
    let mut table = Table::default();
    let mut given = Case::of(&[(1, 350.0), (2, 150.0)]);
    given.carry_out(&mut table);
    let servers = table.servers(&key(1)).unwrap().clone();
    assert_eq!(servers, [1, 3, 5, 7]);
    given.weights[5] = 0.5;
    given.changes = 1;
    assert_eq!(given.carry_out(&mut table), 1, "the other is not at it");
    assert_eq!(table.servers(&key(1)), Some(&servers));
    assert_eq!(table.turns(&key(1)), [4, 4, 2, 4]);
    given.weights[5] = 0.55;
    assert_eq!(given.plan(&table), [], "about the same");
    given.weights[5] = 1.0;
    assert_eq!(given.carry_out(&mut table), 1);
    assert_eq!(table.turns(&key(1)), [0; 0]);
}

#[test]
fn a_dead_server_is_left_at_once_and_has_nothing_until_it_is_back() {
    let mut table = Table::default();
    Case::of(&[(1, 350.0), (2, 150.0), (4, 150.0)]).carry_out(&mut table);
    let mut given = Case::of(&[(1, 350.0), (2, 150.0), (4, 150.0)]);
    given.may[5] = false;
    given.changes = 1;
    assert_eq!(given.plan(&table)[0].key, key(1));
    given.carry_out(&mut table);
    let servers = table.servers(&key(1)).unwrap();
    assert!(servers.len() == 4 && !servers.contains(&5), "{servers:?}");
    // Where a home is dead the others go on for a lease, and have its turn.
    given.may[2] = false;
    given.changes = 10;
    given.lapsed = false;
    given.carry_out(&mut table);
    assert_eq!(table.servers(&key(2)), Some(&vec![6]));
    given.lapsed = true;
    given.carry_out(&mut table);
    assert_eq!(table.servers(&key(2)), None);
    assert!(table.servers(&key(4)).is_some());
}

#[test]
fn without_room_the_colder_make_it() {
    let mut table = Table::default();
    Case::of(&[(1, 150.0), (2, 160.0)]).carry_out(&mut table);
    let mut given = Case::of(&[(3, 400.0), (2, 160.0)]);
    given.room = 2;
    given.carry_out(&mut table);
    assert!(table.servers(&key(3)).is_some() && table.servers(&key(1)).is_none());
    assert_eq!(table.len(), 2);
}

proptest! {
    /// Whatever the loads: a plan keeps to its bounds, comes to an end, and no key stands at a
    /// server that may not have it.
    #[test]
    fn plans_keep_their_bounds(loads in prop::collection::vec(0.0f64..2000.0, 0..60), others in prop::collection::vec(0.0f64..2000.0, 0..60), room in 1usize..40, changes in 1usize..20, dead in 0usize..8) {
        let numbered = |loads: &[f64]| -> Vec<(u32, f64)> { (0..).zip(loads.iter().copied()).collect() };
        let mut table = Table::default();
        for loads in [loads, others] {
            let mut given = Case::of(&numbered(&loads));
            given.room = room;
            given.changes = changes;
            given.may[dead] = false;
            prop_assert!(given.plan(&table).len() <= changes);
            given.carry_out(&mut table);
            prop_assert!(table.len() <= room);
            for (key, servers) in table.iter() {
                prop_assert!(servers.len() >= 2 && servers.contains(&home(key)));
                prop_assert!(!servers.contains(&dead));
            }
        }
    }
}
