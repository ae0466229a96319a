//! The store, its connection to the server that tells it of changes, and the two servers.

use std::collections::VecDeque;

use store::{
    coherence::{
        Invalidate, KeyState, LeaseAnswer, Leases, OutsideWatch, Step, Watch, Write, WriteId,
    },
    mutants::{Mutant, mutant},
};
use wire::{Epoch, NODE_STORE, NodeId};

use crate::{
    Call, Return,
    bounds::{LEASE_NS, now_ns},
    replicas::{FIRST, Message, Reply, VersionedValue},
};

/// Who holds copies.
const HOLDER: NodeId = NODE_STORE;

/// Who wants to know the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reader {
    Client(WriteId),
    /// With the number of its question, and the epoch for which it would take a grant.
    Holder(u64, Option<Epoch>),
}

type Body = (WriteId, Call);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Verb {
    /// The first is granted it, if anybody is; the others came before it was asked or later.
    Read {
        first: Reader,
        others: Vec<Reader>,
        for_grant: bool,
    },
    Write(Body),
    Nothing,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Question {
    verb: Verb,
    /// The step at which it was asked.
    since: u8,
    /// It is at the other server.
    is_sent_on: bool,
}

/// What the store is told.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum News {
    /// A key that was read for a grant was changed, or has left.
    Changed,
    /// What was asked at this step was asked of a server that has told everything of before.
    Seen(u8),
    /// What was found; true: by a server that does not tell of changes.
    Found {
        readers: (Reader, Vec<Reader>),
        for_grant: bool,
        item: VersionedValue,
        untold: bool,
    },
    Written(WriteId),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Home {
    key: KeyState<Body>,
    leases: Leases<()>,
    outside: OutsideWatch<()>,
    version: u64,
    /// There is a question for a grant, and nothing has happened to the key since.
    is_asked: bool,
    asked: VecDeque<Question>,
    news: VecDeque<News>,
    item: VersionedValue,
    /// The step since which the other server has the key.
    away_since: Option<u8>,
    /// The server tells of the key's next change.
    is_tracked: bool,
}

impl Home {
    pub fn new() -> Home {
        Home {
            key: KeyState::default(),
            leases: Leases::new(LEASE_NS, 1),
            outside: OutsideWatch::new(Watch::Tracked, 0),
            version: FIRST.version,
            is_asked: false,
            asked: VecDeque::new(),
            news: VecDeque::new(),
            item: FIRST,
            away_since: None,
            is_tracked: false,
        }
    }

    // ---- the servers

    pub fn away_since(&self) -> Option<u8> {
        self.away_since
    }

    /// Whether something is to be carried out.
    pub fn asks(&self) -> bool {
        !self.asked.is_empty()
    }

    pub fn has_news(&self) -> bool {
        !self.news.is_empty()
    }

    /// The slot moves to the other server, or back.
    pub fn moves(&mut self, step: u8) {
        self.away_since = match self.away_since {
            Some(_) => None,
            None => Some(step),
        };
        self.changed();
    }

    fn changed(&mut self) {
        if std::mem::take(&mut self.is_tracked) {
            self.news.push_back(News::Changed);
        }
    }

    /// Somebody asks the server that has the key, past the store.
    pub fn asked_past(&mut self, call: Call) -> Return {
        match call {
            Call::Write(value) => {
                self.item.value = value;
                Return::Done
            }
            _ => Return::Value(Some(self.item.value)),
        }
    }

    /// Whoever has the key carries out what was asked first; who has it not sends it on.
    pub fn carry_out(&mut self) {
        let is_away = self.away_since.is_some();
        let Some(question) = self.asked.front_mut() else { return };
        let needs_key = question.verb != Verb::Nothing;
        if needs_key && question.is_sent_on != is_away {
            question.is_sent_on = is_away;
            return;
        }
        let Some(Question { verb, since, is_sent_on }) = self.asked.pop_front() else { return };
        let told = match verb {
            Verb::Nothing => None,
            Verb::Read { first, others, for_grant } => {
                self.is_tracked |= for_grant && !is_sent_on;
                let (item, untold) = (self.item, for_grant && is_sent_on);
                Some(News::Found { readers: (first, others), for_grant, item, untold })
            }
            Verb::Write((id, call)) => {
                if let Call::Write(value) = call {
                    self.version += 1;
                    self.item = VersionedValue { value, version: self.version };
                }
                if !is_sent_on {
                    self.changed();
                }
                Some(News::Written(id))
            }
        };
        self.news.push_back(News::Seen(since));
        self.news.extend(told);
    }

    // ---- the store

    fn put(&mut self, verb: Verb, step: u8) {
        self.asked.push_back(Question { verb, since: step, is_sent_on: false });
    }

    /// A question that only shows what was told.
    pub fn ask(&mut self, step: u8) {
        self.put(Verb::Nothing, step);
    }

    pub fn read(&mut self, reader: Reader, step: u8) {
        let now = now_ns(step);
        let asks = match reader {
            Reader::Holder(_, epoch) => epoch,
            Reader::Client(_) => None,
        };
        let granted = asks.filter(|epoch| {
            let may = self.outside.may_grant_reads();
            may && self.key.grant(*epoch, &self.leases, true, now).is_ok()
        });
        let reader = match reader {
            Reader::Holder(number, _) => Reader::Holder(number, granted),
            client => client,
        };
        let heard_ns = self.outside.seen_ns() + self.leases.length_ns();
        let has_heard = self.outside.may_grant_reads() && now < heard_ns;
        let is_joinable =
            |question: &&mut Question| matches!(question.verb, Verb::Read { for_grant: true, .. });
        if self.is_asked && (granted.is_some() || has_heard) {
            // It may have been carried out already, and what was found be on its way.
            let asked = self.asked.iter_mut().rev().find(is_joinable);
            if let Some(Question { verb: Verb::Read { others, .. }, .. }) = asked {
                return others.push(reader);
            }
            let found = self.news.iter_mut().rev().find_map(|news| match news {
                News::Found { readers: (_, others), for_grant: true, .. } => Some(others),
                _ => None,
            });
            if let Some(others) = found {
                return others.push(reader);
            }
        }
        let for_grant = granted.is_some();
        self.is_asked |= for_grant;
        self.put(Verb::Read { first: reader, others: vec![], for_grant }, step);
    }

    pub fn write(&mut self, id: WriteId, call: Call, step: u8, out: &mut Vec<Message>) {
        let write = Write { epoch: Epoch::NONE, told_stores: false, body: (id, call) };
        self.key.submit(write, 4);
        self.drive(step, out);
    }

    pub fn acknowledged(&mut self, epoch: Epoch, echoed: u64, step: u8, out: &mut Vec<Message>) {
        self.key.acknowledged(epoch, echoed);
        self.drive(step, out);
    }

    pub fn lease(&mut self, sent_ns: u64, step: u8) -> Option<Message> {
        let now = now_ns(step);
        let copies = |(): &()| self.key.copies();
        // All of it, or nothing: half of one is less than a step of time.
        self.outside
            .lendable_ns(HOLDER, LEASE_NS, now, copies)
            .filter(|lent_ns| *lent_ns == LEASE_NS)?;
        match self.leases.request(HOLDER, (), sent_ns, now) {
            LeaseAnswer::Lent { term, .. } => Some(Message::LeaseReply(0, sent_ns, term)),
            _ => None,
        }
    }

    pub fn hear(&mut self, step: u8, out: &mut Vec<Message>, told: &mut Vec<Reply>) {
        match self.news.pop_front() {
            None => {}
            Some(News::Changed) => {
                self.is_asked = false;
                if !self.key.copies().is_empty() {
                    self.key.recall(now_ns(step));
                    self.outside.opened(());
                }
            }
            Some(News::Seen(asked)) => self.outside.seen(now_ns(asked)),
            Some(News::Found { readers, for_grant, item, untold }) => {
                self.found(readers, (for_grant, untold), item, step, (&mut *out, &mut *told));
            }
            Some(News::Written(id)) => {
                self.is_asked = false;
                self.key.applied(0);
                told.push(Reply { write: id, said: Return::Done, version: self.version });
            }
        }
        self.drive(step, out);
    }

    fn found(
        &mut self,
        (first, others): (Reader, Vec<Reader>),
        (for_grant, untold): (bool, bool),
        item: VersionedValue,
        step: u8,
        (out, told): (&mut Vec<Message>, &mut Vec<Reply>),
    ) {
        if for_grant {
            self.is_asked = false;
        }
        let grants = !untold || mutant(Mutant::GrantedUntold);
        let mut answer = |reader| match reader {
            Reader::Client(write) => {
                let (said, version) = (Return::Value(Some(item.value)), item.version);
                told.push(Reply { write, said, version });
            }
            Reader::Holder(number, epoch) => {
                out.push(Message::Answer(0, number, item, epoch.filter(|_| grants)));
            }
        };
        answer(first);
        if !untold || mutant(Mutant::JoinedUntold) {
            return others.into_iter().for_each(answer);
        }
        let mut others = others.into_iter().map(|reader| match reader {
            Reader::Holder(number, _) => Reader::Holder(number, None),
            client => client,
        });
        if let Some(first) = others.next() {
            let others = others.collect();
            self.put(Verb::Read { first, others, for_grant: false }, step);
        }
    }

    /// Moves the key on as far as it goes.
    pub fn drive(&mut self, step: u8, out: &mut Vec<Message>) {
        let mut invalidations = vec![];
        let polled = self.key.poll(&mut self.leases, now_ns(step), &mut invalidations);
        if !matches!(polled, Step::Wait(_)) {
            self.outside.closed(&());
        }
        if let Some(write) = self.key.applying().filter(|_| polled == Step::Apply) {
            let body = write.body;
            self.is_asked = false;
            self.put(Verb::Write(body), step);
        }
        let send = |i: Invalidate| Message::Invalidate(Epoch::new(i.switch, i.granted));
        out.extend(invalidations.into_iter().map(send));
    }
}
