//! Ethernet, at most one VLAN tag, IPv4 or IPv6, UDP: written with right checksums, read back with
//! every checksum verified.

use std::net::{IpAddr, SocketAddr};

pub const MAC_HERE: [u8; 6] = [2, 0, 0, 0, 0, 1];
pub const MAC_THERE: [u8; 6] = [2, 0, 0, 0, 0, 2];
const ETHERNET: usize = 14;
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const VLAN: u16 = 0x8100;
const PROVIDER_VLAN: u16 = 0x88a8;
const UDP: u8 = 17;

/// A UDP datagram in its frame.
#[derive(Clone, Debug)]
pub struct Frame {
    pub vlan: Option<u16>,
    pub from: SocketAddr,
    pub to: SocketAddr,
    pub hop_limit: u8,
    /// Without one: zero, as UDP over IPv4 may have it.
    pub checksum: bool,
    /// A bit of its last byte is another than when the checksum was made.
    pub flipped: bool,
    /// The checksum is left to a device: the pseudo header's sum stands in its place.
    pub unfinished: bool,
    pub payload: Vec<u8>,
}

fn ones_complement(parts: &[&[u8]]) -> u16 {
    let mut sum = 0u64;
    let all: Vec<u8> = parts.concat();
    for pair in all.chunks(2) {
        sum += u64::from(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]));
    }
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    }
}

fn pseudo_header(from: IpAddr, to: IpAddr, datagram: &[u8]) -> Vec<u8> {
    let mut pseudo = [octets(from), octets(to)].concat();
    pseudo.extend((datagram.len() as u32).to_be_bytes());
    pseudo.extend(u32::from(UDP).to_be_bytes());
    pseudo
}

/// The checksum of a UDP header with payload: 0 for one that is right as it stands.
fn udp_sum(from: IpAddr, to: IpAddr, datagram: &[u8]) -> u16 {
    ones_complement(&[&pseudo_header(from, to, datagram), datagram])
}

/// Where the UDP header of a frame begins.
fn udp_at(frame: &[u8]) -> usize {
    let half = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
    let tagged = [VLAN, PROVIDER_VLAN].contains(&half(12));
    let l3 = if tagged { ETHERNET + 4 } else { ETHERNET };
    l3 + if half(l3 - 2) == IPV4 { 20 } else { 40 }
}

/// What is behind the UDP header of a frame, whatever its checksums.
pub fn payload(frame: &[u8]) -> &[u8] {
    &frame[udp_at(frame) + 8..]
}

/// Finishes the checksum as a device does that a socket left it to: sums from the UDP header on,
/// what stands in the checksum's place included.
pub fn finish(frame: &mut [u8]) {
    let l4 = udp_at(frame);
    let end = l4 + usize::from(u16::from_be_bytes([frame[l4 + 4], frame[l4 + 5]]));
    let sum = ones_complement(&[&frame[l4..end]]);
    let sum = if sum == 0 { 0xffff } else { sum };
    frame[l4 + 6..l4 + 8].copy_from_slice(&sum.to_be_bytes());
}

impl Frame {
    /// Whether its checksum, which is right, is the sum of the pseudo header too.
    pub fn seems_unfinished(&self) -> bool {
        let datagram = self.datagram();
        let pseudo = pseudo_header(self.from.ip(), self.to.ip(), &datagram);
        (!ones_complement(&[&pseudo])).to_be_bytes() == datagram[6..8]
    }

    fn datagram(&self) -> Vec<u8> {
        let mut datagram = Vec::new();
        datagram.extend(self.from.port().to_be_bytes());
        datagram.extend(self.to.port().to_be_bytes());
        datagram.extend(((8 + self.payload.len()) as u16).to_be_bytes());
        datagram.extend([0, 0]);
        datagram.extend(&self.payload);
        if self.checksum {
            let sum = udp_sum(self.from.ip(), self.to.ip(), &datagram);
            let sum = if sum == 0 { 0xffff } else { sum };
            datagram[6..8].copy_from_slice(&sum.to_be_bytes());
        }
        datagram
    }

    pub fn bytes(&self) -> Vec<u8> {
        let mut datagram = self.datagram();
        if self.unfinished {
            let pseudo = pseudo_header(self.from.ip(), self.to.ip(), &datagram);
            let sum = !ones_complement(&[&pseudo]);
            datagram[6..8].copy_from_slice(&sum.to_be_bytes());
        }
        if self.flipped {
            *datagram.last_mut().expect("it has a header") ^= 4;
        }
        let (proto, packet) = match self.from.ip() {
            IpAddr::V4(_) => (IPV4, self.ipv4(&datagram)),
            IpAddr::V6(_) => (IPV6, self.ipv6(&datagram)),
        };
        let mut out = [MAC_THERE, MAC_HERE].concat();
        if let Some(tag) = self.vlan {
            out.extend([VLAN.to_be_bytes(), tag.to_be_bytes()].concat());
        }
        out.extend(proto.to_be_bytes());
        out.extend(packet);
        out
    }

    fn ipv4(&self, datagram: &[u8]) -> Vec<u8> {
        let mut head = vec![0x45, 0];
        head.extend(((20 + datagram.len()) as u16).to_be_bytes());
        head.extend([0x12, 0x34, 0x40, 0, self.hop_limit, UDP, 0, 0]);
        head.extend([octets(self.from.ip()), octets(self.to.ip())].concat());
        let sum = ones_complement(&[&head]);
        head[10..12].copy_from_slice(&sum.to_be_bytes());
        [&head, datagram].concat()
    }

    fn ipv6(&self, datagram: &[u8]) -> Vec<u8> {
        let mut head = vec![0x60, 0, 0, 0];
        head.extend((datagram.len() as u16).to_be_bytes());
        head.extend([UDP, self.hop_limit]);
        head.extend([octets(self.from.ip()), octets(self.to.ip())].concat());
        [&head, datagram].concat()
    }
}

/// A frame as it came out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenFrame {
    pub to_mac: [u8; 6],
    pub from_mac: [u8; 6],
    pub vlan: Option<u16>,
    pub from: SocketAddr,
    pub to: SocketAddr,
    pub hop_limit: u8,
    pub checksum: u16,
    pub payload: Vec<u8>,
    /// Bytes behind the datagram.
    pub trailer: usize,
}

impl SeenFrame {
    /// Reads a frame; an error names the length or checksum that is wrong.
    pub fn read(frame: &[u8]) -> Result<SeenFrame, String> {
        let half = |at: usize| -> Result<u16, String> {
            let bytes = frame.get(at..at + 2).ok_or("frame ends early")?;
            Ok(u16::from_be_bytes([bytes[0], bytes[1]]))
        };
        let tagged = [VLAN, PROVIDER_VLAN].contains(&half(12)?);
        let l3 = if tagged { ETHERNET + 4 } else { ETHERNET };
        let (l4, end, from, to, hop_limit) = match half(l3 - 2)? {
            IPV4 => {
                let head = frame.get(l3..l3 + 20).ok_or("no IPv4 header")?;
                if ones_complement(&[head]) != 0 {
                    return Err("IPv4 header checksum is wrong".into());
                }
                let at = |at: usize| <[u8; 4]>::try_from(&head[at..at + 4]).expect("four bytes");
                let end = l3 + usize::from(half(l3 + 2)?);
                (l3 + 20, end, IpAddr::from(at(12)), IpAddr::from(at(16)), head[8])
            }
            IPV6 => {
                let head = frame.get(l3..l3 + 40).ok_or("no IPv6 header")?;
                let at = |at: usize| <[u8; 16]>::try_from(&head[at..at + 16]).expect("16 bytes");
                let end = l3 + 40 + usize::from(half(l3 + 4)?);
                (l3 + 40, end, IpAddr::from(at(8)), IpAddr::from(at(24)), head[7])
            }
            proto => return Err(format!("protocol {proto:#06x}: expected IPv4 or IPv6")),
        };
        let datagram = frame.get(l4..end).ok_or("IP length exceeds the frame")?;
        let udp_len = usize::from(half(l4 + 4)?);
        if udp_len != datagram.len() {
            return Err(format!("UDP length {udp_len}, but IP carries {}", datagram.len()));
        }
        let checksum = half(l4 + 6)?;
        if checksum == 0 && from.is_ipv6() {
            return Err("UDP over IPv6 without a checksum".into());
        }
        if checksum != 0 && udp_sum(from, to, datagram) != 0 {
            return Err(format!("UDP checksum {checksum:#06x} is wrong"));
        }
        Ok(SeenFrame {
            to_mac: frame[..6].try_into().expect("six bytes"),
            from_mac: frame[6..12].try_into().expect("six bytes"),
            vlan: if tagged { Some(half(14)?) } else { None },
            from: SocketAddr::new(from, half(l4)?),
            to: SocketAddr::new(to, half(l4 + 2)?),
            hop_limit,
            checksum,
            payload: datagram[8..].to_vec(),
            trailer: frame.len() - end,
        })
    }
}
