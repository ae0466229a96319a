//! Between what crosses a boundary and what everybody else works with, each pair once: the messages
//! of [`crate::proto`], the documents of [`crate::types`].

use std::net::SocketAddr;

use bytes::Bytes;
use decide::{Change, Configuration, Group, ItemKey, Outcome, Record, Row};
use serde::{Serialize, de::DeserializeOwned};
use wire::{Cluster, OverRate, PoolServer, Store, SwitchPlace, Tenant};

use crate::{proto, types};

impl From<&Cluster> for proto::Cluster {
    /// Of a cluster that was checked.
    fn from(cluster: &Cluster) -> proto::Cluster {
        proto::Cluster {
            partitions: cluster.partitions,
            stores: cluster.stores.iter().map(store_to).collect(),
            tenants: cluster.tenants.iter().map(tenant_to).collect(),
            open_tenant: cluster.open_tenant,
            system_secret: secret_to(cluster.system_secret.as_deref()),
            lease_ms: cluster.lease_ms,
            lease_max_ms: cluster.lease_max_ms,
            max_value: cluster.max_value,
            switches: cluster.switches.iter().map(switch_to).collect(),
            scheme: name_to(&cluster.scheme),
            digest: cluster.digest.as_ref().map(name_to).unwrap_or_default(),
            hash_tag: cluster.hash_tag.clone().unwrap_or_default(),
            servers: cluster.servers.iter().map(server_to).collect(),
        }
    }
}

/// The cluster of a message, checked as one from a file.
///
/// # Errors
/// One line: the entry that is wrong, and what was expected.
pub fn cluster(message: &proto::Cluster) -> Result<Cluster, String> {
    let cluster = Cluster {
        scheme: name(&message.scheme)?.unwrap_or_default(),
        digest: name(&message.digest)?,
        hash_tag: Some(message.hash_tag.clone()).filter(|tag| !tag.is_empty()),
        servers: message.servers.iter().map(server).collect(),
        partitions: message.partitions,
        stores: each(&message.stores, store)?,
        tenants: each(&message.tenants, tenant)?,
        open_tenant: message.open_tenant,
        system_secret: secret(&message.system_secret),
        lease_ms: message.lease_ms,
        lease_max_ms: message.lease_max_ms,
        max_value: message.max_value,
        switches: each(&message.switches, switch)?,
    };
    cluster.check().map_err(|e| e.to_string())?;
    Ok(cluster)
}

/// Pairs of a tenant and a switch, of a message. What is no switch's number is left out.
pub fn placements(message: &proto::Placements) -> Vec<(u32, u16)> {
    let of = |tenant: &proto::TenantSwitches| {
        let (id, switches) = (tenant.tenant, tenant.switches.clone());
        let switches = switches.into_iter();
        switches.filter_map(move |switch| Some((id, u16::try_from(switch).ok()?)))
    };
    message.tenants.iter().flat_map(of).collect()
}

/// A name of the cluster file's.
fn name_to(value: &impl Serialize) -> String {
    let name = serde_json::to_value(value).ok();
    name.and_then(|name| Some(name.as_str()?.to_string())).unwrap_or_default()
}

fn name<T: DeserializeOwned>(text: &str) -> Result<Option<T>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    serde_json::from_value(text.into()).map(Some).map_err(|error| error.to_string())
}

fn server_to(server: &PoolServer) -> proto::PoolServer {
    proto::PoolServer { name: server.name.clone(), weight: server.weight }
}

fn server(server: &proto::PoolServer) -> PoolServer {
    PoolServer { name: server.name.clone(), weight: server.weight }
}

fn each<A, B>(all: &[A], one: impl Fn(&A) -> Result<B, String>) -> Result<Vec<B>, String> {
    all.iter().map(one).collect()
}

fn address(text: &String) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| format!("store {text:?}: expected an address with a port"))
}

fn store_to(store: &Store) -> proto::Store {
    proto::Store {
        address: store.address.to_string(),
        first: store.first,
        last: store.last,
        rack: store.rack.into(),
        resp: store.resp.clone().unwrap_or_default(),
        memcached: store.memcached.clone().unwrap_or_default(),
    }
}

fn store(store: &proto::Store) -> Result<Store, String> {
    Ok(Store {
        address: address(&store.address)?,
        first: store.first,
        last: store.last,
        rack: u16::try_from(store.rack).map_err(|_| {
            format!("store {}: rack {}: no switch has this id", store.address, store.rack)
        })?,
        resp: Some(store.resp.clone()).filter(|url| !url.is_empty()),
        memcached: Some(store.memcached.clone()).filter(|url| !url.is_empty()),
    })
}

fn switch_to(switch: &SwitchPlace) -> proto::SwitchPlace {
    proto::SwitchPlace { name: switch.name.clone(), address: switch.address.to_string() }
}

fn switch(switch: &proto::SwitchPlace) -> Result<SwitchPlace, String> {
    let address = switch.address.parse();
    Ok(SwitchPlace {
        name: switch.name.clone(),
        address: address.map_err(|_| {
            let (name, address) = (&switch.name, &switch.address);
            format!("switch {name:?}: {address:?}: expected an address")
        })?,
    })
}

fn tenant_to(tenant: &Tenant) -> proto::Tenant {
    proto::Tenant {
        id: tenant.id,
        secret: secret_to(Some(&tenant.secret)),
        also_secret: secret_to(tenant.also_secret.as_deref()),
        hash_secret: secret_to(tenant.hash_secret.as_deref()),
        rate: tenant.rate,
        drop_over_rate: tenant.over_rate == OverRate::Drop,
        stores: tenant.stores.iter().map(SocketAddr::to_string).collect(),
        write_back_ms: tenant.write_back_ms,
    }
}

fn tenant(tenant: &proto::Tenant) -> Result<Tenant, String> {
    Ok(Tenant {
        id: tenant.id,
        secret: hex::encode(&tenant.secret),
        also_secret: secret(&tenant.also_secret),
        hash_secret: secret(&tenant.hash_secret),
        rate: tenant.rate,
        over_rate: if tenant.drop_over_rate { OverRate::Drop } else { OverRate::Forward },
        stores: each(&tenant.stores, address)?,
        write_back_ms: tenant.write_back_ms,
    })
}

/// 16 bytes of hex digits that were checked; nothing for none.
fn secret_to(hex_digits: Option<&str>) -> Bytes {
    let bytes = hex_digits.map(|text| hex::decode(text).expect("checked on parsing"));
    bytes.unwrap_or_default().into()
}

fn secret(bytes: &Bytes) -> Option<String> {
    (!bytes.is_empty()).then(|| hex::encode(bytes))
}

impl From<types::OverRate> for OverRate {
    fn from(over: types::OverRate) -> OverRate {
        match over {
            types::OverRate::Forward => OverRate::Forward,
            types::OverRate::Drop => OverRate::Drop,
        }
    }
}

impl From<OverRate> for types::OverRate {
    fn from(over: OverRate) -> types::OverRate {
        match over {
            OverRate::Forward => types::OverRate::Forward,
            OverRate::Drop => types::OverRate::Drop,
        }
    }
}

impl From<&ItemKey> for proto::Key {
    fn from(key: &ItemKey) -> proto::Key {
        proto::Key { tenant: key.tenant, key: key.key.clone() }
    }
}

impl From<proto::Key> for ItemKey {
    fn from(key: proto::Key) -> ItemKey {
        ItemKey { tenant: key.tenant, key: key.key }
    }
}

/// A numbered change of an item, as a switch is told.
pub fn command(seq: u64, key: &ItemKey, change: &Change) -> proto::Command {
    use proto::command::Body;
    let body = match change {
        Change::Put(record) => Body::Put(proto::Put {
            key: Some(key.into()),
            record: match record {
                Record::Fetched => None,
                Record::Given(bytes) => Some(bytes.clone()),
            },
        }),
        Change::Remove => Body::Remove(key.into()),
        Change::RemoveIf(begins) => {
            Body::RemoveIf(proto::RemoveIf { key: Some(key.into()), begins: begins.clone() })
        }
    };
    proto::Command { seq, body: Some(body) }
}

/// What a command says; `None` if it says nothing.
pub fn change(command: proto::Command) -> Option<(ItemKey, Change)> {
    use proto::command::Body;
    Some(match command.body? {
        Body::Put(put) => {
            let record = put.record.map_or(Record::Fetched, Record::Given);
            (put.key?.into(), Change::Put(record))
        }
        Body::Remove(key) => (key.into(), Change::Remove),
        Body::RemoveIf(remove) => (remove.key?.into(), Change::RemoveIf(remove.begins)),
    })
}

impl From<Outcome> for proto::Outcome {
    /// [`Outcome::NotSent`] never comes from a switch; it would be a refusal.
    fn from(outcome: Outcome) -> proto::Outcome {
        match outcome {
            Outcome::Done => proto::Outcome::Done,
            Outcome::NoRoom => proto::Outcome::NoRoom,
            Outcome::BucketFull => proto::Outcome::BucketFull,
            Outcome::Changed => proto::Outcome::Changed,
            Outcome::Refused | Outcome::NotSent => proto::Outcome::Refused,
        }
    }
}

impl From<proto::Outcome> for Outcome {
    fn from(outcome: proto::Outcome) -> Outcome {
        match outcome {
            proto::Outcome::Done => Outcome::Done,
            proto::Outcome::NoRoom => Outcome::NoRoom,
            proto::Outcome::BucketFull => Outcome::BucketFull,
            proto::Outcome::Changed => Outcome::Changed,
            proto::Outcome::Refused => Outcome::Refused,
        }
    }
}

/// A tenant's configuration of that version, as a switch is told.
pub fn configuration_to(
    tenant: u32,
    version: u64,
    configuration: &Configuration,
) -> proto::Configuration {
    let Configuration { parameters, rows, groups } = configuration.clone();
    let row = |Row { map, key, value }| proto::Row { map, key, value };
    let group = |Group { map, index, ports }| proto::Group { map, index, ports };
    proto::Configuration {
        tenant,
        version,
        parameters: parameters.to_vec(),
        rows: rows.into_iter().map(row).collect(),
        groups: groups.into_iter().map(group).collect(),
    }
}

/// What a message says of a tenant's configuration. Parameter words that it leaves out are 0, those
/// beyond ours are of a later version and left out.
pub fn configuration(message: &proto::Configuration) -> Configuration {
    let proto::Configuration { parameters: said, rows, groups, .. } = message.clone();
    let row = |proto::Row { map, key, value }| Row { map, key, value };
    let group = |proto::Group { map, index, ports }| Group { map, index, ports };
    let mut parameters = [0; decide::PARAMETERS];
    for (word, said) in parameters.iter_mut().zip(said) {
        *word = said;
    }
    Configuration {
        parameters,
        rows: rows.into_iter().map(row).collect(),
        groups: groups.into_iter().map(group).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_survives_its_message() {
        let text = "partitions = 4\nopen_tenant = false\nsystem_secret = \"000102030405060708090a0b0c0d0e0f\"\n\
                    [[store]]\naddress = \"10.0.0.1:7117\"\nfirst = 0\nlast = 3\n\
                    [[tenant]]\nid = 7\nsecret = \"100102030405060708090a0b0c0d0e0f\"\nrate = 5\nover_rate = \"drop\"\n\
                    also_secret = \"200102030405060708090a0b0c0d0e0f\"\nstores = [\"10.0.0.1:7117\"]\n\
                    [[switch]]\nname = \"tor\"\naddress = \"10.0.0.254\"\n";
        let before = Cluster::parse(text).unwrap();
        assert_eq!(cluster(&proto::Cluster::from(&before)).unwrap(), before);
        let text = "scheme = \"twemproxy-ketama\"\npartitions = 1\ndigest = \"one_at_a_time\"\nhash_tag = \"{}\"\n\
                    [[store]]\naddress = \"10.0.0.1:7117\"\nfirst = 0\nlast = 0\n\
                    [[server]]\nname = \"10.0.0.1:11211\"\nweight = 3\n";
        let before = Cluster::parse(text).unwrap();
        assert_eq!(cluster(&proto::Cluster::from(&before)).unwrap(), before);
    }

    #[test]
    fn what_is_no_cluster_is_a_line_that_says_so() {
        let mut message = proto::Cluster::from(&Cluster::single(([10, 0, 0, 1], 7117).into(), 1));
        message.stores[0].address = "nowhere".into();
        assert!(cluster(&message).unwrap_err().contains("nowhere"));
        message.stores.clear();
        assert!(cluster(&message).unwrap_err().contains("has no owner"));
    }

    #[test]
    fn changes_and_configurations_survive_theirs() {
        let key = ItemKey { tenant: 7, key: Bytes::from_static(b"k") };
        for before in [
            Change::Remove,
            Change::RemoveIf(Bytes::from_static(b"rec")),
            Change::Put(Record::Fetched),
            Change::Put(Record::Given(Bytes::new())),
            Change::Put(Record::Given(Bytes::from_static(b"record"))),
        ] {
            let after = change(command(1, &key, &before));
            assert_eq!(after, Some((key.clone(), before)));
        }
        let before = Configuration {
            parameters: [1, 2],
            rows: vec![Row { map: "m".into(), key: Bytes::from_static(b"k"), value: Bytes::new() }],
            groups: vec![Group { map: "g".into(), index: 3, ports: vec!["eth0".into()] }],
        };
        assert_eq!(configuration(&configuration_to(7, 1, &before)), before);
    }
}
