use std::{
    borrow::Cow,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use tokio::{
    sync::Semaphore,
    time::{Instant, sleep_until, timeout_at},
};
use wire::{Cluster, Flags, HEADER_LEN, Header, Op, Status, TENANT_SYSTEM};

use crate::{
    Condition, Counts, Error, Options, Value,
    counters::Counters,
    envelope::Envelope,
    port::{Port, Reply},
    request::{Id, Request, Sender, max_payload},
    routes::{Range, Routes},
    timing::{Backoff, RoundTrip},
};

/// Times that a read is asked again because its answer needs more room: values may grow meanwhile.
const MAX_PADDINGS: u32 = 4;
/// First wait after a store's `TryAgain`.
const TRY_AGAIN_WAIT: Duration = Duration::from_millis(20);
/// Longest wait after a store's `TryAgain`.
const TRY_AGAIN_WAIT_MAX: Duration = Duration::from_millis(200);

/// A connection to a cluster in the name of one tenant. Clones share sockets and counters; when the last
/// one is dropped the sockets close. All methods may be called concurrently, and a call that is
/// dropped before it ends leaves nothing behind (a write may still take place).
#[derive(Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

struct Inner {
    routes: Routes,
    sender: Sender,
    envelope: Envelope,
    options: Options,
    v4: Option<Port>,
    v6: Option<Port>,
    /// Client id in the high half, request id in the low half. When the request ids are used up, the
    /// next client id follows, so that a pair never comes twice.
    next_id: AtomicU64,
    free: Semaphore,
    round_trip: RoundTrip,
    /// Length in bytes of the largest value seen, as it travels.
    largest_value: AtomicUsize,
    counters: Arc<Counters>,
}

impl Client {
    /// Opens the sockets for a cluster. Sends nothing: a store that is not there is noticed by the first call.
    ///
    /// # Errors
    /// [`Error::Options`], [`Error::UnknownTenant`], or [`Error::Socket`] if the system refuses a socket.
    pub async fn connect(
        cluster: &Cluster,
        tenant: u32,
        options: Options,
    ) -> Result<Client, Error> {
        options.check()?;
        if cluster.stores.is_empty() || cluster.partitions == 0 {
            return Err(Error::Options(
                "cluster: it has no store; expected at least one".into(),
            ));
        }
        let secrets = (tenant != TENANT_SYSTEM)
            .then(|| cluster.secrets_of(tenant))
            .flatten()
            .ok_or(Error::UnknownTenant(tenant))?;
        let routes = Routes::new(cluster, tenant);
        let counters = Arc::new(Counters::default());
        let open = |v6| {
            routes
                .has_family(v6)
                .then(|| Port::open(v6, secrets.tag, counters.clone()))
                .transpose()
        };
        let envelope = Envelope::new(options.seal.as_ref(), tenant);
        let id = options.client_id.unwrap_or_else(rand::random);
        let inner = Inner {
            v4: open(false)?,
            v6: open(true)?,
            next_id: AtomicU64::new((u64::from(id) << 32) | 1),
            free: Semaphore::new(options.max_in_flight),
            round_trip: RoundTrip::new(&options),
            largest_value: AtomicUsize::new(options.expected_value + envelope.overhead()),
            envelope,
            sender: Sender { tenant, secrets },
            routes,
            options,
            counters,
        };
        Ok(Client {
            inner: Arc::new(inner),
        })
    }

    /// The value of a key; `None` if there is no such key.
    ///
    /// # Errors
    /// [`Error::Timeout`] if nobody answers, [`Error::NotOpened`] if what is there was not sealed with
    /// [`Options::seal`] for this key, and the others that [`Error`] lists for reads.
    pub async fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>, Error> {
        let request = Request::new(Op::ReadRequest, key.as_ref());
        let Answer {
            store,
            header,
            value,
        } = self.inner.call(request).await?;
        match header.status {
            Status::Ok => Ok(Some(Value {
                bytes: value,
                version: header.version,
                expires_in: (header.expiry_ms > 0)
                    .then(|| Duration::from_millis(header.expiry_ms.into())),
                from_switch: header.flags.has(Flags::CACHED),
            })),
            Status::NotFound => Ok(None),
            status => Err(self.inner.refusal(status, store, &request)),
        }
    }

    /// The values of many keys, in the order of the keys. The requests are in flight together, at most
    /// half of `Options::max_in_flight` of them, so that other calls find a place.
    pub async fn get_many<K: AsRef<[u8]>>(&self, keys: &[K]) -> Vec<Result<Option<Value>, Error>> {
        let window = (self.inner.options.max_in_flight / 2).max(1);
        stream::iter(keys)
            .map(|key| self.get(key))
            .buffered(window)
            .collect()
            .await
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

    /// Writes a value if the key has exactly this version, and returns the new version.
    ///
    /// # Errors
    /// [`Error::Mismatch`] with the current version if it is another; [`Error::OutcomeUnknown`] as for `set`.
    pub async fn compare_and_set(
        &self,
        key: impl AsRef<[u8]>,
        expected: u64,
        value: impl AsRef<[u8]>,
    ) -> Result<u64, Error> {
        self.set_if(key, value, None, Condition::Version(expected))
            .await
    }

    /// Writes a value if a condition holds, and returns the new version.
    ///
    /// # Errors
    /// [`Error::Mismatch`] with the current version if it does not; [`Error::OutcomeUnknown`] as for `set`.
    pub async fn set_if(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        ttl: Option<Duration>,
        condition: Condition,
    ) -> Result<u64, Error> {
        let (flags, version) = condition.in_header();
        let expiry_ms = ttl.map(ttl_ms).transpose()?.unwrap_or(0);
        let value = value.as_ref();
        let request = Request {
            flags,
            value,
            expiry_ms,
            version,
            ..Request::new(Op::WriteRequest, key.as_ref())
        };
        let Answer { store, header, .. } = self.inner.call(request).await?;
        match header.status {
            Status::Ok => {
                self.inner
                    .saw_value(value.len() + self.inner.envelope.overhead());
                Ok(header.version)
            }
            Status::Mismatch => Err(Error::Mismatch {
                current: header.version,
            }),
            status => Err(self.inner.refusal(status, store, &request)),
        }
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
    /// [`Error::Mismatch`] with the current version if it does not; [`Error::OutcomeUnknown`] as for `delete`.
    pub async fn delete_if(
        &self,
        key: impl AsRef<[u8]>,
        condition: Condition,
    ) -> Result<bool, Error> {
        let (flags, version) = condition.in_header();
        let request = Request {
            flags,
            version,
            ..Request::new(Op::DeleteRequest, key.as_ref())
        };
        let Answer { store, header, .. } = self.inner.call(request).await?;
        match header.status {
            Status::Ok => Ok(true),
            Status::NotFound => Ok(false),
            Status::Mismatch => Err(Error::Mismatch {
                current: header.version,
            }),
            status => Err(self.inner.refusal(status, store, &request)),
        }
    }

    /// Asks for an operation that the tenant's discipline defines ([`Op::DisciplineRequest`]), and returns its answer's
    /// number and value. What they mean is the discipline's affair, and so is that a request does no harm twice: it is
    /// sent again until an answer comes. Neither value is sealed.
    ///
    /// # Errors
    /// [`Error::Timeout`] if nothing answered, or nothing but "try again"; a refusal as for `get`.
    pub async fn ask(
        &self,
        key: impl AsRef<[u8]>,
        number: u64,
        value: impl AsRef<[u8]>,
    ) -> Result<(u64, Bytes), Error> {
        let request = Request {
            version: number,
            value: value.as_ref(),
            ..Request::new(Op::DisciplineRequest, key.as_ref())
        };
        let answer = self.inner.call(request).await?;
        match answer.header.status {
            Status::Ok => Ok((answer.header.version, answer.value)),
            status => Err(self.inner.refusal(status, answer.store, &request)),
        }
    }

    /// What this client and its clones have done so far.
    pub fn counts(&self) -> Counts {
        self.inner.counters.read()
    }
}

/// The time to live as its field states it: whole milliseconds, rounded up so that it is never "none".
fn ttl_ms(ttl: Duration) -> Result<u32, Error> {
    let ms = ttl.as_nanos().div_ceil(1_000_000);
    u32::try_from(ms)
        .ok()
        .filter(|ms| *ms > 0)
        .ok_or(Error::TimeToLive)
}

/// A final answer: any status but `TryAgain` and `NeedPadding`.
struct Answer {
    store: SocketAddr,
    header: Header,
    value: Bytes,
}

/// One call on its way: what stays the same over all its datagrams, and how many there were.
struct Attempt {
    store: SocketAddr,
    limit: Duration,
    deadline: Instant,
    tries: u32,
    put_off: bool,
    denied: bool,
}

impl Attempt {
    fn timed_out(&self, op: Op, tenant: u32) -> Error {
        let denied = self.denied.then_some(tenant);
        let Attempt {
            store,
            tries,
            put_off: try_again,
            ..
        } = *self;
        let after_ms = self.limit.as_millis() as u64;
        if op.is_write() {
            Error::OutcomeUnknown {
                store,
                after_ms,
                tries,
                try_again,
                denied,
            }
        } else {
            Error::Timeout {
                store,
                after_ms,
                tries,
                try_again,
                denied,
            }
        }
    }
}

impl Inner {
    /// Sends a request until its final answer comes or the deadline has passed.
    async fn call(&self, request: Request<'_>) -> Result<Answer, Error> {
        let Options {
            deadline,
            max_in_flight,
            ..
        } = self.options;
        let write = request.op.is_write();
        let limit = if write {
            self.options.write_deadline()
        } else {
            deadline
        };
        let deadline = Instant::now() + limit;
        let name = self.envelope.name(request.key)?;
        let request = Request {
            key: name.as_ref(),
            ..request
        };
        let hash = self
            .sender
            .secrets
            .hash
            .key_hash(self.sender.tenant, request.key);
        let Range { store, writes, .. } = self.routes.store_of(hash);
        let store = *store;
        request.check(store, self.envelope.overhead())?;
        // Once for all its datagrams: under one id a store must see one write.
        let value = match request.op {
            Op::WriteRequest => self.envelope.close(&name, request.value),
            _ => Cow::Borrowed(request.value),
        };
        let mut request = Request {
            value: &value,
            ..request
        };
        let full = |_| Error::TooManyInFlight {
            limit: max_in_flight,
        };
        let _place = timeout_at(deadline, self.free.acquire())
            .await
            .map_err(full)?;
        let (_in_order, mut id) = if write {
            let entered = timeout_at(deadline, writes.enter(|| self.new_id()));
            let (place, id) = entered.await.map_err(full)?;
            (Some(place), id)
        } else {
            (None, self.new_id())
        };

        let mut attempt = Attempt {
            store,
            limit,
            deadline,
            tries: 0,
            put_off: false,
            denied: false,
        };
        let mut waits = Backoff::new(TRY_AGAIN_WAIT, TRY_AGAIN_WAIT_MAX);
        let mut paddings = 0;
        loop {
            let datagram = request.encode(&self.sender, id, hash, self.room(&request, store));
            let Some(reply) = self.exchange(&mut attempt, id, &datagram).await? else {
                return Err(attempt.timed_out(request.op, self.sender.tenant));
            };
            match reply {
                Reply::WrongKey if request.op == Op::CorrectionRequest => {
                    return Err(Error::BadReply {
                        store,
                        what: "another key, even past the caches",
                    });
                }
                Reply::WrongKey => {
                    self.counters.corrected.add_one();
                    request.op = Op::CorrectionRequest;
                    // A new id: a late copy of the wrong answer must not answer the correction.
                    id = self.new_id();
                }
                Reply::Answer(header, value) => match header.status {
                    Status::NeedPadding if !write && paddings < MAX_PADDINGS => {
                        self.counters.padded.add_one();
                        paddings += 1;
                        self.saw_value(header.expiry_ms as usize);
                        id = self.new_id();
                    }
                    Status::TryAgain => {
                        self.counters.put_off.add_one();
                        attempt.put_off = true;
                        let until = Instant::now() + waits.next(rand::random());
                        sleep_until(until.min(deadline)).await;
                        if until >= deadline {
                            return Err(attempt.timed_out(request.op, self.sender.tenant));
                        }
                        // The id stays: a late copy of this request must count as the same write.
                    }
                    _ if header.fragments > 1 => {
                        return Err(Error::BadReply {
                            store,
                            what: "a fragment of a value",
                        });
                    }
                    _ => {
                        self.saw_value(value.len());
                        let value = match header.status {
                            Status::Ok if header.op == Op::ReadReply => {
                                self.envelope.open(&name, value, store, header.flags)?
                            }
                            _ => value,
                        };
                        return Ok(Answer {
                            store,
                            header,
                            value,
                        });
                    }
                },
            }
        }
    }

    /// Sends one datagram, again and again, until something answers it; `None` at the deadline.
    async fn exchange(
        &self,
        attempt: &mut Attempt,
        id: Id,
        datagram: &Bytes,
    ) -> Result<Option<Reply>, Error> {
        let Attempt {
            store, deadline, ..
        } = *attempt;
        let port = if store.is_ipv6() { &self.v6 } else { &self.v4 };
        let port = port
            .as_ref()
            .expect("a socket was opened for each family in the cluster");
        let mut expected = port.expect(id, datagram.clone(), store);
        let mut waits = Backoff::new(self.round_trip.timeout(), self.options.max_timeout);
        for retransmission in 0u32.. {
            match port.send(datagram, store).await {
                Ok(()) => {}
                // Nothing has left yet, so the caller may know for certain.
                Err(source) if attempt.tries == 0 => {
                    return Err(Error::Socket {
                        what: format!("cannot send to {store}"),
                        source,
                    });
                }
                // As good as lost; the deadline bounds it.
                Err(error) => tracing::debug!(%store, %error, "sending again failed"),
            }
            attempt.tries += 1;
            let sent = Instant::now();
            let until = sent + waits.next(rand::random());
            match timeout_at(until.min(deadline), &mut expected.reply).await {
                Ok(Ok(reply)) => {
                    if retransmission == 0 {
                        self.round_trip.measured(sent.elapsed());
                    }
                    return Ok(Some(reply));
                }
                // The sender lives in the table as long as `expected` does, or has sent a reply.
                Ok(Err(_)) => return Ok(None),
                Err(_) if until >= deadline => {
                    attempt.denied |= expected.was_denied();
                    return Ok(None);
                }
                Err(_) => self.counters.retransmitted.add_one(),
            }
        }
        Ok(None)
    }

    /// Bytes that a request's datagram takes at least, so that its answer fits where it stood.
    fn room(&self, request: &Request<'_>, store: SocketAddr) -> usize {
        if request.op.is_write() {
            return 0;
        }
        let expected = self.largest_value.load(Relaxed);
        (HEADER_LEN + request.key.len() + expected).min(max_payload(store))
    }

    fn saw_value(&self, len: usize) {
        // Read first: the common case then shares the cache line between cores.
        if len > self.largest_value.load(Relaxed) {
            self.largest_value.fetch_max(len, Relaxed);
        }
    }

    fn new_id(&self) -> Id {
        let next = self.next_id.fetch_add(1, Relaxed);
        Id {
            client: (next >> 32) as u32,
            request: next as u32,
        }
    }

    /// The error for a status that is no success of this request.
    fn refusal(&self, status: Status, store: SocketAddr, request: &Request<'_>) -> Error {
        match status {
            Status::WrongPartition => Error::WrongPartition { store },
            Status::TooLarge => Error::TooLarge {
                store,
                len: request.value.len(),
            },
            Status::BackendError => Error::Backend {
                store,
                write: request.op.is_write(),
            },
            Status::Denied => Error::Denied {
                store,
                tenant: self.sender.tenant,
            },
            _ => Error::BadReply {
                store,
                what: "a status that does not belong to it",
            },
        }
    }
}
