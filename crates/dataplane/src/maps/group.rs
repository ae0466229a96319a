//! Groups of ports, in the kernel: each is a map of ports inside a map of groups, and is replaced
//! whole. What is sent to a group leaves by each of its ports.

use std::os::fd::{AsFd, AsRawFd};

use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType, libbpf_sys};

use super::port_bytes::{clone_key, devmap_value};
use crate::{Error, layout::GROUP_PORTS, writes::about_to_write};

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

/// Says where a packet goes that leaves by `port` and is sent round by the recirculation port
/// `round` of number `number`.
pub(crate) fn set_clone(
    clones: &impl MapCore,
    port: u32,
    number: u32,
    round: u32,
) -> Result<(), Error> {
    let pair = make(&[port, round], 2, None)?;
    let pair = pair.as_fd().as_raw_fd().to_ne_bytes();
    clones
        .update(&clone_key(port, number), &pair, MapFlags::ANY)
        .map_err(Error::bpf(format!("cloning to interface {port}")))
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
