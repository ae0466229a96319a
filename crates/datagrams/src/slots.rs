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

/// A control message that names the source address: a header and the larger of the two structures
/// for it.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
struct Control([u8; 40]);

const _: () = {
    // SAFETY: CMSG_SPACE only computes.
    let space = unsafe { libc::CMSG_SPACE(size_of::<libc::in6_pktinfo>() as u32) };
    assert!(space as usize <= size_of::<Control>());
    assert!(size_of::<libc::in_pktinfo>() <= size_of::<libc::in6_pktinfo>());
    assert!(align_of::<libc::cmsghdr>() <= align_of::<Control>());
};

/// What the header of one datagram leads to.
struct Slot {
    parts: [libc::iovec; 2],
    name: Name,
    control: Control,
}

/// A batch of headers, each with its slot.
pub struct Slots {
    headers: Box<[libc::mmsghdr; BATCH]>,
    slots: Box<[Slot; BATCH]>,
}

// SAFETY: the pointers inside are written and followed within a `SendCall` or a `ReceiveCall`,
// which no thread takes to another.
unsafe impl Send for Slots {}

impl Default for Slots {
    fn default() -> Slots {
        let nothing = libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 };
        let slot = |_| Slot { parts: [nothing; 2], name: Name::EMPTY, control: Control([0; 40]) };
        Slots {
            // SAFETY: all-zero is a valid mmsghdr: no name, no data, no control message.
            headers: Box::new(unsafe { zeroed() }),
            slots: Box::new(array::from_fn(slot)),
        }
    }
}

impl Slots {
    /// The next datagrams, as many as a batch takes.
    #[inline]
    pub fn outgoing<'s, 'a>(
        &'s mut self,
        datagrams: &mut impl Iterator<Item = Datagram<'a>>,
    ) -> SendCall<'s, 'a> {
        let mut end = 0;
        let slots = self.headers.iter_mut().zip(self.slots.iter_mut());
        for ((header, slot), datagram) in slots.zip(datagrams) {
            let name_len = slot.name.set(datagram.to);
            let parts = datagram.parts.map(|part| (part.as_ptr().cast_mut(), part.len()));
            point(&mut header.msg_hdr, slot, parts, name_len);
            if let Some(source) = datagram.source {
                add_source(&mut header.msg_hdr, &mut slot.control, source);
            }
            end += 1;
        }
        SendCall { headers: &mut self.headers[..end], borrowed: PhantomData }
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
        for ((header, slot), buffer) in slots.zip(buffers) {
            let parts = buffer.map(|part| (part.as_mut_ptr(), part.len()));
            point(&mut header.msg_hdr, slot, parts, name_len);
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

/// Makes the header lead to its slot, and the slot to these bytes.
#[inline]
fn point(
    header: &mut libc::msghdr,
    slot: &mut Slot,
    parts: [(*mut u8, usize); 2],
    name_len: libc::socklen_t,
) {
    slot.parts = parts.map(|(first, len)| libc::iovec { iov_base: first.cast(), iov_len: len });
    // With an address of none the system would still write its length.
    header.msg_name = match name_len {
        0 => ptr::null_mut(),
        _ => (&raw mut slot.name).cast(),
    };
    header.msg_namelen = name_len;
    header.msg_iov = slot.parts.as_mut_ptr();
    // The system is faster with one.
    header.msg_iovlen = 1 + usize::from(parts[1].1 > 0);
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

fn add_control<T>(
    header: &mut libc::msghdr,
    control: &mut Control,
    level: libc::c_int,
    kind: libc::c_int,
    info: T,
) {
    let len = size_of::<T>() as u32;
    header.msg_control = control.0.as_mut_ptr().cast();
    header.msg_controllen = size_of::<Control>();
    // SAFETY: msg_control leads to as many bytes as stated, aligned as a header needs it, and
    // enough for either kind.
    unsafe {
        let first = libc::CMSG_FIRSTHDR(header);
        (*first).cmsg_level = level;
        (*first).cmsg_type = kind;
        (*first).cmsg_len = libc::CMSG_LEN(len) as usize;
        libc::CMSG_DATA(first).cast::<T>().write_unaligned(info);
        header.msg_controllen = libc::CMSG_SPACE(len) as usize;
    }
}

/// What is to be sent of a batch, with the caller's memory.
pub struct SendCall<'s, 'a> {
    headers: &'s mut [libc::mmsghdr],
    borrowed: PhantomData<&'a [u8]>,
}

impl SendCall<'_, '_> {
    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.headers.is_empty()
    }

    /// Leaves out the first.
    pub fn skip(&mut self) {
        self.advance(1);
    }

    fn advance(&mut self, count: usize) {
        let headers = std::mem::take(&mut self.headers);
        self.headers = &mut headers[count..];
    }

    /// Sends what is left, or some of it.
    ///
    /// # Errors
    /// The system refuses the first.
    pub fn send(&mut self, socket: BorrowedFd<'_>) -> io::Result<()> {
        // SAFETY: each header leads to its slot, which nothing can touch while this value lives,
        // and by it to bytes that are borrowed as long. The kernel reads them, and writes `msg_len`
        // of headers.
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
        self.advance(sent as usize);
        Ok(())
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
