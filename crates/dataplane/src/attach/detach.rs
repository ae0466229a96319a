//! Takes the programs of a switch off interfaces, and leaves those as they were found.

use std::{
    fs,
    os::fd::{AsRawFd, OwnedFd},
};

use libbpf_rs::libbpf_sys;

use super::{
    interface::ifindex_of,
    links::{self, link_path, live_links, open_pinned},
    namespace, offloads, recirculation,
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

/// Detaches a switch from every interface, those that it made itself included: the kernel forwards
/// everything again. The interfaces are free when this returns; programs and maps stay pinned.
///
/// # Errors
/// [`Error::NoSwitch`] if there is none, [`Error::Elsewhere`] if some are in a network namespace
/// that cannot be found from here, or a pin that cannot be removed.
pub fn free_interfaces(home: &Home) -> Result<Vec<(String, u32)>, Error> {
    home.must_exist()?;
    let mut interfaces = vec![];
    free_here(home, &mut interfaces)?;
    for namespace in namespace::others() {
        if attached_to(home).is_empty() {
            break;
        }
        let is_its = || all_links(home).any(|(_, link)| links::is_here(&link));
        let free = || if is_its() { free_here(home, &mut interfaces) } else { Ok(()) };
        // One that has just gone took its interfaces along; of others it is said below.
        namespace::inside(&namespace, free).unwrap_or(Ok(()))?;
    }
    let left = attached_to(home);
    if !left.is_empty() {
        return Err(Error::Elsewhere { name: home.name().into(), interfaces: left.join(", ") });
    }
    home.forget_interfaces()?;
    interfaces.sort();
    Ok(interfaces)
}

/// The links that are still attached, to interfaces and to ports of the switch's own.
fn all_links(home: &Home) -> impl Iterator<Item = (String, OwnedFd)> {
    let links = live_links(home).into_iter().map(|(name, _, link)| (name, link));
    links.chain(recirculation::live_links(home))
}

fn attached_to(home: &Home) -> Vec<String> {
    let mut names: Vec<String> = all_links(home).map(|(name, _)| name).collect();
    names.sort();
    names
}

/// Detaches a switch from what it is attached to in this network namespace.
fn free_here(home: &Home, interfaces: &mut Vec<(String, u32)>) -> Result<(), Error> {
    for (name, ifindex, link) in live_links(home) {
        if links::is_here(&link) {
            free(home, &name, ifindex, &link);
            interfaces.push((name, ifindex));
        }
    }
    recirculation::close(home)
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
