//! The servers of a tenant as a switch sees them: what it sent to each (requests, and updates of
//! replicas, which nobody answers), what came back, how fast each is beside the others.

use decide::Tallies;

use crate::servers::{EACH, LOADS, UPDATES};

/// Of what it is asked: a server that answers less than so much of it is behind. Of what others
/// answer: one that is behind and answers less is slow.
const SLOW: f64 = 0.9;
/// Of what it is asked: one that was behind, or is slow, has caught up when it answers so much.
const CAUGHT_UP: f64 = 0.97;
/// The number of requests that may be under way when a window ends.
const UNDER_WAY: f64 = 16.0;
/// Requests of a window from which a server's answers say something.
const ENOUGH: f64 = 50.0;
/// Of what a server showed to be able to when it was full, it is given so much: what waits there
/// has to be answered, too.
const SPARE: f64 = 0.85;
/// The least that a server is taken to be able to.
const LEAST: f64 = 0.125;
/// Windows over which loads are added up at most.
const WINDOWS: u32 = 8;
/// Windows of a server that began anew: of the first it was away for a part, which says nothing of
/// it; nor do those after it say how fast it is, or how far from balance all are.
const BEGINNING: u32 = 3;
/// By how much a slow server is tried to be faster, and the longest wait before it is, in windows.
const FASTER: f64 = 1.1;
const NEXT_STEP: u32 = 4;
/// Windows for which a server is taken for slow, or for mute, before it is tried; the longest, too.
const SLOW_FOR: u32 = 32;
const MUTE_FOR: u32 = 4;
const LONGEST_WAIT: u32 = 256;

#[derive(Clone, Debug)]
struct Server {
    /// Requests in the last window.
    requests: f64,
    answers: f64,
    updates: f64,
    /// Requests in all windows that say how the load lies as things are.
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
    /// It does not answer all that it is asked, while most others do: what it leaves is asked
    /// again, and makes it worse.
    is_behind: bool,
    /// Windows of its beginning that are left, the last one included.
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
        next_wait: MUTE_FOR,
        has_answered: false,
        is_mute: false,
        is_behind: false,
        is_new: 0,
    };

    /// What it had to do in the last window.
    fn load(&self) -> f64 {
        self.requests + self.updates
    }

    /// What part of its requests it answered, or will yet; none: too few say nothing.
    fn answered(&self) -> Option<f64> {
        (self.requests >= ENOUGH).then(|| (self.answers + UNDER_WAY) / self.requests)
    }

    /// What it did beside the others, of which most answer `usual` requests in a window, and what
    /// part `answered` of what they are asked.
    fn look(&mut self, usual: f64, answered: f64) {
        if self.is_new == BEGINNING {
            return;
        }
        if self.answers > 0.0 {
            self.has_answered = true;
            self.is_mute = false;
        }
        if self.is_mute {
            // Nobody may ask it any longer: without an answer it is tried again, but later each
            // time.
            self.wait = self.wait.saturating_sub(1);
            self.is_mute = self.wait > 0;
            return;
        }
        let was_behind = std::mem::take(&mut self.is_behind);
        let Some(part) = self.answered().filter(|_| self.has_answered) else { return };
        if self.answers == 0.0 && self.is_new == 0 {
            self.is_mute = true;
            return self.wait(MUTE_FOR);
        }
        let enough = match was_behind || self.weight < 1.0 {
            true => CAUGHT_UP,
            false => SLOW,
        };
        // Where most have too much to do, there is nobody to do it instead.
        self.is_behind = part < enough && answered >= CAUGHT_UP;
        if self.is_new == 0 {
            self.weigh(was_behind, usual);
        }
    }

    /// How fast it is. One that is behind is slow if it answers less than most; else it is asked
    /// too much.
    fn weigh(&mut self, was_behind: bool, usual: f64) {
        if self.is_behind {
            // Now it does what it can. Later it has no turns, and so less to do than others.
            if !was_behind && self.answers < SLOW * usual {
                self.weight = (SPARE * self.answers / usual).max(LEAST);
                self.wait(SLOW_FOR);
            }
        } else if self.weight < 1.0 {
            self.wait = self.wait.saturating_sub(1);
            if self.wait == 0 {
                self.weight = (self.weight * FASTER).min(1.0);
                self.wait = NEXT_STEP;
            }
        } else {
            self.next_wait = MUTE_FOR;
        }
    }

    /// What was found now is not doubted for a while, for so long at least; the next time for twice
    /// as long.
    fn wait(&mut self, least: u32) {
        self.wait = self.next_wait.max(least);
        self.next_wait = (2 * self.wait).min(LONGEST_WAIT);
    }
}

/// All servers, by their place in the ring.
#[derive(Debug, Default)]
pub struct Servers {
    all: Vec<Server>,
    /// Windows of `lately`.
    windows: u32,
}

impl Servers {
    /// There are `count` servers from now on; nothing is known of new ones.
    pub fn resize(&mut self, count: usize) {
        self.all.resize(count, Server::NEW);
    }

    /// A server began anew: what it did before says nothing of it.
    pub fn began(&mut self, at: usize) {
        if let Some(server) = self.all.get_mut(at) {
            *server = Server { is_new: BEGINNING + 1, ..Server::NEW };
        }
    }

    /// A window ended in which the switch counted this.
    pub fn window_end(&mut self, tallies: &Tallies) {
        let of_each = |first: usize| tallies.iter().skip(first).take(EACH as usize);
        let counts = of_each(LOADS).zip(of_each(UPDATES));
        for (server, (count, updates)) in self.all.iter_mut().zip(counts) {
            server.is_new = server.is_new.saturating_sub(1);
            server.updates = *updates as f64;
            server.requests = (count & u64::from(u32::MAX)) as f64;
            server.answers = (count >> 32) as f64;
        }
        let asked = || self.all.iter().filter(|server| server.requests >= ENOUGH);
        let usual = median(asked().map(|server| server.answers));
        let answered = median(asked().filter_map(Server::answered));
        let look = |server: &mut Server| server.look(usual, answered);
        self.all.iter_mut().for_each(look);
    }

    /// Whether a server answered, as far as anybody can tell.
    pub fn answers(&self, at: usize) -> bool {
        self.all.get(at).is_some_and(|server| !server.is_mute)
    }

    /// Whether it does not answer all that it is asked, while most others do: it has enough to do
    /// with what only it has.
    pub fn is_behind(&self, at: usize) -> bool {
        self.all.get(at).is_some_and(|server| server.is_behind)
    }

    /// How fast a server is beside others: 1, or less.
    pub fn weight(&self, at: usize) -> f64 {
        self.all.get(at).map_or(1.0, |server| server.weight)
    }

    /// The average load of those that `may` take some, in requests of the last window, beside their
    /// weights; and by how much the highest exceeds it, as a part of it. One that is slow, behind
    /// or new is no measure of that: what only it has may be too much for it, and no replica of
    /// others' keys would help.
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

    /// As [`Servers::load`], over all windows that are remembered: the more they are, the less is
    /// chance.
    pub fn lately(&self, may: &[bool]) -> (f64, f64) {
        self.over(may, |server| server.lately)
    }

    fn over(&self, may: &[bool], of: impl Fn(&Server) -> f64) -> (f64, f64) {
        let able = self.all.iter().zip(may).filter(|(_, may)| **may);
        let able: Vec<&Server> =
            able.map(|(server, _)| server).filter(|server| !server.is_behind).collect();
        let weights: f64 = able.iter().map(|server| server.weight).sum();
        let requests: f64 = able.iter().map(|server| of(server)).sum();
        if weights == 0.0 || requests == 0.0 {
            return (0.0, 0.0);
        }
        let average = requests / weights;
        let says_much = |server: &&&Server| server.weight == 1.0 && server.is_new == 0;
        let fast = able.iter().filter(says_much);
        let highest = fast.map(|server| of(server)).max_by(f64::total_cmp);
        // Where all are new or slow, these are all that there is.
        let beside = able.iter().map(|server| of(server) / server.weight);
        let highest = highest.unwrap_or_else(|| beside.fold(0.0, f64::max));
        (average, highest / average - 1.0)
    }
}

/// Of these the one that as many exceed as do not; 0: there is none.
fn median(of: impl Iterator<Item = f64>) -> f64 {
    let mut all: Vec<f64> = of.collect();
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 2).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests;
