//! The backends themselves, for keys that no packet carries.

use std::{borrow::Cow, time::Duration};

use bytes::Bytes;
use client::{Memory, Reservation, Seal, TenantSeal};
use redis::Value;
use wire::{Cluster, KeyHasher, Secret, partition_of};

use super::{
    backend::Backend,
    data::{DataResult, ErrorLine, KeyInfo, Life, OnlyIf, Put, STRING, SetOutcome},
    errands::Errands,
};
use crate::BackendAddress;

/// Another write may have come between: its life is left as it is.
const PROLONG: &str = "if redis.call('PTTL', KEYS[1]) > tonumber(ARGV[1]) then \
                       return redis.call('PEXPIRE', KEYS[1], ARGV[2]) end return 0";

/// One tenant's view of the backends of a cluster.
pub(crate) struct Direct {
    backends: Vec<Range>,
    cluster: Cluster,
    tenant: u32,
    hasher: KeyHasher,
    /// The same that the client seals with: both write the same keys.
    seal: Option<TenantSeal>,
    memory: Memory,
}

/// The backend of the partitions from `first` to `last`.
struct Range {
    first: u32,
    last: u32,
    backend: Backend,
}

impl Direct {
    /// With the servers at these addresses, in this order.
    ///
    /// # Errors
    /// A partition without a backend or with two.
    pub fn new(
        addresses: &[BackendAddress],
        errands: &Errands,
        cluster: &Cluster,
        tenant: u32,
        seal: Option<TenantSeal>,
        memory: Memory,
    ) -> anyhow::Result<Direct> {
        let end = cluster.partitions - 1;
        let mut backends = Vec::new();
        for (number, BackendAddress { partitions, .. }) in addresses.iter().enumerate() {
            let (first, last) = partitions.unwrap_or((0, end));
            let backend = Backend { errands: errands.clone(), number };
            backends.push(Range { first, last, backend });
        }
        backends.sort_by_key(|backend| backend.first);
        let mut next = 0;
        for backend in &backends {
            if backend.first != next || backend.last > end {
                anyhow::bail!(
                    "--backend {}-{}: expected each of the partitions 0 to {end} in exactly one --backend",
                    backend.first,
                    backend.last
                );
            }
            next = backend.last + 1;
        }
        if next != end + 1 {
            anyhow::bail!("partition {next} has no --backend; the last is {end}");
        }
        Ok(Direct {
            backends,
            cluster: cluster.clone(),
            tenant,
            hasher: cluster.secrets_of(tenant).map_or(Secret::NONE.into(), |secrets| secrets.hash),
            seal,
            memory,
        })
    }

    /// The value of a key.
    pub async fn get(&self, key: &[u8]) -> DataResult<Option<Bytes>> {
        let (name, backend) = self.place(key)?;
        let len = match backend.read(redis::cmd("STRLEN").arg(&name)).await? {
            Value::Int(len) => usize::try_from(len).unwrap_or(0),
            other => return Err(unexpected(&other)),
        };
        let reserved = self.reserve(len)?;
        let value = backend.read(redis::cmd("GET").arg(&name)).await?;
        self.held(key, value, len, reserved)
    }

    /// Length and time to live of a key.
    pub async fn about(&self, key: &[u8]) -> DataResult<Option<KeyInfo>> {
        let found = self.about_stored(key).await?;
        let overhead = self.seal.as_ref().map_or(0, |_| Seal::OVERHEAD as u64);
        Ok(found.map(|about| KeyInfo {
            // Too short for a seal: reading it says so.
            len: about.len.saturating_sub(overhead),
            ..about
        }))
    }

    /// The same of what the backend holds, which may be sealed.
    async fn about_stored(&self, key: &[u8]) -> DataResult<Option<KeyInfo>> {
        let (name, backend) = self.place(key)?;
        // An empty value and no value have the same length; the time to live tells them apart.
        let left = match backend.read(redis::cmd("PTTL").arg(&name)).await? {
            Value::Int(-2) => return Ok(None),
            Value::Int(left) => left,
            other => return Err(unexpected(&other)),
        };
        let expires_in = u64::try_from(left).ok().map(Duration::from_millis);
        match backend.read(redis::cmd("STRLEN").arg(&name)).await {
            Ok(Value::Int(len)) => {
                Ok(Some(KeyInfo { kind: STRING, len: len.max(0) as u64, expires_in }))
            }
            Err(why) if why.is_wrong_type() => {
                let kind = backend.read(redis::cmd("TYPE").arg(&name)).await?;
                Ok(Some(KeyInfo { kind: kind_of(&kind), len: 0, expires_in }))
            }
            other => Err(unexpected(&other?)),
        }
    }

    /// Writes a value as Redis's SET does.
    pub async fn set(&self, key: &[u8], value: &[u8], put: Put) -> DataResult<SetOutcome> {
        let (name, backend) = self.place(key)?;
        let mut command = redis::cmd("SET");
        command.arg(&name).arg(&*self.sealed(key, value));
        match put.life {
            Life::Forever => {}
            Life::For(life) => drop(command.arg("PX").arg(life.as_millis() as u64)),
            // Any moment that has passed.
            Life::Over => drop(command.arg("PXAT").arg(1)),
            Life::Kept => drop(command.arg("KEEPTTL")),
        }
        match put.only_if {
            OnlyIf::Always => {}
            OnlyIf::Absent => drop(command.arg("NX")),
            OnlyIf::Present => drop(command.arg("XX")),
        }
        let mut room = None;
        if put.old {
            command.arg("GET");
            // The value before comes along; its length is as good as known.
            let len = self.about_stored(key).await?.map_or(0, |about| about.len as usize);
            room = Some((len, self.reserve(len)?));
        }
        let answer = backend.write(&command).await?;
        let Some((len, reserved)) = room else {
            let written = answer == Value::Okay;
            return Ok(SetOutcome { written, old: None });
        };
        let old = self.held(key, answer, len, reserved).map_err(|why| why.after("written"))?;
        let written = match put.only_if {
            OnlyIf::Always => true,
            OnlyIf::Absent => old.is_none(),
            OnlyIf::Present => old.is_some(),
        };
        Ok(SetOutcome { written, old })
    }

    /// Removes a key; whether it was there.
    pub async fn delete(&self, key: &[u8]) -> DataResult<bool> {
        let (name, backend) = self.place(key)?;
        Ok(backend.write(redis::cmd("DEL").arg(&name)).await? == Value::Int(1))
    }

    /// Removes a key and gives its value.
    pub async fn take(&self, key: &[u8]) -> DataResult<Option<Bytes>> {
        let (name, backend) = self.place(key)?;
        let len = self.about_stored(key).await?.map_or(0, |about| about.len as usize);
        let reserved = self.reserve(len)?;
        let value = backend.write(redis::cmd("GETDEL").arg(&name)).await?;
        self.held(key, value, len, reserved).map_err(|why| why.after("removed"))
    }

    /// Gives a key this life if the one that it has is longer than `left_ms`: what the store gives
    /// at most. Changes no value.
    pub async fn prolong(&self, key: &[u8], left_ms: u64, life: Duration) -> DataResult<()> {
        let (name, backend) = self.place(key)?;
        let mut command = redis::cmd("EVAL");
        command.arg(PROLONG).arg(1).arg(&name).arg(left_ms).arg(life.as_millis() as u64);
        backend.write(&command).await.map(drop)
    }

    fn reserve(&self, len: usize) -> DataResult<Reservation> {
        self.memory.reserve(len).ok_or_else(|| {
            ErrorLine(format!(
                "OOM a value of {len} bytes: the gateway's memory for large requests (--max-memory) is in use"
            ))
        })
    }

    /// A key's name, and the backend that it is in.
    fn place(&self, key: &[u8]) -> DataResult<(Vec<u8>, &Backend)> {
        let stored = self.stored(key);
        Ok((self.name_of(&stored)?, self.backend_of(&stored)))
    }

    /// The key as stores know it.
    fn stored<'a>(&self, key: &'a [u8]) -> Cow<'a, [u8]> {
        match &self.seal {
            Some(seal) => seal.hide(key).as_ref().to_vec().into(),
            None => key.into(),
        }
    }

    /// The value as the backend shall hold it.
    fn sealed<'a>(&self, key: &[u8], value: &'a [u8]) -> Cow<'a, [u8]> {
        match &self.seal {
            Some(seal) => seal.seal(&seal.hide(key), value).into(),
            None => value.into(),
        }
    }

    /// A value that the backend answered with, opened if it is sealed.
    fn held(
        &self,
        key: &[u8],
        value: Value,
        len: usize,
        reserved: Reservation,
    ) -> DataResult<Option<Bytes>> {
        match value {
            Value::Nil => Ok(None),
            Value::BulkString(bytes) => {
                // It may have grown since its length was asked for.
                let reserved = if bytes.len() > len {
                    drop(reserved);
                    self.reserve(bytes.len())?
                } else {
                    reserved
                };
                let bytes = match &self.seal {
                    Some(seal) => seal.open(&seal.hide(key), &bytes).map_err(|why| {
                        ErrorLine(format!(
                            "ERR the value in the backend does not open with this seal key: {why}"
                        ))
                    })?,
                    None => bytes,
                };
                Ok(Some(reserved.hold(bytes.into())))
            }
            other => Err(unexpected(&other)),
        }
    }

    /// Where a key is, as stores know it.
    fn backend_of(&self, key: &[u8]) -> &Backend {
        let hash = self.hasher.key_hash(self.tenant, key);
        let partition = partition_of(hash, self.cluster.partitions);
        let store = self.cluster.store_of_partition(self.tenant, partition);
        // A store that stands in for a partition's owner keeps its keys where it keeps those of its
        // own partitions.
        let partition =
            if (store.first..=store.last).contains(&partition) { partition } else { store.first };
        let at = self.backends.partition_point(|range| range.last < partition);
        &self.backends[at].backend
    }

    /// A key's name in the backend, of the key as stores know it. Tenant 0 must not reach other
    /// tenants' keys under their names there.
    fn name_of(&self, key: &[u8]) -> DataResult<Vec<u8>> {
        wire::backend_name(self.tenant, key).ok_or_else(anothers_name)
    }
}

/// A key of tenant 0 is what another tenant's key is called in the backend.
pub(crate) fn anothers_name() -> ErrorLine {
    ErrorLine(
        "NOPERM a key that begins with 'shortstop:', a tenant's number and a colon is that tenant's: start the gateway with --tenant"
            .into(),
    )
}

/// What TYPE answered.
fn kind_of(answer: &Value) -> &'static str {
    let Value::SimpleString(kind) = answer else { return "other" };
    let kinds = ["list", "set", "zset", "hash", "stream"];
    kinds.into_iter().find(|known| *known == kind.as_str()).unwrap_or("other")
}

fn unexpected(value: &Value) -> ErrorLine {
    let kind = match value {
        Value::Nil => "nil",
        Value::Int(_) => "a number",
        Value::BulkString(_) => "a string",
        _ => "something else",
    };
    ErrorLine(format!("ERR the backend answered with {kind}, which makes no sense"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_partition_has_one_backend() {
        let cluster = Cluster::single(([127, 0, 0, 1], 1).into(), 4);
        let check = |texts: &[&str]| {
            let addresses: Vec<_> = texts.iter().map(|text| text.parse().unwrap()).collect();
            Direct::new(&addresses, &Errands::new().0, &cluster, 0, None, Memory::new(1)).is_ok()
        };
        assert!(check(&["redis://h:1"]));
        assert!(check(&["2-3=redis://h:1", "0-1=redis://h:2"]));
        assert!(!check(&["0-2=redis://h:1"]));
        assert!(!check(&["0-2=redis://h:1", "2-3=redis://h:1"]));
        assert!(!check(&["0-4=redis://h:1"]));
        assert!(!check(&["redis://h:1", "redis://h:2"]));
    }
}
