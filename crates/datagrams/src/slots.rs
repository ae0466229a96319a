//! The arrays that `sendmmsg` and `recvmmsg` read and write, and the two calls: all of this crate
//! that the compiler cannot prove.
//!
//! The arrays lead to memory of the caller's. These pointers are written anew for each call by what
//! borrows that memory until the call is over, a [`SendCall`] or a [`ReceiveCall`]; what is left of
//! them afterwards is never followed.

use std::{
    array, io,
    marker::PhantomData,
    mem::zeroed,
    net::{IpAddr, SocketAddr},
    os::fd::{AsRawFd, BorrowedFd},
    ptr,
};

use crate::{BATCH, datagram::Datagram, name::Name};

/// Bytes of datagrams that one message takes, at most: what a datagram of IPv4 has room for, less
/// its headers.
const MESSAGE_BYTES: usize = 65_507;

/// Control messages: one that names the source address, of the larger of the two structures for
/// it, and one with the length of segments.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
struct Control([u8; 64]);

const _: () = {
    // SAFETY: CMSG_SPACE only computes.
    let [source, segment] = unsafe {
        [
            libc::CMSG_SPACE(size_of::<libc::in6_pktinfo>() as u32),
            libc::CMSG_SPACE(size_of::<u16>() as u32),
        ]
    };
    assert!((source + segment) as usize <= size_of::<Control>());
    assert!(size_of::<libc::in_pktinfo>() <= size_of::<libc::in6_pktinfo>());
    assert!(align_of::<libc::cmsghdr>() <= align_of::<Control>());
};

/// What the header of one message leads to, beside its parts.
struct Slot {
    name: Name,
    control: Control,
    /// The datagrams of the message, and the length of each but the last.
    datagrams: usize,
    segment: usize,
}

/// A batch of headers, each with its slot, and the parts of their datagrams, one header's behind
/// the other's.
pub struct Slots {
    headers: Box<[libc::mmsghdr; BATCH]>,
    slots: Box<[Slot; BATCH]>,
    parts: Box<[[libc::iovec; 2]; BATCH]>,
}

// SAFETY: the pointers inside are written and followed within a `SendCall` or a `ReceiveCall`,
// which no thread takes to another.
unsafe impl Send for Slots {}

impl Default for Slots {
    fn default() -> Slots {
        let nothing = libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 };
        let control = Control([0; 64]);
        let slot = |_| Slot { name: Name::EMPTY, control, datagrams: 1, segment: 0 };
        Slots {
            // SAFETY: all-zero is a valid mmsghdr: no name, no data, no control message.
            headers: Box::new(unsafe { zeroed() }),
            slots: Box::new(array::from_fn(slot)),
            parts: Box::new([[nothing; 2]; BATCH]),
        }
    }
}

impl Slots {
    /// Datagrams to be sent, of which there are at most as many as a batch takes. Those in a row
    /// that the system may get as one message are one: see [`crate::Sender::coalescing`]; of
    /// datagrams that are longer than `longest` each is a message of its own.
    #[inline]
    pub fn outgoing<'s, 'a>(
        &'s mut self,
        mut datagrams: &[Datagram<'a>],
        longest: usize,
    ) -> SendCall<'s, 'a> {
        let mut end = 0;
        let mut parts = self.parts.as_flattened_mut();
        let slots = self.headers.iter_mut().zip(self.slots.iter_mut());
        for (header, slot) in slots {
            let Some(first) = datagrams.first() else { break };
            let (group, rest) = datagrams.split_at(coalesced(datagrams, longest));
            datagrams = rest;
            (slot.datagrams, slot.segment) = (group.len(), first.len());
            let mut used = 0;
            for part in group.iter().flat_map(|datagram| datagram.parts) {
                if !part.is_empty() {
                    let iov_base = part.as_ptr().cast_mut().cast();
                    parts[used] = libc::iovec { iov_base, iov_len: part.len() };
                    used += 1;
                }
            }
            let (here, others) = parts.split_at_mut(used);
            parts = others;
            let name_len = slot.name.set(first.to);
            point(&mut header.msg_hdr, slot, here, name_len);
            if let Some(source) = first.source {
                add_source(&mut header.msg_hdr, &mut slot.control, source);
            }
            if group.len() > 1 {
                let (level, kind) = (libc::SOL_UDP, libc::UDP_SEGMENT);
                let len = slot.segment as u16;
                add_control(&mut header.msg_hdr, &mut slot.control, level, kind, len);
            }
            end += 1;
        }
        SendCall {
            headers: &mut self.headers[..end],
            slots: &self.slots[..end],
            borrowed: PhantomData,
        }
    }

    /// Room for datagrams, as many as a batch takes, and for where they came from if that is asked.
    #[inline]
    pub fn incoming<'s, 'a>(
        &'s mut self,
        asks_sources: bool,
        buffers: impl IntoIterator<Item = [&'a mut [u8]; 2]>,
    ) -> ReceiveCall<'s, 'a> {
        let name_len = if asks_sources { Name::ROOM } else { 0 };
        let mut end = 0;
        let slots = self.headers.iter_mut().zip(self.slots.iter_mut());
        for (((header, slot), parts), buffer) in slots.zip(self.parts.iter_mut()).zip(buffers) {
            *parts = buffer.map(|part| libc::iovec {
                iov_base: part.as_mut_ptr().cast(),
                iov_len: part.len(),
            });
            // The system is faster with one.
            let used = 1 + usize::from(parts[1].iov_len > 0);
            point(&mut header.msg_hdr, slot, &mut parts[..used], name_len);
            end += 1;
        }
        ReceiveCall { headers: &mut self.headers[..end], borrowed: PhantomData }
    }

    /// Bytes of a datagram that was received: of those that had room.
    #[inline]
    pub fn len(&self, at: usize) -> usize {
        self.headers[at].msg_len as usize
    }

    /// Where a datagram that was received came from, if that was asked.
    #[inline]
    pub fn source(&self, at: usize) -> Option<SocketAddr> {
        self.slots[at].name.address(self.headers[at].msg_hdr.msg_namelen)
    }
}

/// How many datagrams from the first on the system may get as one message: it cuts that into pieces
/// of one length, of which only the last may be shorter.
#[inline]
fn coalesced(datagrams: &[Datagram<'_>], longest: usize) -> usize {
    let Some(first) = datagrams.first() else { return 0 };
    let segment = first.len();
    if segment == 0 || segment > longest {
        return 1;
    }
    let room = MESSAGE_BYTES / segment;
    let mut count = 1;
    for datagram in datagrams[1..].iter().take(room.saturating_sub(1)) {
        let len = datagram.len();
        if (datagram.to, datagram.source) != (first.to, first.source) || len == 0 || len > segment {
            break;
        }
        count += 1;
        if len < segment {
            break;
        }
    }
    count
}

/// Makes the header lead to its slot and to these parts.
#[inline]
fn point(
    header: &mut libc::msghdr,
    slot: &mut Slot,
    parts: &mut [libc::iovec],
    name_len: libc::socklen_t,
) {
    // With an address of none the system would still write its length.
    header.msg_name = match name_len {
        0 => ptr::null_mut(),
        _ => (&raw mut slot.name).cast(),
    };
    header.msg_namelen = name_len;
    header.msg_iov = parts.as_mut_ptr();
    header.msg_iovlen = parts.len();
    header.msg_control = ptr::null_mut();
    header.msg_controllen = 0;
}

/// Adds the control message that makes `source` the source address.
fn add_source(header: &mut libc::msghdr, control: &mut Control, source: IpAddr) {
    match source {
        IpAddr::V4(ip) => {
            let info = libc::in_pktinfo {
                ipi_ifindex: 0,
                ipi_spec_dst: libc::in_addr { s_addr: u32::from_ne_bytes(ip.octets()) },
                ipi_addr: libc::in_addr { s_addr: 0 },
            };
            add_control(header, control, libc::IPPROTO_IP, libc::IP_PKTINFO, info);
        }
        IpAddr::V6(ip) => {
            let info = libc::in6_pktinfo {
                ipi6_addr: libc::in6_addr { s6_addr: ip.octets() },
                ipi6_ifindex: 0,
            };
            let kind = libc::IPV6_PKTINFO;
            add_control(header, control, libc::IPPROTO_IPV6, kind, info);
        }
    }
}

/// Adds a control message to those that the header has.
fn add_control<T>(
    header: &mut libc::msghdr,
    control: &mut Control,
    level: libc::c_int,
    kind: libc::c_int,
    info: T,
) {
    let (len, before) = (size_of::<T>() as u32, header.msg_controllen);
    header.msg_control = control.0.as_mut_ptr().cast();
    // SAFETY: there is room for either kind and one more; what is before takes a multiple of what
    // a header is aligned to.
    unsafe {
        let here = control.0.as_mut_ptr().add(before).cast::<libc::cmsghdr>();
        (*here).cmsg_level = level;
        (*here).cmsg_type = kind;
        (*here).cmsg_len = libc::CMSG_LEN(len) as usize;
        libc::CMSG_DATA(here).cast::<T>().write_unaligned(info);
        header.msg_controllen = before + libc::CMSG_SPACE(len) as usize;
    }
}

/// What is to be sent of a batch, with the caller's memory.
pub struct SendCall<'s, 'a> {
    headers: &'s mut [libc::mmsghdr],
    slots: &'s [Slot],
    borrowed: PhantomData<&'a [u8]>,
}

impl SendCall<'_, '_> {
    /// The datagrams of the first message, and how long each is but the last.
    pub fn first(&self) -> (usize, usize) {
        (self.slots[0].datagrams, self.slots[0].segment)
    }

    /// Sends it, or some of it, and returns how many datagrams that are.
    ///
    /// # Errors
    /// The system refuses the first message.
    pub fn send(&mut self, socket: BorrowedFd<'_>) -> io::Result<usize> {
        // SAFETY: each header leads to its slot and to its parts, which nothing can touch while
        // this value lives, and by them to bytes that are borrowed as long. The kernel reads them,
        // and writes `msg_len` of headers.
        let sent = unsafe {
            libc::sendmmsg(
                socket.as_raw_fd(),
                self.headers.as_mut_ptr(),
                self.headers.len() as u32,
                0,
            )
        };
        if sent < 1 {
            return Err(io::Error::last_os_error());
        }
        Ok(self.slots[..sent as usize].iter().map(|slot| slot.datagrams).sum())
    }
}

/// Room for a batch, with the caller's memory.
pub struct ReceiveCall<'s, 'a> {
    headers: &'s mut [libc::mmsghdr],
    borrowed: PhantomData<&'a mut [u8]>,
}

impl ReceiveCall<'_, '_> {
    /// Receives what there is, and how many that are.
    ///
    /// # Errors
    /// Those of the system.
    pub fn receive(self, socket: BorrowedFd<'_>) -> io::Result<usize> {
        // SAFETY: each header leads to its slot, which nothing can touch while this value lives,
        // and by it to bytes that are borrowed for this value alone, of the stated lengths. The
        // kernel writes no others.
        let received = unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                self.headers.as_mut_ptr(),
                self.headers.len() as u32,
                libc::MSG_WAITFORONE,
                ptr::null_mut(),
            )
        };
        usize::try_from(received).map_err(|_| io::Error::last_os_error())
    }
}
