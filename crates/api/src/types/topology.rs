//! Switches, the links between them and the networks behind them.

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A topology as it is declared, in JSON or TOML.
///
/// ```toml
/// [[switch]]
/// id = 1
/// name = "left"
/// [[switch]]
/// id = 2
/// name = "right"
/// [[link]]
/// a = 1
/// b = 2
/// [[network]]
/// prefix = "10.0.1.0/24"
/// switch = 1
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(example = json!({
    "switch": [{"id": 1, "name": "left"}, {"id": 2, "name": "right"}],
    "link": [{"a": 1, "b": 2}],
    "network": [{"prefix": "10.0.1.0/24", "switch": 1}],
}))]
pub struct TopologySpec {
    /// The switches.
    #[serde(rename = "switch")]
    #[schema(max_items = 1000)]
    pub switches: Vec<SwitchSpec>,
    /// The links between them. What is declared stands beside what switches report; an empty
    /// topology declares nothing.
    #[serde(rename = "link")]
    #[schema(max_items = 1000)]
    pub links: Vec<LinkSpec>,
    /// Where hosts are.
    #[serde(rename = "network")]
    #[schema(max_items = 1000)]
    pub networks: Vec<NetworkSpec>,
}

/// A switch of a topology.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SwitchSpec {
    /// Number, 1 to 32767.
    #[schema(minimum = 1)]
    pub id: u16,
    /// What lists call it until its agent says its own name.
    #[serde(default)]
    #[schema(max_length = 64)]
    pub name: String,
}

/// A link between two switches, used in both directions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LinkSpec {
    /// One switch.
    pub a: u16,
    /// The other one.
    pub b: u16,
    /// What a path over it costs, at least 1 [default: 1].
    #[serde(default = "one")]
    #[schema(minimum = 1)]
    pub cost: u32,
}

fn one() -> u32 {
    1
}

/// Hosts behind a switch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NetworkSpec {
    /// Their addresses, as `10.0.1.0/24`.
    #[schema(value_type = String, example = "10.0.1.0/24")]
    pub prefix: IpNet,
    /// The switch that they are behind.
    pub switch: u16,
}

/// The topology in force: what was declared and what switches report.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TopologyView {
    /// Somebody declared (parts of) it; otherwise it was learned alone.
    pub declared: bool,
    /// The switches.
    pub switches: Vec<super::SwitchView>,
    /// The links.
    pub links: Vec<LinkView>,
    /// Where hosts are: prefixes that were declared, and subnets that one switch alone has an
    /// address on.
    pub networks: Vec<NetworkView>,
}

/// Hosts behind a switch, as far as is known.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct NetworkView {
    /// Their addresses, as `10.0.1.0/24`.
    #[schema(value_type = String, example = "10.0.1.0/24")]
    pub prefix: IpNet,
    /// The switch that they are behind.
    pub switch: u16,
    /// It was declared; otherwise it was learned from the addresses of the switch.
    pub declared: bool,
}

/// A link as it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LinkView {
    /// One switch.
    pub a: u16,
    /// The other switch.
    pub b: u16,
    /// What a path over it costs.
    pub cost: u32,
    /// Both ends have carrier and answer each other's probes, as far as their switches told. A
    /// switch whose agent is away still forwards.
    pub up: bool,
    /// It was declared; otherwise it was learned from the addresses of the switches.
    pub declared: bool,
}
