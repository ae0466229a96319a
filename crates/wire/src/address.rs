//! Addresses as the cluster file has them, for serde: an error says what was expected of each.
//!
//! Names are no addresses here. A store is known by its address (its answers must come from there,
//! and its number follows from its place in the file), which a name would give one machine in
//! another way than the next, or tomorrow.

use std::{
    net::{IpAddr, SocketAddr},
    str::FromStr,
};

use serde::{Deserialize, Deserializer, de::Error};

/// An address of one of these kinds.
pub trait Address: FromStr {
    /// What its text must be.
    const EXPECTED: &'static str;
}

impl Address for SocketAddr {
    const EXPECTED: &'static str = "IP:PORT, such as \"10.0.2.1:7117\" or \"[fd00::1]:7117\"";
}

impl Address for IpAddr {
    const EXPECTED: &'static str = "an IP address, such as \"10.0.1.254\" or \"fd00::1\"";
}

fn parse<A: Address, E: Error>(text: &str) -> Result<A, E> {
    let wrong =
        |_| E::custom(format!("{text:?}: expected {}; names are not looked up here", A::EXPECTED));
    text.parse().map_err(wrong)
}

/// One address.
///
/// # Errors
/// It is none.
pub fn one<'de, A: Address, D: Deserializer<'de>>(from: D) -> Result<A, D::Error> {
    parse(&String::deserialize(from)?)
}

/// A list of them.
///
/// # Errors
/// One of them is none.
pub fn list<'de, A: Address, D: Deserializer<'de>>(from: D) -> Result<Vec<A>, D::Error> {
    Vec::<String>::deserialize(from)?.iter().map(|text| parse(text)).collect()
}
