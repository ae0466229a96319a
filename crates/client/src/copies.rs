//! Copies of hot keys that this process keeps: the thread that talks with stores about them, and
//! what whoever reads sees of it.
//!
//! In: keys that readers want kept, and datagrams of stores. Out: what the [`Holder`] says, and
//! values in the [`Cache`], from which readers answer by themselves: [`crate::Client`], and the
//! gateway's event loops. The thread sleeps while nothing is wanted and no copy is read. It is one
//! of its own, since a write anywhere waits for its acknowledgement, whatever else this process
//! does.

use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use holder::{Cache, CopiedValue, CopyNote, Holder, HolderCounts, HolderOptions, Miss};
use mio::{Events, Interest, Poll, Token, Waker, net::UdpSocket};
use wire::Cluster;

use crate::{Error, clock, port::open_socket, process::Process};

/// Room for a datagram in bytes.
const SLOT: usize = 2048;
/// Keys that wait for the thread at most.
const WISHES_MOST: usize = 4096;
/// For how long a key is not asked for that finds no place there.
const LATER_NS: u64 = 100_000_000;
const WAKER: Token = Token(2);
/// Datagrams that are taken from a socket at a time. Whoever sends more of them than the thread can
/// take must not keep it from everything else.
const AT_ONCE: usize = 1024;

/// A key that is to be kept, with its hash in the cache.
type Wish = (u64, Box<[u8]>);

/// What readers see of the copies.
#[derive(Clone)]
pub struct LocalCopies {
    cache: Arc<Cache>,
    wishes: Arc<Wishes>,
}

/// What readers tell the thread.
struct Wishes {
    keys: Mutex<Vec<Wish>>,
    waker: Waker,
    ends: AtomicBool,
}

impl LocalCopies {
    /// The hash of a key.
    #[inline]
    pub fn hash(&self, key: &[u8]) -> u64 {
        self.cache.hash(key)
    }

    /// A read of the key with this hash that came before `now_ns`: if there is a copy that may be
    /// served, it is handed on.
    ///
    /// # Errors
    /// There is none; [`Miss::AtStore`]: but the key's store is at work on it.
    #[inline]
    pub fn read<R>(
        &self,
        hash: u64,
        key: &[u8],
        now_ns: u64,
        serve: impl FnOnce(&CopiedValue<Box<[u8]>>) -> R,
    ) -> Result<R, Miss> {
        self.read_noted(hash, key, now_ns, |copy, _| Some(serve(copy)))
    }

    /// Likewise; `serve` is handed what was noted of the copy, too, and where it makes nothing of
    /// it the read is as one that found none.
    ///
    /// # Errors
    /// As [`LocalCopies::read`].
    #[inline]
    pub fn read_noted<R>(
        &self,
        hash: u64,
        key: &[u8],
        now_ns: u64,
        serve: impl FnOnce(&CopiedValue<Box<[u8]>>, Option<CopyNote>) -> Option<R>,
    ) -> Result<R, Miss> {
        match self.cache.read_noted(hash, key, now_ns, serve) {
            Err(Miss::Wanted) if self.wishes.add((hash, key.into())) => Err(Miss::AtStore),
            Err(Miss::Wanted) => {
                self.cache.put_off(hash, key, now_ns + LATER_NS);
                Err(Miss::Elsewhere)
            }
            served_or_not => served_or_not,
        }
    }

    /// The version of the copy that may be served at `now_ns`, if there is one. That is no read.
    pub fn version(&self, hash: u64, key: &[u8], now_ns: u64) -> Option<u64> {
        self.cache.version(hash, key, now_ns)
    }

    /// Notes something of the copy of this version, if it may be served at `now_ns`, for as long as
    /// that is kept. Whether it did.
    pub fn note(&self, hash: u64, key: &[u8], now_ns: u64, note: (u64, CopyNote)) -> bool {
        self.cache.note(hash, key, now_ns, note)
    }

    /// Bytes that are kept, and keys.
    pub fn kept(&self) -> (usize, usize) {
        self.cache.kept()
    }
}

impl Wishes {
    /// False: too many wait.
    fn add(&self, wish: Wish) -> bool {
        let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        if keys.len() == WISHES_MOST {
            return false;
        }
        keys.push(wish);
        if keys.len() == 1 {
            let _ = self.waker.wake();
        }
        true
    }

    fn take(&self) -> Vec<Wish> {
        std::mem::take(&mut *self.keys.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The thread. It ends when this is dropped: nothing is served from copies any more then, and
/// stores are told.
pub struct CopiesThread {
    /// What readers see.
    pub copies: LocalCopies,
    process: Process,
    thread: Option<JoinHandle<()>>,
}

/// What has been done since the last time is told to.
type CountsListener = Box<dyn FnMut(HolderCounts) + Send>;

/// What the thread works with.
struct Keeper {
    poll: Poll,
    sockets: [Option<UdpSocket>; 2],
    /// Whether more may have come by each of them than was taken.
    unread: [bool; 2],
    holder: Holder,
    wishes: Arc<Wishes>,
    counted: HolderCounts,
    told: CountsListener,
}

impl CopiesThread {
    /// Keeps copies of a tenant's keys, in so many bytes; `told` hears what has been done since it
    /// was called last.
    ///
    /// # Errors
    /// [`Error::UnknownTenant`], or [`Error::Socket`] if the system refuses a socket or a thread.
    pub fn start(
        cluster: &Cluster,
        tenant: u32,
        bytes: usize,
        told: impl FnMut(HolderCounts) + Send + 'static,
    ) -> Result<CopiesThread, Error> {
        let refused = |source| {
            let what = "cannot begin to keep copies".into();
            Error::Socket { what, source }
        };
        let poll = Poll::new().map_err(refused)?;
        let wishes = Arc::new(Wishes {
            keys: Mutex::default(),
            waker: Waker::new(poll.registry(), WAKER).map_err(refused)?,
            ends: AtomicBool::new(false),
        });
        let cache = Arc::new(Cache::new(bytes, Holder::stores(cluster)));
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        let options = HolderOptions::starting(tenant, rand::random(), since_1970);
        let holder = Holder::new(cluster, options, cache.clone(), clock::now_ns())
            .ok_or(Error::UnknownTenant(tenant))?;
        let mut sockets = [None, None];
        for (at, socket) in sockets.iter_mut().enumerate() {
            if cluster.stores.iter().any(|store| usize::from(store.address.is_ipv6()) == at) {
                *socket = Some(open_socket(at == 1, |socket| {
                    let mut socket = UdpSocket::from_std(socket.into());
                    poll.registry().register(&mut socket, Token(at), Interest::READABLE)?;
                    Ok(socket)
                })?);
            }
        }
        let copies = LocalCopies { cache, wishes: wishes.clone() };
        let process = Process::current()?;
        let (counted, told) = (HolderCounts::default(), Box::new(told));
        let unread = [false; 2];
        let keeper = Keeper { poll, sockets, unread, holder, wishes, counted, told };
        let thread = std::thread::Builder::new().name("copies".into());
        let thread = thread.spawn(move || keeper.run()).map_err(refused)?;
        Ok(CopiesThread { copies, process, thread: Some(thread) })
    }
}

impl Drop for CopiesThread {
    fn drop(&mut self) {
        // The thread is the parent's, who goes on.
        if !self.process.is_current() {
            return;
        }
        self.copies.wishes.ends.store(true, Ordering::Release);
        let _ = self.copies.wishes.waker.wake();
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

impl Keeper {
    fn run(mut self) {
        let mut events = Events::with_capacity(64);
        let mut buffer = vec![0; SLOT];
        loop {
            match self.poll.poll(&mut events, self.rests_for()) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => {
                    tracing::error!(%error, "no copies are kept any more");
                    return self.end();
                }
                Ok(()) => {}
            }
            if self.wishes.ends.load(Ordering::Acquire) {
                return self.end();
            }
            for event in &events {
                if event.token() != WAKER {
                    self.unread[event.token().0] = true;
                }
            }
            for at in 0..self.unread.len() {
                self.unread[at] = self.unread[at] && self.receive(at, &mut buffer);
            }
            let now_ns = clock::now_ns();
            for (hash, key) in self.wishes.take() {
                self.holder.want(hash, &key, now_ns);
            }
            if self.holder.next_ns().is_some_and(|at_ns| at_ns <= now_ns) {
                self.holder.timer(now_ns);
            }
            self.flush();
            self.tell();
        }
    }

    /// How long nothing is to be done if nothing comes; none: for ever. A socket that more has come
    /// by does not say so again.
    fn rests_for(&self) -> Option<Duration> {
        if self.unread.contains(&true) {
            return Some(Duration::ZERO);
        }
        let at_ns = self.holder.next_ns()?;
        Some(Duration::from_nanos(at_ns.saturating_sub(clock::now_ns())))
    }

    fn end(&mut self) {
        self.holder.leave(clock::now_ns());
        self.flush();
        self.holder.cache().clear();
    }

    /// Takes what has come by one of the sockets; true: there may be more.
    fn receive(&mut self, at: usize, buffer: &mut [u8]) -> bool {
        for _ in 0..AT_ONCE {
            let Some(Some(socket)) = self.sockets.get(at) else { return false };
            match socket.recv_from(buffer) {
                Ok((len, from)) => {
                    self.holder.take(&buffer[..len], from, clock::now_ns());
                    // A writer waits for what answers an invalidation.
                    self.flush();
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
                // What an earlier datagram met; there may be more behind it.
                Err(_) => {}
            }
        }
        true
    }

    fn flush(&mut self) {
        while let Some((to, bytes)) = self.holder.next_datagram() {
            let socket = self.sockets[usize::from(SocketAddr::is_ipv6(&to))].as_ref();
            // What does not leave is lost, as it might be on the way: it is sent again.
            if let Some(Err(error)) = socket.map(|socket| socket.send_to(&bytes, to)) {
                tracing::trace!(%error, "a datagram about copies was not sent");
            }
        }
    }

    fn tell(&mut self) {
        let now = self.holder.counts();
        let before = std::mem::replace(&mut self.counted, now);
        (self.told)(now.since(&before));
    }
}
