//! Ports as they stand in the tables: bytes of keys and values, struct by struct.

/// `struct bpf_devmap_val`: where to, and a program to run on what goes there.
pub(crate) fn devmap_value(ifindex: u32, program: Option<i32>) -> [u8; 8] {
    let mut value = [0; 8];
    value[..4].copy_from_slice(&ifindex.to_ne_bytes());
    value[4..].copy_from_slice(&program.unwrap_or(0).to_ne_bytes());
    value
}

/// `struct port_address`; of an interface without an address: nobody's place.
pub(crate) fn port_address(ifindex: u32, mac: Option<[u8; 6]>) -> [u8; 16] {
    let mut value = [0; 16];
    if let Some(mac) = mac {
        let mut word = [0; 8];
        word[..6].copy_from_slice(&mac);
        value[..8].copy_from_slice(&u64::from_le_bytes(word).to_ne_bytes());
        value[8..12].copy_from_slice(&ifindex.to_ne_bytes());
    }
    value
}

/// `struct port_name`.
pub(crate) fn port_name(name: &str) -> [u8; 16] {
    let mut value = [0; 16];
    for (to, from) in value.iter_mut().zip(name.bytes().take(15)) {
        *to = from;
    }
    value
}

/// `struct clone_key`.
pub(crate) fn clone_key(port: u32, round: u32) -> [u8; 8] {
    devmap_value(port, Some(round as i32))
}
