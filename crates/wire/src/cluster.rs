//! What clients, stores and controllers must agree on: who holds which partition, who the
//! tenants are.

use std::{
    collections::HashSet,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use serde::{Deserialize, Serialize};

use crate::{
    CLUSTER_SLOTS, Digest, KeyHash, KeyHasher, KeyPlaces, MAX_VALUE_DEFAULT, MAX_VALUE_MOST,
    NodeId, Packet, PoolServer, STORES_MOST, SWITCH_MOST, Scheme, Secret, Store, TENANT_OPEN,
    TENANT_SYSTEM, address, partition_of, scheme, store::PortUrl, store_at, store_node,
};

/// The cluster file (TOML): partitions, stores, tenants.
///
/// ```toml
/// partitions = 128
/// [[store]]
/// address = "10.0.2.1:7117"
/// first = 0
/// last = 127
/// [[tenant]]
/// id = 7
/// secret = "000102030405060708090a0b0c0d0e0f"
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cluster {
    /// The rule by which keys are assigned to partitions.
    #[serde(default, skip_serializing_if = "is_usual")]
    pub scheme: Scheme,
    /// Number of partitions that keys are assigned to.
    pub partitions: u32,
    /// Of a pool's scheme: the digest of keys that its clients use, where it is not the usual one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<Digest>,
    /// Of a pool's scheme: the two bytes between which stands what counts of a key (twemproxy's
    /// `hash_tag`); none: all of it counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hash_tag: Option<String>,
    /// Of a pool's scheme: its servers in the order of its clients' list, one for each partition.
    #[serde(rename = "server", default, skip_serializing_if = "Vec::is_empty")]
    pub servers: Vec<PoolServer>,
    /// The stores; together they own each partition exactly once.
    #[serde(rename = "store")]
    pub stores: Vec<Store>,
    /// Tenants with their secrets; tenant 0 (open, no secret) need not be listed.
    #[serde(rename = "tenant", default, skip_serializing_if = "Vec::is_empty")]
    pub tenants: Vec<Tenant>,
    /// Whether tenant 0, which needs no secret, may use the cluster.
    #[serde(default = "yes")]
    pub open_tenant: bool,
    /// Secret (32 hex digits) that signs messages between switches, stores and controllers; none
    /// for trying out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system_secret: Option<String>,
    /// Length in milliseconds of the leases that stores lend to switches, 1000 to 60,000. Clients
    /// take from it how long they may send a write again.
    #[serde(default = "usual_lease_ms")]
    pub lease_ms: u32,
    /// The longest lease in milliseconds that anybody may still go by: switches that hold one,
    /// clients that read the file before it changed. Stores wait for so long after a start, so it
    /// may shrink only when the longer leases are over.
    #[serde(default = "usual_lease_ms")]
    pub lease_max_ms: u32,
    /// Longest value in bytes, 1024 to 16 MiB. Clients refuse longer ones before they send any of
    /// it, stores whatever comes.
    #[serde(default = "usual_max_value")]
    pub max_value: u32,
    /// Switches that answer for themselves, where clients begin to look for what lies in switches.
    #[serde(rename = "switch", default, skip_serializing_if = "Vec::is_empty")]
    pub switches: Vec<SwitchPlace>,
}

/// A switch that has an address of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SwitchPlace {
    /// Its name, as its agent has it.
    pub name: String,
    /// Where packets for the switch itself go, at the port [`crate::PORT`].
    #[serde(deserialize_with = "address::one")]
    pub address: IpAddr,
}

/// Length of a lease in milliseconds, and the longest, where the cluster file does not say.
const USUAL_LEASE_MS: u32 = 2000;
/// Bounds in bytes that `max_value` may be.
const MAX_VALUES: std::ops::RangeInclusive<u32> = 1024..=MAX_VALUE_MOST;
/// The largest weight of a pool's server.
const WEIGHT_MOST: u32 = 1 << 16;
/// Lengths in milliseconds that a lease may have.
const LEASES_MS: std::ops::RangeInclusive<u32> = 1000..=60_000;

fn is_usual(scheme: &Scheme) -> bool {
    *scheme == Scheme::Hash
}

fn yes() -> bool {
    true
}

fn usual_lease_ms() -> u32 {
    USUAL_LEASE_MS
}

fn usual_max_value() -> u32 {
    MAX_VALUE_DEFAULT
}

/// A tenant as clients, stores and switches know it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tenant {
    /// Number; 0 and 2^32-1 are reserved.
    pub id: u32,
    /// 32 hex digits: signs what is sent in this tenant's name.
    pub secret: String,
    /// 32 hex digits: another secret that is accepted while the secret is rotated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub also_secret: Option<String>,
    /// 32 hex digits: seeds the hashes of this tenant's keys, and so decides their partitions.
    /// Stays the same when the secret is rotated; absent: the secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hash_secret: Option<String>,
    /// Requests per second that a switch admits; 0: unlimited.
    #[serde(default)]
    pub rate: u64,
    /// What a switch does with requests above the rate.
    #[serde(default)]
    pub over_rate: OverRate,
    /// The stores that hold this tenant's keys; empty: all of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "address::list")]
    pub stores: Vec<SocketAddr>,
    /// Write-back: a switch may answer writes of hot keys, and the store has them so many
    /// milliseconds later at most; 0: the store answers every write.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub write_back_ms: u32,
}

/// Bounds of a tenant's `write_back_ms`, where it is not 0.
pub const WRITE_BACK_MS: std::ops::RangeInclusive<u32> = 10..=60_000;

fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// Checks a tenant's `write_back_ms`.
///
/// # Errors
/// What was expected.
pub fn check_write_back(ms: u32) -> Result<(), String> {
    if ms == 0 || WRITE_BACK_MS.contains(&ms) {
        return Ok(());
    }
    let (least, most) = WRITE_BACK_MS.into_inner();
    Err(format!("write-back after {ms} ms: expected {least} to {most} ms, or 0 for none"))
}

impl Tenant {
    /// A tenant with one secret (32 hex digits) for everything, no rate, on every store.
    pub fn new(id: u32, secret_hex: impl Into<String>) -> Tenant {
        Tenant {
            id,
            secret: secret_hex.into(),
            also_secret: None,
            hash_secret: None,
            rate: 0,
            over_rate: OverRate::Forward,
            stores: vec![],
            write_back_ms: 0,
        }
    }

    /// The secrets, of a tenant of a cluster that was checked, and whose scheme puts keys there
    /// ([`Cluster::places`]).
    ///
    /// # Panics
    /// If one is not 32 hex digits.
    pub fn secrets(&self, places: &KeyPlaces) -> Secrets {
        let known = |text: &str| parse_secret(text, "").expect("checked on parsing");
        Secrets {
            tag: known(&self.secret),
            also: self.also_secret.as_deref().map_or(Secret::NONE, known),
            hash: KeyHasher::new(
                known(self.hash_secret.as_deref().unwrap_or(&self.secret)),
                places,
            ),
        }
    }
}

/// What a switch does with a request above its tenant's rate. Neither touches a cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OverRate {
    /// Passes it on to the store.
    #[default]
    Forward,
    /// Drops it.
    Drop,
}

/// The secrets of a tenant, ready for use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Secrets {
    /// Signs, and is accepted.
    pub tag: Secret,
    /// Is accepted too; [`Secret::NONE`]: no other is.
    pub also: Secret,
    /// Hashes keys.
    pub hash: KeyHasher,
}

impl Secrets {
    /// One secret for everything, of keys that may be anywhere.
    pub fn one(secret: Secret) -> Secrets {
        Secrets::placed(secret, &KeyPlaces::Anywhere)
    }

    /// One secret for everything, in a cluster that puts keys there.
    fn placed(secret: Secret, places: &KeyPlaces) -> Secrets {
        Secrets { tag: secret, also: Secret::NONE, hash: KeyHasher::new(secret, places) }
    }

    /// The secret that this packet is signed with, if it is one of those that count: an answer is
    /// signed with the same. [`Secret::NONE`] for a tenant without secrets, whose tags are
    /// not checked.
    pub fn that_signed(&self, packet: &Packet<'_>) -> Option<Secret> {
        if packet.tag_is_valid(&self.tag) {
            return Some(self.tag);
        }
        // No second secret is not the same as one that everything is valid under.
        (self.also != Secret::NONE && packet.tag_is_valid(&self.also)).then_some(self.also)
    }
}

/// Why a cluster file cannot be used.
#[derive(Debug, PartialEq, thiserror::Error)]
pub enum ClusterError {
    /// Not TOML of this shape.
    #[error("cluster file: {0}")]
    Syntax(String),
    /// A partition without an owner, with two, or out of range.
    #[error("cluster file: {0}")]
    Partitions(String),
    /// A scheme with another number of partitions, without a pool or with one that it has no use
    /// for.
    #[error("cluster file: {0}")]
    Scheme(String),
    /// A tenant's number or secret is not usable.
    #[error("cluster file: {0}")]
    Tenant(String),
    /// A switch without a name, or two that cannot be told apart.
    #[error("cluster file: {0}")]
    Switch(String),
    /// Leases of a length that nobody can keep to.
    #[error("cluster file: {0}")]
    Lease(String),
    /// No value can be so long, or so short a bound makes no sense.
    #[error("cluster file: max_value = {0}: expected 1024 to 16777216 (bytes)")]
    MaxValue(u32),
}

impl Cluster {
    /// One store that owns every one of `partitions` partitions; tenant 0 only.
    pub fn single(address: SocketAddr, partitions: u32) -> Cluster {
        let store = Store::new(address, 0, partitions.saturating_sub(1));
        Cluster {
            scheme: Scheme::Hash,
            digest: None,
            hash_tag: None,
            servers: vec![],
            partitions,
            stores: vec![store],
            tenants: vec![],
            open_tenant: true,
            system_secret: None,
            lease_ms: USUAL_LEASE_MS,
            lease_max_ms: USUAL_LEASE_MS,
            max_value: MAX_VALUE_DEFAULT,
            switches: vec![],
        }
    }

    /// The same cluster with leases of this length in milliseconds, and none that were ever longer.
    #[must_use]
    pub fn with_lease_ms(self, lease_ms: u32) -> Cluster {
        Cluster { lease_ms, lease_max_ms: lease_ms, ..self }
    }

    /// How long stores lend.
    pub fn lease(&self) -> Duration {
        Duration::from_millis(self.lease_ms.into())
    }

    /// How long a client may send a write again, from its first datagram on: three quarters of a
    /// lease. What it sent last has the rest of it to arrive before a store that restarts
    /// takes writes.
    pub fn write_deadline(&self) -> Duration {
        self.lease() * 3 / 4
    }

    /// Reads and checks a cluster file.
    ///
    /// # Errors
    /// [`ClusterError`] names the entry that is wrong and what was expected.
    pub fn parse(text: &str) -> Result<Cluster, ClusterError> {
        let cluster: Cluster =
            toml::from_str(text).map_err(|e| ClusterError::Syntax(one_line(text, &e)))?;
        cluster.check()?;
        Ok(cluster)
    }

    /// The cluster as TOML text, as [`Cluster::parse`] reads it.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("plain data is always valid TOML")
    }

    /// Checks what the types cannot; [`Cluster::parse`] has done so.
    ///
    /// # Errors
    /// [`ClusterError`] names the entry that is wrong and what was expected.
    pub fn check(&self) -> Result<(), ClusterError> {
        let fail = |text: String| Err(ClusterError::Partitions(text));
        if self.partitions == 0 {
            return fail("partitions = 0: at least 1 is needed".into());
        }
        self.check_scheme()?;
        let stores = self.stores.len();
        if stores > STORES_MOST {
            return fail(format!("{stores} stores: at most {STORES_MOST} are possible"));
        }
        let mut stores: Vec<&Store> = self.stores.iter().collect();
        stores.sort_by_key(|s| s.first);
        let mut next = 0;
        for store in stores {
            let Store { address, first, last, rack, .. } = store;
            if let Some(wrong) = store.port_urls().find(|port| !port.is_right()) {
                let PortUrl { name, url, server } = wrong;
                return fail(format!(
                    "store {address}: {name} = {url:?}: expected {server}://HOST:PORT, {server}s://HOST:PORT or \
                     {server}+unix:///PATH"
                ));
            }
            if *rack > SWITCH_MOST {
                return fail(format!(
                    "store {address}: rack = {rack}: expected the id of a switch, 1 to {SWITCH_MOST}"
                ));
            }
            if first > last || *last >= self.partitions {
                let max = self.partitions - 1;
                return fail(format!(
                    "store {address}: partitions {first} to {last} are not within 0 to {max}"
                ));
            }
            if *first < next {
                return fail(format!("partition {first} has two owners, one of them {address}"));
            }
            if *first > next {
                return fail(format!("partition {next} has no owner"));
            }
            next = last + 1;
        }
        if next != self.partitions {
            return fail(format!("partition {next} has no owner"));
        }
        let mut ids = HashSet::new();
        for tenant in &self.tenants {
            if tenant.id == TENANT_OPEN || tenant.id == TENANT_SYSTEM {
                return Err(ClusterError::Tenant(format!(
                    "tenant {}: this id is reserved",
                    tenant.id
                )));
            }
            if !ids.insert(tenant.id) {
                return Err(ClusterError::Tenant(format!("tenant {} is listed twice", tenant.id)));
            }
            let whose = format!("tenant {}", tenant.id);
            for secret in
                [Some(&tenant.secret), tenant.also_secret.as_ref(), tenant.hash_secret.as_ref()]
                    .into_iter()
                    .flatten()
            {
                parse_secret(secret, &whose)?;
            }
            if let Some(store) =
                tenant.stores.iter().find(|store| self.stores.iter().all(|s| s.address != **store))
            {
                return Err(ClusterError::Tenant(format!(
                    "{whose}: store {store} is not one of the cluster's stores"
                )));
            }
            self.check_stores_of(&tenant.stores)
                .map_err(|e| ClusterError::Tenant(format!("{whose}: {e}")))?;
            check_write_back(tenant.write_back_ms)
                .map_err(|e| ClusterError::Tenant(format!("{whose}: {e}")))?;
        }
        if let Some(text) = &self.system_secret {
            parse_secret(text, "system_secret")?;
        }
        self.check_switches()?;
        if !MAX_VALUES.contains(&self.max_value) {
            return Err(ClusterError::MaxValue(self.max_value));
        }
        self.check_leases()
    }

    /// Checks that a tenant may be limited to these stores; none: it uses all.
    ///
    /// # Errors
    /// What was expected.
    pub fn check_stores_of(&self, stores: &[SocketAddr]) -> Result<(), String> {
        if stores.is_empty() || self.scheme == Scheme::Hash {
            return Ok(());
        }
        Err("stores: expected none, for by the cluster's scheme the backends say where keys are, and every tenant has keys \
             at all of them"
            .into())
    }

    fn check_scheme(&self) -> Result<(), ClusterError> {
        let fail = |text: String| Err(ClusterError::Scheme(text));
        let (scheme, partitions) = (self.scheme, self.partitions);
        if !scheme.has_pool() {
            if self.digest.is_some() || self.hash_tag.is_some() || !self.servers.is_empty() {
                return fail(
                    "digest, hash_tag and [[server]] are for the schemes of pools: ketama, modula, twemproxy-ketama, \
                     twemproxy-modula"
                        .into(),
                );
            }
            if scheme == Scheme::RedisCluster && partitions != CLUSTER_SLOTS {
                return fail(format!(
                    "partitions = {partitions}: expected {CLUSTER_SLOTS} with scheme = \"redis-cluster\", one for each slot"
                ));
            }
            return Ok(());
        }
        if self.servers.len() != partitions as usize {
            return fail(format!(
                "partitions = {partitions} and {} [[server]]: expected one partition for each server of the pool",
                self.servers.len()
            ));
        }
        if let Some(tag) = self.hash_tag.as_ref().filter(|tag| tag.len() != 2) {
            return fail(format!("hash_tag = {tag:?}: expected two bytes, such as \"{{}}\""));
        }
        let mut names = HashSet::new();
        for PoolServer { name, weight } in &self.servers {
            if !(1..=WEIGHT_MOST).contains(weight) {
                return fail(format!(
                    "server {name:?}: weight = {weight}: expected 1 to {WEIGHT_MOST}"
                ));
            }
            if name.is_empty() || !names.insert(name) {
                return fail(format!("server {name:?}: expected a name that no other server has"));
            }
        }
        Ok(())
    }

    fn check_switches(&self) -> Result<(), ClusterError> {
        for (at, SwitchPlace { name, address }) in self.switches.iter().enumerate() {
            let before = &self.switches[..at];
            if name.is_empty() {
                let text = format!("the switch at {address} has no name");
                return Err(ClusterError::Switch(text));
            }
            if let Some(other) = before.iter().find(|o| o.name == *name || o.address == *address) {
                return Err(ClusterError::Switch(format!(
                    "switch {name} at {address}: {} at {} has the same name or address",
                    other.name, other.address
                )));
            }
        }
        Ok(())
    }

    fn check_leases(&self) -> Result<(), ClusterError> {
        let (lease_ms, longest_ms) = (self.lease_ms, self.lease_max_ms);
        for (name, ms) in [("lease_ms", lease_ms), ("lease_max_ms", longest_ms)] {
            if !LEASES_MS.contains(&ms) {
                let text = format!("{name} = {ms}: expected 1000 to 60000");
                return Err(ClusterError::Lease(text));
            }
        }
        if lease_ms > longest_ms {
            return Err(ClusterError::Lease(format!(
                "lease_ms = {lease_ms} is more than lease_max_ms = {longest_ms}: set lease_max_ms = {lease_ms} as well, and keep it if \
                 leases become shorter later, until all stores and clients were restarted and the long ones are over"
            )));
        }
        Ok(())
    }

    /// Where the scheme puts keys, worked out: of a pool's it takes a digest for every four points
    /// of its ring.
    pub fn places(&self) -> KeyPlaces {
        scheme::places(self.scheme, self.digest, self.hash_tag.as_deref(), &self.servers)
    }

    /// The store that holds a tenant's key with this hash: the owner of its partition, or, where
    /// the tenant may not use that one, one of those that it may.
    pub fn store_of(&self, tenant: u32, hash: KeyHash) -> &Store {
        self.store_of_partition(tenant, partition_of(hash, self.partitions))
    }

    /// As [`Cluster::store_of`], of a partition below [`Cluster::partitions`].
    pub fn store_of_partition(&self, tenant: u32, partition: u32) -> &Store {
        let allowed = self.tenant(tenant).map_or(&[][..], |t| &t.stores);
        self.store_among(allowed, partition)
            .expect("a tenant's stores are in the list: checked on parsing")
    }

    /// As [`Cluster::store_of_partition`], of a tenant that may use these stores
    /// ([`Tenant::stores`]). None: the one that it would be is not one of the cluster's.
    pub fn store_among(&self, allowed: &[SocketAddr], partition: u32) -> Option<&Store> {
        let owner = self
            .stores
            .iter()
            .find(|s| (s.first..=s.last).contains(&partition))
            .expect("every partition has an owner: checked on parsing");
        if allowed.is_empty() || allowed.contains(&owner.address) {
            return Some(owner);
        }
        let instead = allowed[partition as usize % allowed.len()];
        self.stores.iter().find(|s| s.address == instead)
    }

    /// The number of the store at this address.
    pub fn node_of(&self, address: SocketAddr) -> Option<NodeId> {
        let at = self.stores.iter().position(|s| s.address == address)?;
        store_node(at)
    }

    /// The store with this number.
    pub fn store_numbered(&self, node: NodeId) -> Option<&Store> {
        self.stores.get(store_at(node)?)
    }

    /// Whether switches may have what was written last of a tenant's keys, and no store.
    pub fn lends_keys(&self, tenant: u32) -> bool {
        self.tenant(tenant).is_some_and(|tenant| tenant.write_back_ms > 0)
    }

    /// A tenant's entry; tenant 0 and the system have none.
    pub fn tenant(&self, id: u32) -> Option<&Tenant> {
        self.tenants.iter().find(|t| t.id == id)
    }

    /// The secret that signs what is sent in a tenant's name; `None` if the tenant is unknown or
    /// tenant 0 is switched off.
    pub fn secret_of(&self, tenant: u32) -> Option<Secret> {
        self.secrets_of(tenant).map(|secrets| secrets.tag)
    }

    /// All secrets of a tenant; `None` if the tenant is unknown or tenant 0 is switched off.
    pub fn secrets_of(&self, tenant: u32) -> Option<Secrets> {
        self.secrets_at(tenant, &self.places())
    }

    /// As [`Cluster::secrets_of`], of a cluster whose [`Cluster::places`] are known.
    pub fn secrets_at(&self, tenant: u32, places: &KeyPlaces) -> Option<Secrets> {
        let known = |text: &str| parse_secret(text, "").expect("checked on parsing");
        match tenant {
            TENANT_OPEN => self.open_tenant.then(|| Secrets::placed(Secret::NONE, places)),
            TENANT_SYSTEM => {
                Some(Secrets::one(self.system_secret.as_deref().map_or(Secret::NONE, known)))
            }
            id => self.tenant(id).map(|tenant| tenant.secrets(places)),
        }
    }
}

/// A syntax error on one line: where it is and what was expected, without the excerpt that TOML's
/// own text has.
fn one_line(text: &str, error: &toml::de::Error) -> String {
    let message = error.message().split_whitespace().collect::<Vec<_>>().join(" ");
    match error.span() {
        Some(span) => {
            let before = text.get(..span.start).unwrap_or(text);
            let line = before.matches('\n').count() + 1;
            let column = before.chars().rev().take_while(|c| *c != '\n').count() + 1;
            format!("line {line}, column {column}: {message}")
        }
        None => message,
    }
}

fn parse_secret(text: &str, whose: &str) -> Result<Secret, ClusterError> {
    let mut secret = [0; 16];
    hex::decode_to_slice(text, &mut secret)
        .ok()
        .filter(|()| secret != [0; 16])
        .map(|()| Secret(secret))
        .ok_or_else(|| {
            ClusterError::Tenant(format!("{whose}: the secret must be 32 hex digits, not all zero"))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str =
        "partitions = 1\n[[store]]\naddress = \"10.0.0.1:7117\"\nfirst = 0\nlast = 0\n";

    #[test]
    fn leases_are_everybodys() {
        let usual = Cluster::parse(ONE).unwrap();
        assert_eq!((usual.lease_ms, usual.lease_max_ms), (2000, 2000));
        assert_eq!(usual.write_deadline(), Duration::from_millis(1500));
        let short = usual.with_lease_ms(1000);
        assert_eq!(short.write_deadline(), Duration::from_millis(750));
        assert_eq!(Cluster::parse(&short.to_toml()).unwrap(), short);
        // (text, what the error says)
        let rows = [
            ("max_value = 0", "max_value = 0: expected 1024 to"),
            ("lease_ms = 999", "lease_ms = 999: expected 1000 to 60000"),
            ("lease_ms = 60001", "lease_ms = 60001: expected"),
            ("lease_max_ms = 0", "lease_max_ms = 0: expected"),
            ("lease_ms = 10000", "set lease_max_ms = 10000"),
            ("lease_ms = 5000\nlease_max_ms = 4000", "lease_max_ms = 4000"),
        ];
        for (text, says) in rows {
            let error = Cluster::parse(&format!("{text}\n{ONE}")).unwrap_err();
            assert!(error.to_string().contains(says), "{error} should say {says:?}");
        }
        let text = format!("lease_ms = 2000\nlease_max_ms = 10000\n{ONE}");
        assert!(Cluster::parse(&text).is_ok(), "shorter than it was");
    }

    #[test]
    fn a_scheme_has_what_belongs_to_it() {
        let server = "[[server]]\nname = \"10.0.0.1:11211\"\n";
        let pool = format!("scheme = \"ketama\"\n{ONE}{server}");
        let cluster = Cluster::parse(&pool).unwrap();
        assert_eq!(Cluster::parse(&cluster.to_toml()).unwrap(), cluster);
        assert_eq!(Cluster::parse(ONE).unwrap().scheme, Scheme::Hash);
        // (text, what the error says)
        let rows = [
            (format!("scheme = \"redis-cluster\"\n{ONE}"), "expected 16384 with scheme"),
            (format!("scheme = \"modula\"\n{ONE}"), "and 0 [[server]]: expected one partition"),
            (format!("{ONE}{server}"), "are for the schemes of pools"),
            (format!("digest = \"md5\"\n{ONE}"), "are for the schemes of pools"),
            (format!("scheme = \"ring\"\n{ONE}"), "unknown variant `ring`, expected one of `hash`"),
            (format!("digest = \"sha\"\n{pool}"), "unknown variant `sha`, expected one of `md5`"),
            (format!("hash_tag = \"{{\"\n{pool}"), "expected two bytes"),
            (format!("{pool}weight = 0"), "weight = 0: expected 1 to"),
            (
                format!(
                    "{pool}[[tenant]]\nid = 7\nsecret = \"{}\"\nstores = [\"10.0.0.1:7117\"]",
                    "07".repeat(16)
                ),
                "tenant 7: stores: expected none",
            ),
            (
                format!("{pool}{server}").replace("partitions = 1", "partitions = 2"),
                "expected a name that no other server has",
            ),
        ];
        for (text, says) in rows {
            let error = Cluster::parse(&text).unwrap_err().to_string();
            assert!(error.contains(says), "{error:?} should say {says:?}");
        }
    }

    #[test]
    fn a_syntax_error_is_one_line_that_says_where() {
        // (text, what the error says)
        let rows = [
            ("partitions = 1\nstore = [", "line 2, column"),
            ("partitions = \"many\"\n", "line 1, column 14: invalid type"),
            ("partitions = 1\npartition = 2\n", "line 2, column 1: unknown field"),
            (
                "partitions = 1\n[[store]]\naddress = \"redis1:7117\"\nfirst = 0\nlast = 0\n",
                "line 3, column 11: \"redis1:7117\": expected IP:PORT, such as \"10.0.2.1:7117\"",
            ),
            (
                "partitions = 1\n[[switch]]\nname = \"a\"\naddress = \"tor1\"\n",
                "\"tor1\": expected an IP address",
            ),
            (
                "partitions = 1\n[[tenant]]\nid = 7\nsecret = \"\"\nstores = [\"redis1\"]\n",
                "\"redis1\": expected IP:PORT",
            ),
            (
                "partitions = 1\n[[store]]\naddress = \"10.0.0.1:7117\"\nfirst = 0\nlast = 0\nresp = \"redis1:6380\"\n",
                "store 10.0.0.1:7117: resp = \"redis1:6380\": expected redis://HOST:PORT, rediss://HOST:PORT or redis+unix:///PATH",
            ),
        ];
        for (text, says) in rows {
            let error = Cluster::parse(text).unwrap_err().to_string();
            assert!(error.starts_with("cluster file: "), "{error:?}");
            assert!(error.contains(says), "{error:?} should say {says:?}");
            assert!(!error.contains('\n'), "{error:?} should be one line");
        }
    }
}
