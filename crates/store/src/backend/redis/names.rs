//! The servers that are named, by the addresses that their names mean now. A managed Redis is
//! failed over by giving its name another address, while what is at the one before may go on
//! answering.
//!
//! Names are looked up when they are asked for, each every second, and by one question at a time.
//! Nobody waits for the resolver who knows an answer: one that fails, or is slow, changes nothing.

use std::{collections::HashMap, io, net::SocketAddr, time::Duration};

use anyhow::{Context, ensure};
use redis::{ConnectionAddr, ConnectionInfo};
use tokio::{sync::oneshot, time::timeout};

use super::address::node_at;
use crate::{clock::boot_ns, resolver::Resolver, slot_map::NodeAddress};

/// From one question to the resolver about a name to the next.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// A server at one address.
#[derive(Clone, Debug)]
pub(super) struct Server {
    pub info: ConnectionInfo,
    /// The name that led there: that its certificate is for.
    pub name: Option<String>,
}

impl Server {
    /// As it is given.
    pub fn given(info: ConnectionInfo) -> Server {
        Server { info, name: None }
    }

    /// Where it is.
    pub fn at(&self) -> &ConnectionAddr {
        self.info.addr()
    }
}

/// What is known of one name.
#[derive(Default)]
struct NameRecord {
    addresses: Vec<SocketAddr>,
    /// Why the last question had no answer.
    failed: String,
    asking: Option<oneshot::Receiver<io::Result<Vec<SocketAddr>>>>,
    asked_ns: Option<u64>,
}

impl NameRecord {
    fn hear(&mut self, answer: Result<io::Result<Vec<SocketAddr>>, oneshot::error::RecvError>) {
        self.asking = None;
        match answer {
            Ok(Ok(addresses)) if !addresses.is_empty() => self.addresses = addresses,
            Ok(Ok(_)) => self.failed = "it has no address".into(),
            Ok(Err(error)) => self.failed = error.to_string(),
            Err(error) => self.failed = error.to_string(),
        }
    }
}

/// The names that have been looked up.
pub(super) struct Names {
    resolver: Resolver,
    known: HashMap<NodeAddress, NameRecord>,
}

impl Names {
    /// By this resolver.
    pub fn new(resolver: Resolver) -> Names {
        Names { resolver, known: HashMap::new() }
    }

    /// Only these will be asked for.
    pub fn forget_others(&mut self, named: &[ConnectionInfo]) {
        let named: Vec<NodeAddress> = named.iter().filter_map(name_of).collect();
        self.known.retain(|name, _| named.contains(name));
    }

    /// The servers of one that is named: one for each address. As long as no address is known it
    /// waits, for so long.
    ///
    /// # Errors
    /// Its name means none.
    pub async fn servers(
        &mut self,
        named: &ConnectionInfo,
        within: Duration,
    ) -> anyhow::Result<Vec<Server>> {
        let Some(name) = name_of(named) else { return Ok(vec![Server::given(named.clone())]) };
        let known = self.look(&name, boot_ns());
        if known.addresses.is_empty()
            && let Some(asking) = &mut known.asking
        {
            let answer = timeout(within, asking).await;
            known.hear(answer.with_context(|| format!("{name}: the resolver does not answer"))?);
        }
        ensure!(!known.addresses.is_empty(), "{name}: {}", known.failed);
        Ok(servers_at(known, named, &name))
    }

    /// The same, as far as it is known without waiting.
    pub fn known(&mut self, named: &ConnectionInfo) -> Vec<Server> {
        let Some(name) = name_of(named) else { return vec![Server::given(named.clone())] };
        servers_at(self.look(&name, boot_ns()), named, &name)
    }

    /// What is known of a name by now. The resolver is asked again, unless that was done just now.
    fn look(&mut self, name: &NodeAddress, now_ns: u64) -> &mut NameRecord {
        let known = self.known.entry(name.clone()).or_default();
        let heard = known.asking.as_mut().map(oneshot::Receiver::try_recv);
        match heard {
            Some(Ok(answer)) => known.hear(Ok(answer)),
            Some(Err(oneshot::error::TryRecvError::Closed)) => known.asking = None,
            Some(Err(oneshot::error::TryRecvError::Empty)) | None => {}
        }
        let again_ns = LOOK_AGAIN.as_nanos() as u64;
        if known.asking.is_none() && known.asked_ns.is_none_or(|asked| now_ns >= asked + again_ns) {
            known.asking = Some(self.resolver.ask(&name.host, name.port));
            known.asked_ns = Some(now_ns);
        }
        known
    }
}

/// What has to be looked up to find a server, if anything.
pub(super) fn name_of(named: &ConnectionInfo) -> Option<NodeAddress> {
    let at = node_at(named.addr())?;
    let is_address = at.host.parse::<std::net::IpAddr>().is_ok();
    (!is_address).then_some(at)
}

fn servers_at(known: &NameRecord, named: &ConnectionInfo, name: &NodeAddress) -> Vec<Server> {
    let server = |at: &SocketAddr| {
        let at = ConnectionAddr::Tcp(at.ip().to_string(), at.port());
        Server { info: named.clone().set_addr(at), name: Some(name.host.clone()) }
    };
    known.addresses.iter().map(server).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    const LATER_NS: u64 = 2_000_000_000;

    fn named(url: &str) -> ConnectionInfo {
        url.parse().unwrap()
    }

    #[test]
    fn an_address_is_no_name() {
        // (URL, what is looked up)
        let rows = [
            ("redis://10.0.0.1:1", None),
            ("redis://[::1]:1", None),
            ("redis+unix:///p", None),
            ("redis://a.test:1", Some("a.test:1")),
            ("redis://localhost", Some("localhost:6379")),
        ];
        for (url, name) in rows {
            let found = name_of(&named(url)).map(|name| name.to_string());
            assert_eq!(found.as_deref(), name, "{url}");
        }
    }

    #[tokio::test]
    async fn what_is_known_stays_until_the_resolver_knows_better() {
        let (answer, answers) = mpsc::channel::<io::Result<Vec<SocketAddr>>>();
        let answers = std::sync::Mutex::new(answers);
        let resolver = Resolver::new(move |_, _| {
            let gone = |_| io::Error::other("gone");
            answers.lock().unwrap().recv().map_err(gone).flatten()
        });
        let mut names = Names::new(resolver);
        let (one, other) = ("10.0.0.1:7", "[::2]:7");
        let server = named("redis://u:p@a.test:7/3");
        let at = |servers: Vec<Server>| {
            let named = servers.iter().all(|server| server.name.as_deref() == Some("a.test"));
            let logs_in = |server: &Server| server.info.redis_settings().db() == 3;
            assert!(named && servers.iter().all(logs_in));
            servers.iter().map(|server| server.at().to_string()).collect::<Vec<_>>()
        };
        answer.send(Err(io::Error::other("nobody knows"))).unwrap();
        let error = names.servers(&server, Duration::from_secs(90)).await.unwrap_err();
        assert_eq!(error.to_string(), "a.test:7: nobody knows");
        let name = name_of(&server).unwrap();
        for said in [vec![one], vec![other, one], vec![]] {
            let said: Vec<SocketAddr> = said.iter().map(|at| at.parse().unwrap()).collect();
            answer.send(Ok(said)).unwrap();
            let asked_ns = names.known[&name].asked_ns.unwrap();
            names.look(&name, asked_ns + LATER_NS);
            let known = names.known.get_mut(&name).unwrap();
            let heard = known.asking.as_mut().unwrap().await;
            known.hear(heard);
        }
        assert_eq!(at(names.known(&server)), ["::2:7", "10.0.0.1:7"]);
        // Whoever asks while it hangs does not wait, and asks nobody else.
        let asked_ns = names.known[&name].asked_ns.unwrap();
        names.look(&name, asked_ns + LATER_NS);
        names.look(&name, asked_ns + 9 * LATER_NS);
        assert_eq!(names.known[&name].asked_ns, Some(asked_ns + LATER_NS));
        let servers = names.servers(&server, Duration::ZERO).await.unwrap();
        assert_eq!(at(servers), ["::2:7", "10.0.0.1:7"]);
        names.forget_others(&[named("redis://b.test")]);
        assert!(names.known.is_empty());
    }
}
