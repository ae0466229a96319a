//! Numbers that look random and can be computed again: seeds of sketches, order among switches, the
//! length of a wait.

/// A number that looks drawn, and follows from this one (the finalizer of SplitMix64).
pub fn mixed(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}
