//! A soft switch in a namespace, filled over its link by a client that plays the store.

use std::{
    net::{IpAddr, SocketAddr, UdpSocket},
    sync::{Arc, mpsc::Sender},
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use dataplane::{Backing, Counters, Object, Sizes, TenantEntry, native::Switch};
use tokio::sync::oneshot;

use crate::items::Items;

/// How long the switch may take to hear something.
const PATIENCE: Duration = Duration::from_secs(2);

/// Serves in this thread's namespace until `done` is. Gives the switch away for filling.
///
/// # Errors
/// See [`::soft::Error`].
pub fn serve(
    interfaces: &[String],
    objects: &[Object],
    pages: u32,
    ready: &Sender<Arc<Switch>>,
    done: oneshot::Receiver<()>,
) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let name = format!("bench-{}", std::process::id());
        let soft = ::soft::Soft::start(&name, interfaces, objects, Sizes { pages }).await?;
        ready.send(soft.switch().clone())?;
        let _ = done.await; // an error means that the client has gone: done as well
        Ok(())
    })
}

/// Fills a switch behind `address` with these keys and values, from the namespace of a host on its
/// link. Returns the numbers of those that it holds.
///
/// # Errors
/// The switch does not hear what is said.
pub fn fill(
    switch: &Arc<Switch>,
    address: IpAddr,
    tenant: TenantEntry,
    pages: u32,
    items: impl Iterator<Item = (Vec<u8>, Vec<u8>)>,
) -> anyhow::Result<Vec<usize>> {
    let socket = UdpSocket::bind(("0.0.0.0", wire::PORT))?;
    socket.connect(SocketAddr::new(address, wire::PORT))?;
    let counters = Counters::open(switch, [])?;
    let heard = || -> anyhow::Result<u64> {
        let all = counters.read()?;
        Ok(all.iter().map(|(_, count)| count).sum())
    };
    let say = |bytes: &[u8]| {
        let before = heard()?;
        socket.send(bytes).context("to the soft switch")?;
        let start = Instant::now();
        while heard()? == before {
            ensure!(start.elapsed() < PATIENCE, "the soft switch hears nothing");
            std::thread::yield_now();
        }
        Ok(())
    };
    let store = socket.local_addr()?.ip();
    let mut held = Items::open(Backing::from(switch), tenant, pages, store)?;
    held.take_lease(say)?;
    let mut numbers = vec![];
    for (number, (key, value)) in items.enumerate() {
        let hash = tenant.secret.key_hash(tenant.id, &key);
        if held.fill(say, &tenant, hash, &key, &value)? {
            numbers.push(number);
        }
    }
    Ok(numbers)
}
