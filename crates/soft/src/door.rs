//! The way back into the kernel's stack for packets that the programs pass: a tun device of the
//! switch's own. As they come in by another interface than the one that they arrived by,
//! [`crate::claim`] lets them through.
//!
//! The device goes when its owner does.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::{fd::AsRawFd, unix::fs::OpenOptionsExt},
};

use dataplane::native::Frame;
use rtnetlink::{Handle, LinkUnspec, packet_route::link::LinkMessage};

use crate::{Error, ours};

nix::ioctl_write_ptr_bad!(make_tun, 0x4004_54ca, libc::ifreq);

/// An address that means nobody (RFC 7600): loose checks of where packets come from need
/// some address.
const DUMMY: std::net::Ipv4Addr = std::net::Ipv4Addr::new(192, 0, 0, 8);

/// The device, by its writing end.
pub struct Door {
    file: File,
    name: String,
}

impl Door {
    /// Makes the device.
    pub async fn open(netlink: &Handle) -> Result<Door, Error> {
        let (file, name) = make().map_err(Error::door)?;
        let door = Door { file, name };
        door.set_up(netlink).await.map_err(|e| Error::door(io::Error::other(e)))?;
        door.allow();
        Ok(door)
    }

    async fn set_up(&self, netlink: &Handle) -> Result<(), rtnetlink::Error> {
        let index = nix::net::if_::if_nametoindex(&*self.name).unwrap_or(0);
        let up: LinkMessage = LinkUnspec::new_with_index(index).up().mtu(65_535).build();
        netlink.link().set(up).execute().await?;
        netlink.address().add(index, DUMMY.into(), 32).execute().await
    }

    /// Packets that came in elsewhere may come in here, as far as the kernel would have let them.
    fn allow(&self) {
        let setting = |device: &str, what: &str| format!("/proc/sys/net/ipv4/conf/{device}/{what}");
        let get =
            |device: &str, what| fs::read_to_string(setting(device, what)).unwrap_or_default();
        // The greater of the two counts; 2 asks only that there is some way back.
        let checks = if get("all", "rp_filter").trim() == "0" { "0" } else { "2" };
        for (what, value) in [("rp_filter", checks), ("forwarding", "1")] {
            if get(&self.name, what).trim() != value
                && let Err(e) = fs::write(setting(&self.name, what), value)
            {
                tracing::warn!(
                    "{}: {e}; packets that the switch leaves to the kernel may be lost; write {value} there",
                    setting(&self.name, what)
                );
            }
        }
    }

    /// Gives a frame's packet to the kernel. False: it did not take it.
    pub fn pass(&self, frame: &Frame) -> bool {
        let packet = frame.bytes().get(ours::ETHERNET as usize..);
        packet.is_some_and(|packet| (&self.file).write(packet).is_ok())
    }
}

fn make() -> io::Result<(File, String)> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK)
        .open("/dev/net/tun")?;
    // SAFETY: an all-zero ifreq is a valid one.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(b"shortstop%d") {
        *to = *from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI) as libc::c_short;
    // SAFETY: the request is an ifreq, which the kernel completes.
    unsafe { make_tun(file.as_raw_fd(), &raw const request) }?;
    let name = request.ifr_name.iter().take_while(|c| **c != 0).map(|c| *c as u8).collect();
    Ok((file, String::from_utf8(name).map_err(io::Error::other)?))
}
