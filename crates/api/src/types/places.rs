//! Places of clients: prefixes, where a lone address stands for itself.

use ipnet::IpNet;
use serde::{Deserialize, Deserializer, Serializer, de::Error};

fn parse<E: Error>(text: &str) -> Result<IpNet, E> {
    text.parse().or_else(|_| text.parse::<std::net::IpAddr>().map(IpNet::from)).map_err(|_| {
        let shown: String = text.chars().take(64).collect();
        E::custom(format!(
            "{shown:?} is neither an address nor a prefix; expected for example 10.0.1.0/24"
        ))
    })
}

fn show(place: &IpNet) -> String {
    if place.prefix_len() == place.max_prefix_len() {
        place.addr().to_string()
    } else {
        place.to_string()
    }
}

pub fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<IpNet>, D::Error> {
    let texts = Vec::<String>::deserialize(from)?;
    texts.iter().map(|text| parse(text)).collect()
}

pub fn read_some<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Vec<IpNet>>, D::Error> {
    let texts = Option::<Vec<String>>::deserialize(from)?;
    texts.map(|texts| texts.iter().map(|text| parse(text)).collect()).transpose()
}

pub fn write<S: Serializer>(places: &[IpNet], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(places.iter().map(show))
}

// serde hands over the field as it is.
#[allow(clippy::ref_option)]
pub fn write_some<S: Serializer>(places: &Option<Vec<IpNet>>, to: S) -> Result<S::Ok, S::Error> {
    match places {
        Some(places) => write(places, to),
        None => to.serialize_none(),
    }
}
