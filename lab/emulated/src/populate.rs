//! Keys that are there from the start.

use std::{io::Write, str::FromStr};

use anyhow::Context;
use bytes::Bytes;
use store::backend::{Answer, Backend, Change, Key, Put};
use wire::{Cluster, KeyHash, Lengths, Secret};

/// The keys that labs and benchmarks read: key `i` of `count` is `key` and thirteen digits, its
/// value the key's bytes over and over, as long as `value_len` has it for the key.
#[derive(Clone, Debug, PartialEq)]
pub struct Populate {
    /// Number of keys.
    pub count: u64,
    /// Lengths of the values, in bytes.
    pub value_len: Lengths,
}

impl FromStr for Populate {
    type Err = String;

    fn from_str(text: &str) -> Result<Populate, String> {
        let parsed = text.split_once(':').and_then(|(count, len)| {
            Some(Populate { count: count.parse().ok()?, value_len: len.parse().ok()? })
        });
        parsed.ok_or_else(|| {
            format!("populate {text:?}: expected ITEMS:VALUE_LEN, for example 1000:128")
        })
    }
}

impl Populate {
    /// Writes those keys of the open tenant that the store at `identity` has in this cluster, all
    /// without one, under this version.
    ///
    /// # Errors
    /// The cluster has switched the open tenant off, its `max_value` is less than a value, or not
    /// all of them fit.
    pub fn fill(
        &self,
        data: &mut dyn Backend,
        cluster: &Cluster,
        identity: Option<std::net::SocketAddr>,
        version: u64,
    ) -> anyhow::Result<()> {
        let (longest, most) = (self.value_len.longest(), cluster.max_value);
        anyhow::ensure!(
            longest <= most as usize,
            "--populate: a value of {longest} bytes: the cluster's max_value is {most}"
        );
        let secret = cluster
            .secret_of(wire::TENANT_OPEN)
            .context("--populate fills tenant 0, which this cluster has switched off")?;
        let owns = |hash| {
            let is_owner = |me| cluster.store_of(wire::TENANT_OPEN, hash).address == me;
            identity.is_none_or(is_owner)
        };
        anyhow::ensure!(
            self.put_all(data, &secret, version, owns),
            "--populate {}:{}: does not fit --memory-limit",
            self.count,
            self.value_len
        );
        Ok(())
    }

    /// Writes those whose hashes under this secret `owns` has; whether all of them fitted.
    pub fn put_all(
        &self,
        data: &mut dyn Backend,
        secret: &Secret,
        version: u64,
        owns: impl Fn(KeyHash) -> bool,
    ) -> bool {
        let tenant = wire::TENANT_OPEN;
        let mut name = Vec::new();
        for i in 0..self.count {
            name.clear();
            write!(name, "key{i:013}").expect("writing to memory");
            let hash: KeyHash = secret.key_hash(tenant, &name);
            if !owns(hash) {
                continue;
            }
            let len = self.value_len.of(hash);
            let value: Bytes = name.iter().copied().cycle().take(len).collect();
            let key = Key { tenant, hash, bytes: &name };
            let put = data.put(key, Put::of(&value, version), 0, 0);
            if !matches!(put, Answer::Now(Change::Done(_))) {
                return false;
            }
        }
        data.evicted() == 0
    }
}
