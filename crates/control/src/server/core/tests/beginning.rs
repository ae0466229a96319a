//! What a controller that begins to lead does before it has heard of its switches.

use api::proto::{Flow, Interface, Route, RoutesApplied, Traffic};

use super::*;

/// Of the switches of a line, with a client's subnet at one end and a store's at the other.
const LINE: [&[&str]; 3] = [
    &["10.9.0.254/24", "10.1.2.1/24"],
    &["10.1.2.2/24", "10.2.3.2/24"],
    &["10.2.3.3/24", "10.0.0.254/24"],
];

fn interfaces(addresses: &[&str]) -> Interfaces {
    let interface = |(n, address): (usize, &&str)| Interface {
        name: format!("eth{n}"),
        up: true,
        addresses: vec![address.to_string()],
        ..Interface::default()
    };
    Interfaces { interfaces: addresses.iter().enumerate().map(interface).collect() }
}

impl Stage {
    /// A line of three switches, whose pages may be anywhere and whose routes are kept.
    fn line(pages: u32) -> Stage {
        let mut stage = Stage::new(pages);
        for (n, addresses) in LINE.iter().enumerate() {
            let stream = match n {
                0 => stage.stream,
                n => stage.attach(n as u32 + 1, pages),
            };
            stage.say(stream, from_switch::Body::Interfaces(interfaces(addresses)));
        }
        stage.core.manage_routes(ASKED, true);
        stage
    }

    /// Of the next lead, whose state is this one's, or as an earlier version would have left it.
    fn next(mut self, term: u64, is_old: bool) -> Stage {
        self.write();
        self.loaded.rows.retain(|key, _| !(is_old && key.starts_with("interfaces/")));
        Stage::from(10, self.loaded, self.wanting, term)
    }

    fn line_tells(&mut self, stream: StreamId) {
        let addresses = LINE[usize::from(stream.switch) - 1];
        self.say(stream, from_switch::Body::Interfaces(interfaces(addresses)));
    }

    /// The routes that a switch is sent now.
    fn routes(&mut self, stream: StreamId) -> Option<Vec<Route>> {
        let next = || self.core.next_message(self.now, stream);
        let routes = std::iter::from_fn(next).filter_map(|message| match message.body? {
            to_switch::Body::Routes(routes) => Some(routes.routes),
            _ => None,
        });
        routes.last()
    }

    fn ticks(&mut self, time: Duration) {
        let until = self.now + time;
        while self.now < until {
            self.now += TICK;
            self.core.tick(self.now, 1_000);
        }
    }

    /// Own and lent pages of a tenant by switch.
    fn held(&self, tenant: u32) -> BTreeMap<SwitchId, usize> {
        let mut held = BTreeMap::new();
        for (page, _) in self.core.memory.ledger().held(tenant) {
            *held.entry(page.switch).or_default() += 1;
        }
        held
    }
}

fn prefixes(routes: Option<Vec<Route>>) -> Option<Vec<String>> {
    Some(routes?.into_iter().map(|route| route.prefix).collect())
}

#[test]
fn the_next_lead_has_the_same_routes_from_the_start() {
    let mut stage = Stage::line(10);
    let before = stage.routes(stage.stream).unwrap();
    assert_eq!(before.len(), 2);
    let mut next = stage.next(2, false);
    assert_eq!(next.routes(next.stream), Some(before));
    // Another that was never here has told nothing yet.
    let other = next.attach(4, 10);
    assert_eq!(next.routes(other), None);
}

/// Both leads count their versions from one.
#[test]
fn that_a_switch_has_the_routes_of_another_lead_is_no_answer_to_this_one() {
    for (term, is_answer) in [(0, false), (1, false), (2, true)] {
        let mut stage = Stage::line(10);
        stage.routes(stage.stream);
        let mut next = stage.next(2, false);
        let applied = RoutesApplied { term, version: 1, failed: vec![] };
        next.say(next.stream, from_switch::Body::Routes(applied.clone()));
        assert_eq!(next.routes(next.stream).is_none(), is_answer, "{term}");
        // An agent of an earlier version names no term.
        let applied = RoutesApplied { term: 0, ..applied };
        next.say(next.stream, from_switch::Body::Routes(applied));
        next.ticks(Duration::from_secs(5));
        assert_eq!(next.routes(next.stream), None);
        assert!(next.core.view().routes().routes.iter().any(|route| route.installed));
    }
}

#[test]
fn a_lead_without_interfaces_in_its_state_takes_no_routes_away_before_it_was_told_all() {
    let mut stage = Stage::line(10);
    let before = stage.routes(stage.stream).unwrap();
    let mut next = stage.next(2, true);
    assert_eq!(next.routes(next.stream), None);
    next.line_tells(next.stream);
    let second = next.attach(2, 10);
    next.line_tells(second);
    next.ticks(Duration::from_secs(5));
    assert_eq!(next.routes(next.stream), None, "those by the third switch are not known yet");
    let third = next.attach(3, 10);
    assert_eq!(next.routes(next.stream), None);
    next.line_tells(third);
    assert_eq!(next.routes(next.stream), Some(before));
}

#[test]
fn a_switch_that_is_away_holds_routes_up_for_so_long_and_keeps_its_own() {
    let mut next = Stage::line(10).next(2, true);
    next.line_tells(next.stream);
    let second = next.attach(2, 10);
    next.line_tells(second);
    next.ticks(Duration::from_secs(11));
    assert_eq!(prefixes(next.routes(next.stream)), Some(vec!["10.2.3.0/24".into()]));
    let third = next.attach(3, 10);
    assert_eq!(next.routes(third), None);
    next.line_tells(third);
    assert_eq!(next.routes(third).map(|routes| routes.len()), Some(2));
}

#[test]
fn routes_that_are_kept_no_longer_go_at_once() {
    let mut next = Stage::line(10).next(2, true);
    next.core.manage_routes(ASKED, false);
    assert_eq!(next.routes(next.stream), Some(vec![]));
}

#[test]
fn interfaces_are_written_when_links_change_and_go_with_their_switch() {
    let mut stage = Stage::line(10);
    stage.write();
    let row = |stage: &Stage| stage.loaded.rows.get("interfaces/1").cloned();
    assert!(row(&stage).is_some());
    let mut told = interfaces(LINE[0]);
    told.interfaces[0].neighbours = vec!["10.9.0.7".into()];
    stage.say(stage.stream, from_switch::Body::Interfaces(told.clone()));
    assert!(!stage.core.journal.is_pending(), "of a neighbour nothing is remembered");
    let before = row(&stage);
    told.interfaces[1].silent = vec![2];
    stage.say(stage.stream, from_switch::Body::Interfaces(told));
    stage.write();
    assert_ne!(row(&stage), before);
    stage.core.detach(stage.now, stage.stream);
    stage.core.forget_switch(ASKED, 1).unwrap();
    stage.write();
    assert_eq!(row(&stage), None);
}

/// One that was probed, and is not named, would be judged from its next answer on only.
#[test]
fn the_first_setup_of_a_lead_names_the_neighbours() {
    let mut next = Stage::line(10).next(2, false);
    let (setups, _) = next.sent_to(next.stream);
    assert!(setups.iter().all(|setup| setup.neighbours.len() == 1));
    assert_eq!(setups.len(), 1);
}

#[test]
fn pages_stay_where_they_are_until_a_new_lead_was_told_of_links() {
    for is_old in [false, true] {
        let mut stage = Stage::line(10);
        stage.create_as(of(1, "test", 8)).unwrap();
        stage.settle();
        assert_eq!(stage.held(1), [(1, 8)].into(), "near the client");
        let mut next = stage.next(2, is_old);
        next.attach(2, 10);
        next.settle();
        assert_eq!(next.held(1), [(1, 8)].into(), "{is_old}");
    }
}

/// Its discipline knows only then what it wants, and what is taken comes back empty.
#[test]
fn what_was_lent_stays_until_a_new_lead_has_heard_what_it_is_good_for() {
    let mut stage = Stage::new(20);
    stage.create(1, 0).unwrap();
    stage.wants(1, 100 * 128);
    stage.settle();
    assert_eq!(stage.pages(), [(1, 20)].into());
    stage.write();
    let mut next = Stage::from(20, stage.loaded, WantingDiscipline::default(), 2);
    next.settle();
    assert_eq!(next.pages(), [(1, 20)].into());
    next.say(next.stream, from_switch::Body::Counters(Counters::default()));
    next.settle();
    assert!(next.pages()[&1] < 20, "it wants none");
}

/// What is free may be given meanwhile.
#[test]
fn a_tenant_that_a_new_lead_makes_has_its_pages_before_the_switch_tells_of_others() {
    let mut stage = Stage::new(20);
    stage.create(1, 10).unwrap();
    stage.settle();
    let mut next = Stage::from(20, stage.loaded, WantingDiscipline::default(), 2);
    next.create(2, 5).unwrap();
    next.settle();
    assert_eq!(next.pages(), [(1, 10), (2, 5)].into());
}

#[test]
fn pages_stay_where_they_are_until_a_new_lead_was_told_of_traffic() {
    let mut stage = Stage::line(10);
    let store = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 10, 0, 0, 1];
    let client = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 10, 9, 0, 1];
    let [client, store] = [client, store].map(|address| address.to_vec().into());
    let traffic = Traffic { flows: vec![Flow { tenant: 1, client, store, requests: 1000 }] };
    stage.create(1, 8).unwrap();
    for _ in 0..4 {
        stage.say(stage.stream, from_switch::Body::Traffic(traffic.clone()));
        stage.settle();
    }
    assert_eq!(stage.held(1), [(1, 8)].into(), "near the client");
    let mut next = stage.next(2, false);
    next.attach(2, 10);
    next.settle();
    assert_eq!(next.held(1), [(1, 8)].into());
}
