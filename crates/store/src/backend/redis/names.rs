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
struct Known {
    addresses: Vec<SocketAddr>,
    /// Why the last question had no answer.
    failed: String,
    asking: Option<oneshot::Receiver<io::Result<Vec<SocketAddr>>>>,
    asked_ns: Option<u64>,
}

impl Known {
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
    known: HashMap<NodeAddress, Known>,
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
    fn look(&mut self, name: &NodeAddress, now_ns: u64) -> &mut Known {
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

fn servers_at(known: &Known, named: &ConnectionInfo, name: &NodeAddress) -> Vec<Server> {
    let server = |at: &SocketAddr| {
        let at = ConnectionAddr::Tcp(at.ip().to_string(), at.port());
        Server { info: named.clone().set_addr(at), name: Some(name.host.clone()) }
    };
    known.addresses.iter().map(server).collect()
}
