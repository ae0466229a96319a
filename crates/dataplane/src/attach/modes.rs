//! One mode for all interfaces of a switch. What a program in a driver redirects to an interface
//! whose driver has none of ours is lost on most, without a counter: so all are native, or none.

use super::{
    attachment::{Attachment, Mode, runs_generic},
    detach,
    interface::{driver_of, ifindex_of, xdp_of},
    links,
};
use crate::{Error, load::dataplane::Dataplane, maps::bpffs::Home};

impl Dataplane {
    /// Attaches the entry program to all of these interfaces in one mode, and admits them as ports.
    /// Those of an earlier agent of the switch are replaced in place; they stay in their mode,
    /// which [`Mode::Auto`] then gives to all; another does not go with them. Of an error those
    /// newly attached before it stay attached.
    ///
    /// # Errors
    /// No such interface, MTU too small, occupied, no native mode, two modes: see [`Error`].
    pub fn attach_all(&self, interfaces: &[String], mode: Mode) -> Result<Vec<Attachment>, Error> {
        let each = |generic: bool, why: &str| {
            let one = |name: &String| self.attach_one(name, generic, why);
            interfaces.iter().map(one).collect()
        };
        let (generic, why) = match mode {
            Mode::Native => (false, "as asked for".into()),
            Mode::Generic => (true, "as asked for".into()),
            Mode::Auto => suits_all(self.home(), interfaces),
        };
        check_alike(self.home(), interfaces, generic)?;
        let attached: Result<Vec<Attachment>, Error> = each(generic, &why);
        if mode != Mode::Auto {
            return attached;
        }
        let why = match &attached {
            Err(Error::NoNative { name, reason }) => {
                format!("the driver of {name} refuses native XDP: {reason}")
            }
            // Drivers may tell only now.
            Ok(ports) if !generic => {
                let mut new = ports.iter().filter(|port| !port.taken_over);
                let Some(port) = new.find(|port| !transmits(port.ifindex)) else { return attached };
                let name = &port.interface;
                format!("the driver of {name} does not send what is redirected to it")
            }
            _ => return attached,
        };
        detach::release(self.home(), interfaces)?;
        each(true, &why)
    }

    /// Attaches the entry program to one interface, as [`Dataplane::attach_all`] does to several.
    ///
    /// # Errors
    /// As [`Dataplane::attach_all`].
    pub fn attach(&self, interface: &str, mode: Mode) -> Result<Attachment, Error> {
        let mut attached = self.attach_all(&[interface.into()], mode)?;
        Ok(attached.remove(0))
    }
}

/// Whether all of these interfaces are to be generic, and why.
fn suits_all(home: &Home, interfaces: &[String]) -> (bool, String) {
    let before = interfaces.iter().find_map(|name| attached_before(home, name));
    if let Some((name, is_generic)) = before {
        return (is_generic, format!("as an earlier agent attached {name}"));
    }
    let why = |name: &String| why_generic(name).map(|why| format!("{name}: {why}"));
    match interfaces.iter().find_map(why) {
        Some(why) => (true, why),
        None => (false, "all drivers have it".into()),
    }
}

/// Whether all of these interfaces are in one mode once those that are free are attached so.
fn check_alike(home: &Home, interfaces: &[String], generic: bool) -> Result<(), Error> {
    let before = |name| attached_before(home, name);
    let (others, alike): (Vec<_>, Vec<_>) = interfaces
        .iter()
        .map(|name| before(name).unwrap_or_else(|| (name.clone(), generic)))
        .partition(|(_, is_generic)| *is_generic != generic);
    match others.into_iter().next() {
        Some((name, is_generic)) if !alike.is_empty() => Err(Error::OtherMode {
            name,
            mode: if is_generic { "generic" } else { "native" },
            switch: home.name().into(),
        }),
        _ => Ok(()),
    }
}

/// An interface that an earlier agent of this switch is attached to, and whether in generic mode.
fn attached_before(home: &Home, interface: &str) -> Option<(String, bool)> {
    let ifindex = ifindex_of(interface).ok()?;
    let attached = links::attached(home);
    attached.iter().find(|(_, there)| *there == ifindex)?;
    Some((interface.to_owned(), runs_generic(ifindex)?))
}

/// What speaks against native mode; none: nothing that can be seen without trying.
fn why_generic(interface: &str) -> Option<String> {
    let driver = driver_of(interface);
    match driver.as_str() {
        "veth" => {
            Some("veth is cheaper so for traffic from sockets, and the peer needs no XDP".into())
        }
        "" => Some("no driver of its own".into()),
        _ => None,
    }
}

/// Whether the driver of an interface that a program is attached to sends what other drivers
/// redirect to it, as far as the kernel tells: from 6.3 on.
fn transmits(ifindex: u32) -> bool {
    const XDP_ACT_NDO_XMIT: u64 = 1 << 2;
    let features = xdp_of(ifindex).map_or(0, |told| told.feature_flags);
    features == 0 || features & XDP_ACT_NDO_XMIT != 0
}
