//! What the kernel tells of an interface of this process's network namespace, and takes.

use std::{
    io,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    os::fd::AsRawFd,
};

use libbpf_rs::libbpf_sys;

use crate::Error;

/// The names of the interfaces in this network namespace, but for loopback; sorted.
pub fn interfaces() -> Vec<String> {
    let Ok(all) = nix::net::if_::if_nameindex() else { return vec![] };
    let mut names: Vec<String> =
        all.iter().map(|i| i.name().to_string_lossy().into_owned()).collect();
    names.retain(|name| name != "lo");
    names.sort();
    names
}

pub(crate) fn ifindex_of(interface: &str) -> Result<u32, Error> {
    nix::net::if_::if_nametoindex(interface).map_err(|_| Error::NoInterface(interface.into()))
}

/// The same; `Some(None)`: there is none of this name. `None`: that cannot be asked now.
pub(crate) fn ifindex_if_there(interface: &str) -> Option<Option<u32>> {
    match nix::net::if_::if_nametoindex(interface) {
        Ok(ifindex) => Some(Some(ifindex)),
        Err(nix::Error::ENODEV | nix::Error::ENXIO) => Some(None),
        Err(_) => None,
    }
}

/// The name that an interface has now.
pub(crate) fn name_of(ifindex: u32) -> Option<String> {
    let name = nix::net::if_::if_indextoname(ifindex).ok()?;
    name.into_string().ok()
}

/// An `ioctl` about an interface of this process's network namespace. sysfs would not do: it shows
/// the namespace that it was mounted in.
fn interface_ioctl(
    interface: &str,
    number: libc::c_ulong,
    prepare: impl FnOnce(&mut libc::ifreq),
) -> Option<libc::ifreq> {
    // SAFETY: an all-zero ifreq is a valid one.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(interface.bytes().take(libc::IFNAMSIZ - 1)) {
        *to = from as libc::c_char;
    }
    prepare(&mut request);
    let any =
        [SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), SocketAddr::from((Ipv6Addr::LOCALHOST, 0))];
    let socket = UdpSocket::bind(&any[..]).or_else(|_| UdpSocket::bind("0.0.0.0:0")).ok()?;
    // SAFETY: `request` is an ifreq; what `prepare` points to is as long as the ioctl needs.
    let failed = unsafe { libc::ioctl(socket.as_raw_fd(), number as _, &raw mut request) } != 0;
    (!failed).then_some(request)
}

/// Asks the driver; `request` begins with the number of the question, and takes the answer. `None`:
/// it does not know that one.
pub(crate) fn ethtool(interface: &str, request: &mut [u8]) -> Option<()> {
    let data = request.as_mut_ptr().cast();
    interface_ioctl(interface, libc::SIOCETHTOOL, |ifreq| {
        ifreq.ifr_ifru.ifru_data = data;
    })
    .map(drop)
}

/// Whether an interface finishes checksums that a socket left to it.
pub(crate) fn finishes_checksums(interface: &str) -> bool {
    const ETHTOOL_GTXCSUM: u32 = 0x16;
    let mut value = [0; 8]; // struct ethtool_value
    value[..4].copy_from_slice(&ETHTOOL_GTXCSUM.to_ne_bytes());
    ethtool(interface, &mut value).is_some() && value[4..] != [0; 4]
}

/// The name of the interface's driver; empty if it has none.
pub(crate) fn driver_of(interface: &str) -> String {
    const ETHTOOL_GDRVINFO: u32 = 3;
    const NAME_AT: usize = 4;
    let mut info = [0u8; 196]; // struct ethtool_drvinfo
    info[..4].copy_from_slice(&ETHTOOL_GDRVINFO.to_ne_bytes());
    let answer = ethtool(interface, &mut info);
    let name = &info[NAME_AT..NAME_AT + 32];
    let end = name.iter().position(|byte| *byte == 0).unwrap_or(0);
    answer.map_or(String::new(), |()| String::from_utf8_lossy(&name[..end]).into_owned())
}

/// Bytes of the longest IP packet that an interface carries.
pub(crate) fn mtu_of(interface: &str) -> Option<u32> {
    let answer = interface_ioctl(interface, libc::SIOCGIFMTU, |_| {})?;
    // SAFETY: SIOCGIFMTU fills this member.
    u32::try_from(unsafe { answer.ifr_ifru.ifru_mtu }).ok()
}

/// Bytes of the longest Ethernet frame that all of these interfaces carry whose MTU is known; 0:
/// nobody knows any.
pub fn longest_frame(interfaces: impl IntoIterator<Item = impl AsRef<str>>) -> u64 {
    const ETHERNET_HEADER: u32 = 14;
    let each = interfaces.into_iter().filter_map(|name| mtu_of(name.as_ref()));
    each.min().map_or(0, |mtu| (mtu + ETHERNET_HEADER).into())
}

/// What the kernel tells of the XDP program on an interface and of the driver; `None`: nothing.
pub(crate) fn xdp_of(ifindex: u32) -> Option<libbpf_sys::bpf_xdp_query_opts> {
    let mut opts = libbpf_sys::bpf_xdp_query_opts {
        sz: size_of::<libbpf_sys::bpf_xdp_query_opts>() as u64,
        ..Default::default()
    };
    // SAFETY: the options are of the length that they name.
    let failed = unsafe { libbpf_sys::bpf_xdp_query(ifindex as i32, 0, &mut opts) } != 0;
    (!failed).then_some(opts)
}

/// An interface's hardware address; none: it has none of 48 bits.
pub(crate) fn mac_of(ifindex: u32) -> Option<[u8; 6]> {
    let answer = interface_ioctl(&name_of(ifindex)?, libc::SIOCGIFHWADDR, |_| {})?;
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
    done.map(drop).ok_or_else(io::Error::last_os_error)
}

/// Turns generic receive offload on, which makes a veth poll for packets in the driver's format.
pub(crate) fn set_gro(interface: &str) -> io::Result<()> {
    const ETHTOOL_SGRO: u32 = 0x2c;
    let mut value = [0; 8]; // struct ethtool_value
    value[..4].copy_from_slice(&ETHTOOL_SGRO.to_ne_bytes());
    value[4..].copy_from_slice(&1u32.to_ne_bytes());
    ethtool(interface, &mut value).ok_or_else(io::Error::last_os_error)
}
