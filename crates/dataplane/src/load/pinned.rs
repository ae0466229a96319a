//! Maps that are pinned: what an earlier agent left is taken over as it is, if this build has
//! it so.

use std::{path::PathBuf, sync::atomic::Ordering::Relaxed};

use libbpf_rs::{MapCore, MapHandle, OpenMapMut, OpenObject};

use super::sizes::{self, Sizes};
use crate::{
    Error,
    layout::{Config, LAYOUT},
    maps::{bpffs::Home, mapped::SharedArray, sketch::PIPES, tally::TALLIES},
};

/// Maps that belong to one loading. Programs of different loadings do not meet there: what is
/// loaded already keeps its own until the last link runs what is loaded now.
pub(crate) const OF_ONE_LOADING: [&str; 3] = ["work_area", "programs", "known_tenants"];
pub(crate) const TENANTS: &str = "tenants";
/// Maps that only count: made anew where their layout changed.
const STATISTICS: [&str; 5] = ["counters", "hits", "sketches", PIPES, TALLIES];

/// The names of an object's maps that are pinned; sections of constants are not.
pub(crate) fn pinned_maps(open: &OpenObject) -> Vec<String> {
    let names = open.maps().map(|map| map.name().to_string_lossy().into_owned());
    names.filter(|name| !name.contains('.')).collect()
}

/// Sizes an object's maps and says where they are pinned. Nothing in the kernel changes. Pins that
/// must go before it is loaded are added to `stale`.
pub(crate) fn configure(
    home: &Home,
    open: &mut OpenObject,
    sizes: Sizes,
    own: &[(&str, u32)],
    stale: &mut Vec<PathBuf>,
) -> Result<(), Error> {
    for mut map in open.maps_mut() {
        sizes::give(&mut map, sizes, own)?;
        let name = map.name().to_string_lossy().into_owned();
        if name.contains('.') {
            continue;
        }
        map.set_pin_path(home.map(&name)).map_err(Error::bpf(format!("pinning map {name}")))?;
        if !layout_is_ours(home, &name, &map)? {
            stale.push(home.map(&name));
        }
    }
    Ok(())
}

/// Whether a map is as this build has it, if it is pinned already: only one that counts may be
/// otherwise.
fn layout_is_ours(home: &Home, name: &str, map: &OpenMapMut<'_>) -> Result<bool, Error> {
    let path = home.map(name);
    if !path.exists() || OF_ONE_LOADING.contains(&name) {
        return Ok(true);
    }
    let pinned =
        MapHandle::from_pinned_path(&path).map_err(Error::bpf(format!("opening map {name}")))?;
    let found = (pinned.map_type(), pinned.key_size(), pinned.value_size(), pinned.max_entries());
    let wanted = (map.map_type(), map.key_size(), map.value_size(), map.max_entries());
    if found == wanted || STATISTICS.contains(&name) {
        return Ok(found == wanted);
    }
    let words = |(kind, key, value, entries)| {
        format!("{kind:?} of {entries} entries, keys of {key} and values of {value} bytes")
    };
    Err(Error::OtherLayout {
        name: home.name().into(),
        reason: format!("{name}: {}, expected {}", words(found), words(wanted)),
    })
}

/// A layout may have changed under its name and size: the number in the configuration, which an
/// agent has written, tells.
pub(crate) fn refuse_other_layouts(home: &Home) -> Result<(), Error> {
    if !home.map("config").exists() {
        return Ok(());
    }
    let config: SharedArray<Config> = SharedArray::open(home, "config")?;
    let config = config.at(0);
    match (config.switch_id.load(Relaxed), config.layout.load(Relaxed)) {
        (0, _) | (_, LAYOUT) => Ok(()),
        _ => Err(Error::OtherLayout {
            name: home.name().into(),
            reason: "another build wrote them".into(),
        }),
    }
}
