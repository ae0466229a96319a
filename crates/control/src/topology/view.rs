//! The topology as the API shows it.

use decide::SwitchId;
use ipnet::IpNet;

/// Where a part of the topology is known from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// From the topology file, which wins over what is learned.
    Declared,
    /// From the switches' interfaces.
    Learned,
}

/// All of it, sorted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TopologyView {
    /// Switches by id.
    pub switches: Vec<SwitchView>,
    /// Links by their ends.
    pub links: Vec<LinkView>,
}

/// A switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwitchView {
    /// Its number.
    pub id: SwitchId,
    /// Its name.
    pub name: String,
    /// Where it is known from.
    pub source: Source,
    /// Subnets that it is connected to, down ones too.
    pub subnets: Vec<IpNet>,
}

/// A link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkView {
    /// Names of its ends.
    pub ends: [String; 2],
    /// What it costs to cross it.
    pub cost: u32,
    /// Whether it carries packets, as far as is known.
    pub up: bool,
    /// Where it is known from.
    pub source: Source,
}
