//! UDP datagrams in Ethernet frames, as hosts make and read them, and as a kernel passes them on.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use dataplane::native::Frame;
use wire::{Header, Op};

/// A hardware address.
pub type Mac = [u8; 6];

const ETHERNET: usize = 14;
const IPV4: usize = 20;
const IPV6: usize = 40;
const UDP: usize = 8;
const TYPE_IPV4: [u8; 2] = [0x08, 0x00];
const TYPE_IPV6: [u8; 2] = [0x86, 0xdd];
const PROTOCOL_UDP: u8 = 17;
/// Hops that a packet may take.
const HOPS: u8 = 64;

/// Why a host does not take a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalReason {
    /// No IP, or no UDP in it: not for any process here.
    Other,
    /// Lengths that do not fit, or a checksum that is wrong.
    Broken,
}

/// A datagram that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram<'a> {
    /// Where it came from.
    pub from: SocketAddr,
    /// Where it was sent to.
    pub to: SocketAddr,
    /// Its payload.
    pub payload: &'a [u8],
}

/// Sum of 16-bit words in the machine's byte order, not folded yet.
fn sum(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<4>();
    let mut sum: u64 = words.iter().map(|w| u64::from(u32::from_ne_bytes(*w))).sum();
    let mut last = [0; 4];
    last[..rest.len()].copy_from_slice(rest);
    sum += u64::from(u32::from_ne_bytes(last));
    sum
}

/// The Internet checksum of a sum, in the machine's byte order.
fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// The pseudo-header's sum; `addresses` are both, one after the other.
fn pseudo(addresses: &[u8], udp_len: usize) -> u64 {
    let protocol = u16::from(PROTOCOL_UDP).to_be();
    sum(addresses) + u64::from(protocol) + u64::from((udp_len as u16).to_be())
}

/// Makes `frame` that of a datagram.
pub fn write(frame: &mut Frame, macs: [Mac; 2], from: SocketAddr, to: SocketAddr, payload: &[u8]) {
    let [from_mac, to_mac] = macs;
    let udp_len = UDP + payload.len();
    let (out, head, partial) = match (from.ip(), to.ip()) {
        (IpAddr::V4(a), IpAddr::V4(b)) => {
            let out = frame.resize(ETHERNET + IPV4 + udp_len);
            out[12..14].copy_from_slice(&TYPE_IPV4);
            let mut ip = [0; IPV4];
            ip[0] = 0x45;
            ip[2..4].copy_from_slice(&((IPV4 + udp_len) as u16).to_be_bytes());
            ip[6] = 0x40; // Never fragmented.
            ip[8] = HOPS;
            ip[9] = PROTOCOL_UDP;
            ip[12..16].copy_from_slice(&a.octets());
            ip[16..20].copy_from_slice(&b.octets());
            let check = fold(sum(&ip));
            ip[10..12].copy_from_slice(&check.to_ne_bytes());
            out[ETHERNET..ETHERNET + IPV4].copy_from_slice(&ip);
            (out, ETHERNET + IPV4, pseudo(&ip[12..20], udp_len))
        }
        (a, b) => {
            let out = frame.resize(ETHERNET + IPV6 + udp_len);
            out[12..14].copy_from_slice(&TYPE_IPV6);
            let mut ip = [0; IPV6];
            ip[0] = 0x60;
            ip[4..6].copy_from_slice(&(udp_len as u16).to_be_bytes());
            ip[6] = PROTOCOL_UDP;
            ip[7] = HOPS;
            ip[8..24].copy_from_slice(&v6(a).octets());
            ip[24..40].copy_from_slice(&v6(b).octets());
            out[ETHERNET..ETHERNET + IPV6].copy_from_slice(&ip);
            (out, ETHERNET + IPV6, pseudo(&ip[8..40], udp_len))
        }
    };
    out[..6].copy_from_slice(&to_mac);
    out[6..12].copy_from_slice(&from_mac);
    let udp = &mut out[head..];
    udp[..2].copy_from_slice(&from.port().to_be_bytes());
    udp[2..4].copy_from_slice(&to.port().to_be_bytes());
    udp[4..6].copy_from_slice(&(udp_len as u16).to_be_bytes());
    udp[6..8].fill(0);
    udp[UDP..].copy_from_slice(payload);
    let check = match fold(partial + sum(udp)) {
        0 => 0xffff, // 0 would say that there is none.
        check => check,
    };
    udp[6..8].copy_from_slice(&check.to_ne_bytes());
}

fn v6(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    }
}

/// Where a frame's IP packet goes to, and what of the frame it is.
#[derive(Clone, Copy)]
struct Ip<'a> {
    from: IpAddr,
    to: IpAddr,
    addresses: &'a [u8],
    is_udp: bool,
    payload: &'a [u8],
}

fn be16(bytes: &[u8], at: usize) -> usize {
    usize::from(u16::from_be_bytes([bytes[at], bytes[at + 1]]))
}

fn ip(frame: &[u8]) -> Result<Ip<'_>, RefusalReason> {
    if frame.len() < ETHERNET + IPV4 {
        return Err(RefusalReason::Other);
    }
    let packet = &frame[ETHERNET..];
    match [frame[12], frame[13]] {
        TYPE_IPV4 => {
            let head = usize::from(packet[0] & 0xf) * 4;
            let len = be16(packet, 2);
            if packet[0] >> 4 != 4 || head < IPV4 || len < head || len > packet.len() {
                return Err(RefusalReason::Broken);
            }
            if fold(sum(&packet[..head])) != 0 {
                return Err(RefusalReason::Broken);
            }
            let address = |at| {
                let octets: [u8; 4] = packet[at..at + 4].try_into().expect("4 bytes");
                IpAddr::V4(Ipv4Addr::from(octets))
            };
            let is_fragment = be16(packet, 6) & 0x3fff != 0;
            Ok(Ip {
                from: address(12),
                to: address(16),
                addresses: &packet[12..20],
                is_udp: packet[9] == PROTOCOL_UDP && !is_fragment,
                payload: &packet[head..len],
            })
        }
        TYPE_IPV6 => {
            if packet.len() < IPV6 || packet[0] >> 4 != 6 {
                return Err(RefusalReason::Broken);
            }
            let len = IPV6 + be16(packet, 4);
            if len > packet.len() {
                return Err(RefusalReason::Broken);
            }
            let address = |at| {
                let octets: [u8; 16] = packet[at..at + 16].try_into().expect("16 bytes");
                IpAddr::V6(Ipv6Addr::from(octets))
            };
            Ok(Ip {
                from: address(8),
                to: address(24),
                addresses: &packet[8..40],
                is_udp: packet[6] == PROTOCOL_UDP,
                payload: &packet[IPV6..len],
            })
        }
        _ => Err(RefusalReason::Other),
    }
}

/// Reads a frame as the host does that it is for: every length and checksum is verified.
///
/// # Errors
/// [`RefusalReason`].
pub fn read(frame: &[u8]) -> Result<Datagram<'_>, RefusalReason> {
    let ip = ip(frame)?;
    if !ip.is_udp {
        return Err(RefusalReason::Other);
    }
    let udp = ip.payload;
    if udp.len() < UDP {
        return Err(RefusalReason::Broken);
    }
    let len = be16(udp, 4);
    if len < UDP || len > udp.len() {
        return Err(RefusalReason::Broken);
    }
    let has_check = be16(udp, 6) != 0;
    // IPv6 has no other checksum, so there must be one.
    if !has_check && ip.to.is_ipv6() {
        return Err(RefusalReason::Broken);
    }
    if has_check && fold(pseudo(ip.addresses, len) + sum(&udp[..len])) != 0 {
        return Err(RefusalReason::Broken);
    }
    Ok(Datagram {
        from: SocketAddr::new(ip.from, be16(udp, 0) as u16),
        to: SocketAddr::new(ip.to, be16(udp, 2) as u16),
        payload: &udp[UDP..len],
    })
}

/// Where a frame's packet is to go, as a router's kernel sees it.
///
/// # Errors
/// [`RefusalReason`]: it is no packet that a router passes on.
pub fn destination(frame: &[u8]) -> Result<IpAddr, RefusalReason> {
    Ok(ip(frame)?.to)
}

/// The op of a packet of ours, as far as it can be told at a glance; none: it is another's.
pub fn op(frame: &[u8]) -> Option<Op> {
    let ip_len = match frame.get(12..14)? {
        ip if ip == TYPE_IPV4 => usize::from(frame.get(ETHERNET)? & 0xf) * 4,
        ip if ip == TYPE_IPV6 => IPV6,
        _ => return None,
    };
    let header = frame.get(ETHERNET + ip_len + UDP..)?.first_chunk()?;
    Header::from_bytes(header).ok().map(|header| header.op)
}

/// Takes one hop off a packet, and gives its frame new hardware addresses. False: it had no
/// more hops.
pub fn pass_on(frame: &mut [u8], from: Mac, to: Mac) -> bool {
    let packet = &mut frame[ETHERNET..];
    let hops = if packet[0] >> 4 == 4 { 8 } else { 7 };
    if packet[hops] <= 1 {
        return false;
    }
    packet[hops] -= 1;
    if packet[0] >> 4 == 4 {
        packet[10..12].fill(0);
        let head = usize::from(packet[0] & 0xf) * 4;
        let check = fold(sum(&packet[..head]));
        packet[10..12].copy_from_slice(&check.to_ne_bytes());
    }
    frame[..6].copy_from_slice(&to);
    frame[6..12].copy_from_slice(&from);
    true
}

/// A few bits that differ, as a rule, where frames do: the UDP checksum, which sums everything up,
/// and the length.
pub fn digest(frame: &[u8]) -> u64 {
    let at = match frame.get(12) {
        Some(0x86) => ETHERNET + IPV6,
        _ => ETHERNET + IPV4,
    };
    let udp = frame.get(at..at + UDP);
    let word = udp.map_or(0, |udp| u64::from_ne_bytes(udp.try_into().expect("8 bytes")));
    word ^ (frame.len() as u64) << 20
}

#[cfg(test)]
mod tests {
    use super::*;

    const MACS: [Mac; 2] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];

    fn frame(v6: bool, payload: &[u8]) -> (Vec<u8>, SocketAddr, SocketAddr) {
        let (from, to) = match v6 {
            false => ("10.0.1.1:4000", "10.0.2.1:7117"),
            true => ("[fd00:0:0:1::1]:4000", "[fd00:0:0:2::1]:7117"),
        };
        let (from, to) = (from.parse().unwrap(), to.parse().unwrap());
        let mut frame = Frame::default();
        write(&mut frame, MACS, from, to, payload);
        (frame.bytes().to_vec(), from, to)
    }

    #[test]
    fn what_is_written_is_read() {
        for v6 in [false, true] {
            for len in [0, 1, 2, 3, 63, 64, 1001, 1400] {
                let sent: Vec<u8> = (0..len).map(|i| (i * 7) as u8).collect();
                let (mut bytes, from, to) = frame(v6, &sent);
                let payload = &sent[..];
                let expected = Ok(Datagram { from, to, payload });
                assert_eq!(read(&bytes), expected);
                assert_eq!(destination(&bytes), Ok(to.ip()));
                assert!(pass_on(&mut bytes, MACS[1], MACS[0]));
                assert_eq!(read(&bytes), expected);
            }
        }
    }

    #[test]
    fn an_op_is_found_behind_either_address_family() {
        for v6 in [false, true] {
            let header = Header::new(Op::WriteRequest).to_bytes();
            assert_eq!(op(&frame(v6, &header).0), Some(Op::WriteRequest));
            assert_eq!(op(&frame(v6, b"another's").0), None);
        }
        assert_eq!(op(&[0; 14]), None);
    }

    #[test]
    fn no_flipped_bit_of_ip_addresses_udp_or_data_goes_unnoticed() {
        for v6 in [false, true] {
            let (bytes, ..) = frame(v6, b"some value");
            let first = if v6 { ETHERNET + 8 } else { ETHERNET };
            for bit in first * 8..bytes.len() * 8 {
                let mut flipped = bytes.clone();
                flipped[bit / 8] ^= 1 << (bit % 8);
                assert!(read(&flipped).is_err(), "bit {bit}");
            }
        }
    }

    #[test]
    fn the_checksum_is_the_one_of_the_rfc() {
        // RFC 1071, section 3: the sum of these is ddf2.
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(fold(sum(&bytes)).to_ne_bytes(), (!0xddf2_u16).to_be_bytes());
    }

    #[test]
    fn a_packet_ends_after_its_last_hop() {
        let (mut bytes, ..) = frame(false, b"x");
        let passed = (0..100).take_while(|_| pass_on(&mut bytes, MACS[0], MACS[1]));
        assert_eq!(passed.count(), usize::from(HOPS) - 1);
    }
}
