//! Puts the entry program on an interface. A link of the kernel's holds it
//! there, which is pinned: so it outlives the agent, and the next agent replaces the program
//! without a gap. Called for each interface of a switch, and for the far ends of recirculation
//! ports.

use std::{
    fs, io,
    os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd},
    path::Path,
};

use libbpf_rs::{Program, libbpf_sys};
use serde::Serialize;

use super::{
    interface::{finishes_checksums, ifindex_of, mtu_of, xdp_of},
    links::{attached, link_info, link_path, open_pinned, pin},
    neighbour::in_the_way,
    offloads,
};
use crate::{Error, maps::bpffs::Home};

/// Every link has it that IPv6 goes over. A packet of ours with the longest key and value
/// takes 1,500.
const LEAST_MTU: u32 = 1280;

/// Where in the kernel the program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Native where the drivers of all of a switch's interfaces have it, else generic; so on veth
    /// too, where it is cheaper and needs no peer set-up.
    Auto,
    /// In the driver, before a socket buffer is made.
    Native,
    /// On socket buffers; works on every interface.
    Generic,
}

/// An interface that the entry program runs on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Attachment {
    /// Name when it was attached.
    pub interface: String,
    /// Its index in this network namespace.
    pub ifindex: u32,
    /// Native or generic.
    pub mode: Mode,
    /// Why this mode.
    pub reason: String,
    /// An earlier agent's program was there and was replaced without a gap.
    pub taken_over: bool,
}

fn check_mtu(interface: &str) -> Result<(), Error> {
    let mtu = mtu_of(interface).unwrap_or(LEAST_MTU);
    if mtu < LEAST_MTU {
        return Err(Error::SmallMtu { name: interface.into(), mtu, needed: LEAST_MTU });
    }
    Ok(())
}

/// The index of an interface that our packets fit through.
///
/// # Errors
/// No such interface, MTU too small.
pub fn check_interface(interface: &str) -> Result<u32, Error> {
    let ifindex = ifindex_of(interface)?;
    check_mtu(interface)?;
    Ok(ifindex)
}

fn create_link(program: &Program<'_>, ifindex: u32, generic: bool) -> io::Result<OwnedFd> {
    const XDP_FLAGS_SKB_MODE: u32 = 1 << 1;
    const XDP_FLAGS_DRV_MODE: u32 = 1 << 2;
    let opts = libbpf_sys::bpf_link_create_opts {
        sz: size_of::<libbpf_sys::bpf_link_create_opts>() as u64,
        flags: if generic { XDP_FLAGS_SKB_MODE } else { XDP_FLAGS_DRV_MODE },
        ..Default::default()
    };
    // SAFETY: descriptors are valid, `opts` states its size.
    let fd = unsafe {
        libbpf_sys::bpf_link_create(
            program.as_fd().as_raw_fd(),
            ifindex as i32,
            libbpf_sys::BPF_XDP,
            &opts,
        )
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Puts `program` into the place of an earlier agent's on the same link. No packet sees a gap.
pub(crate) fn take_over(path: &Path, program: &Program<'_>, ifindex: u32) -> Result<bool, Error> {
    let Some(link) = open_pinned(path) else { return Ok(false) };
    let at_interface = link_info(&link).filter(|(there, _)| *there == ifindex);
    let is_here = |program| xdp_of(ifindex).is_none_or(|here| here.prog_id == program);
    if !at_interface.is_some_and(|(_, program)| is_here(program)) {
        // The interface has gone, and its link with it; or it is that of another network namespace,
        // which numbers its interfaces alike.
        fs::remove_file(path).map_err(Error::file("removing", path))?;
        return Ok(false);
    }
    // SAFETY: both descriptors are valid; no options.
    let failed = unsafe {
        libbpf_sys::bpf_link_update(link.as_raw_fd(), program.as_fd().as_raw_fd(), std::ptr::null())
    } != 0;
    if failed {
        return Err(Error::System {
            what: "replacing the attached program",
            source: io::Error::last_os_error(),
        });
    }
    Ok(true)
}

/// Whether what is attached to an interface runs in generic mode; `None`: the kernel does not say.
pub(crate) fn runs_generic(ifindex: u32) -> Option<bool> {
    match u32::from(xdp_of(ifindex)?.attach_mode) {
        libbpf_sys::XDP_ATTACHED_DRV => Some(false),
        libbpf_sys::XDP_ATTACHED_SKB => Some(true),
        _ => None,
    }
}

/// Attaches `program` to an interface and pins the link, so that it outlives this process.
///
/// # Errors
/// No such interface, MTU too small, occupied, no native mode: see [`Error`].
pub(crate) fn attach(
    home: &Home,
    program: &Program<'_>,
    interface: &str,
    generic: bool,
    why: &str,
) -> Result<Attachment, Error> {
    let ifindex = check_interface(interface)?;
    let path = link_path(home, interface, ifindex);
    let was_attached = attached(home).iter().any(|(_, there)| *there == ifindex);
    let generic_here = runs_generic(ifindex).filter(|_| was_attached);
    // Before programs see packets.
    let keeps_tags = offloads::turn_off(home, interface, ifindex, generic_here.unwrap_or(generic));
    let attached = attach_at(&path, program, interface, generic, why);
    let mut done = attached.inspect_err(|_| {
        if !was_attached {
            offloads::restore(home, interface, ifindex);
        }
    })?;
    if !keeps_tags {
        done.reason += "; it takes VLAN tags off: let no VLAN come this way";
    }
    if done.mode == Mode::Generic && !finishes_checksums(interface) {
        done.reason += "; it makes no checksums: have the containers of this machine make theirs \
                        (ethtool -K DEV tx off)";
    }
    Ok(done)
}

/// Attaches `program` to an interface with the link pinned at `path`, whatever the interface's
/// packets are like.
pub(crate) fn attach_at(
    path: &Path,
    program: &Program<'_>,
    interface: &str,
    generic: bool,
    why: &str,
) -> Result<Attachment, Error> {
    let ifindex = ifindex_of(interface)?;
    let done = |generic, why: &str, taken_over| Attachment {
        interface: interface.into(),
        ifindex,
        mode: if generic { Mode::Generic } else { Mode::Native },
        reason: why.into(),
        taken_over,
    };
    if take_over(path, program, ifindex)? {
        let Some(is_generic) = runs_generic(ifindex).filter(|is| *is != generic) else {
            return Ok(done(generic, why, true));
        };
        let why = "as an earlier agent attached it: another mode takes a detach";
        return Ok(done(is_generic, why, true));
    }
    let link =
        create_link(program, ifindex, generic).map_err(|error| match error.raw_os_error() {
            Some(libc::EBUSY | libc::EEXIST) => {
                Error::Occupied { name: interface.into(), by: in_the_way(interface, ifindex) }
            }
            Some(libc::EPERM) => Error::NotPermitted("attaching XDP programs"),
            _ if !generic => Error::NoNative { name: interface.into(), reason: error.to_string() },
            _ => Error::System { what: "attaching the program", source: error },
        })?;
    pin(&link, path)?;
    Ok(done(generic, why, false))
}
