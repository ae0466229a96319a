//! The servers of a tenant as a switch sees them: what it sent to each (requests, and updates of replicas, which nobody answers), what came
//! back, how fast each is beside the others.

use decide::Tallies;

use crate::servers::{EACH, LOADS, UPDATES};

/// Of what it is asked, and of what others answer: a server that answers less than so much of both is slow.
const SLOW: f64 = 0.9;
/// Requests of a window from which a server's answers say something.
const ENOUGH: f64 = 50.0;
/// Of what a server showed to be able to when it was full, it is given so much: what waits there has to be answered, too.
const SPARE: f64 = 0.7;
/// The least that a server is taken to be able to.
const LEAST: f64 = 0.125;
/// Windows over which loads are added up at most.
const WINDOWS: u32 = 8;
/// Windows that say nothing of a server that began anew.
const BEGINNING: u32 = 2;
/// By how much a slow server is tried to be faster, and the longest wait before it is, in windows.
const FASTER: f64 = 1.25;
const LONGEST_WAIT: u32 = 256;

#[derive(Clone, Debug)]
struct Server {
    /// In the last window.
    requests: f64,
    answers: f64,
    updates: f64,
    /// In all windows that say how the load lies as things are.
    lately: f64,
    /// How fast it is: 1, or less.
    weight: f64,
    /// Windows before it is tried to be faster.
    wait: u32,
    next_wait: u32,
    /// Whether its answers come this way: one was seen.
    has_answered: bool,
    /// It answered, and then nothing of many requests.
    is_mute: bool,
    /// Windows that say nothing of it: it was away for a part of them.
    is_new: u32,
}

impl Server {
    const NEW: Server = Server {
        requests: 0.0,
        answers: 0.0,
        updates: 0.0,
        lately: 0.0,
        weight: 1.0,
        wait: 0,
        next_wait: 4,
        has_answered: false,
        is_mute: false,
        is_new: 0,
    };

    /// What it had to do in the last window.
    fn load(&self) -> f64 {
        self.requests + self.updates
    }

    /// What it did beside the others, of which most answer `usual` requests in a window. One that cannot answer all that it is asked is slow
    /// if it answers less than most; else it is asked too much.
    fn look(&mut self, usual: f64) {
        if self.is_new > 0 {
            self.is_new -= 1;
            return;
        }
        if self.answers > 0.0 {
            self.has_answered = true;
            self.is_mute = false;
        }
        if self.is_mute {
            // Nobody may ask it any longer: without an answer it is tried again, but later each time.
            self.wait = self.wait.saturating_sub(1);
            self.is_mute = self.wait > 0;
            return;
        }
        if self.requests < ENOUGH || usual == 0.0 || !self.has_answered {
            return;
        }
        if self.answers == 0.0 {
            self.is_mute = true;
            return self.wait();
        }
        let answers_all = self.answers >= SLOW * self.requests;
        if !answers_all && self.answers < SLOW * usual {
            // Beside others that have time left; and less again for as long as it is asked too much.
            let asked_less = self.weight * self.answers / self.requests;
            self.weight = (SPARE * asked_less.min(self.answers / usual)).max(LEAST);
            self.wait();
        } else if self.weight < 1.0 {
            self.wait = self.wait.saturating_sub(1);
            if self.wait == 0 {
                self.weight = (self.weight * FASTER).min(1.0);
                self.wait = self.next_wait;
            }
        } else {
            self.next_wait = Server::NEW.next_wait;
        }
    }

    /// What was found now is not doubted for a while, the next time for twice as long.
    fn wait(&mut self) {
        self.wait = self.next_wait;
        self.next_wait = (2 * self.next_wait).min(LONGEST_WAIT);
    }
}

/// All of them, by their place in the ring.
#[derive(Debug, Default)]
pub struct Servers {
    all: Vec<Server>,
    /// Windows of `lately`.
    windows: u32,
}

impl Servers {
    /// So many there are from now on; nothing is known of new ones.
    pub fn resize(&mut self, count: usize) {
        self.all.resize(count, Server::NEW);
    }

    /// A server began anew: what it did before says nothing of it.
    pub fn began(&mut self, at: usize) {
        if let Some(server) = self.all.get_mut(at) {
            *server = Server {
                is_new: BEGINNING,
                ..Server::NEW
            };
        }
    }

    /// A window ended in which the switch counted this.
    pub fn window_end(&mut self, tallies: &Tallies) {
        let of_each = |first: usize| tallies.iter().skip(first).take(EACH as usize);
        let counts = of_each(LOADS).zip(of_each(UPDATES));
        for (server, (count, updates)) in self.all.iter_mut().zip(counts) {
            server.updates = *updates as f64;
            server.requests = (count & u64::from(u32::MAX)) as f64;
            server.answers = (count >> 32) as f64;
        }
        let asked = self.all.iter().filter(|server| server.requests >= ENOUGH);
        let mut answers: Vec<f64> = asked.map(|server| server.answers).collect();
        answers.sort_by(f64::total_cmp);
        let usual = answers.get(answers.len() / 2).copied().unwrap_or(0.0);
        self.all.iter_mut().for_each(|server| server.look(usual));
    }

    /// Whether a server answered, as far as anybody can tell.
    pub fn answers(&self, at: usize) -> bool {
        self.all.get(at).is_some_and(|server| !server.is_mute)
    }

    /// How fast a server is beside others: 1, or less.
    pub fn weight(&self, at: usize) -> f64 {
        self.all.get(at).map_or(1.0, |server| server.weight)
    }

    /// The average load of those that `may` take some, in requests of the last window, and by how much the highest exceeds it, as a
    /// part of it: each beside what its weight would give it.
    pub fn load(&self, may: &[bool]) -> (f64, f64) {
        self.over(may, Server::load)
    }

    /// What each had to do in the last window, beside its weight.
    pub fn loads(&self) -> Vec<f64> {
        let load = |server: &Server| server.load() / server.weight;
        self.all.iter().map(load).collect()
    }

    /// The last window says how the load lies as things are.
    pub fn remember(&mut self) {
        if self.windows == WINDOWS {
            self.windows /= 2;
            self.all.iter_mut().for_each(|server| server.lately /= 2.0);
        }
        self.windows += 1;
        let add = |server: &mut Server| server.lately += server.load();
        self.all.iter_mut().for_each(add);
    }

    /// Things are no longer as they were.
    pub fn forget(&mut self) {
        self.windows = 0;
        self.all.iter_mut().for_each(|server| server.lately = 0.0);
    }

    /// As [`Servers::load`], over all windows that are remembered: the more they are, the less is chance.
    pub fn lately(&self, may: &[bool]) -> (f64, f64) {
        self.over(may, |server| server.lately)
    }

    fn over(&self, may: &[bool], of: impl Fn(&Server) -> f64) -> (f64, f64) {
        let able = self.all.iter().zip(may).filter(|(_, may)| **may);
        let able: Vec<&Server> = able.map(|(server, _)| server).collect();
        let weights: f64 = able.iter().map(|server| server.weight).sum();
        let requests: f64 = able.iter().map(|server| of(server)).sum();
        if weights == 0.0 || requests == 0.0 {
            return (0.0, 0.0);
        }
        let average = requests / weights;
        let loads = able.iter().map(|server| of(server) / server.weight);
        (average, loads.fold(0.0, f64::max) / average - 1.0)
    }
}

#[cfg(test)]
mod tests {
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
        let all = |third| [(100, 100), (100, 100), (100, third)];
        window(&mut servers, &all(100));
        window(&mut servers, &all(20));
        window(&mut servers, &all(0));
        assert!(!servers.answers(2) && servers.weight(2) < 0.5);
        servers.began(2);
        window(&mut servers, &all(0));
        window(&mut servers, &all(70));
        assert!(servers.answers(2) && servers.weight(2) == 1.0);
        window(&mut servers, &all(50));
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
        for loads in [
            [(90, 90), (100, 100), (110, 110)],
            [(110, 110), (100, 100), (90, 90)],
        ] {
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
        window(&mut servers, &[(100, 98), (100, 98), (100, 49)]);
        assert_eq!(servers.weight(0), 1.0);
        assert!((servers.weight(2) - SPARE * 0.5).abs() < 0.02);
        let (_, excess) = servers.load(&[true; 3]);
        assert!(excess > 0.6, "it has too much: {excess}");
        for _ in 0..40 {
            window(&mut servers, &[(100, 98), (100, 98), (50, 49)]);
        }
        assert_eq!(servers.weight(2), 1.0);
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
            let asked = (100.0 * servers.weight(2)) as u64;
            slow += u32::from(asked > 55);
            window(&mut servers, &[(100, 100), (100, 100), (asked.max(50), 50)]);
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
}
