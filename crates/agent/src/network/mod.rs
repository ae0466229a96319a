//! The switch's place in the network: tells the controller of its interfaces, installs the routes
//! that it wants.
//!
//! In: the kernel's news of links, addresses and neighbours ([`interfaces`]); which neighbouring
//! switches answer no probes ([`probes`]); the controller's routes. Out: `Interfaces` and
//! `RoutesApplied` for the stream. Only the last of each is kept, so nothing piles up while there
//! is no stream, and a new stream begins with both. Routes ([`routes`]) are made sure of again
//! whenever an interface changed, as the kernel forgets those of an interface that goes down, and
//! every [`RECONCILE`]. What needs no kernel of it is for simulated switches too: [`told`],
//! [`Probes`], [`check`], [`is_old`].

mod interfaces;
mod netlink;
mod prober;
mod probes;
mod routes;
#[cfg(test)]
mod testing;
mod wanted;

use std::{future::pending, time::Duration};

use api::proto::{self, RoutesApplied, from_switch::Body};
use tokio::{sync::watch, time::sleep};
use tracing::{info, warn};

use self::routes::{RouteChanges, Routes};
pub use self::{
    interfaces::Interface,
    probes::{Probes, Silent},
    wanted::{NextHop, check, is_old},
};

/// After this long routes are made sure of again, should somebody else have removed them.
const RECONCILE: Duration = Duration::from_secs(10);

/// The network half of an agent. Ends when it is dropped; routes stay.
pub(crate) struct Network {
    interfaces: watch::Receiver<Vec<Interface>>,
    setup: watch::Sender<Option<proto::Setup>>,
    silent: watch::Receiver<Silent>,
    wanted: watch::Sender<Option<proto::Routes>>,
    applied: watch::Receiver<Option<RoutesApplied>>,
}

impl Network {
    /// Begins to watch these interfaces of this network namespace, and to probe neighbours if it is
    /// to. Needs a tokio runtime.
    pub fn start(names: Vec<String>, probes: bool) -> Network {
        let interfaces = interfaces::watch(names.clone());
        let (setup, setups) = watch::channel(None);
        let (tell_silent, silent) = watch::channel(Silent::new());
        if probes {
            tokio::spawn(prober::probe(setups, interfaces.clone(), tell_silent));
        }
        let (wanted, to_apply) = watch::channel(None);
        let (tell, applied) = watch::channel(None);
        tokio::spawn(keep(names, interfaces.clone(), to_apply, tell));
        Network { interfaces, setup, silent, wanted, applied }
    }

    /// Takes from a setup whom to probe.
    pub fn set_up(&self, setup: &proto::Setup) {
        self.setup.send_replace(Some(setup.clone()));
    }

    /// Takes the routes that the controller wants; [`Network::next`] tells what came of them. Those
    /// of a term and version below the last are ignored.
    pub fn apply(&self, routes: proto::Routes) {
        self.wanted.send_if_modified(|last| {
            let is_old = last.as_ref().is_some_and(|last| is_old(&routes, last));
            if !is_old {
                *last = Some(routes);
            }
            !is_old
        });
    }

    /// Tells everything once more: a new stream knows nothing.
    pub fn repeat(&mut self) {
        self.interfaces.mark_changed();
        self.applied.mark_changed();
    }

    /// The next thing to tell the controller. May be dropped before it is ready; nothing is lost.
    pub async fn next(&mut self) -> Body {
        loop {
            tokio::select! {
                () = changed(&mut self.interfaces) => {}
                () = changed(&mut self.silent) => {}
                () = changed(&mut self.applied) => {
                    if let Some(applied) = &*self.applied.borrow_and_update() {
                        return Body::Routes(applied.clone());
                    }
                    continue;
                }
            }
            let interfaces = self.interfaces.borrow_and_update();
            // Empty until they were read for the first time.
            if !interfaces.is_empty() {
                return told(&interfaces, &self.silent.borrow_and_update());
            }
        }
    }
}

/// Never, once there is no sender any more.
async fn changed<T>(receiver: &mut watch::Receiver<T>) {
    if receiver.changed().await.is_err() {
        pending().await
    }
}

/// Keeps the kernel's routes as they are wanted, from the first time on that any are.
async fn keep(
    names: Vec<String>,
    mut interfaces: watch::Receiver<Vec<Interface>>,
    mut wanted: watch::Receiver<Option<proto::Routes>>,
    tell: watch::Sender<Option<RoutesApplied>>,
) {
    let mut routes = None;
    loop {
        let is_asked = tokio::select! {
            asked = wanted.changed() => match asked {
                Ok(()) => true,
                Err(_) => return,
            },
            () = changed(&mut interfaces) => false,
            () = sleep(RECONCILE) => false,
        };
        let Some(asked) = wanted.borrow_and_update().clone() else { continue };
        let RouteChanges { installed, removed, failed } = apply(&mut routes, &names, &asked).await;
        if installed + removed > 0 {
            info!("routes: {installed} installed, {removed} removed");
        }
        let now = Some(RoutesApplied { term: asked.term, version: asked.version, failed });
        tell.send_if_modified(|last| {
            let is_news = *last != now;
            if is_news && let Some(now) = &now {
                now.failed.iter().for_each(|line| warn!("route {line}"));
            }
            *last = now;
            is_asked || is_news
        });
    }
}

async fn apply(
    routes: &mut Option<Routes>,
    names: &[String],
    asked: &proto::Routes,
) -> RouteChanges {
    if routes.is_none() {
        match Routes::open(names.to_owned()) {
            Ok(open) => *routes = Some(open),
            Err(e) => {
                let line = format!("routes: no netlink socket: {e}; trying again");
                return RouteChanges { failed: vec![line], ..RouteChanges::default() };
            }
        }
    }
    match routes {
        Some(routes) => routes.apply(&asked.routes).await,
        None => RouteChanges::default(),
    }
}

/// What the controller is told of a switch's interfaces, and of who is silent across them.
pub fn told(interfaces: &[Interface], silent: &Silent) -> Body {
    fn lines<T: ToString>(all: &[T]) -> Vec<String> {
        all.iter().map(T::to_string).collect()
    }
    let across = |name: &str| {
        let silent = silent.get(name).into_iter().flatten();
        silent.map(|switch| u32::from(*switch)).collect()
    };
    let interface = |interface: &Interface| proto::Interface {
        name: interface.name.clone(),
        up: interface.up,
        addresses: lines(&interface.addresses),
        neighbours: lines(&interface.neighbours),
        silent: across(&interface.name),
    };
    Body::Interfaces(proto::Interfaces { interfaces: interfaces.iter().map(interface).collect() })
}

#[cfg(test)]
mod tests {
    use super::{testing::*, *};

    async fn next(network: &mut Network) -> Body {
        let next = tokio::time::timeout(PATIENCE, network.next());
        next.await.expect("there is something to tell")
    }

    async fn applied(network: &mut Network) -> RoutesApplied {
        loop {
            if let Body::Routes(applied) = next(network).await {
                return applied;
            }
        }
    }

    fn asked(term: u64, version: u64, via: &[&str]) -> proto::Routes {
        let route = |via: &&str| proto::Route {
            prefix: "10.0.3.0/24".into(),
            via: (*via).into(),
            interface: "left".into(),
        };
        proto::Routes { term, version, routes: via.iter().map(route).collect() }
    }

    fn done(term: u64, version: u64) -> RoutesApplied {
        RoutesApplied { term, version, failed: vec![] }
    }

    fn make_left() {
        make("left");
        ip("addr add 10.0.1.254/24 dev left");
    }

    #[test]
    fn applies_what_is_newer_and_tells_a_new_stream_again() {
        in_namespace(async {
            make_left();
            let mut network = Network::start(vec!["left".into()], true);
            let Body::Interfaces(first) = next(&mut network).await else {
                panic!("interfaces are known before routes are");
            };
            assert!(first.interfaces[0].up);
            assert_eq!(first.interfaces[0].addresses, ["10.0.1.254/24"]);
            network.apply(asked(1, 5, &["10.0.1.1"]));
            assert_eq!(applied(&mut network).await, done(1, 5));
            network.apply(asked(1, 4, &["10.0.1.4"]));
            network.apply(asked(2, 1, &["10.0.1.2"]));
            network.apply(asked(1, 9, &["10.0.1.9"]));
            assert_eq!(applied(&mut network).await, done(2, 1));
            assert!(ip("route get 10.0.3.1").contains("via 10.0.1.2"));
            network.repeat();
            let told = [next(&mut network).await, next(&mut network).await];
            assert!(told.iter().any(|body| matches!(body, Body::Interfaces(_))));
            assert!(told.contains(&Body::Routes(done(2, 1))));
            network.apply(asked(2, 2, &[]));
            assert_eq!(applied(&mut network).await, done(2, 2));
            assert_eq!(ip("route show proto 117"), "");
        });
    }

    #[test]
    fn routes_come_back_with_their_interface() {
        in_namespace(async {
            make_left();
            let mut network = Network::start(vec!["left".into()], true);
            network.apply(asked(1, 1, &["10.0.1.1"]));
            assert_eq!(applied(&mut network).await, done(1, 1));
            ip("link set left down");
            let refused = applied(&mut network).await;
            assert_eq!((refused.version, refused.failed.len()), (1, 1));
            ip("link set left up");
            assert_eq!(applied(&mut network).await, done(1, 1));
            assert!(ip("route show proto 117").contains("10.0.3.0/24 via 10.0.1.1"));
        });
    }
}
