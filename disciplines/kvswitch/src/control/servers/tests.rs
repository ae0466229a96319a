//! Servers that fall behind, are slow, and catch up.

use super::*;

fn window(servers: &mut Servers, counts: &[(u64, u64)]) {
    let mut tallies = [0; decide::TALLIES];
    for (tally, (requests, answers)) in tallies[LOADS..].iter_mut().zip(counts) {
        *tally = requests | (answers << 32);
    }
    servers.window_end(&tallies);
}

fn three() -> Servers {
    let mut servers = Servers::default();
    servers.resize(3);
    servers
}

#[test]
fn a_server_that_began_anew_is_as_fast_as_others_until_windows_say_otherwise() {
    let mut servers = three();
    let all = |third| [(1000, 1000), (1000, 1000), (1000, third)];
    window(&mut servers, &all(1000));
    window(&mut servers, &all(200));
    window(&mut servers, &all(0));
    assert!(!servers.answers(2) && servers.weight(2) < 0.5);
    servers.began(2);
    window(&mut servers, &all(0));
    assert!(servers.answers(2) && !servers.is_behind(2));
    window(&mut servers, &all(700));
    assert!(servers.is_behind(2) && servers.weight(2) == 1.0);
    window(&mut servers, &all(1000));
    assert!(!servers.is_behind(2));
    window(&mut servers, &all(500));
    assert_eq!(servers.weight(2), SPARE * 0.5);
}

#[test]
fn the_highest_load_is_told_beside_the_average() {
    let mut servers = three();
    window(&mut servers, &[(100, 100), (100, 100), (160, 160)]);
    let (average, excess) = servers.load(&[true; 3]);
    assert_eq!(average, 120.0);
    assert!((excess - 1.0 / 3.0).abs() < 1e-9);
    assert_eq!(servers.load(&[true, true, false]), (100.0, 0.0));
    assert_eq!(servers.load(&[false; 3]), (0.0, 0.0));
}

#[test]
fn over_several_windows_chance_is_less() {
    let mut servers = three();
    for loads in [[(90, 90), (100, 100), (110, 110)], [(110, 110), (100, 100), (90, 90)]] {
        window(&mut servers, &loads);
        servers.remember();
    }
    assert_eq!(servers.lately(&[true; 3]), (200.0, 0.0));
    assert!(servers.load(&[true; 3]).1 > 0.09);
    servers.forget();
    assert_eq!(servers.lately(&[true; 3]), (0.0, 0.0));
}

#[test]
fn a_server_that_answers_less_than_others_weighs_less_and_is_tried_again() {
    let mut servers = three();
    window(&mut servers, &[(1000, 980), (1000, 980), (1000, 490)]);
    assert_eq!(servers.weight(0), 1.0);
    assert!((servers.weight(2) - SPARE * 0.5).abs() < 0.02);
    for _ in 0..SLOW_FOR + 12 * NEXT_STEP {
        window(&mut servers, &[(1000, 980), (1000, 980), (500, 490)]);
    }
    assert_eq!(servers.weight(2), 1.0);
}

#[test]
fn one_that_is_behind_is_no_measure_of_balance_and_its_weight_stays_until_it_has_caught_up() {
    let mut servers = three();
    window(&mut servers, &[(1000, 980), (1000, 980), (1500, 490)]);
    assert!(servers.is_behind(2));
    assert_eq!(servers.load(&[true; 3]), (1000.0, 0.0));
    let weight = servers.weight(2);
    // It has less to do now, and is asked again for what it left.
    window(&mut servers, &[(1000, 980), (1000, 980), (700, 300)]);
    assert!(servers.is_behind(2));
    window(&mut servers, &[(1000, 980), (1000, 980), (400, 400)]);
    assert!(!servers.is_behind(2));
    assert_eq!(servers.weight(2), weight);
    assert_eq!(servers.loads()[2], 400.0 / weight);
}

#[test]
fn where_most_have_too_much_to_do_nobody_is_behind() {
    let mut servers = three();
    window(&mut servers, &[(1000, 700), (1000, 700), (1000, 400)]);
    assert!((0..3).all(|at| !servers.is_behind(at)));
}

#[test]
fn what_is_under_way_when_a_window_ends_makes_nobody_slow() {
    let mut servers = three();
    window(&mut servers, &[(100, 99), (100, 99), (100, 85)]);
    assert!(!servers.is_behind(2) && servers.weight(2) == 1.0);
}

#[test]
fn one_that_is_asked_too_much_is_not_slow() {
    let mut servers = three();
    window(&mut servers, &[(100, 98), (100, 98), (400, 120)]);
    assert_eq!(servers.weight(2), 1.0);
}

#[test]
fn one_that_stays_slow_is_tried_less_and_less() {
    let mut servers = three();
    let mut slow = 0;
    for _ in 0..600 {
        // It can answer half of what the others are asked.
        let asked = (1000.0 * servers.weight(2)) as u64;
        slow += u32::from(asked > 550);
        let answers = asked.min(500);
        window(&mut servers, &[(1000, 1000), (1000, 1000), (asked, answers)]);
    }
    assert!(slow < 40, "asked too much in {slow} windows");
}

#[test]
fn one_that_answers_nothing_is_mute_until_it_does() {
    let mut servers = three();
    window(&mut servers, &[(100, 98); 3]);
    window(&mut servers, &[(100, 98), (100, 98), (60, 0)]);
    assert_eq!([0, 1, 2].map(|at| servers.answers(at)), [true, true, false]);
    window(&mut servers, &[(100, 98), (100, 98), (10, 0)]);
    assert!(!servers.answers(2), "it was asked little");
    window(&mut servers, &[(100, 98), (100, 98), (10, 9)]);
    assert!(servers.answers(2));
}

#[test]
fn one_that_stays_mute_is_tried_less_and_less() {
    let mut servers = three();
    window(&mut servers, &[(100, 98); 3]);
    let mut asked = 0;
    for _ in 0..600 {
        let requests = if servers.answers(2) { 60 } else { 0 };
        asked += u32::from(requests > 0);
        window(&mut servers, &[(100, 98), (100, 98), (requests, 0)]);
    }
    assert!((2..20).contains(&asked), "asked in {asked} windows");
}

#[test]
fn one_whose_answers_take_another_way_is_as_fast_as_others() {
    let mut servers = three();
    (0..3).for_each(|_| window(&mut servers, &[(100, 98), (100, 98), (100, 0)]));
    assert!(servers.answers(2) && servers.weight(2) == 1.0);
}

#[test]
fn where_nobody_counts_answers_all_are_alike() {
    let mut servers = three();
    window(&mut servers, &[(100, 0), (100, 0), (400, 0)]);
    assert_eq!([0, 1, 2].map(|at| servers.answers(at)), [true; 3]);
    assert_eq!(servers.weight(2), 1.0);
}
