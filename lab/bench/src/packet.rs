//! Frames as the kernel's receive path would show them: Ethernet, IPv4, UDP. Requests have no
//! checksum, since others are made of them; what a store says has one, or it would not be kept.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use wire::{Header, Packet, Secret};

/// The client's address in test runs.
pub const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
/// The store's.
pub const STORE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

/// From the client to the store.
pub fn request(payload: &[u8]) -> Vec<u8> {
    frame(
        SocketAddr::new(CLIENT.into(), 40_001),
        SocketAddr::new(STORE.into(), wire::PORT),
        payload,
    )
}

/// From a store at `store` to anybody.
pub fn reply(store: IpAddr, payload: &[u8]) -> Vec<u8> {
    summed(frame(
        SocketAddr::new(store, wire::PORT),
        SocketAddr::new(CLIENT.into(), 40_001),
        payload,
    ))
}

/// The same frame with its UDP checksum.
pub fn summed(mut frame: Vec<u8>) -> Vec<u8> {
    let pseudo = [&frame[26..34], &[0, 17], &frame[38..40]].concat();
    // A sum of zero is sent as its other form: zero says that there is none.
    let check = match !sum(&[&pseudo, &frame[34..]].concat()) {
        0 => 0xffff,
        check => check,
    };
    frame[40..42].copy_from_slice(&check.to_be_bytes());
    frame
}

fn sum(bytes: &[u8]) -> u16 {
    let word = |pair: &[u8]| u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0));
    let sum: u32 = bytes.chunks(2).map(word).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    ((folded & 0xffff) + (folded >> 16)) as u16
}

/// One UDP datagram over IPv4 in its frame.
pub fn frame(from: SocketAddr, to: SocketAddr, payload: &[u8]) -> Vec<u8> {
    let octets = |address: SocketAddr| match address.ip() {
        IpAddr::V4(v4) => v4.octets(),
        IpAddr::V6(_) => [0; 4], // never asked for
    };
    let udp_len = 8 + payload.len() as u16;
    let mut ip = vec![0x45, 0];
    ip.extend((20 + udp_len).to_be_bytes());
    ip.extend([0x12, 0x34, 0x40, 0, 64, 17, 0, 0]);
    ip.extend([octets(from), octets(to)].concat());
    let check = !sum(&ip);
    ip[10..12].copy_from_slice(&check.to_be_bytes());
    let mut out = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];
    out.extend(ip);
    out.extend([from.port().to_be_bytes(), to.port().to_be_bytes()].concat());
    out.extend([udp_len.to_be_bytes(), [0, 0]].concat());
    out.extend(payload);
    out
}

/// A packet of the protocol, padded with zeros to the room that `value_len` bytes of value
/// would take.
///
/// # Errors
/// A key or value of an impossible length.
pub fn payload(
    header: Header,
    key: &[u8],
    value: &[u8],
    value_len: usize,
    secret: &Secret,
) -> anyhow::Result<Vec<u8>> {
    let mut bytes = vec![];
    Packet::new(header, key, value).encode(secret, &mut bytes)?;
    bytes.resize(wire::HEADER_LEN + key.len() + value_len.max(value.len()), 0);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checksum_is_never_zero() {
        let frame = |last: u16| {
            let payload = [&[0; 8][..], &last.to_be_bytes()].concat();
            let (from, to) = (SocketAddr::from((CLIENT, 1)), SocketAddr::from((STORE, 2)));
            summed(super::frame(from, to, &payload))
        };
        let check = |frame: &[u8]| u16::from_be_bytes([frame[40], frame[41]]);
        // What the sum of the rest lacks makes it one whose complement is zero.
        let last = check(&frame(0));
        assert_eq!(check(&frame(last)), 0xffff);
        assert_eq!(check(&frame(last - 1)), 1);
    }
}
