//! Recirculation ports: each is two ends of a virtual link of this switch's own. What programs send
//! out by the one comes in by the other, where a program gives it back to its discipline. One CPU
//! does the work of all of them, unless told otherwise.
//!
//! A packet in the driver costs some 30 to 150 ns a round, one in a socket buffer several times
//! that. The ring between the ends holds 256 packets for each CPU; what comes when it is full is
//! lost, and counted as `tx_dropped` of the port.

use std::{fs, io, os::fd::OwnedFd};

use libbpf_rs::Program;
use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::{
    RouteNetlinkMessage,
    link::{
        AfSpecInet6, AfSpecUnspec, In6AddrGenMode, InfoData, InfoKind, InfoVeth, LinkAttribute,
        LinkInfo, LinkMessage,
    },
};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

use tracing::warn;

use super::{
    attachment::{self, Attachment, Mode},
    interface, links, pin,
};
use crate::{
    Error,
    layout::RECIRCULATION_PORTS,
    load::{dataplane::Dataplane, object::RECIRCULATION},
    maps::bpffs::Home,
};

/// As `RECIRCULATION_MAC` in `bpf/recirculate.h`: the far end's address.
pub(crate) const MAC: [u8; 6] = [0x02, 0x73, 0x68, 0x6f, 0x72, 0x74];

fn wrong(what: &'static str) -> impl FnOnce(io::Error) -> Error {
    move |source| Error::System { what, source }
}

/// How many recirculation ports a switch has, and who does their work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loops {
    /// Ports, 1 to 4; each carries some 128 packets before it loses any.
    pub ports: u32,
    /// The CPU that does their work; `None`: whichever sends a packet round.
    pub cpu: Option<u32>,
}

impl Default for Loops {
    /// Four ports, two of which carry copies only, on the last CPU, if there are several.
    fn default() -> Loops {
        Loops { ports: RECIRCULATION_PORTS, cpu: pin::last_cpu() }
    }
}

/// The recirculation ports that a switch has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecirculationPorts {
    /// Names of the ends that packets are sent out by.
    pub ports: Vec<String>,
    /// The CPU that does their work, if it is one.
    pub cpu: Option<u32>,
}

impl RecirculationPorts {
    /// Those of a switch that is attached in this network namespace.
    pub fn of(home: &Home) -> RecirculationPorts {
        let all = (0..RECIRCULATION_PORTS).map(|number| names(home, number));
        let there: Vec<_> = all.filter(|(near, _)| interface::ifindex_of(near).is_ok()).collect();
        RecirculationPorts {
            cpu: there.first().and_then(|(_, far)| pin::cpu_of(far)),
            ports: there.into_iter().map(|(near, _)| near).collect(),
        }
    }
}

/// A port and its far end. Names of interfaces have 15 characters, switches' up to 64: long ones
/// end in a number.
fn names(home: &Home, number: u32) -> (String, String) {
    const LONGEST: usize = 10;
    let mut short = home.name().to_owned();
    if short.len() > LONGEST {
        let digit = |sum: u32, byte| (sum ^ u32::from(byte)).wrapping_mul(16_777_619);
        let sum = short.bytes().fold(2_166_136_261, digit);
        short = format!("{}{:06x}", &short[..4], sum & 0xff_ffff);
    }
    let end = |end: u32| format!("{short}-rec{}", 2 * number + end);
    (end(0), end(1))
}

/// Asks the kernel for a change of links, and waits for its answer.
fn request(message: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
    let mut packet = NetlinkMessage::from(message);
    packet.header.flags = NLM_F_REQUEST | NLM_F_ACK | flags;
    packet.finalize();
    let mut bytes = vec![0; packet.buffer_len()];
    packet.serialize(&mut bytes);
    let socket = Socket::new(NETLINK_ROUTE)?;
    socket.send_to(&bytes, &SocketAddr::new(0, 0), 0)?;
    let (answer, _) = socket.recv_from_full()?;
    let answer: NetlinkMessage<RouteNetlinkMessage> =
        NetlinkMessage::deserialize(&answer).map_err(io::Error::other)?;
    match answer.payload {
        NetlinkPayload::Error(error) if error.code.is_some() => Err(error.to_io()),
        _ => Ok(()),
    }
}

/// Both ends, with a ring for each CPU, still down.
fn make_pair(near: &str, far: &str, queues: u32) -> io::Result<()> {
    let end = |name: &str, more: Vec<LinkAttribute>| {
        let mut link = LinkMessage::default();
        link.attributes = vec![
            LinkAttribute::IfName(name.into()),
            LinkAttribute::NumTxQueues(queues),
            LinkAttribute::NumRxQueues(queues),
        ];
        link.attributes.extend(more);
        link
    };
    let far = end(far, vec![LinkAttribute::Address(MAC.to_vec())]);
    let kind =
        vec![LinkInfo::Kind(InfoKind::Veth), LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(far)))];
    let near = end(near, vec![LinkAttribute::LinkInfo(kind)]);
    request(RouteNetlinkMessage::NewLink(near), NLM_F_CREATE | NLM_F_EXCL)
}

fn delete(ifindex: u32) -> io::Result<()> {
    let mut link = LinkMessage::default();
    link.header.index = ifindex;
    request(RouteNetlinkMessage::DelLink(link), 0)
}

/// Up, without an address of its own: nobody speaks to it, and it speaks to nobody. Said by
/// netlink, for in most containers /proc/sys cannot be written to.
fn bring_up(end: &str) -> Result<(), Error> {
    let mut link = LinkMessage::default();
    link.header.index = interface::ifindex_of(end)?;
    let none = AfSpecInet6::AddrGenMode(In6AddrGenMode::None);
    link.attributes = vec![LinkAttribute::AfSpecUnspec(vec![AfSpecUnspec::Inet6(vec![none])])];
    match request(RouteNetlinkMessage::SetLink(link), 0) {
        // A kernel without IPv6 gives it none either.
        Err(error) if error.raw_os_error() != Some(libc::EAFNOSUPPORT) => {
            return Err(wrong("keeping addresses off the recirculation port")(error));
        }
        _ => {}
    }
    interface::set_up(end).map_err(wrong("bringing up the recirculation port"))
}

/// Makes the ports that are not there, with `program` at their far ends, and removes others.
/// Returns their indexes.
///
/// In the driver, unless `generic`: ports in generic mode send socket buffers, and hosts behind
/// them expect some.
pub(crate) fn open(
    home: &Home,
    program: &Program<'_>,
    generic: bool,
    loops: &Loops,
) -> Result<Vec<u32>, Error> {
    let ports = loops.ports.clamp(1, RECIRCULATION_PORTS);
    (ports..RECIRCULATION_PORTS).try_for_each(|number| close_one(home, number))?;
    let open = |number| {
        let port = open_one(home, number, program, generic)?;
        let (_, far) = names(home, number);
        if let Some(cpu) = loops.cpu
            && let Err(error) = pin::pin(&far, cpu, generic)
        {
            warn!("{far}: its work is not pinned to CPU {cpu}: {error}");
        }
        Ok(port)
    };
    (0..ports).map(open).collect()
}

fn open_one(home: &Home, number: u32, program: &Program<'_>, generic: bool) -> Result<u32, Error> {
    let (near, far) = names(home, number);
    let path = home.recirculation(number);
    let there = (interface::ifindex_of(&near), interface::ifindex_of(&far));
    // Its interfaces may all be in another mode now.
    if let (Ok(near), Ok(far)) = there
        && attachment::runs_generic(far).is_none_or(|is_generic| is_generic == generic)
        && attachment::take_over(&path, program, far)?
    {
        return Ok(near);
    }
    if let Ok(near) = there.0 {
        // Of another mode, or of an agent that died while it made the port.
        delete(near).map_err(wrong("removing a half-made recirculation port"))?;
    }
    make_pair(&near, &far, crate::load::kernel::cpus())
        .map_err(wrong("making the recirculation port"))?;
    let made = interface::ifindex_of(&near)?;
    let opened = bring_up(&near).and_then(|()| bring_up(&far)).and_then(|()| {
        if generic {
            // So that a native program, which sends no socket buffers, can send to it as well.
            interface::set_gro(&far).map_err(wrong("preparing the recirculation port"))?;
        }
        attachment::attach_at(&path, program, &far, generic, "a port of the switch's own").map(drop)
    });
    opened.inspect_err(|_| {
        let _ = delete(made);
    })?;
    Ok(made)
}

/// The far ends that run a program, and the links that hold it there.
pub(crate) fn live_links(home: &Home) -> Vec<(String, OwnedFd)> {
    let live = |number| {
        let link = links::open_pinned(&home.recirculation(number))?;
        links::link_ifindex(&link)?;
        Some((names(home, number).1, link))
    };
    (0..RECIRCULATION_PORTS).filter_map(live).collect()
}

/// Removes the ports, if this is the network namespace that they are in.
pub(crate) fn close(home: &Home) -> Result<(), Error> {
    (0..RECIRCULATION_PORTS).try_for_each(|number| close_one(home, number))
}

fn close_one(home: &Home, number: u32) -> Result<(), Error> {
    let path = home.recirculation(number);
    let link = links::open_pinned(&path);
    let is_live = |link: &OwnedFd| links::link_ifindex(link).is_some();
    if link.as_ref().is_some_and(|link| is_live(link) && !links::is_here(link)) {
        return Ok(());
    }
    let (_, far) = names(home, number);
    // By name and address, for an agent that dies while it makes a port has pinned nothing yet.
    if let Ok(ifindex) = interface::ifindex_of(&far)
        && interface::mac_of(ifindex) == Some(MAC)
    {
        delete(ifindex).map_err(wrong("removing the recirculation port"))?;
    }
    match link {
        Some(_) => fs::remove_file(&path).map_err(Error::file("removing", path)),
        None => Ok(()),
    }
}

impl Dataplane {
    /// Makes the recirculation ports if one of the objects asks for them, and removes them if none
    /// does. Comes after all interfaces were attached: in the driver if they all are. Says whether
    /// there are any.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn recirculate(&self, attached: &[Attachment], loops: &Loops) -> Result<bool, Error> {
        if !self.recirculates() {
            close(self.home())?;
            self.let_go()?;
            return Ok(false);
        }
        let generic = attached.iter().any(|port| port.mode == Mode::Generic);
        let rounds = match open(self.home(), &self.comes_back(), generic, loops) {
            Ok(rounds) => rounds,
            Err(error) => {
                // Nothing is sent where nobody is.
                self.send_round(&[], &[])?;
                return Err(error);
            }
        };
        let ports: Vec<u32> = attached.iter().map(|port| port.ifindex).collect();
        self.send_round(&rounds, &ports)?;
        self.name_port(rounds[0], RECIRCULATION)?;
        self.let_go()?;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_switch_has_names_of_its_own() {
        let home = |name: &str| Home::new(name).unwrap();
        assert_eq!(names(&home("tor1"), 0), ("tor1-rec0".into(), "tor1-rec1".into()));
        assert_eq!(names(&home("tor1"), 3).1, "tor1-rec7");
        let long = names(&home("spine-of-the-second-hall-1"), 3);
        assert_eq!(long.0.len(), 15);
        assert_ne!(long, names(&home("spine-of-the-second-hall-2"), 3));
    }
}
