//! Takes the programs of a switch off interfaces, and leaves those as they were found.

use std::{
    fs,
    os::fd::{AsRawFd, OwnedFd},
};

use libbpf_rs::libbpf_sys;

use super::{
    interface::ifindex_of,
    links::{self, link_path, live_links, open_pinned},
    offloads, recirculation,
};
use crate::{Error, maps::bpffs::Home};

/// Leaves an interface as it was found; of one of another network namespace what was turned off
/// stays so, and noted: here its index is somebody else's.
fn free(home: &Home, interface: &str, ifindex: u32, link: &OwnedFd) {
    let is_here = links::is_here(link);
    // Removing the pin alone would detach too, but some time later. An interface that is going away
    // by itself may refuse; its link goes with it.
    // SAFETY: a valid descriptor.
    let _ = unsafe { libbpf_sys::bpf_link_detach(link.as_raw_fd()) };
    // Not while programs still see packets.
    if is_here {
        offloads::restore(home, interface, ifindex);
    }
}

/// Detaches a switch from those of these interfaces that it is attached to.
pub(crate) fn release(home: &Home, interfaces: &[String]) -> Result<(), Error> {
    for interface in interfaces {
        let ifindex = ifindex_of(interface)?;
        let path = link_path(home, interface, ifindex);
        if let Some(link) = open_pinned(&path) {
            free(home, interface, ifindex, &link);
            fs::remove_file(&path).map_err(Error::file("removing", path))?;
        }
    }
    Ok(())
}

/// Detaches a switch from the interfaces of these links: their names, indexes and the links.
pub(crate) fn release_links(home: &Home, links: Vec<(String, u32, OwnedFd)>) {
    for (name, ifindex, link) in links {
        free(home, &name, ifindex, &link);
        // One that was moved here is pinned under another index, and leads nowhere from now on.
        let _ = fs::remove_file(link_path(home, &name, ifindex));
    }
}

/// Detaches a switch from every interface of this network namespace, those that it made itself
/// included: the kernel forwards everything again. The interfaces are free when this returns;
/// programs and maps stay pinned.
///
/// # Errors
/// [`Error::NoSwitch`] if there is none, [`Error::Elsewhere`] if it is attached in another network
/// namespace too, or a pin that cannot be removed.
pub fn free_interfaces(home: &Home) -> Result<Vec<(String, u32)>, Error> {
    home.must_exist()?;
    let (here, elsewhere): (Vec<_>, Vec<_>) =
        live_links(home).into_iter().partition(|(_, _, link)| links::is_here(link));
    for (name, ifindex, link) in &here {
        free(home, name, *ifindex, link);
    }
    let rounds = recirculation::close(home)?;
    let mut left: Vec<String> =
        elsewhere.into_iter().map(|(name, ..)| name).chain(rounds).collect();
    if !left.is_empty() {
        left.sort();
        return Err(Error::Elsewhere { name: home.name().into(), interfaces: left.join(", ") });
    }
    home.forget_interfaces()?;
    let mut interfaces: Vec<(String, u32)> =
        here.into_iter().map(|(name, ifindex, _)| (name, ifindex)).collect();
    interfaces.sort();
    Ok(interfaces)
}

/// Likewise, and removes its maps.
///
/// # Errors
/// As [`free_interfaces`].
pub fn detach(home: &Home) -> Result<Vec<(String, u32)>, Error> {
    let interfaces = free_interfaces(home)?;
    home.remove()?;
    Ok(interfaces)
}
