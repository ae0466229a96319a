//! An application host of the simulator: it reads and writes by a gateway of its own, and records
//! what it asked and what it was told.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use client::{Answer, Condition, Error, Machine, Operation as Question, Options};
use history::{Effect, Need, Operation};
use hunt::{CachingConnection, Connection};
use load::workload::{Popularity, Ranks};
use rand::RngExt;
use seed::SeededRng;
use sim::{Birth, Io, Maker, Process, Remains, packet::Datagram};
use wire::{Cluster, TENANT_OPEN};

use crate::applications::{key_name, number_for, number_of, value_of};

/// Writes under way while every key is written for the first time.
const FILLING: usize = 64;
/// How long a read may take in all.
const DEADLINE: Duration = Duration::from_secs(5);

/// What an application does.
#[derive(Clone, Debug)]
pub(super) struct Habits {
    /// Which one it is.
    pub number: u32,
    pub keys: u32,
    pub popularity: Popularity,
    pub value_len: usize,
    /// Requests per second; 0: it asks what it is told to.
    pub requests_per_s: f64,
    /// Part of them that write.
    pub write_part: f64,
    /// Whether its gateway keeps copies.
    pub copies: bool,
}

/// An operation that is under way.
#[derive(Clone, Copy, Debug)]
struct UnderWay {
    key: u32,
    call_ns: u64,
    /// When the application wanted it first.
    wanted_ns: u64,
    /// The number of the value that it writes; none: it reads.
    writes: Option<u64>,
}

/// A write as its application sees it: until one was answered, whose outcome was unknown is written
/// again.
#[derive(Clone, Copy, Debug)]
pub(super) struct WriteTime {
    pub client: u32,
    pub key: u32,
    pub wanted_ns: u64,
    pub took_ns: u64,
}

/// An application that runs.
pub(super) struct Application {
    habits: Habits,
    connection: Box<dyn Connection>,
    ranks: Ranks,
    rng: SeededRng,
    next_ns: u64,
    under_way: BTreeMap<u64, UnderWay>,
    /// Keys that are to be written, each once.
    to_write: VecDeque<u32>,
    record: Record,
    port: u16,
}

/// What an application has seen, over all of its lives.
#[derive(Clone, Debug, Default)]
pub(super) struct Record {
    pub operations: Vec<Operation>,
    pub writes: Vec<WriteTime>,
    /// Those that were never answered, each with the time until its end: it took longer.
    pub open: Vec<WriteTime>,
    /// Reads that copies have answered.
    pub local: u64,
    /// Reads that nobody answered.
    pub unanswered: u64,
    /// Values that nobody wrote so.
    pub torn: u64,
    /// Values that it has written.
    written: u64,
}

impl Record {
    /// Adds what another has seen.
    pub fn add(&mut self, other: Record) {
        self.operations.extend(other.operations);
        self.writes.extend(other.writes);
        self.open.extend(other.open);
        self.local += other.local;
        self.unanswered += other.unanswered;
        self.torn += other.torn;
    }
}

/// What makes an application, each time that it starts.
pub(super) fn maker(cluster: Cluster, habits: Habits) -> Maker {
    Box::new(move |birth| Ok(Box::new(Application::born(&cluster, habits.clone(), birth)?)))
}

impl Application {
    fn born(cluster: &Cluster, habits: Habits, mut birth: Birth) -> anyhow::Result<Application> {
        let options = Options { deadline: DEADLINE, ..Options::default() };
        let machine = Machine::new(cluster, TENANT_OPEN, options, birth.seed)?;
        let connection = match habits.copies {
            true => {
                let seed = birth.seed;
                CachingConnection::around(Box::new(machine), cluster, TENANT_OPEN, (&birth, seed))
            }
            false => Box::new(machine),
        };
        let earlier = birth.remains.take().and_then(|left| left.downcast::<Record>().ok());
        let mut application = Application {
            ranks: Ranks::new(habits.popularity, habits.keys as usize)?,
            connection,
            rng: seed::rng(birth.seed, "application"),
            next_ns: birth.clock.boottime_ns,
            under_way: BTreeMap::new(),
            to_write: VecDeque::new(),
            record: earlier.map(|record| *record).unwrap_or_default(),
            port: birth.port,
            habits,
        };
        application.pause();
        Ok(application)
    }

    /// Has these keys written, each once.
    pub fn write(&mut self, keys: impl IntoIterator<Item = u32>) {
        self.to_write.extend(keys);
    }

    /// From now on this part of the requests writes.
    pub fn set_write_part(&mut self, part: f64) {
        self.habits.write_part = part;
    }

    /// Begins nothing by itself any more.
    pub fn stop(&mut self) {
        self.habits.requests_per_s = 0.0;
    }

    /// Whether nothing is under way that it was told to do, or that writes.
    pub fn has_written(&self) -> bool {
        self.to_write.is_empty() && self.under_way.values().all(|one| one.writes.is_none())
    }

    /// What it has seen until now; what is under way may take effect at any time.
    pub fn take_record(&mut self, world_ns: u64) -> Record {
        let client = self.habits.number;
        let writes = self.under_way.values().filter(|one| one.writes.is_some());
        self.record.open.extend(writes.map(|one| WriteTime {
            client,
            key: one.key,
            wanted_ns: one.wanted_ns,
            took_ns: world_ns.saturating_sub(one.wanted_ns),
        }));
        self.give_up();
        std::mem::take(&mut self.record)
    }

    fn give_up(&mut self) {
        self.record.local += self.connection.hits();
        for asked in std::mem::take(&mut self.under_way).into_values() {
            self.note(asked, None, None);
        }
    }

    fn pause(&mut self) {
        let rate = self.habits.requests_per_s;
        let draw: f64 = self.rng.random();
        if rate > 0.0 {
            self.next_ns += ((1.0 - draw).ln() / rate * -1e9) as u64;
        }
    }

    /// What became of an operation: `return_ns` is none if nobody knows, `found` what a read was
    /// answered.
    fn note(&mut self, asked: UnderWay, return_ns: Option<u64>, found: Option<Need>) {
        let (need, effect) = match (asked.writes, found) {
            (Some(value), _) => (Need::Any, Effect::Write(value)),
            (None, Some(need)) => (need, Effect::Keep),
            (None, None) => return self.record.unanswered += 1,
        };
        let (client, UnderWay { key, call_ns, .. }) = (self.habits.number, asked);
        let operation = Operation { client, key, call_ns, return_ns, need, effect, lapse: None };
        self.record.operations.push(operation);
    }

    fn told(&mut self, asked: UnderWay, result: Result<Answer, Error>, io: &Io<'_>) {
        let now_ns = io.world_ns;
        if asked.writes.is_some() {
            let is_done = result.and_then(Answer::written).is_ok();
            self.note(asked, is_done.then_some(now_ns), None);
            let (client, UnderWay { key, wanted_ns, .. }) = (self.habits.number, asked);
            let took_ns = now_ns - wanted_ns;
            match is_done {
                true => self.record.writes.push(WriteTime { client, key, wanted_ns, took_ns }),
                false => self.begin(key, true, wanted_ns, io),
            }
            return;
        }
        let found = result.and_then(Answer::found).ok().map(|value| match value {
            None => Need::Absent,
            Some(value) => match number_of(&value.bytes, self.habits.value_len) {
                Some(number) => Need::Value(number),
                None => {
                    self.record.torn += 1;
                    Need::Value(0)
                }
            },
        });
        self.note(asked, found.map(|_| now_ns), found);
    }

    fn begin(&mut self, key: u32, writes: bool, wanted_ns: u64, io: &Io<'_>) {
        let name = key_name(key);
        let key_bytes = name.as_bytes();
        let value;
        let (operation, writes) = match writes {
            false => (Question::Get { key: key_bytes }, None),
            true => {
                self.record.written += 1;
                let number = number_for(self.habits.number, self.record.written);
                value = value_of(number, self.habits.value_len);
                let condition = Condition::Always;
                (
                    Question::Set { key: key_bytes, value: &value, ttl: None, condition },
                    Some(number),
                )
            }
        };
        let number = self.connection.begin(&operation, io.clock.boottime_ns);
        let call_ns = io.world_ns;
        self.under_way.insert(number, UnderWay { key, call_ns, wanted_ns, writes });
    }

    fn go_on(&mut self, io: &mut Io<'_>) {
        let now_ns = io.clock.boottime_ns;
        loop {
            while let Some((number, result)) = self.connection.next_finished() {
                if let Some(asked) = self.under_way.remove(&number) {
                    self.told(asked, result, io);
                }
            }
            if self.under_way.len() < FILLING
                && let Some(key) = self.to_write.pop_front()
            {
                self.begin(key, true, io.world_ns, io);
            } else if self.habits.requests_per_s > 0.0 && self.next_ns <= now_ns {
                let key = self.ranks.draw(&mut self.rng);
                let writes = self.rng.random_bool(self.habits.write_part);
                self.begin(key, writes, io.world_ns, io);
                self.pause();
            } else {
                break;
            }
        }
        while let Some((to, datagram)) = self.connection.next_datagram() {
            io.send(self.port, to, &datagram);
        }
    }
}

impl Process for Application {
    fn receive(&mut self, datagram: &Datagram<'_>, io: &mut Io<'_>) {
        self.connection.take(datagram.payload, datagram.from, io.clock.boottime_ns);
        self.go_on(io);
    }

    fn wake(&mut self, io: &mut Io<'_>) {
        let now_ns = io.clock.boottime_ns;
        if self.connection.next_ns().is_some_and(|at_ns| at_ns <= now_ns) {
            self.connection.timer(now_ns);
        }
        self.go_on(io);
    }

    fn next_wake_ns(&self) -> Option<u64> {
        let asks = (self.habits.requests_per_s > 0.0).then_some(self.next_ns);
        self.connection.next_ns().into_iter().chain(asks).min()
    }

    fn ports(&self) -> Vec<u16> {
        vec![self.port]
    }

    fn remains(mut self: Box<Self>) -> Remains {
        self.give_up();
        Some(Box::new(self.record))
    }
}
