//! The addresses that names of servers mean, for as long as the gateway runs: a server may get
//! another one (a managed Redis does when it is failed over), while what is at the one before
//! goes on answering.
//!
//! A thread of its own looks all names up every second, one after the other, for the system's
//! resolver may take its time. One that fails changes nothing.

use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

/// From one look at all names to the next.
pub(crate) const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Tells which addresses a name means, each with the port that is asked for with it.
pub type Resolver = fn(&str, u16) -> io::Result<Vec<SocketAddr>>;

/// The system's resolver.
///
/// # Errors
/// As the system says it.
pub fn system_resolver(name: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    use std::net::ToSocketAddrs;
    Ok((name, port).to_socket_addrs()?.collect())
}

/// A name and a port, and the address that is used of those that it means.
#[derive(Debug)]
pub(crate) struct NamedAddress {
    name: String,
    port: u16,
    now: Mutex<SocketAddr>,
}

impl NamedAddress {
    /// The address.
    pub fn now(&self) -> SocketAddr {
        *self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// All names that are in use.
#[derive(Debug)]
pub(crate) struct Names {
    resolver: Resolver,
    all: Mutex<Vec<Weak<NamedAddress>>>,
    changes: AtomicU64,
}

impl Names {
    /// None yet.
    pub fn new(resolver: Resolver) -> Names {
        Names { resolver, all: Mutex::default(), changes: AtomicU64::new(0) }
    }

    /// Looks a name up, and goes on with that.
    ///
    /// # Errors
    /// It has no address now.
    pub fn named(&self, name: &str, port: u16) -> io::Result<Arc<NamedAddress>> {
        let first = (self.resolver)(name, port)?.first().copied();
        let now = Mutex::new(first.ok_or_else(|| io::Error::other("no address"))?);
        let named = Arc::new(NamedAddress { name: name.into(), port, now });
        self.all.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::downgrade(&named));
        Ok(named)
    }

    /// How often a name has got another address.
    pub fn changes(&self) -> u64 {
        self.changes.load(Relaxed)
    }

    /// Looks all names up until nobody holds this any more.
    pub fn follow(self: &Arc<Names>) -> io::Result<()> {
        let names = Arc::downgrade(self);
        let follows = move || loop {
            thread::sleep(LOOK_AGAIN);
            let Some(names) = names.upgrade() else { return };
            names.look();
        };
        thread::Builder::new().name("names".into()).spawn(follows).map(drop)
    }

    fn look(&self) {
        let all = self.all.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for named in all.iter().filter_map(Weak::upgrade) {
            let Ok(found) = (self.resolver)(&named.name, named.port) else { continue };
            let mut now = named.now.lock().unwrap_or_else(PoisonError::into_inner);
            // The one in use counts for as long as it is among them.
            let Some(first) = found.first().filter(|_| !found.contains(&now)) else { continue };
            tracing::warn!("{}:{} is at {first} now, and no more at {now}", named.name, named.port);
            *now = *first;
            self.changes.fetch_add(1, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static ANSWER: Mutex<Vec<SocketAddr>> = Mutex::new(vec![]);

    /// Nothing said: it fails.
    fn resolver(_: &str, _: u16) -> io::Result<Vec<SocketAddr>> {
        let answer = ANSWER.lock().unwrap().clone();
        if answer.is_empty() { Err(io::Error::other("nobody knows")) } else { Ok(answer) }
    }

    #[test]
    fn a_name_keeps_its_address_until_it_means_others() {
        let says = |answer: &[&str]| {
            *ANSWER.lock().unwrap() = answer.iter().map(|at| at.parse().unwrap()).collect();
        };
        let names = Names::new(resolver);
        assert!(names.named("a.test", 7).is_err());
        says(&["10.0.0.1:7", "10.0.0.2:7"]);
        let named = names.named("a.test", 7).unwrap();
        // (what the resolver says, where it is then, changes by then)
        let rows: [(&[&str], &str, u64); 5] = [
            (&["10.0.0.2:7", "10.0.0.1:7"], "10.0.0.1:7", 0),
            (&[], "10.0.0.1:7", 0),
            (&["10.0.0.2:7"], "10.0.0.2:7", 1),
            (&["10.0.0.2:7", "10.0.0.3:7"], "10.0.0.2:7", 1),
            (&["10.0.0.3:7"], "10.0.0.3:7", 2),
        ];
        for (answer, at, changes) in rows {
            says(answer);
            names.look();
            let now = (named.now().to_string(), names.changes());
            assert_eq!(now, (at.into(), changes), "{answer:?}");
        }
    }
}
