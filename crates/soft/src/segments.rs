//! Several datagrams that a sender's kernel handed over as one, which a network card would
//! have divided.

use dataplane::native::Frame;

use crate::{checksum, ours::ETHERNET};

const IPV4_HEADER: usize = 20;
const IPV6_HEADER: usize = 40;
const UDP_HEADER: usize = 8;

/// Divides a frame that is ours into such with `size` bytes of payload; `spare` gives the frames.
pub fn divide(whole: &Frame, size: usize, mut spare: impl FnMut() -> Frame) -> Vec<Frame> {
    let ethernet = ETHERNET as usize;
    let bytes = whole.bytes();
    let is_ipv4 = bytes.get(ethernet).is_some_and(|byte| byte >> 4 == 4);
    let udp = ethernet + if is_ipv4 { IPV4_HEADER } else { IPV6_HEADER };
    let Some((headers, payload)) = bytes.split_at_checked(udp + UDP_HEADER) else { return vec![] };
    let part = |(number, payload): (usize, &[u8])| {
        let mut frame = spare();
        let to = frame.resize(headers.len() + payload.len());
        let (front, back) = to.split_at_mut(headers.len());
        front.copy_from_slice(headers);
        back.copy_from_slice(payload);
        let len = (UDP_HEADER + payload.len()) as u16;
        to[udp + 4..udp + 6].copy_from_slice(&len.to_be_bytes());
        to[udp + 6..udp + 8].fill(0); // in IPv4: there is none
        if is_ipv4 {
            finish_ipv4(&mut to[ethernet..udp], len, number as u16);
        } else {
            to[ethernet + 4..ethernet + 6].copy_from_slice(&len.to_be_bytes());
            let pseudo = checksum::pseudo_header(&to[ethernet + 8..udp], len);
            to[udp + 6..udp + 8].copy_from_slice(&pseudo.to_be_bytes());
            checksum::complete(to, udp, 6);
        }
        frame
    };
    payload.chunks(size.max(1)).enumerate().map(part).collect()
}

fn finish_ipv4(ip: &mut [u8], udp_len: u16, number: u16) {
    let id = u16::from_be_bytes([ip[4], ip[5]]).wrapping_add(number);
    ip[2..4].copy_from_slice(&(IPV4_HEADER as u16 + udp_len).to_be_bytes());
    ip[4..6].copy_from_slice(&id.to_be_bytes());
    ip[10..12].fill(0);
    checksum::complete(ip, 0, 10);
}
