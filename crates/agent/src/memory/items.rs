//! Items come and go, as their disciplines say.

use dataplane::{NO_LEASE, cells_needed, cells_needed_given};
use decide::{ItemKey, Items, Outcome, Record};
use wire::KeyHash;

use super::{
    super::{AgentError, served::ServedCluster},
    Entry, Memory, News,
    trial::Trial,
};

/// What a new item begins with.
#[derive(Clone, Copy)]
pub(super) enum Content<'a> {
    /// Nothing; its value comes under that lease.
    Fetched { lease: u16 },
    /// This record.
    Given(&'a [u8]),
}

impl Memory {
    /// Makes an item be there with that record. Does no harm twice.
    pub fn put(
        &mut self,
        key: &ItemKey,
        record: &Record,
        served: Option<&ServedCluster>,
    ) -> Result<Outcome, AgentError> {
        let given = self.index.get(key).map(Entry::is_given);
        let is_there = (given, record) == (Some(false), &Record::Fetched);
        if is_there && self.holds(key) {
            return Ok(Outcome::Done);
        }
        let here = served.and_then(|served| Some((served, served.tenants.get(&key.tenant)?)));
        let Some((served, here)) = here else { return Ok(Outcome::Refused) };
        if is_there {
            if !self.may_confirm(key.tenant)? {
                return Ok(Outcome::NoRoom);
            }
            self.confirm(key);
            return Ok(Outcome::Done);
        }
        match (record, here.items()) {
            (Record::Fetched, Some(Items::Truth)) | (Record::Given(_), None) => {
                Ok(Outcome::Refused)
            }
            (Record::Given(record), Some(items)) => self.put_given(key, record, items, served),
            (Record::Fetched, _) => {
                let value_len = self.value_len(key.tenant);
                self.put_fetched(key, value_len, served)
            }
        }
    }

    fn put_given(
        &mut self,
        key: &ItemKey,
        record: &[u8],
        items: Items,
        served: &ServedCluster,
    ) -> Result<Outcome, AgentError> {
        let cells = cells_needed_given(key.key.len(), record.len());
        let (Some(cells), Some(hash)) = (cells, served.hash_of(key)) else {
            return Ok(Outcome::Refused);
        };
        let place = self.index.get(key).filter(|entry| entry.is_given());
        if let Some(place) = place.map(|entry| entry.place) {
            // What is there may be newer than the command, which may be a repeated one.
            if items == Items::Truth || self.table.set_given(place, record) == Ok(true) {
                return Ok(Outcome::Done);
            }
        }
        self.learn_value_len(key.tenant, record.len());
        self.replace(key, hash, cells, Content::Given(record), served)
    }

    /// Makes an item with room for a value of that length.
    fn put_fetched(
        &mut self,
        key: &ItemKey,
        value_len: usize,
        served: &ServedCluster,
    ) -> Result<Outcome, AgentError> {
        let cells = cells_needed(key.key.len(), value_len);
        let (Some(cells), Some(hash)) = (cells, served.hash_of(key)) else {
            return Ok(Outcome::Refused);
        };
        let Some(lease) = served.lease_for(key.tenant, hash) else { return Ok(Outcome::Refused) };
        self.replace(key, hash, cells, Content::Fetched { lease }, served)
    }

    /// Makes an item, in the place of the one that the key may have.
    fn replace(
        &mut self,
        key: &ItemKey,
        hash: KeyHash,
        cells: u8,
        content: Content<'_>,
        served: &ServedCluster,
    ) -> Result<Outcome, AgentError> {
        if !(1..=wire::MAX_KEY).contains(&key.key.len()) {
            return Ok(Outcome::Refused);
        }
        let was_there = self.holds(key);
        self.remove(key);
        if was_there {
            self.begin_batch(); // its own cells may be all that there is
        }
        let outcome = self.insert(key, hash, cells, content, served)?;
        if was_there && outcome != Outcome::Done {
            self.news.push(News::Dropped(key.clone()));
        }
        Ok(outcome)
    }

    fn insert(
        &mut self,
        key: &ItemKey,
        hash: KeyHash,
        cells: u8,
        content: Content<'_>,
        served: &ServedCluster,
    ) -> Result<Outcome, AgentError> {
        let is_data = served.tenants.get(&key.tenant).and_then(|here| here.items());
        let is_data = matches!(content, Content::Given(_)) && is_data != Some(Items::Copies);
        if is_data && self.has_its_data(key.tenant, hash, served) {
            return Ok(Outcome::BucketFull);
        }
        let Some(place) = self.place(key.tenant, cells, served)? else {
            return Ok(Outcome::NoRoom);
        };
        if !self.enter(key, hash, place, content, None) {
            // A program may have been faster.
            self.look_at_blanks(key.tenant, Some(served));
            if self.confirm(key) {
                self.cells.give_back(place);
                return Ok(Outcome::Done);
            }
            self.make_way(key.tenant, hash, served);
            if !self.enter(key, hash, place, content, None) {
                self.cells.give_back(place);
                return Ok(Outcome::BucketFull);
            }
        }
        Ok(Outcome::Done)
    }

    /// Makes the entry of an item that has its place, on probation or not; false if its bucket
    /// is full.
    pub(super) fn enter(
        &mut self,
        key: &ItemKey,
        hash: KeyHash,
        place: dataplane::Place,
        content: Content<'_>,
        trial: Option<Trial>,
    ) -> bool {
        let (tenant, bytes) = (key.tenant, &key.key);
        let (slot, lease) = match content {
            Content::Fetched { lease } => {
                (self.table.insert(tenant, hash, bytes, lease, place), lease)
            }
            Content::Given(record) => {
                (self.table.insert_given(tenant, hash, bytes, record, place), NO_LEASE)
            }
        };
        let Ok(slot) = slot else { return false };
        let entry = Entry { slot, place, lease, requests: self.table.requests(place), trial };
        match entry.trial {
            Some(_) => self.trials.add(key),
            None => {
                self.news.push(News::Here { key: key.clone(), place, fetch: !entry.is_given() })
            }
        }
        self.index.add(key.clone(), entry);
        true
    }

    /// Removes an item. One that is not there is fine.
    pub fn remove(&mut self, key: &ItemKey) {
        if let Some(entry) = self.index.remove(key) {
            self.table.evict(entry.slot, entry.place);
            self.resting.push(entry.place);
            match entry.trial {
                Some(_) => self.trials.remove(key),
                None => self.news.push(News::Gone(key.clone())),
            }
        }
    }

    /// Removes an item whose given record begins with these bytes. One that is not there is fine.
    pub fn remove_if(&mut self, key: &ItemKey, begins: &[u8]) -> Outcome {
        let Some(entry) = self.index.get(key) else { return Outcome::Done };
        let (slot, place) = (entry.slot, entry.place);
        if !entry.is_given() || self.table.remove_if(slot, place, begins) != Ok(true) {
            return Outcome::Changed;
        }
        // It is evicted already, which does no harm twice.
        self.remove(key);
        Outcome::Done
    }

    /// Removes items of our own accord.
    pub fn give_up(&mut self, keys: &[ItemKey]) {
        self.give_up_as(keys, News::Dropped);
    }

    /// The controller need not hear of those that it does not count.
    fn give_up_as(&mut self, keys: &[ItemKey], news: fn(ItemKey) -> News) {
        for key in keys {
            let counts = self.holds(key);
            self.remove(key);
            self.news.extend(counts.then(|| news(key.clone())));
        }
    }

    /// Removes items that cannot be had.
    pub fn give_up_unfit(&mut self, keys: &[ItemKey]) {
        self.give_up_as(keys, News::Unfit);
    }

    /// Gives items the room that their values turned out to need. All of them go before the first
    /// comes back, so that programs are waited for once, however many a tenant had reported.
    pub fn make_larger(
        &mut self,
        wanted: &[(ItemKey, usize)],
        served: Option<&ServedCluster>,
    ) -> Result<(), AgentError> {
        let Some(served) = served else { return Ok(()) };
        let mut back = vec![];
        for (key, value_len) in wanted {
            let entry = self.index.get(key).filter(|entry| !entry.is_given());
            let Some((has, trial)) = entry.map(|entry| (entry.place.cells, entry.trial.clone()))
            else {
                continue;
            };
            let cells = cells_needed(key.key.len(), *value_len);
            if cells.is_some_and(|cells| has >= cells) {
                self.learn_value_len(key.tenant, *value_len);
                continue; // replaced since the event
            }
            let hash = served.hash_of(key);
            let lease = hash.and_then(|hash| served.lease_for(key.tenant, hash));
            let (Some(cells), Some(hash), Some(lease)) = (cells, hash, lease) else {
                if trial.is_some() {
                    continue; // it would begin anew with the next reads
                }
                self.give_up_unfit(std::slice::from_ref(key));
                continue;
            };
            self.learn_value_len(key.tenant, *value_len);
            self.remove(key);
            back.push((key, hash, cells, Content::Fetched { lease }, trial));
        }
        self.begin_batch();
        for (key, hash, cells, content, trial) in back {
            if trial.is_some() {
                let place = self.cells.take(key.tenant, cells);
                if let Some(place) = place
                    && !self.enter(key, hash, place, content, trial)
                {
                    self.cells.give_back(place);
                }
            } else if self.insert(key, hash, cells, content, served)? != Outcome::Done {
                self.news.push(News::Dropped(key.clone()));
            }
        }
        Ok(())
    }
}
