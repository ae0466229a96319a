//! Checksums that the sender's kernel left to a network card, which there was none of on the way.

/// Writes the Internet checksum of a frame's bytes from `start` on, `offset` behind `start`, where
/// its first part is already.
pub fn complete(frame: &mut [u8], start: usize, offset: usize) {
    let Some(bytes) = frame.get_mut(start..).filter(|bytes| offset + 2 <= bytes.len()) else {
        return;
    };
    let sum = match fold(sum(bytes)) {
        0 => 0xffff, // UDP's zero means that there is none.
        sum => sum,
    };
    bytes[offset..offset + 2].copy_from_slice(&sum.to_be_bytes());
}

/// The first part of a UDP checksum in IPv6: over both addresses, one behind the other, and the
/// length in bytes.
pub fn pseudo_header(addresses: &[u8], len: u16) -> u16 {
    !fold(sum(addresses) + u64::from(len) + libc::IPPROTO_UDP as u64)
}

fn sum(bytes: &[u8]) -> u64 {
    let words = bytes.chunks_exact(2);
    let odd = words.remainder().first().map_or(0, |byte| u64::from(*byte) << 8);
    words.map(|word| u64::from(u16::from_be_bytes([word[0], word[1]]))).sum::<u64>() + odd
}

fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_complete_sums_up_to_ones() {
        for len in [8, 9, 63] {
            let mut frame: Vec<u8> = (0..5 + len).map(|i| (i as u8).wrapping_mul(37)).collect();
            let first_part = sum(&frame[11..13]);
            complete(&mut frame, 5, 6);
            assert_eq!(fold(sum(&frame[5..]) + first_part), 0, "{len}");
        }
    }

    #[test]
    fn a_checksum_beyond_the_frame_is_left_out() {
        let mut frame = [7; 20];
        complete(&mut frame, 14, 5);
        complete(&mut frame, 21, 0);
        assert_eq!(frame, [7; 20]);
    }
}
