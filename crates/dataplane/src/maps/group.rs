//! Groups of ports, in the kernel: each is a map of ports inside a map of groups, and is replaced
//! whole. What is sent to a group leaves by each of its ports.

use std::os::fd::{AsFd, AsRawFd};

use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType, libbpf_sys};

use super::port_bytes::{clone_key, devmap_value};
use crate::{
    Error,
    layout::{GROUP_PORTS, RECIRCULATION_PORTS},
    writes::about_to_write,
};

/// Whether a map of so many groups can have this one with so many ports.
pub(crate) fn check(name: &str, index: u32, groups: u32, ports: usize) -> Result<(), Error> {
    if index >= groups {
        return Err(Error::row(name, format!("group {index} of {groups}")));
    }
    if ports > GROUP_PORTS {
        let most = format!("{ports} ports in a group, expected at most {GROUP_PORTS}");
        return Err(Error::row(name, most));
    }
    Ok(())
}

/// A map of ports to copy packets to, with so many places.
fn make(ports: &[u32], places: usize, egress: Option<i32>) -> Result<MapHandle, Error> {
    let opts = libbpf_sys::bpf_map_create_opts {
        sz: size_of::<libbpf_sys::bpf_map_create_opts>() as u64,
        ..Default::default()
    };
    let group = MapHandle::create(MapType::Devmap, Some("group"), 4, 8, places as u32, &opts)
        .map_err(Error::bpf("making a group of ports"))?;
    for (place, port) in (0u32..).zip(ports) {
        let value = devmap_value(*port, egress);
        group
            .update(&place.to_ne_bytes(), &value, MapFlags::ANY)
            .map_err(Error::bpf(format!("adding interface {port} to a group of ports")))?;
    }
    Ok(group)
}

/// Ports whose pairs are set by one call: as many descriptors are open, times the numbers.
const PORTS_AT_ONCE: usize = 16;

/// Says where a packet goes that leaves by one of `ports` and is sent round: by which of `rounds`,
/// for each number of a recirculation port. By few calls: at the end of each the kernel waits until
/// no program runs that began before.
pub(crate) fn set_clones(
    clones: &impl MapCore,
    ports: &[u32],
    rounds: &[u32],
) -> Result<(), Error> {
    if rounds.is_empty() {
        return Ok(());
    }
    for ports in ports.chunks(PORTS_AT_ONCE) {
        let (mut keys, mut values, mut pairs) = (vec![], vec![], vec![]);
        for port in ports {
            for (number, round) in (0..RECIRCULATION_PORTS).zip(rounds.iter().cycle()) {
                let pair = make(&[*port, *round], 2, None)?;
                keys.extend(clone_key(*port, number));
                values.extend(pair.as_fd().as_raw_fd().to_ne_bytes());
                pairs.push(pair);
            }
        }
        clones
            .update_batch(&keys, &values, pairs.len() as u32, MapFlags::ANY, MapFlags::ANY)
            .map_err(Error::bpf(format!("cloning to interfaces {ports:?}")))?;
    }
    Ok(())
}

/// Removes these keys' pairs, which are there, by one call for the same reason.
pub(crate) fn remove_clones(clones: &impl MapCore, keys: impl Iterator<Item = Vec<u8>>) {
    let keys: Vec<Vec<u8>> = keys.collect();
    if !keys.is_empty() {
        let count = keys.len() as u32;
        let _ = clones.delete_batch(&keys.concat(), count, MapFlags::ANY, MapFlags::ANY);
    }
}

/// Puts a map of these ports in the place of the group's.
pub(crate) fn set(
    groups: &MapHandle,
    name: &str,
    index: u32,
    ports: &[u32],
    egress: Option<i32>,
) -> Result<(), Error> {
    if groups.map_type() != MapType::ArrayOfMaps {
        return Err(Error::row(name, "it is no map of groups"));
    }
    check(name, index, groups.max_entries(), ports.len())?;
    about_to_write();
    let key = index.to_ne_bytes();
    if ports.is_empty() {
        return match groups.delete(&key) {
            Err(error) if error.kind() != libbpf_rs::ErrorKind::NotFound => {
                Err(Error::bpf("removing a group of ports")(error))
            }
            _ => Ok(()),
        };
    }
    let group = make(ports, GROUP_PORTS, egress)?;
    groups
        .update(&key, &group.as_fd().as_raw_fd().to_ne_bytes(), MapFlags::ANY)
        .map_err(Error::bpf("setting a group of ports"))
}
