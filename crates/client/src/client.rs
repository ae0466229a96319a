//! The client that applications hold: its methods, and how one call is driven with sockets and the
//! system's clock.
//!
//! What to send and when is the affair of the call's own state machine ([`crate::call`]); here a
//! call finds its place among those in flight and among its store's writes, and a task sends, waits
//! and hands over what came. [`crate::machine`] drives the same calls without either.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use holder::{HolderCounts, left_ms};
use tokio::{sync::Semaphore, task::coop::consume_budget, time::timeout_at};
use wire::{Cluster, Flags, HEADER_LEN, Header, Op};

use crate::{
    Answer, Condition, Counts, Error, Metadata, Operation, Options, Value,
    answer::Request,
    call::{Call, Step},
    clock,
    copies::CopiesThread,
    operation::check_key,
    payload::max_payload,
    port::Port,
    process::Process,
    rules::Rules,
    window::WriteWindow,
};

/// A connection to a cluster in the name of one tenant. Clones share sockets and counters; when the
/// last one is dropped the sockets close. All methods may be called concurrently, and a call that
/// is dropped before it ends leaves nothing behind (a write may still take place). It belongs to
/// the process that connected it: in one that was forked since, each call is refused.
#[derive(Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

struct Inner {
    process: Process,
    rules: Rules,
    v4: Option<Port>,
    v6: Option<Port>,
    free: Semaphore,
    /// One per store.
    windows: Vec<WriteWindow>,
    /// Of what is read most, if some are kept.
    copies: Option<CopiesThread>,
}

impl Client {
    /// Opens the sockets for a cluster. Sends nothing: a store that is not there is noticed by the
    /// first call.
    ///
    /// # Errors
    /// [`Error::Options`], [`Error::UnknownTenant`], or [`Error::Socket`] if the system refuses
    /// a socket.
    pub async fn connect(
        cluster: &Cluster,
        tenant: u32,
        options: Options,
    ) -> Result<Client, Error> {
        let rules = Rules::new(cluster, tenant, options, rand::random())?;
        let counters = rules.counters.clone();
        let told = move |counts: HolderCounts| {
            counters.local_grants.add(counts.grants);
            counters.local_invalidations.add(counts.invalidations);
        };
        let bytes = rules.options.cache;
        let keep = || CopiesThread::start(cluster, tenant, bytes, told);
        let open = |v6| rules.routes.has_family(v6).then(|| Port::open(v6, &rules)).transpose();
        let inner = Inner {
            process: Process::current()?,
            v4: open(false)?,
            v6: open(true)?,
            copies: (bytes > 0).then(keep).transpose()?,
            free: Semaphore::new(rules.options.max_in_flight),
            windows: (0..rules.routes.windows).map(|_| WriteWindow::new()).collect(),
            rules,
        };
        Ok(Client { inner: Arc::new(inner) })
    }

    /// Carries out any operation.
    ///
    /// # Errors
    /// Whatever keeps its final answer away; what the answer says is the method's affair that
    /// reads it.
    pub async fn call(&self, operation: Operation<'_>) -> Result<Answer, Error> {
        self.inner.call(&operation).await
    }

    /// The value of a key; `None` if there is no such key.
    ///
    /// # Errors
    /// [`Error::Timeout`] if nobody answers, [`Error::NotOpened`] if what is there was not sealed
    /// with [`Options::seal`] for this key, and the others that [`Error`] lists for reads.
    pub async fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>, Error> {
        let key = key.as_ref();
        self.call(Operation::Get { key }).await?.found()
    }

    /// What a key has beside its value, at the price of one packet however long that is; `None` if
    /// there is no such key.
    ///
    /// # Errors
    /// As for `get`.
    pub async fn about(&self, key: impl AsRef<[u8]>) -> Result<Option<Metadata>, Error> {
        let key = key.as_ref();
        self.call(Operation::About { key }).await?.about()
    }

    /// The values of many keys, in the order of the keys. The requests are in flight together, at
    /// most half of `Options::max_in_flight` of them, so that other calls find a place.
    pub async fn get_many<K: AsRef<[u8]>>(&self, keys: &[K]) -> Vec<Result<Option<Value>, Error>> {
        let window = (self.inner.rules.options.max_in_flight / 2).max(1);
        stream::iter(keys).map(|key| self.get(key)).buffered(window).collect().await
    }

    /// Writes a value, to be forgotten after `ttl` if given, and returns its new version.
    ///
    /// # Errors
    /// [`Error::OutcomeUnknown`] if no answer came: the write may have been applied, or still be.
    pub async fn set(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        ttl: Option<Duration>,
    ) -> Result<u64, Error> {
        self.set_if(key, value, ttl, Condition::Always).await
    }

    /// Writes a value if the key has exactly this version, and returns the new version. What others
    /// write directly in the store's backend is no new version, and may be overwritten unread.
    ///
    /// # Errors
    /// [`Error::Mismatch`] with the current version if it is another; [`Error::OutcomeUnknown`] as
    /// for `set`.
    pub async fn compare_and_set(
        &self,
        key: impl AsRef<[u8]>,
        expected: u64,
        value: impl AsRef<[u8]>,
    ) -> Result<u64, Error> {
        self.set_if(key, value, None, Condition::Version(expected)).await
    }

    /// Writes a value if a condition holds, and returns the new version.
    ///
    /// # Errors
    /// [`Error::Mismatch`] with the current version if it does not; [`Error::OutcomeUnknown`] as
    /// for `set`.
    pub async fn set_if(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        ttl: Option<Duration>,
        condition: Condition,
    ) -> Result<u64, Error> {
        let set = Operation::Set { key: key.as_ref(), value: value.as_ref(), ttl, condition };
        self.call(set).await?.written()
    }

    /// Removes a key; `false` if there was no such key.
    ///
    /// # Errors
    /// [`Error::OutcomeUnknown`] if no answer came: the key may have been removed, or still be.
    pub async fn delete(&self, key: impl AsRef<[u8]>) -> Result<bool, Error> {
        self.delete_if(key, Condition::Always).await
    }

    /// Removes a key if a condition holds; `false` if there was no such key.
    ///
    /// # Errors
    /// [`Error::Mismatch`] with the current version if it does not; [`Error::OutcomeUnknown`] as
    /// for `delete`.
    pub async fn delete_if(
        &self,
        key: impl AsRef<[u8]>,
        condition: Condition,
    ) -> Result<bool, Error> {
        let key = key.as_ref();
        self.call(Operation::Delete { key, condition }).await?.removed()
    }

    /// Asks for an operation that the tenant's discipline defines
    /// ([`wire::Op::DisciplineRequest`]), and returns its answer's number and value. What they mean
    /// is the discipline's affair, and so is that a request does no harm twice: it is sent again
    /// until an answer comes. Neither value is sealed.
    ///
    /// # Errors
    /// [`Error::Timeout`] if nothing answered, or nothing but "try again"; a refusal as for `get`.
    pub async fn ask(
        &self,
        key: impl AsRef<[u8]>,
        number: u64,
        value: impl AsRef<[u8]>,
    ) -> Result<(u64, Bytes), Error> {
        let ask = Operation::Ask { key: key.as_ref(), number, value: value.as_ref() };
        self.call(ask).await?.said()
    }

    /// What this client and its clones have done so far.
    pub fn counts(&self) -> Counts {
        self.inner.rules.counters.read()
    }
}

impl Inner {
    /// What a read finds in a copy that may be served now; none: it has to be asked for, or nothing
    /// is read.
    fn read_copy(&self, operation: &Operation<'_>) -> Result<Option<Answer>, Error> {
        let (Operation::Get { key } | Operation::About { key }) = operation else {
            return Ok(None);
        };
        let Some(CopiesThread { copies, .. }) = &self.copies else { return Ok(None) };
        check_key(key)?;
        let rules = &self.rules;
        let name = rules.envelope.name(key);
        let name = name.as_ref();
        let store = rules.routes.store_of(rules.secrets.hash.key_hash(rules.tenant, name)).store;
        let one_packet = max_payload(store) - HEADER_LEN - name.len();
        let now_ns = clock::now_ns();
        let copied = copies.read(copies.hash(name), name, now_ns, |copy| {
            let expiry_ms = left_ms(copy.expires_ns, now_ns);
            let header = Header { version: copy.version, expiry_ms, ..Header::new(Op::ReadReply) };
            // As for what comes by the network. Who asks about a value keeps nothing of it.
            let len = copy.value.len();
            let reserved = match operation {
                Operation::Get { .. } if len > one_packet => rules.reserve(len)?,
                _ => None,
            };
            Ok::<_, Error>((header, Bytes::copy_from_slice(&copy.value), reserved))
        });
        let Ok(copied) = copied else { return Ok(None) };
        let (header, value, reserved) = copied?;
        rules.counters.local_hits.add_one();
        let value = rules.envelope.open(name, value, store, Flags::NONE)?;
        let request = Request { tenant: rules.tenant, value_len: 0, is_write: false };
        let answer = Answer { from_copy: true, ..Answer::new(store, request, header, value) };
        Ok(Some(answer.holding(reserved)))
    }

    /// Carries an operation out: sends until its final answer comes or the deadline has passed.
    async fn call(&self, operation: &Operation<'_>) -> Result<Answer, Error> {
        self.process.check()?;
        let rules = &self.rules;
        if let Some(answer) = self.read_copy(operation)? {
            // Nothing here is waited for: who reads in a loop would keep its thread from others.
            consume_budget().await;
            return Ok(answer);
        }
        let mut call = Call::new(rules, operation, clock::now_ns())?;
        let deadline = clock::timer(call.deadline_ns());
        let full = |_| rules.full();
        // A write waits for its store without a place among the calls in flight: those of others
        // need them.
        let (_in_order, id) = match call.window() {
            Some(window) => {
                let entered = self.windows[window].enter(|| rules.new_id(Some(window)));
                let (place, id) = timeout_at(deadline, entered).await.map_err(full)?;
                (Some(place), id)
            }
            None => (None, rules.new_id(None)),
        };
        let _place = timeout_at(deadline, self.free.acquire()).await.map_err(full)?;
        let store = call.store();
        let port = if store.is_ipv6() { &self.v6 } else { &self.v4 };
        let port = port.as_ref().expect("a socket was opened for each family in the cluster");
        let mut inbox = port.inbox();
        let mut step = call.start(rules, id, clock::now_ns());
        loop {
            if let Step::Done(result) = step {
                return result;
            }
            while let Some(outgoing) = call.next(rules, clock::now_ns(), rand::random()) {
                inbox.answers_to(&outgoing, store);
                let datagram = &outgoing.datagram;
                if let Err(error) = port.send(datagram, store, call.deadline_ns()).await {
                    call.not_sent(rules, &outgoing, error, clock::now_ns())?;
                }
            }
            let until = clock::timer(call.until_ns());
            step = match timeout_at(until, inbox.reply()).await {
                Ok(reply) => call.reply(rules, reply, clock::now_ns(), rand::random()),
                Err(_) => call.timer(rules, inbox.was_denied(), clock::now_ns()),
            };
        }
    }
}
