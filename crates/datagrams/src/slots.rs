//! Many datagrams, each with its own destination and source address, in one `sendmmsg`.

use std::{
    io,
    mem::{MaybeUninit, zeroed},
    net::{IpAddr, SocketAddr},
    os::fd::AsRawFd,
};

/// Datagrams handed to the system in one call.
const BATCH: usize = 64;

/// A control message that names the source address: a header and the larger of the two structures for it.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
struct Control([u8; 40]);

const _: () = {
    // SAFETY: CMSG_SPACE only computes.
    assert!(unsafe { libc::CMSG_SPACE(size_of::<libc::in6_pktinfo>() as u32) } as usize <= 40);
};

/// The arrays that `sendmmsg` reads; kept between calls.
pub struct SendBatch {
    headers: Box<[MaybeUninit<libc::mmsghdr>; BATCH]>,
    vectors: Box<[MaybeUninit<libc::iovec>; BATCH]>,
    names: Box<[socket2::SockAddr]>,
    controls: Box<[Control; BATCH]>,
}

// SAFETY: the raw pointers inside are written anew and read within one call of `send`, never kept.
unsafe impl Send for SendBatch {}

impl Default for SendBatch {
    fn default() -> SendBatch {
        let nowhere = SocketAddr::from(([0, 0, 0, 0], 0));
        SendBatch {
            headers: Box::new([const { MaybeUninit::uninit() }; BATCH]),
            vectors: Box::new([const { MaybeUninit::uninit() }; BATCH]),
            names: vec![nowhere.into(); BATCH].into(),
            controls: Box::new([Control([0; 40]); BATCH]),
        }
    }
}

impl SendBatch {
    /// Sends every message and returns how many the system refused. A refused one is skipped: one
    /// unreachable client must not hold up the others.
    pub fn send<'a>(
        &mut self,
        socket: &impl AsRawFd,
        mut messages: impl Iterator<Item = (&'a [u8], SocketAddr, Option<IpAddr>)>,
    ) -> u64 {
        let mut lost = 0;
        loop {
            let mut count = 0;
            for (bytes, to, from) in messages.by_ref().take(BATCH) {
                self.fill(count, bytes, to, from);
                count += 1;
            }
            if count == 0 {
                return lost;
            }
            lost += self.flush(socket, count);
        }
    }

    fn fill(&mut self, at: usize, bytes: &[u8], to: SocketAddr, from: Option<IpAddr>) {
        self.names[at] = to.into();
        let vector = self.vectors[at].write(libc::iovec {
            iov_base: bytes.as_ptr().cast_mut().cast(),
            iov_len: bytes.len(),
        });
        // SAFETY: all-zero is a valid msghdr: no name, no data, no control message.
        let mut header: libc::msghdr = unsafe { zeroed() };
        header.msg_name = self.names[at].as_ptr().cast_mut().cast();
        header.msg_namelen = self.names[at].len();
        header.msg_iov = vector;
        header.msg_iovlen = 1;
        if let Some(local) = from {
            let control = &mut self.controls[at];
            header.msg_control = control.0.as_mut_ptr().cast();
            header.msg_controllen = size_of::<Control>();
            header.msg_controllen = write_source(&header, local);
        }
        self.headers[at].write(libc::mmsghdr {
            msg_hdr: header,
            msg_len: 0,
        });
    }

    fn flush(&mut self, socket: &impl AsRawFd, count: usize) -> u64 {
        let (mut done, mut lost) = (0, 0);
        while done < count {
            // SAFETY: headers[done..count] are initialised by `fill`, and what they point at (names, vectors,
            // controls, the messages' bytes) is alive and unmoved since.
            let sent = unsafe {
                libc::sendmmsg(
                    socket.as_raw_fd(),
                    self.headers[done].as_mut_ptr(),
                    (count - done) as u32,
                    libc::MSG_DONTWAIT,
                )
            };
            if sent > 0 {
                done += sent as usize;
                continue;
            }
            if io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
                lost += 1;
                done += 1;
            }
        }
        lost
    }
}

/// Writes the control message that makes `local` the source address; returns its length.
fn write_source(header: &libc::msghdr, local: IpAddr) -> usize {
    // SAFETY: msg_control points at 40 zeroed or previously written bytes, aligned to 8, enough for either kind.
    unsafe {
        let cmsg = libc::CMSG_FIRSTHDR(header);
        match local {
            IpAddr::V4(ip) => {
                let info = libc::in_pktinfo {
                    ipi_ifindex: 0,
                    ipi_spec_dst: libc::in_addr {
                        s_addr: u32::from_ne_bytes(ip.octets()),
                    },
                    ipi_addr: libc::in_addr { s_addr: 0 },
                };
                let len = size_of_val(&info) as u32;
                (*cmsg).cmsg_level = libc::IPPROTO_IP;
                (*cmsg).cmsg_type = libc::IP_PKTINFO;
                (*cmsg).cmsg_len = libc::CMSG_LEN(len) as usize;
                libc::CMSG_DATA(cmsg)
                    .cast::<libc::in_pktinfo>()
                    .write_unaligned(info);
                libc::CMSG_SPACE(len) as usize
            }
            IpAddr::V6(ip) => {
                let info = libc::in6_pktinfo {
                    ipi6_addr: libc::in6_addr {
                        s6_addr: ip.octets(),
                    },
                    ipi6_ifindex: 0,
                };
                let len = size_of_val(&info) as u32;
                (*cmsg).cmsg_level = libc::IPPROTO_IPV6;
                (*cmsg).cmsg_type = libc::IPV6_PKTINFO;
                (*cmsg).cmsg_len = libc::CMSG_LEN(len) as usize;
                libc::CMSG_DATA(cmsg)
                    .cast::<libc::in6_pktinfo>()
                    .write_unaligned(info);
                libc::CMSG_SPACE(len) as usize
            }
        }
    }
}
