//! What is written, what has come back, and whether that can be.

use std::time::Duration;

use rand::RngExt;
use seed::SeededRng;

/// What is asked for next.
pub(super) struct Ask {
    pub key: usize,
    /// The value to write; none: it is read.
    pub write: Option<Vec<u8>>,
    /// The lowest number that may be read.
    least: u64,
    begun_us: u64,
}

/// What came of one step.
#[derive(Clone, Debug, Default)]
pub(super) struct Outcome {
    /// How long each took that was answered, in microseconds.
    pub took_us: Vec<u64>,
    /// How many of them were answered within the step: what is waited for afterwards is no rate.
    pub in_time: u64,
    /// Reads among them that a switch answered.
    pub cached: u64,
    pub reads: u64,
    pub failed: u64,
    /// Values of which not all words say the same.
    pub torn: u64,
    /// Values of another key or length, or older than a write that was acknowledged before they
    /// were asked for.
    pub wrong: u64,
}

impl Outcome {
    /// The 99th percentile of the times in milliseconds; of none no number.
    pub fn p99_ms(&self) -> f64 {
        let mut times = self.took_us.clone();
        times.sort_unstable();
        let at = (times.len() * 99 / 100).min(times.len().saturating_sub(1));
        times.get(at).map_or(f64::NAN, |us| *us as f64 / 1000.0)
    }
}

/// Values of some keys, each of which has one writer at a time. Every word of a value says its key
/// and its number.
pub(super) struct Values {
    way: usize,
    len: usize,
    writes: f64,
    keys: Vec<Key>,
    rng: SeededRng,
    /// How long a step is, and when it ends, once it has begun.
    length: Duration,
    end: Option<Duration>,
    pub seen: Outcome,
}

#[derive(Clone, Default)]
struct Key {
    begun: u64,
    acknowledged: u64,
    is_written: bool,
}

impl Values {
    /// Of `keys` keys, `len` bytes each, which are asked for by the way of this number; this part
    /// of what is asked are writes. A step of this length begins with the first that is asked.
    pub fn new(
        way: usize,
        keys: usize,
        len: usize,
        writes: f64,
        length: Duration,
        seed: u64,
    ) -> Values {
        Values {
            way,
            len,
            writes,
            keys: vec![Key::default(); keys],
            rng: seed::rng(seed, "large values"),
            length,
            end: None,
            seen: Outcome::default(),
        }
    }

    /// A key's name. Each length has its own keys, and so has each way: two of them may lead to one
    /// server, and what another has left there would be read until the first write is done.
    pub fn name(&self, key: usize) -> String {
        format!("way{}-{:07}-{key:03}", self.way, self.len)
    }

    /// The next thing to ask: first each key is written once.
    pub fn next(&mut self, now: Duration) -> Ask {
        self.end.get_or_insert(now + self.length);
        let fresh = self.keys.iter().position(|key| key.begun == 0);
        let key = fresh.unwrap_or_else(|| self.rng.random_range(0..self.keys.len()));
        let writes = fresh.is_some() || self.rng.random::<f64>() < self.writes;
        let state = &mut self.keys[key];
        let writes = writes && !state.is_written;
        if writes {
            state.begun += 1;
            state.is_written = true;
        }
        let (begun, least) = (state.begun, state.acknowledged);
        Ask {
            key,
            write: writes.then(|| value(key, begun, self.len)),
            least,
            begun_us: now.as_micros() as u64,
        }
    }

    /// A write was answered, or not.
    pub fn wrote(&mut self, ask: &Ask, is_done: bool, now: Duration) {
        let state = &mut self.keys[ask.key];
        state.is_written = false;
        if is_done {
            state.acknowledged = state.begun;
        }
        self.answered(ask, is_done, now);
    }

    /// A read found this; none: nobody answered.
    pub fn read(&mut self, ask: &Ask, found: Option<(Option<&[u8]>, bool)>, now: Duration) {
        let Some((found, from_switch)) = found else { return self.answered(ask, false, now) };
        self.seen.reads += 1;
        self.seen.cached += u64::from(from_switch);
        let possible = ask.least..=self.keys[ask.key].begun;
        match found {
            None => self.seen.wrong += u64::from(ask.least > 0),
            Some(bytes) => match stamp(bytes) {
                None => self.seen.torn += 1,
                Some((key, number)) => {
                    let is_right =
                        (key, bytes.len()) == (ask.key, self.len) && possible.contains(&number);
                    self.seen.wrong += u64::from(!is_right);
                }
            },
        }
        self.answered(ask, true, now);
    }

    fn answered(&mut self, ask: &Ask, is_done: bool, now: Duration) {
        if is_done {
            let took = now.as_micros() as u64 - ask.begun_us;
            self.seen.took_us.push(took);
            self.seen.in_time += u64::from(self.end.is_some_and(|end| now < end));
        } else {
            self.seen.failed += 1;
        }
    }
}

fn value(key: usize, number: u64, len: usize) -> Vec<u8> {
    let word = (key as u64) << 48 | number;
    let mut value = word.to_be_bytes().repeat(len.div_ceil(8));
    value.truncate(len);
    value
}

/// The key and the number that every word of a value says.
fn stamp(bytes: &[u8]) -> Option<(usize, u64)> {
    let word = bytes.first_chunk::<8>()?;
    // Each word is the one before.
    let whole = bytes[word.len()..] == bytes[..bytes.len() - word.len()];
    let word = u64::from_be_bytes(*word);
    whole.then_some(((word >> 48) as usize, word & ((1 << 48) - 1)))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn what_cannot_be_is_noticed() {
        let now = Duration::ZERO;
        let mut values = Values::new(0, 2, 100, 0.0, Duration::MAX, 1);
        for _ in 0..2 {
            let ask = values.next(now);
            assert!(ask.write.is_some(), "each key is written first");
            values.wrote(&ask, true, now);
        }
        let right = value(0, 1, 100);
        let mut torn = right.clone();
        torn[50] ^= 1;
        let mut check = |bytes: &[u8], expected| {
            let mut ask = values.next(now);
            ask.key = 0;
            values.seen = Outcome::default();
            values.read(&ask, Some((Some(bytes), false)), now);
            assert_eq!((values.seen.torn, values.seen.wrong), expected);
        };
        check(&right, (0, 0));
        check(&torn, (1, 0));
        check(&right[..96], (0, 1));
        check(&value(1, 1, 100), (0, 1));
        check(&value(0, 0, 100), (0, 1));
        check(&value(0, 2, 100), (0, 1));
    }

    #[test]
    fn what_is_answered_after_a_step_is_not_of_its_rate() {
        let at = Duration::from_millis;
        let mut values = Values::new(0, 1, 64, 1.0, at(100), 1);
        for (begun, answered) in [(1000, 1099), (1099, 1101)] {
            let ask = values.next(at(begun));
            values.wrote(&ask, true, at(answered));
        }
        assert_eq!((values.seen.in_time, values.seen.took_us.len()), (1, 2));
        assert!(Outcome::default().p99_ms().is_nan());
    }

    #[test]
    fn what_another_way_has_left_is_not_read() {
        let now = Duration::ZERO;
        let mut server = BTreeMap::new();
        let mut wrong = 0;
        for way in 0..2 {
            let mut values = Values::new(way, 1, 64, 1.0, Duration::MAX, 1);
            let first = values.next(now);
            // While the first write is under way.
            let read = values.next(now);
            assert!(read.write.is_none());
            let found = server.get(&values.name(read.key)).map(Vec::as_slice);
            values.read(&read, Some((found, false)), now);
            let mut write = first;
            for _ in 0..3 {
                server.insert(values.name(write.key), write.write.clone().unwrap());
                values.wrote(&write, true, now);
                write = values.next(now);
            }
            wrong += values.seen.wrong;
        }
        assert_eq!(wrong, 0);
    }
}
