use std::{
    fs, io,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd},
    path::{Path, PathBuf},
};

use libbpf_rs::{Program, libbpf_sys};
use serde::Serialize;

use crate::{Error, bpffs::Home, layout::RECIRCULATION_PORTS, recirculation};

/// A packet of ours with the longest key and value, over IPv4.
const LEAST_MTU: u32 = 1500;

/// The names of the interfaces in this network namespace, but for loopback; sorted.
pub fn interfaces() -> Vec<String> {
    let Ok(all) = nix::net::if_::if_nameindex() else {
        return vec![];
    };
    let mut names: Vec<String> = all
        .iter()
        .map(|i| i.name().to_string_lossy().into_owned())
        .collect();
    names.retain(|name| name != "lo");
    names.sort();
    names
}

/// Where in the kernel the program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Native where the drivers of all of a switch's interfaces have it, else generic; so on veth too, where it is cheaper and needs no
    /// peer set-up.
    Auto,
    /// In the driver, before a socket buffer is made.
    Native,
    /// On socket buffers; works on every interface.
    Generic,
}

/// An interface that the entry program runs on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Attached {
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

fn last_error() -> io::Error {
    io::Error::last_os_error()
}

pub(crate) fn ifindex_of(interface: &str) -> Result<u32, Error> {
    nix::net::if_::if_nametoindex(interface).map_err(|_| Error::NoInterface(interface.into()))
}

/// An `ioctl` about an interface of this process's network namespace. sysfs would not do: it shows the
/// namespace that it was mounted in.
fn interface_ioctl(
    interface: &str,
    number: libc::c_ulong,
    prepare: impl FnOnce(&mut libc::ifreq),
) -> Option<libc::ifreq> {
    // SAFETY: an all-zero ifreq is a valid one.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request
        .ifr_name
        .iter_mut()
        .zip(interface.bytes().take(libc::IFNAMSIZ - 1))
    {
        *to = from as libc::c_char;
    }
    prepare(&mut request);
    let any = [
        SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        SocketAddr::from((Ipv6Addr::LOCALHOST, 0)),
    ];
    let socket = UdpSocket::bind(&any[..])
        .or_else(|_| UdpSocket::bind("0.0.0.0:0"))
        .ok()?;
    // SAFETY: `request` is an ifreq; what `prepare` points to is as long as the ioctl needs.
    let failed = unsafe { libc::ioctl(socket.as_raw_fd(), number as _, &raw mut request) } != 0;
    (!failed).then_some(request)
}

/// The name of the interface's driver; empty if it has none.
pub(crate) fn driver_of(interface: &str) -> String {
    const ETHTOOL_GDRVINFO: u32 = 3;
    const NAME_AT: usize = 4;
    let mut info = [0u8; 196]; // struct ethtool_drvinfo
    info[..4].copy_from_slice(&ETHTOOL_GDRVINFO.to_ne_bytes());
    let data = info.as_mut_ptr().cast();
    let answer = interface_ioctl(interface, libc::SIOCETHTOOL, |request| {
        request.ifr_ifru.ifru_data = data;
    });
    let name = &info[NAME_AT..NAME_AT + 32];
    let end = name.iter().position(|byte| *byte == 0).unwrap_or(0);
    answer.map_or(String::new(), |_| {
        String::from_utf8_lossy(&name[..end]).into_owned()
    })
}

fn mtu_of(interface: &str) -> Option<u32> {
    let answer = interface_ioctl(interface, libc::SIOCGIFMTU, |_| {})?;
    // SAFETY: SIOCGIFMTU fills this member.
    u32::try_from(unsafe { answer.ifr_ifru.ifru_mtu }).ok()
}

/// An interface's hardware address; none: it has none of 48 bits.
pub(crate) fn mac_of(ifindex: u32) -> Option<[u8; 6]> {
    // By whatever name it has now.
    let name = nix::net::if_::if_indextoname(ifindex).ok()?;
    let answer = interface_ioctl(name.to_str().ok()?, libc::SIOCGIFHWADDR, |_| {})?;
    // SAFETY: SIOCGIFHWADDR fills this member.
    let address = unsafe { answer.ifr_ifru.ifru_hwaddr };
    let mut mac = [0; 6];
    for (to, from) in mac.iter_mut().zip(address.sa_data) {
        *to = from as u8;
    }
    (address.sa_family == libc::ARPHRD_ETHER && mac != [0; 6]).then_some(mac)
}

/// Brings an interface up.
pub(crate) fn set_up(interface: &str) -> io::Result<()> {
    let done = interface_ioctl(interface, libc::SIOCSIFFLAGS, |request| {
        request.ifr_ifru.ifru_flags = libc::IFF_UP as libc::c_short;
    });
    done.map(drop).ok_or_else(last_error)
}

/// Turns generic receive offload on, which makes a veth poll for packets in the driver's format.
pub(crate) fn set_gro(interface: &str) -> io::Result<()> {
    const ETHTOOL_SGRO: u32 = 0x2c;
    let mut value = [ETHTOOL_SGRO, 1]; // struct ethtool_value
    let data = value.as_mut_ptr().cast();
    let done = interface_ioctl(interface, libc::SIOCETHTOOL, |request| {
        request.ifr_ifru.ifru_data = data;
    });
    done.map(drop).ok_or_else(last_error)
}

/// Has tags of VLANs left in the packet, where the programs see them: an interface that takes them off would make hosts of
/// different VLANs one network. False: it keeps on taking them off.
fn keep_vlan_tags(interface: &str) -> bool {
    const ETHTOOL_GFLAGS: u32 = 0x25;
    const ETHTOOL_SFLAGS: u32 = 0x26;
    const ETH_FLAG_RXVLAN: u32 = 1 << 8;
    let ask = |command: u32, value: u32| {
        let mut value = [command, value]; // struct ethtool_value
        let data = value.as_mut_ptr().cast();
        interface_ioctl(interface, libc::SIOCETHTOOL, |request| {
            request.ifr_ifru.ifru_data = data;
        })
        .map(|_| value[1])
    };
    let takes_off = || ask(ETHTOOL_GFLAGS, 0).filter(|flags| flags & ETH_FLAG_RXVLAN != 0);
    if let Some(flags) = takes_off() {
        let _ = ask(ETHTOOL_SFLAGS, flags & !ETH_FLAG_RXVLAN);
    }
    takes_off().is_none()
}

fn check_mtu(interface: &str) -> Result<(), Error> {
    let mtu = mtu_of(interface).unwrap_or(LEAST_MTU);
    if mtu < LEAST_MTU {
        return Err(Error::SmallMtu {
            name: interface.into(),
            mtu,
            needed: LEAST_MTU,
        });
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

fn link_path(home: &Home, interface: &str, ifindex: u32) -> PathBuf {
    home.links().join(format!("{interface}-{ifindex}"))
}

pub(crate) fn open_pinned(path: &Path) -> Option<OwnedFd> {
    let text = std::ffi::CString::new(path.to_str()?).ok()?;
    // SAFETY: a valid C string.
    let fd = unsafe { libbpf_sys::bpf_obj_get(text.as_ptr()) };
    // SAFETY: a new descriptor that nobody else owns.
    (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The interface that a link is still attached to; `None` when the interface has gone.
pub(crate) fn link_ifindex(link: &OwnedFd) -> Option<u32> {
    let (ifindex, _) = link_info(link)?;
    (ifindex != 0).then_some(ifindex)
}

/// A link's interface, 0 when it has gone, and the id of its program.
fn link_info(link: &OwnedFd) -> Option<(u32, u32)> {
    // SAFETY: an all-zero bpf_link_info is what the kernel expects to fill.
    let mut info: libbpf_sys::bpf_link_info = unsafe { std::mem::zeroed() };
    let mut len = size_of_val(&info) as u32;
    // SAFETY: `info` has `len` bytes.
    let failed = unsafe {
        libbpf_sys::bpf_obj_get_info_by_fd(link.as_raw_fd(), (&raw mut info).cast(), &mut len)
    };
    if failed != 0 {
        return None;
    }
    // SAFETY: XDP links are the only ones that are pinned here.
    let ifindex = unsafe { info.__bindgen_anon_1.xdp.ifindex };
    Some((ifindex, info.prog_id))
}

fn create_link(program: &Program<'_>, ifindex: u32, generic: bool) -> io::Result<OwnedFd> {
    const XDP_FLAGS_SKB_MODE: u32 = 1 << 1;
    const XDP_FLAGS_DRV_MODE: u32 = 1 << 2;
    let opts = libbpf_sys::bpf_link_create_opts {
        sz: size_of::<libbpf_sys::bpf_link_create_opts>() as u64,
        flags: if generic {
            XDP_FLAGS_SKB_MODE
        } else {
            XDP_FLAGS_DRV_MODE
        },
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
        return Err(last_error());
    }
    // SAFETY: a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn pin(link: &OwnedFd, path: &Path) -> Result<(), Error> {
    let text = std::ffi::CString::new(path.to_string_lossy().as_bytes()).expect("no NUL in a path");
    // SAFETY: a valid descriptor and C string.
    if unsafe { libbpf_sys::bpf_obj_pin(link.as_raw_fd(), text.as_ptr()) } != 0 {
        return Err(Error::file("pinning the link at", path)(last_error()));
    }
    Ok(())
}

/// Puts `program` into the place of an earlier agent's on the same link. No packet sees a gap.
pub(crate) fn take_over(path: &Path, program: &Program<'_>, ifindex: u32) -> Result<bool, Error> {
    let Some(link) = open_pinned(path) else {
        return Ok(false);
    };
    if link_ifindex(&link) != Some(ifindex) {
        // The interface has gone, and its link with it.
        fs::remove_file(path).map_err(Error::file("removing", path))?;
        return Ok(false);
    }
    // SAFETY: both descriptors are valid; no options.
    let failed = unsafe {
        libbpf_sys::bpf_link_update(
            link.as_raw_fd(),
            program.as_fd().as_raw_fd(),
            std::ptr::null(),
        )
    } != 0;
    if failed {
        return Err(Error::System {
            what: "replacing the attached program",
            source: last_error(),
        });
    }
    Ok(true)
}

/// Whether what is attached to an interface runs in generic mode; `None`: the kernel does not say.
pub(crate) fn runs_generic(ifindex: u32) -> Option<bool> {
    let mut opts = libbpf_sys::bpf_xdp_query_opts {
        sz: size_of::<libbpf_sys::bpf_xdp_query_opts>() as u64,
        ..Default::default()
    };
    // SAFETY: the options are of the length that they name.
    let failed = unsafe { libbpf_sys::bpf_xdp_query(ifindex as i32, 0, &mut opts) } != 0;
    match u32::from(opts.attach_mode) {
        _ if failed => None,
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
) -> Result<Attached, Error> {
    let ifindex = check_interface(interface)?;
    let path = link_path(home, interface, ifindex);
    attach_at(&path, program, interface, generic, why)
}

/// Likewise, with the link pinned at `path`.
pub(crate) fn attach_at(
    path: &Path,
    program: &Program<'_>,
    interface: &str,
    generic: bool,
    why: &str,
) -> Result<Attached, Error> {
    let ifindex = ifindex_of(interface)?;
    let keeps_tags = keep_vlan_tags(interface);
    let done = |generic, why: &str, taken_over| Attached {
        interface: interface.into(),
        ifindex,
        mode: if generic { Mode::Generic } else { Mode::Native },
        reason: if keeps_tags {
            why.into()
        } else {
            format!("{why}; it takes VLAN tags off: let no VLAN come this way")
        },
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
            Some(libc::EBUSY | libc::EEXIST) => Error::Occupied(interface.into()),
            Some(libc::EPERM) => Error::NotPermitted("attaching XDP programs"),
            _ if !generic => Error::NoNative {
                name: interface.into(),
                reason: error.to_string(),
            },
            _ => Error::System {
                what: "attaching the program",
                source: error,
            },
        })?;
    pin(&link, path)?;
    Ok(done(generic, why, false))
}

/// Detaches a switch from those of these interfaces that it is attached to.
pub(crate) fn release(home: &Home, interfaces: &[String]) -> Result<(), Error> {
    for interface in interfaces {
        let path = link_path(home, interface, ifindex_of(interface)?);
        if let Some(link) = open_pinned(&path) {
            // SAFETY: a valid descriptor.
            let _ = unsafe { libbpf_sys::bpf_link_detach(link.as_raw_fd()) };
            fs::remove_file(&path).map_err(Error::file("removing", path))?;
        }
    }
    Ok(())
}

/// The links of a switch that are still attached: interface when attached, index, descriptor.
fn live_links(home: &Home) -> Vec<(String, u32, OwnedFd)> {
    let entries = fs::read_dir(home.links()).into_iter().flatten().flatten();
    let live = |entry: fs::DirEntry| {
        let link = open_pinned(&entry.path())?;
        let ifindex = link_ifindex(&link)?;
        let name = entry.file_name().into_string().ok()?;
        Some((name.rsplit_once('-')?.0.to_owned(), ifindex, link))
    };
    entries.filter_map(live).collect()
}

/// Whether each of a switch's links that is still attached runs one of these programs.
pub(crate) fn all_run(home: &Home, programs: &[u32]) -> bool {
    let links = fs::read_dir(home.links()).into_iter().flatten().flatten();
    let rounds = (0..RECIRCULATION_PORTS).map(|number| home.recirculation(number));
    let paths = links.map(|link| link.path()).chain(rounds);
    let mut infos = paths.filter_map(|path| link_info(&open_pinned(&path)?));
    infos.all(|(ifindex, program)| ifindex == 0 || programs.contains(&program))
}

/// The interfaces that a switch is attached to now, as (name when attached, index).
pub fn attached(home: &Home) -> Vec<(String, u32)> {
    let mut found: Vec<(String, u32)> = live_links(home)
        .into_iter()
        .map(|(name, ifindex, _)| (name, ifindex))
        .collect();
    found.sort();
    found
}

/// Detaches a switch from every interface and removes its maps: the kernel forwards everything again. The
/// interfaces are free when this returns.
///
/// # Errors
/// [`Error::NoSwitch`] if there is none, or a pin that cannot be removed.
pub fn detach(home: &Home) -> Result<Vec<(String, u32)>, Error> {
    home.must_exist()?;
    let interfaces = attached(home);
    for (_, _, link) in live_links(home) {
        // Removing the pin alone would detach too, but some time later. An interface that is going away
        // by itself may refuse; its link goes with it.
        // SAFETY: a valid descriptor.
        let _ = unsafe { libbpf_sys::bpf_link_detach(link.as_raw_fd()) };
    }
    recirculation::close(home)?;
    home.remove()?;
    Ok(interfaces)
}
