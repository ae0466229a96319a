//! What the packets of a tenant find on a switch.

use bytes::Bytes;

/// Parameter words of a tenant (`struct tenant`, `work->parameter` in `bpf/`).
pub const PARAMETERS: usize = 2;

/// What the packets of one tenant find on a switch besides its items. It is the whole of it: what
/// an earlier configuration had and this one has not, goes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Configuration {
    /// Copied into `work` with every packet of the tenant; what they mean is the discipline's
    /// affair.
    pub parameters: [u32; PARAMETERS],
    /// Rows of the discipline's own maps.
    pub rows: Vec<Row>,
    /// Groups of ports to fan out to.
    pub groups: Vec<Group>,
}

impl Configuration {
    /// Parameter words alone.
    pub fn of(parameters: [u32; PARAMETERS]) -> Configuration {
        Configuration { parameters, ..Configuration::default() }
    }
}

/// A row of a map that the discipline's C defines.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Row {
    /// The map's name.
    pub map: String,
    /// Exactly as many bytes as the map's keys have, in the order that the C reads. Tenants share
    /// the map: a key must be of one tenant only, which it is if it begins with the tenant's
    /// number.
    pub key: Bytes,
    /// Exactly as many bytes as the map's values have.
    pub value: Bytes,
}

/// Ports that a packet can be copied to at once (`fan_out` in `bpf/discipline.h`).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Group {
    /// The map of groups, which the C defines with `GROUPS`.
    pub map: String,
    /// Index of the group in it. Tenants share the map: an index is one tenant's.
    pub index: u32,
    /// Names of interfaces of the switch, each at most once.
    pub ports: Vec<String>,
}
