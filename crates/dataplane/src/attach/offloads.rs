//! What a driver must not do to packets before the programs see them; done again once the switch is
//! detached.

use std::{ffi::CStr, fs};

use super::interface::{ethtool, name_of};
use crate::maps::bpffs::Home;

/// Takes tags of VLANs out of packets: hosts of different VLANs would be in one network.
const TAKE_TAGS_OFF: [&str; 2] = ["rx-vlan-hw-parse", "rx-vlan-stag-hw-parse"];
/// Joins datagrams before generic programs see them, which would take several for one.
const JOIN_DATAGRAMS: [&str; 2] = ["rx-udp-gro-forwarding", "rx-gro-list"];

/// Turns such features of an interface off, and notes which were on. False: it keeps on taking
/// tags off.
pub(crate) fn turn_off(home: &Home, interface: &str, ifindex: u32, generic: bool) -> bool {
    let names = feature_names(interface);
    let joins = JOIN_DATAGRAMS.iter().filter(|_| generic);
    for feature in TAKE_TAGS_OFF.iter().chain(joins) {
        let place = names.iter().position(|name| name == feature);
        if let Some(place) = place.filter(|place| is_on(interface, *place, names.len())) {
            // Before it is off, so that a crash in between loses nothing.
            let _ = fs::create_dir(home.offload(feature, interface, ifindex));
            set(interface, place, names.len(), false);
        }
    }
    let takes_off = |name: &str| TAKE_TAGS_OFF.contains(&name);
    let mut places = (0..names.len()).filter(|place| takes_off(&names[*place]));
    places.all(|place| !is_on(interface, place, names.len()))
}

/// Turns on what was turned off of an interface that had this name then, unless it is there no
/// longer.
pub(crate) fn restore(home: &Home, interface: &str, ifindex: u32) {
    let now = name_of(ifindex);
    let names = now.as_deref().map(feature_names).unwrap_or_default();
    for feature in TAKE_TAGS_OFF.iter().chain(&JOIN_DATAGRAMS) {
        let place = names.iter().position(|name| name == feature);
        let was_on = fs::remove_dir(home.offload(feature, interface, ifindex)).is_ok();
        if let Some((place, now)) = place.filter(|_| was_on).zip(now.as_deref()) {
            set(now, place, names.len(), true);
        }
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn request(words: &[u32], rest: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    bytes.resize(bytes.len() + rest, 0);
    bytes
}

/// The features that a driver knows, by their numbers.
fn feature_names(interface: &str) -> Vec<String> {
    const ETHTOOL_GSSET_INFO: u32 = 0x37;
    const ETHTOOL_GSTRINGS: u32 = 0x1b;
    const ETH_SS_FEATURES: u32 = 4;
    const NAME_BYTES: usize = 32;
    // `struct ethtool_sset_info`: a word, a reserved one, a mask of 64 bits, and for each set asked
    // for how many it has.
    let mut info = request(&[ETHTOOL_GSSET_INFO, 0, 1 << ETH_SS_FEATURES, 0], 4);
    if ethtool(interface, &mut info).is_none() {
        return vec![];
    }
    let count = word(&info, 16);
    // `struct ethtool_gstrings`.
    let mut strings =
        request(&[ETHTOOL_GSTRINGS, ETH_SS_FEATURES, count], count as usize * NAME_BYTES);
    if ethtool(interface, &mut strings).is_none() {
        return vec![];
    }
    let name = |bytes: &[u8]| {
        let name = CStr::from_bytes_until_nul(bytes).unwrap_or_default();
        name.to_string_lossy().into_owned()
    };
    strings[12..].chunks(NAME_BYTES).map(name).collect()
}

/// Whether a feature of so many is in force.
fn is_on(interface: &str, feature: usize, features: usize) -> bool {
    const ETHTOOL_GFEATURES: u32 = 0x3a;
    const ACTIVE_AT: usize = 8;
    let blocks = features.div_ceil(32);
    // `struct ethtool_gfeatures`: of each 32 features what can be, is wanted, is active,
    // never changes.
    let mut answer = request(&[ETHTOOL_GFEATURES, blocks as u32], blocks * 16);
    let block = 8 + feature / 32 * 16;
    ethtool(interface, &mut answer).is_some()
        && word(&answer, block + ACTIVE_AT) & 1 << (feature % 32) != 0
}

fn set(interface: &str, feature: usize, features: usize, on: bool) {
    const ETHTOOL_SFEATURES: u32 = 0x3b;
    let blocks = features.div_ceil(32);
    // `struct ethtool_sfeatures`: of each 32 features which are told, and how they are to be.
    let mut words = vec![ETHTOOL_SFEATURES, blocks as u32];
    for block in 0..blocks {
        let told = if block == feature / 32 { 1 << (feature % 32) } else { 0 };
        words.extend([told, if on { told } else { 0 }]);
    }
    // What a driver refuses is seen where it is asked again.
    let _ = ethtool(interface, &mut request(&words, 0));
}
