//! Links of switches to interfaces, pinned so that they outlive their agents.

use std::{
    collections::BTreeSet,
    fs, io,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
    path::{Path, PathBuf},
};

use libbpf_rs::{
    libbpf_sys::{self, bpf_xdp_query_opts},
    query::{ProgInfoIter, ProgInfoQueryOptions},
};

use super::interface::{name_of, xdp_of};
use crate::{
    Error,
    layout::RECIRCULATION_PORTS,
    maps::bpffs::{Home, without_dots},
};

/// Where a link is pinned.
pub(crate) fn link_path(home: &Home, interface: &str, ifindex: u32) -> PathBuf {
    let name = without_dots(interface);
    home.links().join(format!("{name}-{ifindex}"))
}

pub(crate) fn open_pinned(path: &Path) -> Option<OwnedFd> {
    let text = std::ffi::CString::new(path.to_str()?).ok()?;
    // SAFETY: a valid C string.
    let fd = unsafe { libbpf_sys::bpf_obj_get(text.as_ptr()) };
    // SAFETY: a new descriptor that nobody else owns.
    (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The interface that a link is still attached to; `None` when the interface has gone.
pub(crate) fn link_ifindex(link: &OwnedFd) -> Option<u32> {
    let (ifindex, _) = link_info(link)?;
    (ifindex != 0).then_some(ifindex)
}

/// A link's interface, 0 when it has gone, and the id of its program.
pub(crate) fn link_info(link: &OwnedFd) -> Option<(u32, u32)> {
    // SAFETY: an all-zero bpf_link_info is what the kernel expects to fill.
    let mut info: libbpf_sys::bpf_link_info = unsafe { std::mem::zeroed() };
    let mut len = size_of_val(&info) as u32;
    // SAFETY: `info` has `len` bytes.
    let failed = unsafe {
        libbpf_sys::bpf_obj_get_info_by_fd(link.as_raw_fd(), (&raw mut info).cast(), &mut len)
    };
    if failed != 0 {
        return None;
    }
    // SAFETY: XDP links are the only ones that are pinned here.
    let ifindex = unsafe { info.__bindgen_anon_1.xdp.ifindex };
    Some((ifindex, info.prog_id))
}

pub(crate) fn pin(link: &OwnedFd, path: &Path) -> Result<(), Error> {
    let text = std::ffi::CString::new(path.to_string_lossy().as_bytes()).expect("no NUL in a path");
    // SAFETY: a valid descriptor and C string.
    if unsafe { libbpf_sys::bpf_obj_pin(link.as_raw_fd(), text.as_ptr()) } != 0 {
        return Err(Error::file("pinning the link at", path)(io::Error::last_os_error()));
    }
    Ok(())
}

/// The links of a switch that are still attached: interface when attached, index, descriptor.
pub(crate) fn live_links(home: &Home) -> Vec<(String, u32, OwnedFd)> {
    let entries = fs::read_dir(home.links()).into_iter().flatten().flatten();
    let live = |entry: fs::DirEntry| {
        let link = open_pinned(&entry.path())?;
        let ifindex = link_ifindex(&link)?;
        let name = entry.file_name().into_string().ok()?;
        let (name, _) = name.rsplit_once('-')?;
        Some((name.replace(':', "."), ifindex, link))
    };
    entries.filter_map(live).collect()
}

/// The ids of the maps that the programs of a switch's links work with, of those that are still
/// attached.
pub(crate) fn maps_in_use(home: &Home) -> BTreeSet<u32> {
    let links = fs::read_dir(home.links()).into_iter().flatten().flatten();
    let rounds = (0..RECIRCULATION_PORTS).map(|number| home.recirculation(number));
    let paths = links.map(|link| link.path()).chain(rounds);
    let infos = paths.filter_map(|path| link_info(&open_pinned(&path)?));
    let attached = infos.filter(|(ifindex, _)| *ifindex != 0);
    let programs: BTreeSet<u32> = attached.map(|(_, program)| program).collect();
    let all = ProgInfoIter::with_query_opts(ProgInfoQueryOptions::default().include_map_ids(true));
    all.filter(|info| programs.contains(&info.id)).flat_map(|info| info.map_ids).collect()
}

/// Whether a link is attached to an interface of this process's network namespace. The index alone
/// does not say it: others number theirs alike.
pub(crate) fn is_here(link: &OwnedFd) -> bool {
    let Some((ifindex, program)) = link_info(link) else { return false };
    let runs_it = |here: bpf_xdp_query_opts| {
        [here.prog_id, here.drv_prog_id, here.skb_prog_id, here.hw_prog_id].contains(&program)
    };
    name_of(ifindex).is_some() && xdp_of(ifindex).is_none_or(runs_it)
}

/// The ids of the programs that a switch's links run on interfaces of this index.
pub(crate) fn programs_at(home: &Home, ifindex: u32) -> impl Iterator<Item = u32> {
    let links = live_links(home).into_iter();
    let infos = links.filter_map(|(_, _, link)| link_info(&link));
    infos.filter_map(move |(there, program)| (there == ifindex).then_some(program))
}

/// The interfaces that a switch is attached to now, as (name when attached, index).
pub fn attached(home: &Home) -> Vec<(String, u32)> {
    let mut found: Vec<(String, u32)> =
        live_links(home).into_iter().map(|(name, ifindex, _)| (name, ifindex)).collect();
    found.sort();
    found
}
