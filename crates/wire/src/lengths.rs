//! Lengths of values in experiments, as command lines and files state them.
//!
//! The load generator, the simulator and whoever fills a store for them ask here, each by itself,
//! how long the value of a key is: it follows from the key's hash, so all agree without a table.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::KeyHash;

/// How long the values are that a store is filled with and load asks for, in bytes: one length for
/// all, or several, of which each key's hash chooses one. As text `128`, or `64x82,1024x18`
/// (lengths with their weights), `64x82,1024x18@7` for another choice.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Lengths {
    /// The same for all.
    One(usize),
    /// Some.
    Mix {
        /// Lengths, each with its weight.
        mix: Vec<(usize, f64)>,
        /// Another salt is another choice for each key.
        #[serde(default)]
        salt: u64,
    },
}

impl Lengths {
    /// The length of the value of the key with this hash.
    #[inline]
    pub fn of(&self, hash: KeyHash) -> usize {
        match self {
            Lengths::One(len) => *len,
            Lengths::Mix { mix, salt } => {
                let sum: f64 = mix.iter().map(|(_, weight)| weight).sum();
                let mut point = part(hash, *salt) * sum;
                let chosen = mix.iter().find(|(_, weight)| {
                    point -= weight;
                    point < 0.0
                });
                chosen.or(mix.last()).map_or(0, |(len, _)| *len)
            }
        }
    }

    /// The longest.
    pub fn longest(&self) -> usize {
        match self {
            Lengths::One(len) => *len,
            Lengths::Mix { mix, .. } => mix.iter().map(|(len, _)| *len).max().unwrap_or(0),
        }
    }

    /// The same lengths, chosen otherwise.
    pub fn salted(&self, salt: u64) -> Lengths {
        match self {
            Lengths::One(len) => Lengths::One(*len),
            Lengths::Mix { mix, .. } => Lengths::Mix { mix: mix.clone(), salt },
        }
    }
}

/// A number from 0 to 1 that follows from a hash. Partitions are chosen by the hash's other half.
#[inline]
fn part(hash: KeyHash, salt: u64) -> f64 {
    let mut mixed = hash.low() ^ salt.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for factor in [0xff51_afd7_ed55_8ccd, 0xc4ce_b9fe_1a85_ec53] {
        mixed = (mixed ^ mixed >> 33).wrapping_mul(factor);
    }
    ((mixed ^ mixed >> 33) >> 11) as f64 / (1u64 << 53) as f64
}

impl From<usize> for Lengths {
    fn from(len: usize) -> Lengths {
        Lengths::One(len)
    }
}

impl FromStr for Lengths {
    type Err = String;

    fn from_str(text: &str) -> Result<Lengths, String> {
        if let Ok(len) = text.parse() {
            return Ok(Lengths::One(len));
        }
        let (all, salt) = text.split_once('@').unwrap_or((text, "0"));
        let one = |text: &str| {
            let (len, weight) = text.split_once('x')?;
            let weight: f64 = weight.parse().ok()?;
            Some((len.parse().ok()?, weight)).filter(|_| weight > 0.0 && weight.is_finite())
        };
        let mix: Option<Vec<(usize, f64)>> = all.split(',').map(one).collect();
        match (mix, salt.parse()) {
            (Some(mix), Ok(salt)) => Ok(Lengths::Mix { mix, salt }),
            _ => Err(format!(
                "lengths {text:?}: expected a number of bytes, or several with weights, for example 64x82,1024x18"
            )),
        }
    }
}

impl fmt::Display for Lengths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Lengths::One(len) => write!(f, "{len}"),
            Lengths::Mix { mix, salt } => {
                let all: Vec<String> = mix.iter().map(|(len, w)| format!("{len}x{w}")).collect();
                write!(f, "{}@{salt}", all.join(","))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Secret, partition_of};

    #[test]
    fn each_key_has_one_length_and_all_together_follow_the_weights() {
        let lengths: Lengths = "64x82,1024x18".parse().unwrap();
        let other = lengths.salted(1);
        let hash = |i: u32| Secret::NONE.key_hash(0, &i.to_be_bytes());
        let large = |of: &Lengths| (0..50_000).filter(|i| of.of(hash(*i)) == 1024).count();
        for of in [&lengths, &other] {
            assert!((8_700..9_300).contains(&large(of)), "{}", large(of));
        }
        let both =
            (0..50_000).filter(|i| [&lengths, &other].iter().all(|of| of.of(hash(*i)) == 1024));
        assert!((1_400..1_850).contains(&both.count()), "salts choose alike");
        let here =
            (0..50_000).filter(|i| partition_of(hash(*i), 32) == 3 && lengths.of(hash(*i)) == 1024);
        assert!((220..345).contains(&here.count()), "a partition has other lengths");
        assert_eq!(lengths.longest(), 1024);
    }

    #[test]
    fn text_and_toml_say_the_same() {
        for text in ["128", "64x82,1024x18@0", "64x0.5,1024x0.5@7"] {
            let read: Lengths = text.parse().unwrap();
            assert_eq!(read.to_string(), text);
        }
        #[derive(Deserialize)]
        struct File {
            len: Lengths,
        }
        let read: File = toml::from_str("len = 128").unwrap();
        assert_eq!(read.len, Lengths::One(128));
        let read: File = toml::from_str("len = { mix = [[64, 82], [1024, 18.0]] }").unwrap();
        assert_eq!(read.len, "64x82,1024x18".parse().unwrap());
        for wrong in ["", "x", "64x", "64x0", "64x1,", "64x1@y", "-1"] {
            assert!(wrong.parse::<Lengths>().is_err(), "{wrong}");
        }
    }
}
