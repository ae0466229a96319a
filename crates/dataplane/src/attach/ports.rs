//! The interfaces of a switch as its programs know them: by index, name and hardware address.

use std::sync::atomic::Ordering::Relaxed;

use libbpf_rs::{ErrorKind, MapCore, MapFlags};

use super::{
    attachment::{self, Attachment},
    detach, interface, links,
};
use crate::{
    Error,
    layout::Config,
    load::dataplane::Dataplane,
    maps::{
        mapped::SharedArray,
        port_bytes::{devmap_value, port_address, port_name},
    },
};

/// Whether the checksum of a packet that programs send by this port is finished then: in generic
/// mode by a device that makes checksums. Native programs' packets have lost what says that it is
/// unfinished.
fn finishes_checksums(ifindex: u32) -> bool {
    let name = interface::name_of(ifindex);
    attachment::runs_generic(ifindex) == Some(true)
        && name.is_some_and(|name| interface::finishes_checksums(&name))
}

impl Dataplane {
    /// Attaches the entry program to an interface, or replaces the one of an earlier agent in
    /// place, and admits the interface as a port. What only programs used that ran there last is
    /// removed.
    pub(crate) fn attach_one(
        &self,
        interface: &str,
        generic: bool,
        why: &str,
    ) -> Result<Attachment, Error> {
        let attached = attachment::attach(self.home(), &self.program(), interface, generic, why)?;
        let wrong = || Error::bpf("adding a port");
        let key = attached.ifindex.to_ne_bytes();
        self.map("ports")
            .update(&key, &devmap_value(attached.ifindex, None), MapFlags::ANY)
            .map_err(wrong())?;
        self.name_port(attached.ifindex, interface)?;
        self.note_interfaces()?;
        self.let_go()?;
        Ok(attached)
    }

    /// Detaches the switch from all interfaces but these: an earlier agent was told of more.
    /// Nothing is sent by the others from now on, and earlier programs that they alone ran are
    /// removed. Returns the others' names.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn keep_only(&self, attached: &[Attachment]) -> Result<Vec<String>, Error> {
        let mut others = links::live_links(self.home());
        others.retain(|(_, ifindex, _)| attached.iter().all(|port| port.ifindex != *ifindex));
        if others.is_empty() {
            return Ok(vec![]);
        }
        // First, for a driver may lose what is redirected to it without a program of ours.
        others.iter().try_for_each(|(_, ifindex, _)| self.forget_port(*ifindex))?;
        let mut names: Vec<String> = others.iter().map(|(name, ..)| name.clone()).collect();
        names.sort();
        detach::release_links(self.home(), others);
        self.note_interfaces()?;
        self.let_go()?;
        Ok(names)
    }

    /// Nothing is redirected to an interface any more.
    pub(super) fn forget_port(&self, ifindex: u32) -> Result<(), Error> {
        for rows in ["ports", "port_names"] {
            match self.map(rows).delete(&ifindex.to_ne_bytes()) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    return Err(Error::bpf("removing a port")(error));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Notes what the switch's interfaces are like now: frames for other hardware addresses are not
    /// its affair, no answer becomes longer than what all of them carry, and a checksum that a
    /// socket of this machine left to a device is left to them, if all of them finish it.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn note_interfaces(&self) -> Result<(), Error> {
        let ports = links::attached(self.home());
        for (_, ifindex) in &ports {
            self.note_address(*ifindex)?;
        }
        let names = ports.iter().filter_map(|(_, ifindex)| interface::name_of(*ifindex));
        let config: SharedArray<Config> = SharedArray::open(self.home(), "config")?;
        let most = interface::longest_frame(names);
        config.at(0).frame_most.store(most, Relaxed);
        let later = ports.iter().all(|(_, ifindex)| finishes_checksums(*ifindex));
        config.at(0).sums_later.store(later.into(), Relaxed);
        Ok(())
    }

    fn note_address(&self, ifindex: u32) -> Result<(), Error> {
        let addresses = self.map("port_addresses");
        let place = (ifindex % addresses.max_entries()).to_ne_bytes();
        let address = port_address(ifindex, interface::mac_of(ifindex));
        addresses
            .update(&place, &address, MapFlags::ANY)
            .map_err(Error::bpf(format!("noting the address of interface {ifindex}")))
    }

    /// The index of a port by its name, that of the recirculation port included.
    pub fn port(&self, name: &str) -> Option<u32> {
        let names = self.map("port_names");
        let is_named = |key: &Vec<u8>| {
            let value = names.lookup(key, MapFlags::ANY).ok().flatten();
            value.is_some_and(|value| value == port_name(name))
        };
        let key = names.keys().find(is_named)?;
        Some(u32::from_ne_bytes(*key.first_chunk()?))
    }

    pub(crate) fn name_port(&self, ifindex: u32, name: &str) -> Result<(), Error> {
        let names = self.map("port_names");
        while let Some(before) = self.port(name).filter(|before| *before != ifindex) {
            // An interface of this name that has gone.
            let removed = names.delete(&before.to_ne_bytes());
            removed.map_err(Error::bpf("naming a port"))?;
        }
        names
            .update(&ifindex.to_ne_bytes(), &port_name(name), MapFlags::ANY)
            .map_err(Error::bpf("naming a port"))
    }

    /// Removes what only programs of earlier loadings use, of those that run nowhere any more.
    pub(crate) fn let_go(&self) -> Result<(), Error> {
        self.home().remove_aside(&links::maps_in_use(self.home()))
    }
}
